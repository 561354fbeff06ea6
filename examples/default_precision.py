"""default_precision: float32 products on matrix units, for a block of code."""

import numpy as np

import pyclmm

rng = np.random.default_rng(0)
a, b = rng.standard_normal((300, 400), np.float32), rng.standard_normal((400, 200), np.float32)
exact = a.astype(np.float64) @ b


def error(c: np.ndarray) -> float:
    return float(np.linalg.norm(c - exact) / np.linalg.norm(exact))


with pyclmm.default_precision("high"):  # PyTorch and JAX name it differently: docs/semantics.md
    high = pyclmm.matmul(a, b)
    plan = pyclmm.Matmul(a, b)  # a plan keeps the precision it was made with
    highest = pyclmm.matmul(a, b, precision="highest")  # an argument overrides the block

assert np.array_equal(plan(a, b), high)
for name, c in (("high", high), ("highest", highest), ("medium", pyclmm.matmul(a, b, precision="medium"))):
    print(f"{name:8} relative error {error(c):.1e}")
    assert error(c) < (1e-3 if name == "medium" else 2e-6)
