"""`tiled`: TW x TW tiles in local memory. You can set the tile width; wider tiles read less."""

import numpy as np

import pyclmm
from benchmarks import roofline

m, n, k = 130, 50, 70  # not divisible by the tiles, which are filled with zeros
rng = np.random.default_rng(1)
a = rng.integers(-4, 5, (m, k)).astype(np.float32)
b = rng.integers(-4, 5, (k, n)).astype(np.float32)

for tw in (1, 2, 4, 8):
    c = pyclmm.matmul(a, b, kernel=("tiled", pyclmm.TileConfig.square(tw)))
    assert np.array_equal(c, a @ b)  # small whole numbers: exact in any order of the sum
    moved = roofline.tiled(m, n, k, tw)
    print(f"TW = {tw}: {moved.nbytes(4):8d} bytes moved, {moved.intensity(4):.2f} operations a byte")

with pyclmm.Matmul(a, b, kernel="tiled") as plan:
    print(f"the default on this device: TW = {plan.config.bm}")
    assert np.array_equal(plan(a, b), a @ b)
