"""pyclmm.dask: a product of dask arrays; each output chunk is one task, which sums over K on its device."""

import dask.array as da
import numpy as np

import pyclmm.dask

rng = np.random.default_rng(3)
a, b = (rng.integers(-3, 4, (600, 600)).astype(np.float32) for _ in range(2))
x, y = da.from_array(a, chunks=150), da.from_array(b, chunks=150)

product = pyclmm.dask.matmul(x, y)
plain = da.matmul(x, y)
print(f"chunks {product.chunks}: {len(dict(product.dask))} tasks, by da.matmul {len(dict(plain.dask))}")
assert np.array_equal(product.compute(scheduler="threads"), a @ b)

# One megabyte a task on the device: the same product in smaller chunks.
small = pyclmm.dask.matmul(x, y, memory_limit="1 MiB")
print(f"chunks with memory_limit: {small.chunks}")
assert np.array_equal(small.compute(scheduler="threads"), a @ b)

# Code that exists: its products are pyclmm's in the block.
with pyclmm.dask.backend(precision="high"):
    gram = x.T @ x + da.tensordot(x, y, axes=1)
assert np.array_equal(gram.compute(scheduler="threads"), a.T @ a + a @ b)
