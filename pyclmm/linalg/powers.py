"""matrix_power: products of one matrix with itself."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..api import matmul
from ..errors import DTypeError, ShapeError, UnsupportedError
from ..execution.operands import alike
from .signatures import Either, Keywords, refusing, unexpected
from .views import new_like


class MatrixError(ShapeError, np.linalg.LinAlgError):
    """No matrix, or no square one. Code written for numpy.linalg catches LinAlgError."""


@refusing
def matrix_power(a: Either, n: int, **keywords: Any) -> Any:
    """Square matrices, or stacks of them, to the power n by squaring, as :func:`numpy.linalg.matrix_power`.

    For n = 0 the identity, for n = 1 *a* itself. A negative n takes NumPy's inverse, so a must be a NumPy
    array then.
    """
    for name in keywords.keys() - Keywords.__annotations__.keys() - {"mixed"}:
        raise unexpected(name)  # for n = 0 and 1 there is no product to tell
    queue = keywords.get("queue")
    (x,) = alike({"a": a}, None, queue).values()
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise MatrixError(f"a has shape {x.shape}; pass a square matrix, or a stack of them")
    try:
        power = operator.index(n)
    except TypeError as error:
        raise DTypeError(f"n is {n!r}; the exponent must be an integer") from error
    if power < 0:
        x, power = _inverse(x), -power
    if power == 0:
        return _identity(x)
    result = None
    while power:
        if power & 1:
            result = x if result is None else matmul(result, x, **keywords)
        power >>= 1
        x = matmul(x, x, **keywords) if power else x
    return result


def _inverse(x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        raise UnsupportedError(
            "n is negative, and pyclmm inverts no matrix on a device; pass numpy.linalg.inv of it"
        )
    return np.linalg.inv(x)


def _identity(x: Any) -> Any:
    """Identity matrices of the shape, dtype and kind of *x*."""
    eye = np.array(np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape), order="C")
    if isinstance(x, np.ndarray):
        return eye
    made = new_like(x)
    if x.size:
        made.set(eye, queue=x.queue)
    return made
