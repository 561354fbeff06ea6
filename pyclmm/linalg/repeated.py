"""Calls of linalg that are like an earlier one: what led to its product is not found out again.

A call on NumPy arrays is known by its function, its other arguments and the layouts of the arrays. Where such
a call came to one product, or one sum, of views of its operands, a later one makes these views and computes
that at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from ..opencl.host_memory import location
from ..problem.contraction import View
from ..problem.settings import is_reproducible, is_verified
from ..raising import Returned
from .views import plain, viewed

_KEYWORDS = frozenset(("out", "axes", "axis", "keepdims"))  # others say how to multiply, or where
_SAYING = frozenset((str, int, bool, type(None)))  # types of arguments that are no arrays
_MOST = 512  # calls that are kept


class Step(NamedTuple):
    """What computes ``out``: a function of the operands, with ``out`` and other keywords."""

    function: Callable[..., object]
    operands: tuple[Any, ...]
    out: Any
    keywords: Mapping[str, Any]


class _Repeat(NamedTuple):
    """One step on views of the caller's arrays, from their first elements."""

    function: Callable[..., object]
    operands: tuple[View, ...]
    out: View
    keywords: Mapping[str, Any]
    shape: tuple[int, ...]  # of a new result
    dtype: np.dtype[Any]
    is_scalar: bool

    def result(self, arrays: Sequence[Any]) -> Any:
        """The result of a call on *arrays*: the operands, and perhaps ``out``."""
        views = self.operands
        out = arrays[len(views)] if len(arrays) > len(views) else np.empty(self.shape, self.dtype)
        operands = [viewed(x, view) for x, view in zip(arrays, views, strict=False)]
        self.function(*operands, out=viewed(out, self.out), **self.keywords)
        return plain(out) if self.is_scalar else out


class _StepsOfCall(threading.local):
    """The steps of the call that the thread is in."""

    steps: list[Step] | None = None


_made = _StepsOfCall()
_known: dict[Any, _Repeat] = {}


def computed(step: Step, ways: Mapping[str, Any] | None = None) -> None:
    """Compute *step*, by *ways*: further keywords, for what a call that is known does not ask for."""
    step.function(*step.operands, out=step.out, **step.keywords, **(ways or {}))
    if _made.steps is not None:
        _made.steps.append(step)


def result_of(
    key: Any, function: Callable[..., Returned], args: Sequence[Any], keywords: Mapping[str, Any]
) -> Returned:
    """What *function* returns, by the step of an earlier call like this one, if there was one. *key*: of
    :func:`key_of`, not None."""
    arrays = [x for x in (*args, *keywords.values()) if type(x) is np.ndarray]
    known = _known.get(key)
    if known is not None:
        return cast("Returned", known.result(arrays))
    before, _made.steps = _made.steps, []
    try:
        result = function(*args, **keywords)
        found = _repeat(_made.steps, arrays, result)
    finally:
        _made.steps = before
    if found is not None:
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = found
    return result


def key_of(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """By what a call is known; None for one that is not: of arrays that are not NumPy's, for example."""
    if not keywords.keys() <= _KEYWORDS:
        return None
    key: list[Any] = [function, is_reproducible(None), is_verified(None), *keywords]
    for x in (*args, *keywords.values()):
        if type(x) is np.ndarray:
            key.append((x.shape, x.strides, x.dtype, x.dtype.char))
        elif type(x) in _SAYING:
            key.append((type(x), x))
        else:
            return None
    return tuple(key)


def _repeat(steps: Sequence[Step], arrays: Sequence[Any], result: Any) -> _Repeat | None:
    """How a call on *arrays* like the one that made *steps* and *result* is repeated, if that can be."""
    if len(steps) != 1:
        return None
    (step,) = steps
    target, operands = step.out, arrays[: len(step.operands)]
    given = arrays[len(operands) :]
    if len(operands) < len(step.operands) or len(given) > 1:
        return None
    whole = result if given or result.ndim else target  # one number comes in new memory
    is_own = result is given[0] if given else target.size == result.size and whole.flags.c_contiguous
    # What lies elsewhere is a copy, and without elements the address says nothing.
    pairs = (*zip(step.operands, operands, strict=True), (target, whole))
    if not is_own or not all(its.size and location(its) == location(other) for its, other in pairs):
        return None
    views = tuple(View(x.shape, x.strides) for x in step.operands)
    of_out, is_scalar = View(target.shape, target.strides), isinstance(result, np.generic)
    return _Repeat(step.function, views, of_out, step.keywords, result.shape, result.dtype, is_scalar)
