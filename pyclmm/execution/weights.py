"""Quantised weights as an operand: the bytes that kernels read, and the name of their format."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyopencl.array import Array

from ..errors import ArgumentError, DTypeError, ShapeError, UnsupportedError, brief
from ..problem.ragged import SIZES
from ..quantized import QuantizedArray
from .array_likes import ADVICE, array_of, has_shape
from .kinds import common_kind, kind_of, returned, types_of, views_on_host
from .operands import ArrayT, Operands


def format_of(b: Any) -> str:
    """The name of the format of *b*, if that is quantised weights; else ""."""
    return b.format.name if type(b) is QuantizedArray else ""


def unpacked(given: Operands, trans_a: str = "N", trans_b: str = "N") -> Operands:
    """The operands *given* with bytes in place of quantised weights.

    Raises ShapeError, ArgumentError, DTypeError or UnsupportedError unless the weights are (K, N), or
    (groups, K, N) where rows are divided among groups, in one place with a.
    """
    b = given["b"]
    if type(b) is not QuantizedArray:
        return given
    if (b.ndim == 3) != (SIZES in given):
        raise UnsupportedError(
            f"b is a QuantizedArray of shape {b.shape}: matmul takes a matrix of weights, q[g].T of a stack "
            "q, and ragged_matmul a stack, q.mT"
        )
    if not b.is_transposed:
        raise ShapeError(
            f"b is a QuantizedArray of shape {b.shape}, not transposed, and is read along K; {ADVICE}"
            if b.ndim == 2
            else f"b is a QuantizedArray of shape {b.shape}, and is read along K; pass q.mT"
        )
    if trans_b != "N":
        raise ArgumentError(f"trans_b is {brief(trans_b)}, but b is a QuantizedArray; leave it out, {ADVICE}")
    others = {name: x for name, x in given.items() if name != "b"}
    _check_depth(others["a"], b, trans_a)
    kind, on_host = common_kind(others), isinstance(b.data, np.ndarray)
    read = views_on_host(kind, others) if on_host and kind is not None else None
    if read is not None:
        return {**read, "b": b.data}
    alike = kind is not None or on_host != isinstance(others["a"], Array)
    if kind_of(b.data) is not kind or not alike:
        where = types_of({"a": others["a"], "the data of b": b.data})
        raise DTypeError(f"{where}: bring the weights to a with q.to(a), once, and pass the result")
    return {**given, "b": b.data}


def as_given(arrays: Operands, result: ArrayT) -> ArrayT:
    """*result* of a call on what :func:`unpacked` made of the caller's *arrays*, as their kind."""
    own: ArrayT = returned(arrays, result) if isinstance(result, np.ndarray) else result
    return own


def _check_depth(a: Any, weights: QuantizedArray, trans_a: str) -> None:
    """Raise ShapeError, in NumPy's words, unless a and the *weights*, (..., K, N), have one K."""
    shape = tuple((a if has_shape(a) else array_of("a", a)).shape)
    if shape and shape[-1 if trans_a == "N" or len(shape) == 1 else -2] != weights.shape[-2]:
        raise ShapeError(
            f"b has a mismatch in its core dimension: a of shape {shape} and b of shape {weights.shape} do "
            f"not multiply, K is {weights.shape[-2]} in b"
        )
