"""Whether outs share elements with one another, or with operands of other pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..opencl import mappings

Lists = Mapping[str, Sequence[Any]]  # by argument name: "a", "b", and those given of "c", "bias", "out"
Addresses = Mapping[str, NDArray[np.int64]]  # by name, of each pair; any number for None
_HARD: Any = 100_000  # the most steps to find out whether strided arrays share an element


class Spans:
    """Where arrays of these *lists* reach from their first elements."""

    def __init__(self, lists: Lists) -> None:
        every = [(name, pair, x) for name, xs in lists.items() for pair, x in enumerate(xs)]
        self._at = [at for at, (*_, x) in enumerate(every) if x is not None and x.size]
        self._arrays = [every[at] for at in self._at]
        reaches = [mappings.reach(x, 0) for *_, x in self._arrays]
        self._reaches = np.array(reaches, np.int64).reshape(-1, 2)
        self._are_outs = np.array([name == "out" for name, *_ in self._arrays], bool)
        self._pairs = np.array([pair for _, pair, _ in self._arrays], np.int64)

    def _begins(self, addresses: Addresses) -> NDArray[np.int64]:
        return np.concatenate([*addresses.values()])[self._at]

    def are_apart(self, addresses: Addresses) -> bool:
        """Whether no out, at these *addresses*, reaches into another array. O(n log n)."""
        spans = self._begins(addresses)[:, None] + self._reaches
        outs, others = spans[self._are_outs], spans[~self._are_outs]
        lows, highs = outs[np.argsort(outs[:, 0])].T
        if np.any(highs[:-1] > lows[1:]):
            return False
        highs = np.concatenate([[-1], highs])
        return not np.any(highs[np.searchsorted(lows, others[:, 1])] > others[:, 0])

    def check(self, addresses: Addresses) -> None:
        """Raise ArgumentError if an element of an out is one of another out, or of another pair's operand.

        Spans that meet are compared element by element.
        """
        if self.are_apart(addresses):
            return
        begins = self._begins(addresses)
        lows, highs = (begins[:, None] + self._reaches).T
        for at, (name, pair, x) in enumerate(self._arrays):
            meet = (lows < highs[at]) & (highs > lows[at]) & (self._pairs != pair) & self._are_outs
            for other in np.flatnonzero(meet):
                _, its, out = self._arrays[other]
                if _share(_at(begins[other], out), _at(begins[at], x)):
                    whose = f"out[{pair}]" if name == "out" else f"{name} of pairs[{pair}]"
                    raise ArgumentError(
                        f"out[{its}] overlaps {whose}; pass outs that share no element with another out "
                        "or with another pair's operands"
                    )


def _share(x: Any, y: Any) -> bool:
    try:
        return np.shares_memory(x, y, max_work=_HARD)
    except np.exceptions.TooHardError:
        return True


def _at(address: int, x: Any) -> Any:
    """A NumPy array of the layout of *x* at an address that nobody reads: a device's arrays have some too."""
    layout = {"shape": x.shape, "strides": x.strides, "typestr": f"|V{x.dtype.itemsize}", "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__={**layout, "data": (int(address), True)}))
