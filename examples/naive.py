"""`naive`: one work-item computes one element of the result."""

import numpy as np

import pyclmm

rng = np.random.default_rng(1)
a = rng.standard_normal((130, 70), dtype=np.float32)
b = rng.standard_normal((70, 50), dtype=np.float32)

c = pyclmm.matmul(a, b, kernel="naive")

ratio = pyclmm.checks.reference.error_ratio(c, a, b)
print(f"130 x 50 elements, each the sum of 70 products; error {ratio:.2f} roundoffs")
assert ratio < pyclmm.checks.reference.limit(70)
