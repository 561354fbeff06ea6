"""NumPy's definition of a product, and the canonical GEMM that a call becomes. Pure.

Others import: axes, canonical, contraction, dtypes, extras, gemm, literals, matrices, meaning, ragged,
settings, subscripts.
"""
