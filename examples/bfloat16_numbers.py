"""bfloat16: stored in 16 bits, summed in float32, rounded once. Needs `pip install ml_dtypes`."""

import ml_dtypes
import numpy as np

import pyclmm

rng = np.random.default_rng(1)
a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((40, 1000), (1000, 30)))
exact = a.astype(np.float64) @ b.astype(np.float64)

wide = pyclmm.matmul(a, b)  # NumPy's rule: a float32 result
narrow = pyclmm.matmul(a, b, dtype=ml_dtypes.bfloat16)
assert wide.dtype == np.float32
assert narrow.dtype == ml_dtypes.bfloat16
for name, c, most in (("float32", wide, 1e-5), ("bfloat16", narrow, 2**-8)):
    error = np.linalg.norm(c.astype(np.float64) - exact) / np.linalg.norm(exact)
    print(f"a result in {name}: relative error {error:.1e}")
    assert error < most
