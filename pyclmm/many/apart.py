"""The arrays of a list, and whether outs share elements with one another, or with operands of other pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..opencl import mappings

Addresses = NDArray[np.int64]  # of each array of Lists; any number for None


class Lists(NamedTuple):
    """The lists of a call, one behind the other: for each name an entry of each pair, None for none."""

    names: tuple[str, ...]  # "a", "b", and those given of "c", "bias", "out"
    arrays: tuple[Any, ...]

    @property
    def length(self) -> int:
        """How many pairs there are."""
        return len(self.arrays) // len(self.names)

    def number(self, name: str, pair: int = 0) -> int:
        """Of the array of a pair with this *name*. Behind the last if none is given."""
        return self.length * (self.names.index(name) if name in self.names else len(self.names)) + pair

    def named(self, name: str) -> tuple[Any, ...]:
        """The list of this *name*, of None if it is not given."""
        return self.arrays[(at := self.number(name)) : at + self.length] or (None,) * self.length

    def pair(self, number: int) -> dict[str, Any]:
        """The operands of one pair, by argument name."""
        both = zip(self.names, self.arrays[number :: self.length], strict=True)
        return {name: x for name, x in both if x is not None}


class Spans:
    """Where arrays of these *lists* reach from their first elements."""

    def __init__(self, lists: Lists) -> None:
        self._at = np.array([at for at, x in enumerate(lists.arrays) if x is not None and x.size], np.int64)
        reaches = [mappings.reach(lists.arrays[at], 0) for at in self._at]
        self._reaches = np.array(reaches, np.int64).reshape(-1, 2)
        self._are_outs = self._at >= lists.number("out")

    def are_apart(self, addresses: Addresses) -> bool:
        """Whether no out, at these *addresses*, reaches into another array. O(n log n)."""
        spans = addresses[self._at, None] + self._reaches
        outs, others = spans[self._are_outs], spans[~self._are_outs]
        lows, highs = outs[np.argsort(outs[:, 0])].T
        if np.any(highs[:-1] > lows[1:]):
            return False
        highs = np.concatenate([[-1], highs])
        return not np.any(highs[np.searchsorted(lows, others[:, 1])] > others[:, 0])

    def check(self, lists: Lists, addresses: Addresses) -> None:
        """Raise ArgumentError if an element of an out of *lists* is one of another out, or of another pair's
        operand.

        Spans that meet are compared element by element.
        """
        if self.are_apart(addresses):
            return
        (names, arrays), length = lists, lists.length
        lows, highs = (addresses[self._at, None] + self._reaches).T
        for at, low, high in zip(self._at, lows, highs, strict=True):
            name, pair = names[at // length], at % length
            meet = (lows < high) & (highs > low) & (self._at % length != pair) & self._are_outs
            for out in self._at[meet]:
                if mappings.share_elements(
                    *(mappings.laid_at(addresses[one], arrays[one]) for one in (out, at))
                ):
                    whose = f"out[{pair}]" if name == "out" else f"{name} of pairs[{pair}]"
                    raise ArgumentError(
                        f"out[{out % length}] overlaps {whose}; pass outs that share no element with another "
                        "out or with another pair's operands"
                    )
