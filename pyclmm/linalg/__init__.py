"""NumPy's functions that multiply, on arrays of any kind that matmul takes: each is one product or a few.

Others import: products, views.
"""

from .products import (
    dot,
    einsum,
    inner,
    matrix_power,
    matvec,
    multi_dot,
    outer,
    tensordot,
    vdot,
    vecdot,
    vecmat,
)

__all__ = [
    "dot", "einsum", "inner", "matrix_power", "matvec", "multi_dot", "outer", "tensordot", "vdot",
    "vecdot", "vecmat",
]  # fmt: skip
