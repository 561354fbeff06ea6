"""`small`: thousands of 3 x 3 products, or a few long sums, by a few work-groups, for CPUs."""

import numpy as np

import pyclmm

rng = np.random.default_rng(1)
turns = rng.integers(-4, 5, (5_000, 3, 3)).astype(np.float32)  # a matrix for each of many bodies
points = rng.integers(-4, 5, (5_000, 3, 1)).astype(np.float32)
samples = rng.integers(-4, 5, (50_000, 3)).astype(np.float32)
for x, y in ((turns, turns), (turns, points), (samples.T, samples)):
    try:
        result = pyclmm.matmul(x, y, kernel="small")
    except pyclmm.UnsupportedError as error:  # a GPU
        print(error)
    else:
        assert np.array_equal(result, x @ y)
        print(f"{x.shape} @ {y.shape}: right")
