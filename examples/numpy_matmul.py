"""NumPy in, NumPy out: pyclmm.matmul in place of numpy.matmul."""

import numpy as np

import pyclmm

a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)  # a stack of two 3 x 4 matrices
b = np.arange(20, dtype=np.float32).reshape(4, 5)
v = np.array([1, 0, 2, 0], np.float32)

for left, right in ((a, b), (a, v), (v, b), (v, v), (a[:, ::-1], b[:, ::2]), (a.astype(np.int16), v)):
    got, expected = pyclmm.matmul(left, right), np.matmul(left, right)
    print(f"{left.shape} @ {right.shape} -> {got.shape} {got.dtype}")
    assert got.dtype == expected.dtype
    assert np.array_equal(got, expected)
