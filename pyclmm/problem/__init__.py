"""What is asked: NumPy's meaning of a product, and the canonical GEMM that it becomes. Pure.

Others import: canonical, dtypes, gemm, precision.
"""
