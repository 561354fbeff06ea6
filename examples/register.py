"""`register`: three levels of tiles. What the arithmetic chooses for this device, and in how many parts."""

import numpy as np

import pyclmm

rng = np.random.default_rng(1)
for m, n, k in ((130, 50, 70), (33, 47, 2000)):
    a = rng.integers(-4, 5, (m, k)).astype(np.float32)
    b = rng.integers(-4, 5, (k, n)).astype(np.float32)
    with pyclmm.Matmul(a, b, kernel="register") as plan:
        assert np.array_equal(plan(a, b), a @ b)  # small whole numbers: exact in every order of the sum
        print(f"{m} x {n} x {k}: {plan.config}, {plan.workspace_nbytes} bytes of workspace")

# Tiles of one's own: 16 x 32 a work-group, two groups of work-items that divide K, K cut into two ranges.
options = (("fetch_b", 0), ("held", 1), ("slices", 2))
tiles = pyclmm.TileConfig(16, 32, 16, 8, 32, 4, 8, vec=4, stages=2, split_k=2, options=options)
assert np.array_equal(pyclmm.matmul(a, b, kernel=("register", tiles)), a @ b)
