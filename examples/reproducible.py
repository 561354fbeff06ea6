"""reproducible=True: the digest of a product on your device, beside the one in the repository."""

import numpy as np

import pyclmm
from pyclmm.checks.fixed_products import PRODUCTS, digest, digests

for product in PRODUCTS:
    if product.data == "wide" and product.dtype in ("float32", "complex64"):
        here = digest(product.on_device(pyclmm.gemm))
        print(f"{product.name}: {here[:16]} here, {digests()[product.name][:16]} in the repository")
        assert here == digests()[product.name]

rng = np.random.default_rng(0)
a, b = rng.standard_normal((40, 300), np.float32), rng.standard_normal((300, 50), np.float32)
with pyclmm.reproducible():
    whole = pyclmm.matmul(a, b)
    assert np.array_equal(whole[7], pyclmm.matmul(a[7], b))  # a row alone has the same bits
assert np.array_equal(whole, pyclmm.reference.chain(a, b))  # and NumPy computes them, slowly
print("row 7 of A B is A[7] B, bit for bit")
