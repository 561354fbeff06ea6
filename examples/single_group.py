"""`single_group`: the whole product in one work-group, and the error if it does not fit."""

import numpy as np

import pyclmm

eye = np.eye(8, dtype=np.float32)
a = np.arange(64, dtype=np.float32).reshape(8, 8)
c = pyclmm.matmul(a, eye, kernel="single_group")
assert np.array_equal(c, a)
print("8 x 8: 64 work-items, one work-group")

large = np.ones((1000, 1000), np.float32)
try:
    pyclmm.matmul(large, large, kernel="single_group")
except pyclmm.UnsupportedError as error:
    print(f"1000 x 1000: {error}")
else:
    raise AssertionError("no device has work-groups of a million work-items")
