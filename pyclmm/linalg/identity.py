"""Identity matrices of any kind of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..api import matmul
from ..execution.operands import queue_of
from ..problem.contraction import View
from .einsum import copied
from .views import new, one, viewed


def identity(x: Any, queue: Any = None, device: Any = None) -> Any:
    """Identity matrices of the shape, dtype and kind of *x*, made by *queue*, on *device*, or where x is."""
    if isinstance(x, np.ndarray):
        return np.array(np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape), order="C")
    queue = queue_of({"a": x}, queue, device)
    made = new(x.shape, x.dtype, x, queue)
    if not x.size:
        return made
    # By launches alone, which a graph can capture: zeros are a product with K = 0.
    number = one(x.dtype, x, queue)

    def repeated(*shape: int) -> Any:
        return viewed(number, View(shape, (0,) * len(shape)))

    *stack, rows, columns = x.shape
    matmul(repeated(*stack, rows, 0), repeated(*stack, 0, columns), out=made, dtype=x.dtype)
    diagonal = View((*stack, rows), (*made.strides[:-2], sum(made.strides[-2:])))
    copied(repeated(*stack, rows), viewed(made, diagonal))
    return made
