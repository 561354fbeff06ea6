"""`block`: a block of elements in registers. A work-item reads TM + TN elements for TM x TN products."""

import numpy as np

import pyclmm

rng = np.random.default_rng(0)
a = rng.integers(-4, 5, (50, 40)).astype(np.float32)
b = rng.integers(-4, 5, (40, 30)).astype(np.float32)

for tm in (1, 2, 4):
    config = pyclmm.TileConfig(bm=tm * 4, bn=16, bk=8, tm=tm, tn=4)
    c = pyclmm.matmul(a, b, kernel=("block", config))
    reads = 1 / config.tm + 1 / config.tn
    print(f"{config}: {reads:g} elements of local memory a multiply-add")
    assert np.array_equal(c, a @ b)
