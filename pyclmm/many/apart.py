"""Whether outs share elements with one another, or with operands of other pairs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError
from ..opencl import arrays, mappings
from ..opencl.arrays import Array

Lists = Mapping[str, Sequence[Any]]  # by argument name: "a", "b", and those given of "c", "bias", "out"
_HARD = 100_000  # the most steps to find out whether strided arrays share an element


class _Span(NamedTuple):
    """The addresses from the first byte of an operand to the one behind its last."""

    low: int
    high: int
    pair: int
    view: Any


def check_apart(lists: Lists) -> None:
    """Raise ArgumentError if an element of an out is one of another out, or of another pair's operand.

    The spans of n outs are sorted, and those that meet compared element by element: O(n log n) where none do.
    """
    outs = [x for x in lists["out"] if x is not None]
    if isinstance(outs[0], Array):
        lists = _stand_ins(lists)
    elif _are_apart(outs, [x for name, xs in lists.items() if name != "out" for x in xs]):
        return
    spans = sorted(_spans(lists["out"]), key=lambda span: span.low)
    lows, tops = [span.low for span in spans], [*accumulate([span.high for span in spans], max)]
    for name, xs in lists.items():
        for mine in _spans(xs):
            at = bisect_left(lows, mine.high)
            while at and tops[at - 1] > mine.low:
                at -= 1
                its = spans[at]
                if its.high > mine.low and its.pair != mine.pair and _share(its.view, mine.view):
                    other = f"out[{mine.pair}]" if name == "out" else f"{name} of pairs[{mine.pair}]"
                    raise ArgumentError(
                        f"out[{its.pair}] overlaps {other}; pass outs that share no element with another out "
                        "or with another pair's operands"
                    )


def _are_apart(outs: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether it is plain to see: each has memory of its own."""
    ids = set(map(id, outs))
    return (
        len(ids) == len(outs)
        and all(x.flags.owndata for x in outs)
        and all(x is None or (x.flags.owndata and id(x) not in ids) for x in others)
    )


def _spans(xs: Sequence[Any]) -> list[_Span]:
    return [_Span(*mappings.bounds(x), i, x) for i, x in enumerate(xs) if x is not None and x.size]


def _share(x: Any, y: Any) -> bool:
    most: Any = _HARD
    try:
        return np.shares_memory(x, y, max_work=most)
    except np.exceptions.TooHardError:
        return True


def _stand_ins(lists: Lists) -> Lists:
    """NumPy arrays that lie as the Arrays do, without memory, and allocations far apart."""
    given = [x for xs in lists.values() for x in xs if x is not None]
    found = {id(x): _at((8 + root << 44) + at, x) for x, (root, at) in zip(given, places(given), strict=True)}
    return {name: [found.get(id(x)) for x in xs] for name, xs in lists.items()}


def places(given: Sequence[Array]) -> list[tuple[int, int]]:
    """(the number of its allocation among those that occur, offset in bytes) of each Array."""
    numbers: dict[int, int] = {}
    located = [arrays.location(x) for x in given]
    return [(numbers.setdefault(root, len(numbers)), at) for root, at in located]


def _at(address: int, x: Array) -> Any:
    """A NumPy array of the layout of *x* at an address that nobody may read."""
    layout = {"shape": x.shape, "strides": x.strides, "typestr": f"|V{x.dtype.itemsize}", "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__={**layout, "data": (address, True)}))
