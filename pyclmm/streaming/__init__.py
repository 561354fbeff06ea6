"""Products of operands that need not fit a device, by tiles, on one device or several.

Others import: datasets, entry, journal, run, streamed.
"""
