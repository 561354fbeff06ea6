"""`packed`: panels of A and B laid out for a register tile, one work-item in each work-group, for CPUs."""

import numpy as np

import pyclmm

rng = np.random.default_rng(1)
a = rng.integers(-4, 5, (130, 70)).astype(np.float32)
b = rng.integers(-4, 5, (70, 50)).astype(np.float32)
try:
    with pyclmm.Matmul(a, b, kernel="packed") as plan:
        assert np.array_equal(plan(a, b), a @ b)  # small whole numbers: exact in any order of the sum
        print(f"{plan.config}: {plan.workspace_nbytes} bytes of panels")
except pyclmm.UnsupportedError as error:  # a GPU
    print(error)
