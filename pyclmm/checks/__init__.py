"""Checks of results: the reference, known answers, the self-check, and child processes for trials.

Others import: child, copies, fixed_products, isolation, known_answers, reference, selfcheck, small_problems,
worker.
"""
