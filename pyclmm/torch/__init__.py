"""Products in PyTorch: operators with gradients that torch.compile keeps, and a block for models as they are.

``pip install 'pyclmm[torch]'`` installs what it needs. docs/howto/pytorch.md is its guide.

>>> import torch, pyclmm.torch
>>> x = torch.ones(2, 3, requires_grad=True)
>>> pyclmm.torch.matmul(x, torch.ones(3, 4)).sum().backward()
>>> x.grad[0, 0]
tensor(4.)

Others import: nothing.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401  (PyTorch itself: imports in this folder are absolute or have a dot)
except ImportError as error:
    raise ImportError(f"pyclmm.torch needs PyTorch ({error}): pip install 'pyclmm[torch]'") from error

from ..untraced import tell
from .override import installed
from .products import gemm, matmul
from .ragged import ragged_matmul

tell()

__all__ = ["gemm", "installed", "matmul", "ragged_matmul"]
