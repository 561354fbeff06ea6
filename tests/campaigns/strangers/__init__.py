"""`make strangers`: tests that NumPy, CuPy and array-api-tests wrote, with pyclmm's products for theirs.

No test of theirs is copied: they are run where their packages, or a checkout that is named, have them.
"""
