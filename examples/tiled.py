"""`tiled`: TW x TW tiles in local memory. You can set the tile width; wider tiles read less."""

import numpy as np

import pyclmm

m, n, k = 130, 50, 70  # not divisible by the tiles, which are filled with zeros
rng = np.random.default_rng(1)
a = rng.integers(-4, 5, (m, k)).astype(np.float32)
b = rng.integers(-4, 5, (k, n)).astype(np.float32)

for tw in (1, 2, 4, 8):
    c = pyclmm.matmul(a, b, kernel=("tiled", pyclmm.TileConfig.square(tw)))
    assert np.array_equal(c, a @ b)  # small whole numbers: exact in any order of the sum
    loaded = 4 * (m * k * -(-n // tw) + k * n * -(-m // tw))  # bytes: A once a column of tiles, B once a row
    print(f"TW = {tw}: {loaded:8d} bytes loaded, {2 * m * n * k / loaded:.2f} operations a byte")

with pyclmm.Matmul(a, b, kernel="tiled") as plan:
    print(f"this device's own choice: {plan.config}")
    assert np.array_equal(plan(a, b), a @ b)
