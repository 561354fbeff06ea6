"""Calls of linalg that are like an earlier one: what led to its product is not found out again.

A call on NumPy arrays is known by its function, its other arguments and the layouts of the arrays. Where such
a call came to one product of views of its operands, a later one makes these views and multiplies at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from ..api import gemm
from ..opencl.host_memory import location
from ..problem.contraction import View
from ..raising import Returned
from .views import plain, viewed

_KEYWORDS = frozenset(("out", "axes", "axis", "keepdims"))  # others say how to multiply, or where
_SAYING = frozenset((str, int, bool, type(None)))  # types of arguments that are no arrays
_MOST = 512  # calls that are kept


class GemmCall(NamedTuple):
    """A call of gemm for a whole call: its arrays, and its keywords besides them."""

    a: Any
    b: Any
    out: Any
    keywords: Mapping[str, Any]


class _Repeat(NamedTuple):
    """One product of views of the caller's arrays, from their first elements."""

    a: View
    b: View
    out: View
    keywords: Mapping[str, Any]
    shape: tuple[int, ...]  # of a new result
    dtype: np.dtype[Any]
    is_scalar: bool

    def result(self, arrays: Sequence[Any]) -> Any:
        """The result of a call on *arrays*: two operands, and perhaps ``out``."""
        a, b, *given = arrays
        out = given[0] if given else np.empty(self.shape, self.dtype)
        gemm(viewed(a, self.a), viewed(b, self.b), out=viewed(out, self.out), **self.keywords)
        return plain(out) if self.is_scalar else out


class _ProductsOfCall(threading.local):
    """The products of the call that the thread is in."""

    products: list[GemmCall] | None = None


_made = _ProductsOfCall()
_known: dict[Any, _Repeat] = {}


def multiplied(product: GemmCall, ways: Mapping[str, Any]) -> None:
    """Compute *product* by *ways*: gemm's keywords for what a call that is known does not ask for."""
    gemm(product.a, product.b, out=product.out, **product.keywords, **ways)
    if _made.products is not None:
        _made.products.append(product)


def result_of(
    function: Callable[..., Returned], args: Sequence[Any], keywords: Mapping[str, Any]
) -> Returned:
    """What *function* returns, by the product of an earlier call like this one, if there was one."""
    key = _key(function, args, keywords)
    if key is None:
        return function(*args, **keywords)
    arrays = _arrays((*args, *keywords.values()))
    known = _known.get(key)
    if known is not None:
        return cast("Returned", known.result(arrays))
    before, _made.products = _made.products, []
    try:
        result = function(*args, **keywords)
        found = _repeat(_made.products, arrays, result)
    finally:
        _made.products = before
    if found is not None:
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = found
    return result


def _key(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """By what a call is known; None for one that is not."""
    if not keywords.keys() <= _KEYWORDS:
        return None
    key: list[Any] = [function, *keywords]
    for x in (*args, *keywords.values()):
        if type(x) is np.ndarray:
            key.append((x.shape, x.strides, x.dtype, x.dtype.char))
        elif type(x) in _SAYING:
            key.append((type(x), x))
        else:
            return None
    return tuple(key)


def _arrays(arguments: Collection[Any]) -> list[Any]:
    return [x for x in arguments if type(x) is np.ndarray]


def _repeat(products: Sequence[GemmCall], arrays: Sequence[Any], result: Any) -> _Repeat | None:
    """How a call on *arrays* like the one that made *products* and *result* is repeated, if that can be."""
    if len(products) != 1 or len(arrays) not in (2, 3):
        return None
    ((x, y, target, keywords),) = products
    a, b, *given = arrays
    whole = result if given or result.ndim else target  # one number comes in new memory
    is_own = result is given[0] if given else target.size == result.size and whole.flags.c_contiguous
    # What lies elsewhere is a copy, and without elements the address says nothing.
    pairs = ((x, a), (y, b), (target, whole))
    if not is_own or not all(its.size and location(its) == location(other) for its, other in pairs):
        return None
    of_a, of_b, of_out = (View(its.shape, its.strides) for its in (x, y, target))
    return _Repeat(of_a, of_b, of_out, keywords, result.shape, result.dtype, isinstance(result, np.generic))
