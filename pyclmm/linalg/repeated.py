"""Calls of linalg that are like an earlier one: what led to its product is not found out again.

A call on NumPy arrays is known by its function, its other arguments and the layouts of the arrays. Where such
a call came to one product, or one sum, of views of its operands, a later one makes these views and computes
that at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from ..api import matmul
from ..opencl.host_memory import location
from ..problem.contraction import View
from ..problem.settings import is_reproducible, is_verified
from ..raising import Returned
from .views import plain, viewed

_KEYWORDS = frozenset(("out", "axes", "axis", "keepdims"))  # others say how to multiply, or where
_SAYING = frozenset((str, int, bool, type(None)))  # types of arguments that are no arrays
_LISTS = frozenset((list, tuple))  # of such arguments, of axes or of arrays
_LONGEST = 64  # of a key to which a list is added; a longer one would hold the numbers of an array
_MOST = 512  # calls that are kept


class Computation(NamedTuple):
    """What computes ``out``: a function of the operands, with ``out`` and other keywords."""

    function: Callable[..., object]
    operands: tuple[Any, ...]
    out: Any
    keywords: Mapping[str, Any]


class _ViewOf(NamedTuple):
    """A view of one of the arrays of a call, from its first element: the caller's, the result, and what its
    steps made before, in this order."""

    number: int
    view: View


class _Repeat(NamedTuple):
    """The steps of a call, each with the places of its operands and of its ``out``, and what they make."""

    steps: tuple[tuple[Callable[..., object], tuple[_ViewOf, ...], _ViewOf, Mapping[str, Any]], ...]
    made: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]  # shapes and dtypes; a new result comes first
    has_out: bool
    is_scalar: bool
    view: View | None  # of the new result's memory, if that has another order
    is_dot: bool  # it is matmul's product of the two arrays, which makes no views of them

    def result(self, arrays: list[Any]) -> Any:
        """The result of a call on *arrays*: the operands, and perhaps ``out``."""
        if self.is_dot:
            return matmul(*arrays)
        place = len(arrays) - self.has_out
        arrays += [np.empty(*like) for like in self.made]
        for function, operands, out, keywords in self.steps:
            views = [viewed(arrays[at], view) for at, view in operands]
            function(*views, out=viewed(arrays[out.number], out.view), **keywords)
        result = arrays[place] if self.view is None else viewed(arrays[place], self.view)
        return plain(result) if self.is_scalar else result


class _StepsOfCall(threading.local):
    """The steps of the call that the thread is in."""

    steps: list[Computation] | None = None


_made = _StepsOfCall()
_known: dict[Any, _Repeat] = {}


def computed(step: Computation, ways: Mapping[str, Any] | None = None) -> None:
    """Compute *step*, by *ways*: further keywords, for what a call that is known does not ask for."""
    step.function(*step.operands, out=step.out, **step.keywords, **(ways or {}))
    if _made.steps is not None:
        _made.steps.append(step)


def result_of(
    key: Any, function: Callable[..., Returned], args: Sequence[Any], keywords: Mapping[str, Any]
) -> Returned:
    """What *function* returns, by the steps of an earlier call like this one, if there was one. *key*: of
    :func:`key_of`, not None."""
    arrays = list(_arrays((*args, *keywords.values())))
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
    return tuple(key) if _is_told((*args, *keywords.values()), key, []) else None


def _is_told(xs: Sequence[Any], key: list[Any], seen: list[Any]) -> bool:
    """Whether *key*, to which this adds, says what *xs* are, after the arrays *seen*."""
    for x in xs:
        if type(x) is np.ndarray:
            same = [x is other for other in seen]
            key.append((x.shape, x.strides, x.dtype, x.dtype.char, *same))
            seen.append(x)
        elif type(x) in _SAYING:
            key.append((type(x), x))
        elif type(x) in _LISTS and len(key) + len(x) < _LONGEST:  # and a list may hold itself
            key.append((type(x), len(x)))
            if not _is_told(x, key, seen):
                return False
        else:
            return False
    return True


def _arrays(xs: Sequence[Any]) -> Iterator[Any]:
    """NumPy's arrays of *xs*, and of lists in it, in the order of :func:`_is_told`."""
    for x in xs:
        if type(x) is np.ndarray:
            yield x
        elif type(x) in _LISTS:
            yield from _arrays(x)


def _repeat(steps: Sequence[Computation], arrays: Sequence[Any], result: Any) -> _Repeat | None:
    """How a call on *arrays* like the one that made *steps* and *result* is repeated, if that can be."""
    if not steps or not arrays:
        return None
    has_out, last = result is arrays[-1], steps[-1].out
    target = len(arrays) - has_out
    whole = result if has_out or result.ndim else last  # one number comes in new memory
    view = None
    if not (has_out or whole.flags.c_contiguous) and _is_permuted(whole):
        view, whole = View(whole.shape, whole.strides), whole.base
    known = [*arrays, *(() if has_out else (whole,))]
    if last.size != result.size or not (has_out or whole.flags.c_contiguous) or _share(known):
        return None
    found = []
    for step in steps:
        memory = step.out if step.out.base is None else step.out.base
        if _place(step.out, known) is None and isinstance(memory, np.ndarray) and memory.flags.c_contiguous:
            known.append(memory)
        asked = [_place(x, known) for x in (*step.operands, step.out)]
        places = tuple(place for place in asked if place is not None)
        if len(places) < len(asked) or places[-1].number < target:
            return None
        found.append((step.function, places[:-1], places[-1], step.keywords))
    if found[-1][2].number != target:
        return None
    likes = [(x.shape, x.dtype) for x in known[len(arrays) :]]
    if not has_out:
        likes[0] = (whole.shape if view else result.shape), result.dtype
    is_scalar = isinstance(result, np.generic)
    is_dot = is_scalar and not has_out and _is_dot(steps, arrays)
    return _Repeat(tuple(found), tuple(likes), has_out, is_scalar, view, is_dot)


def _is_dot(steps: Sequence[Computation], arrays: Sequence[Any]) -> bool:
    """Whether *steps* are one product, of two vectors as they are."""
    vectors = [x for x in arrays if x.ndim == 1]
    is_product = len(steps) == 1 and len(vectors) == len(arrays) == 2 and steps[0].function is matmul
    return is_product and vectors[0].shape == vectors[1].shape  # einsum repeats a single element


def _is_permuted(x: Any) -> bool:
    """Whether *x* is all of a C-contiguous array, from its first element, in another order."""
    memory = x.base
    if not isinstance(memory, np.ndarray):
        return False
    return memory.flags.c_contiguous and memory.size == x.size and location(memory) == location(x)


def _share(arrays: Sequence[Any]) -> bool:
    """Whether two arrays begin at the same place, so that it does not tell which of them is meant."""
    each = {id(x): x for x in arrays}.values()
    return len({location(x) for x in each}) < len(each)


def _place(x: Any, known: Sequence[Any]) -> _ViewOf | None:
    """The place of *x*, if it begins where one of the arrays *known* does. What lies elsewhere is a copy, and
    without elements the address says nothing."""
    at = (i for i, its in enumerate(known) if its.size and location(its) == location(x))
    number = next(at, None) if x.size else None
    return None if number is None else _ViewOf(number, View(x.shape, x.strides))
