"""PlannedList: the products of a list as a plan has them, whatever kind of array they are on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ..execution import operands as calls
from ..execution.options import Options
from ..plan_cache import plan_for
from ..problem.gemm import Gemm, Operand
from .apart import Lists
from .groups import ListEntry, entries_of, groups_of, naming_pairs
from .lists import CallLists, operands_at

NEW = -1  # the number of the memory of results that are made


class PlannedList(ABC):
    """A planned list."""

    align: int | None = None  # of the copies that the host makes of operands

    def __init__(self, given: CallLists, options: Options, queue: Any, scalars: tuple[Any, Any]) -> None:
        lists = given.lists
        ways = self.layout, partial(self.memory_of, lists), self.overlaps, self.align
        entries = entries_of(given, options, scalars, *ways)
        self.count, self._empty = len(entries), [one for one in entries if one.gemm.is_empty]
        listed, alone = self.divided([one for one in entries if not one.gemm.is_empty])
        self.groups, self.queue = groups_of(listed, self.placed(listed, lists, queue), options, queue)
        self._alone = []
        for one in alone:
            operands = operands_at(lists, one.pair)
            named = naming_pairs(options, [one.pair] * one.gemm.problem.batch)
            product = plan_for(operands, calls.signature(operands), named, queue, one.scales)
            self._alone.append((one, product))
        owners: list[Any] = [*self.groups, *[product for _, product in self._alone]]
        self.executables = [one.executable for one in owners]

    @abstractmethod
    def layout(self, x: Any, argument: str, pair: int) -> Operand:
        """That of an operand."""

    def memory_of(self, lists: Lists, name: str, pair: int) -> int:
        """The number of an operand's memory. A launch has one for each name."""
        return NEW if name not in lists or lists[name][pair] is None else 0

    def overlaps(self, operands: calls.Operands) -> bool:
        """Whether the out of a pair must be copied."""
        return bool(calls.signature(operands).overlapping)

    def divided(self, entries: Sequence[ListEntry]) -> tuple[list[ListEntry], list[ListEntry]]:
        """Those that launches compute together, and those with a launch of their own: what must be converted
        or copied on the device, and what has a buffer that no other product of the list has in its place."""
        counts = Counter(tuple(one.keys.items()) for one in entries)
        listed, alone = list[ListEntry](), list[ListEntry]()
        for one in entries:
            is_direct = not (one.gemm.copies or one.gemm.out_copy)
            (listed if is_direct and counts[tuple(one.keys.items())] > 1 else alone).append(one)
        return listed, alone

    @abstractmethod
    def placed(self, entries: Sequence[ListEntry], lists: Lists, queue: Any) -> Mapping[tuple[str, int], int]:
        """Where each operand and result of *entries* begins in its memory."""

    def run(self, given: CallLists, queue: Any, wait_for: list[Any]) -> list[Any]:
        """The results: complete on the host, else when their events, or the work before in the stream, are.

        Raises ArgumentError, LaunchError, DeviceMemoryError or DeviceLostError.
        """
        own = given.lists if given.like is None else given.arrays
        results = list(own.get("out", (None,) * self.count))
        if self.groups:
            for pair, part in self.multiply(given, queue, wait_for):
                results[pair] = part
        for one in self._empty:
            if results[one.pair] is None:
                results[one.pair] = self.nothing(one.gemm, given, queue)
        for one, product in self._alone:
            results[one.pair] = self.multiply_alone(product, operands_at(own, one.pair), queue, one, wait_for)
        return results

    @abstractmethod
    def multiply(self, given: CallLists, queue: Any, wait_for: list[Any]) -> Iterable[tuple[int, Any]]:
        """Launch all groups. The new results, each behind its pair."""

    @abstractmethod
    def nothing(self, gemm: Gemm, given: CallLists, queue: Any) -> Any:
        """A result without elements."""

    def multiply_alone(
        self, product: Any, operands: Mapping[str, Any], queue: Any, entry: ListEntry, wait_for: list[Any]
    ) -> Any:
        """The result of a *product* with a launch of its own."""
        return product.multiply(operands, queue, entry.scales, wait_for)
