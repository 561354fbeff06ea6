"""warm: kernels are compiled and checked before the first product, not by it."""

import time

import numpy as np

import pyclmm

start = time.perf_counter()
plans = pyclmm.warm(
    (((300, 200), "float32"), ((200, 100), "float32"))
)  # keep the plans: they keep the programs
ready = time.perf_counter()

a, b = np.ones((300, 200), np.float32), np.ones((200, 100), np.float32)
c = pyclmm.matmul(a, b)
print(f"warming {ready - start:.2f} s, the first product {time.perf_counter() - ready:.4f} s")
assert (c == 200).all()
assert np.array_equal(plans[0](a, b), c)
