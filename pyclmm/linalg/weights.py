"""einsum of an array with quantised weights: one product, along the axis along which these have groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pyopencl.array import Array

from ..api import matmul
from ..errors import UnsupportedError, amount
from ..execution.array_likes import array_of
from ..execution.kinds import kind_of
from ..problem.contraction import Label
from ..problem.subscripts import Labelled, parsed
from ..quantized import QuantizedArray
from ..raising import OF_CALLER
from .einsum import check_order, check_out, copied
from .views import is_contiguous, new


def _is_weights(x: Any) -> bool:
    return type(x) is QuantizedArray


def has_weights(operands: Sequence[Any]) -> bool:
    """Whether quantised weights are among *operands*."""
    return any(map(_is_weights, operands))


def contract_weights(
    operands: Sequence[Any], subscripts: Any, out: Any, optimize: Any, **keywords: Any
) -> Any:
    """The contraction of *operands*, an array and quantised weights. *keywords* are matmul's. Raises
    UnsupportedError unless it is one product that sums along the weights' K alone.
    """
    check_order(optimize)
    operands = [_array(f"operands[{i}]", x) for i, x in enumerate(operands)]
    target = None if out is None else _array("out", out)
    which = parsed(subscripts, [x.shape for x in operands])
    place = next(i for i, x in enumerate(operands) if _is_weights(x))
    weights = operands[place]
    if len(operands) != 2 or sum(map(_is_weights, operands)) > 1 or weights.ndim != 2:
        what = f"{amount(len(operands), 'operands')} with quantised weights of shape {weights.shape}"
        raise UnsupportedError(f"einsum got {what}; {_WOULD_DO}")
    x, of_x, of_weights = operands[1 - place], which.operands[1 - place], which.operands[place]
    k, n = of_weights if weights.is_transposed else of_weights[::-1]
    rest = _free(which, of_x, k, n)
    if target is not None:
        check_out(target, tuple(which.lengths[label] for label in which.out))
    try:
        result = matmul(
            _permuted(x, of_x, (*rest, k)),
            weights if weights.is_transposed else weights.T,
            out=None if target is None else _permuted(target, which.out, (*rest, n)),
            **keywords,
        )
    except OF_CALLER as error:  # of which the array is a, and the weights are b
        raise type(error)(f"operands[{1 - place}] is a, operands[{place}] is b: {error}") from error.__cause__
    return _in_c_order(_permuted(result, (*rest, n), which.out)) if out is None else out


def _in_c_order(x: Any) -> Any:
    """*x* C-contiguous, as other results are; an array of another library as it is."""
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(x)
    if not isinstance(x, Array) or is_contiguous(x):
        return x
    return copied(x, new(x.shape, x.dtype, x, x.queue))


def _array(name: str, x: Any) -> Any:
    """*x*, which has axes to permute: weights, or an array of any library."""
    return x if _is_weights(x) or kind_of(x) is not None else array_of(name, x)


_WOULD_DO = "pass an array and weights whose K alone is summed, such as 'mk,nk->mn'"


def _free(which: Labelled, of_x: tuple[Label, ...], k: Label, n: Label) -> tuple[Label, ...]:
    """The labels of x that the result has, in its order."""
    rest = tuple(label for label in which.out if label != n)
    if sorted(of_x) != sorted({*rest, k}) or k in which.out or n not in which.out or n in of_x:
        raise UnsupportedError(f"einsum: this is no product of an array with quantised weights; {_WOULD_DO}")
    return rest


def _permuted(x: Any, labels: tuple[Label, ...], wanted: tuple[Label, ...]) -> Any:
    """*x*, an array of any library, with its axes in the order of *wanted*."""
    if labels == wanted:
        return x
    axes = [labels.index(label) for label in wanted]
    return x.permute(axes) if hasattr(x, "permute") else x.transpose(axes)
