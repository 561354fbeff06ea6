"""Many products in a few launches: lists of them, and rows that are divided among products.

Others import: nothing.
"""

from .plan import ManyMatmul, matmul_many
from .ragged import ragged_matmul

__all__ = ["ManyMatmul", "matmul_many", "ragged_matmul"]
