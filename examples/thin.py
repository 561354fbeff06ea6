"""`thin`: matrix-vector products, and others with at most 8 rows or columns, at memory bandwidth."""

import numpy as np

import pyclmm

rng = np.random.default_rng(1)
matrix = rng.integers(-4, 5, (300, 200)).astype(np.float32)
for product in (
    (matrix, rng.integers(-4, 5, 200).astype(np.float32)),  # matrix times vector
    (rng.integers(-4, 5, 300).astype(np.float32), matrix),  # vector times matrix
    (rng.integers(-4, 5, (5, 300)).astype(np.float32), matrix),
    (matrix, rng.integers(-4, 5, (3, 200)).astype(np.float32).T),
):
    c = pyclmm.matmul(*product, kernel="thin")
    assert np.array_equal(c, product[0] @ product[1])
    print(f"{product[0].shape} @ {product[1].shape} -> {c.shape}")
