"""Lists of products, each of its own shape, in a few launches: ``matmul_many``, and ``ManyMatmul``."""

from .calls import matmul_many
from .plan import ManyMatmul

__all__ = ["ManyMatmul", "matmul_many"]
