"""Products of dask arrays: each output chunk is one task, which sums over K on its worker's device.

``pip install 'pyclmm[dask]'`` installs what it needs. docs/dask.md is its guide.

>>> import dask.array as da, numpy as np, pyclmm.dask
>>> x = da.ones((6, 4), chunks=(3, 2), dtype=np.float32)
>>> pyclmm.dask.matmul(x, x.T).compute(scheduler="threads")[0, 0]
np.float32(4.0)

Others import: nothing.
"""

from __future__ import annotations

try:
    import dask.array as _array  # noqa: F401  (dask itself: imports in this folder are absolute or have a dot)
    import distributed as _distributed  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"pyclmm.dask needs dask with arrays, and distributed ({error}): pip install 'pyclmm[dask]'"
    ) from error

from .products import backend, matmul, tensordot
from .workers import DevicePlugin

__all__ = ["DevicePlugin", "backend", "matmul", "tensordot"]
