"""Many products in a few launches: lists of them, and rows that are divided among products.

Others import: nothing.
"""

from .calls import matmul_many
from .plan import ManyMatmul
from .ragged import ragged_matmul

__all__ = ["ManyMatmul", "matmul_many", "ragged_matmul"]
