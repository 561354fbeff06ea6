"""`matvec`: a matrix times a vector or a few reads each element once, at the memory's speed, for CPUs."""

import numpy as np

import pyclmm

rng = np.random.default_rng(1)
matrix = rng.integers(-4, 5, (300, 200)).astype(np.float32)
vector = rng.integers(-4, 5, 200).astype(np.float32)
for product in (
    (matrix, vector),
    (vector, matrix.T),
    (matrix.T, rng.integers(-4, 5, 300).astype(np.float32)),
    (rng.integers(-4, 5, (3, 200)).astype(np.float32), matrix.T),  # a layer of a network: three inputs
    (vector.astype(np.int8), matrix.T.astype(np.int8)),  # a quarter of the bytes
):
    try:
        result = pyclmm.matmul(*product, kernel="matvec")
    except pyclmm.UnsupportedError as error:  # a GPU
        print(error)
    else:
        assert np.array_equal(result, product[0] @ product[1])
        x, y = product
        print(f"{x.shape} @ {y.shape}: {x.dtype}, {max(x.nbytes, y.nbytes)} bytes read once")
