"""`wgmma_bare`: one matrix instruction of NVIDIA's compute capability 9.0. Others say why they cannot."""

import numpy as np

import pyclmm

rng = np.random.default_rng(2)

for m, n, k in ((64, 64, 64), (130, 70, 200)):
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    refusal = ""
    try:
        c = pyclmm.matmul(a, b, kernel="wgmma_bare")
    except pyclmm.UnsupportedError as error:
        refusal = str(error)
    if refusal:
        print(f"{m} x {n} x {k}: no: {refusal}")
        assert "compute capability 9.0" in refusal
    else:
        tiles = -(-m // 64) * -(-n // 64)
        print(f"{m} x {n} x {k}: right, by {tiles} work-groups of 128 work-items")
        assert np.array_equal(c, a.astype(np.float64) @ b)  # small whole numbers are exact in float16
