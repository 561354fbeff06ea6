"""Whether outs share elements with one another, or with operands of other pairs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..cuda.arrays import CudaArray
from ..errors import ArgumentError
from ..opencl import arrays, mappings
from ..opencl.arrays import Array

Lists = Mapping[str, Sequence[Any]]  # by argument name: "a", "b", and those given of "c", "bias", "out"
_HARD: Any = 100_000  # the most steps to find out whether strided arrays share an element


def check_apart(lists: Lists) -> None:
    """Raise ArgumentError if an element of an out is one of another out, or of another pair's operand.

    The spans of n outs are sorted, and those that meet compared element by element: O(n log n) where none do.
    """
    if isinstance(lists["a"][0], Array | CudaArray):
        lists = _stand_ins(lists)
    spans = sorted(_spans(lists["out"]))
    lows, tops = [span[0] for span in spans], [*accumulate([span[1] for span in spans], max)]
    for name, xs in lists.items():
        for low, high, pair in _spans(xs):
            at = bisect_left(lows, high)
            while at and tops[at - 1] > low:
                at -= 1
                _, its_high, its = spans[at]
                if its_high > low and its != pair and _share(lists["out"][its], xs[pair]):
                    other = f"out[{pair}]" if name == "out" else f"{name} of pairs[{pair}]"
                    raise ArgumentError(
                        f"out[{its}] overlaps {other}; pass outs that share no element with another out "
                        "or with another pair's operands"
                    )


class Spans:
    """Where arrays of these *lists* reach from their first elements, to tell whether others of such layouts,
    at other addresses, are apart."""

    def __init__(self, lists: Lists) -> None:
        self._reaches = {
            name: (kept := [pair for pair, x in enumerate(xs) if x is not None and x.size],
                   np.array([mappings.reach(xs[pair], 0) for pair in kept], np.int64).reshape(-1, 2))
            for name, xs in lists.items()
        }  # fmt: skip

    def are_apart(self, addresses: Mapping[str, Any]) -> bool:
        """Whether no out, at the *addresses* of each name, reaches into another array. O(n log n)."""
        spans = {name: addresses[name][pairs, None] + reach for name, (pairs, reach) in self._reaches.items()}
        outs = spans.pop("out")
        lows, highs = outs[np.argsort(outs[:, 0])].T
        if np.any(highs[:-1] > lows[1:]):
            return False
        highs = np.concatenate([[-1], highs])
        return not any(np.any(highs[np.searchsorted(lows, its[:, 1])] > its[:, 0]) for its in spans.values())


def _spans(xs: Sequence[Any]) -> list[tuple[int, int, int]]:
    """(address, address of the byte behind the last, pair) of each array with elements."""
    return [(*mappings.bounds(x), pair) for pair, x in enumerate(xs) if x is not None and x.size]


def _share(x: Any, y: Any) -> bool:
    try:
        return np.shares_memory(x, y, max_work=_HARD)
    except np.exceptions.TooHardError:
        return True


def _stand_ins(lists: Lists) -> Lists:
    """NumPy arrays that lie as the arrays of a device do, without memory; OpenCL's allocations far apart."""
    given = [x for xs in lists.values() for x in xs if x is not None]
    if isinstance(given[0], CudaArray):
        at = [x.address for x in given]
    else:
        at = [(8 + root << 44) + place for root, place in places(given)]
    found = {id(x): _at(address, x) for x, address in zip(given, at, strict=True)}
    return {name: [found.get(id(x)) for x in xs] for name, xs in lists.items()}


def places(given: Iterable[Array]) -> list[tuple[int, int]]:
    """(the number of its allocation among those that occur, offset in bytes) of each Array."""
    numbers: dict[int, int] = {}
    located = [arrays.location(x) for x in given]
    return [(numbers.setdefault(root, len(numbers)), at) for root, at in located]


def _at(address: int, x: Array) -> Any:
    """A NumPy array of the layout of *x* at an address that nobody may read."""
    layout = {"shape": x.shape, "strides": x.strides, "typestr": f"|V{x.dtype.itemsize}", "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__={**layout, "data": (address, True)}))
