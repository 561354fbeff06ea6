"""What is asked: NumPy's meaning of a product, and the canonical GEMM it becomes. No driver is needed here."""
