"""Checks of results: the reference, known answers, the self-check, and child processes for trials.

Others import: child, drawn, drawn_products, fixed_products, isolation, known_answers, layouts, reference,
selfcheck, small_problems, worker.
"""
