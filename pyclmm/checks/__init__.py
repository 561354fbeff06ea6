"""Is it right here: the reference, known answers, the self-check, and child processes that may crash.

Others import: isolation, known_answers, reference, selfcheck, small_problems, worker.
"""
