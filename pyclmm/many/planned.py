"""PlannedList: the products of a list as a plan has them, whatever kind of array they are on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..execution import kinds
from ..execution import operands as calls
from ..execution.options import Options, beta_of, check_scalars, plain_numbers
from ..opencl.queues import PerThread
from ..plan_cache import plan_for
from ..problem.dtypes import dtype_of
from ..problem.gemm import Operand
from .apart import Addresses, Lists
from .groups import Key, ListEntry, PackedRow, checked_and_named, groups_of
from .lists import CallLists, naming, operands_at

NEW = -1  # the number of the memory of results that are made
_KEPT = 8  # streams or queues whose tables a thread keeps
# The first columns of the table of products (listed.h): where each begins, in elements.
_COLUMNS = ("a", "b", "c", "out", "bias")


class PlannedList(ABC):
    """A planned list."""

    align: int | None = None  # of the copies that the host makes of operands
    packed: tuple[int, ...] = (NEW,)  # the numbers of memory that a call makes

    def __init__(self, given: CallLists, options: Options, queue: Any, scalars: tuple[Any, Any]) -> None:
        lists, self.rows = given.lists, dict[Key, PackedRow]()
        self.count, self.tables = (
            len(lists["a"]),
            PerThread[Any](_KEPT),
        )  # of products, where calls write them
        entries = list(self._checked(given, options, scalars))
        alike = Counter(tuple(one.keys.items()) for one in entries if not one.gemm.is_empty)
        alone, listed = list[ListEntry](), list[ListEntry]()
        for one in entries:
            is_alone = one.gemm.is_empty or self.is_alone(one, alike[tuple(one.keys.items())])
            (alone if is_alone else listed).append(one)
        self.place(listed, lists, queue)
        self.groups, self.queue = groups_of(listed, lambda *key: self._start(lists, *key), options, queue)
        self._alone = []  # what has a launch of its own, or none as it is empty
        for one in alone:
            operands = operands_at(lists, one.pair)
            named = (one.pair,) * one.gemm.problem.batch if options.verify else ()
            own = replace(options, pairs=named)
            product = plan_for(operands, calls.signature(operands), own, queue, one.scales)
            self._alone.append((one.pair, product, one.scales))
        owners: list[Any] = [*self.groups, *[product for _, product, _ in self._alone]]
        self.executables = [one.executable for one in owners if not one.executable.gemm.is_empty]

    def _checked(self, given: CallLists, options: Options, scalars: tuple[Any, Any]) -> Iterator[ListEntry]:
        """The checked products. *scalars*: alpha and beta, each one for all or a tuple. Raises as gemm does,
        naming the pair."""
        its, dtypes = dict(given.layouts.lists), given.layouts.dtypes
        for pair in range(self.count):
            own = replace(options, dtype=dtypes[pair]) if dtypes else options
            with naming(pair):
                operands = operands_at(given.lists, pair)
                layouts = {name: self.layout(name, x, its[name][pair]) for name, x in operands.items()}
                alpha, beta = (x[pair] if isinstance(x, tuple) else x for x in scalars)
                if "c" in its and "c" not in layouts and not isinstance(scalars[1], tuple):
                    beta = None  # one beta for all is for the pairs that have a c
                scales = plain_numbers(alpha, beta_of(beta, layouts.get("c")))
                # What is kept depends on which scalars are zero. A beta without c is refused by its value.
                zeros = float(scales[0] != 0), float(scales[1] != 0) if "c" in layouts else scales[1]
                ways = own, zeros, self.overlaps(operands, layouts), self.align
                gemm, names = checked_and_named(tuple(layouts.items()), *ways)
                check_scalars(gemm, scales)
            is_new = gemm.out_copy is not None or "out" not in operands
            keys = {
                name: Key(*key, self.memory_of(given.lists, key[0], pair, name == "out" and is_new))
                for name, key in names.items()
            }
            yield ListEntry(pair, gemm, keys, scales)

    @abstractmethod
    def layout(self, name: str, x: Any, its: Any) -> Operand:
        """That of an operand. *its*: what Layouts have of it."""

    def memory_of(self, lists: Lists, name: str, pair: int, is_new: bool) -> int:
        """The number of an operand's memory. A launch has one for each name. *is_new*: a call makes it."""
        return NEW if is_new else 0

    def overlaps(self, operands: calls.Operands, layouts: Any) -> bool:
        """Whether the out of a pair must be copied."""
        return bool(calls.signature(operands).overlapping)

    def is_alone(self, entry: ListEntry, alike: int) -> bool:
        """Whether it has a launch of its own: what must be converted or copied on the device, and what has
        a buffer that no other product of the list has in its place, of *alike* ones."""
        return bool(entry.gemm.copies or entry.gemm.out_copy or alike == 1)

    def place(self, entries: Sequence[ListEntry], lists: Lists, queue: Any) -> None:
        """Find out where in rows what a call makes for *entries* lies."""
        found = defaultdict[Key, list[Any]](list)
        for one in entries:
            for name, key in one.keys.items():
                if key.memory in self.packed:
                    shape = one.gemm.shape if name == "out" else lists[key.name][one.pair].shape
                    found[key].append((getattr(one.gemm.problem, f"{name}_align", 1), one.pair, shape))
        self.rows = {key: PackedRow(key.type, its) for key, its in found.items()}

    def _start(self, lists: Lists, key: Key, pair: int) -> int:
        return self.rows[key].starts[pair] if key in self.rows else self.start_of(lists, key.name, pair)

    def start_of(self, lists: Lists, name: str, pair: int) -> int:
        """The first element in its memory of what is read or written where it lies."""
        return 0

    def run(self, given: CallLists, queue: Any, wait_for: list[Any]) -> list[Any]:
        """The results: complete on the host, else when their events, or the work before in the stream, are.

        Raises ArgumentError, LaunchError, DeviceMemoryError or DeviceLostError.
        """
        own = given.lists if given.like is None else given.arrays
        results = list(own.get("out", (None,) * self.count))
        if self.groups:
            for pair, part in self.multiply(given, queue, wait_for):
                results[pair] = part
        for pair, product, scales in self._alone:
            operands = operands_at(own, pair)
            made = product.multiply(calls.collect(operands), queue, scales, wait_for)
            results[pair] = kinds.returned(operands, made)
        return results

    def release(self) -> None:
        """Free every thread's tables and kernel objects."""
        self.tables.clear()
        for one in self.executables:
            one.release()

    @abstractmethod
    def multiply(self, given: CallLists, queue: Any, wait_for: list[Any]) -> Iterable[tuple[int, Any]]:
        """Launch all groups. The new results, each behind its pair."""


class ManyByAddress(PlannedList):
    """A planned list of arrays in one address space, of a CUDA device or of the process.

    To kernels every operand's memory begins at address 0: the table of products says where each lies, and is
    written when a call has others than the one before. New results lie in one array, which may move.
    """

    def __init__(self, *planned: Any) -> None:
        super().__init__(*planned)
        tables = [group.executable.work.tables["products"] for group in self.groups]
        self.template = np.concatenate(tables) if tables else np.empty((0, len(_COLUMNS)), np.int64)
        # What is added to rows of a column: by argument name and pair the address, in units of so many bytes.
        self._begins: list[tuple[slice, int, str, NDArray[np.int64], int]] = []
        row = 0
        for group in self.groups:
            rows = slice(row, row := row + len(group.pairs))
            for name, key in group.keys.items():
                if key.memory != NEW:
                    size, pairs = dtype_of(key.type).itemsize, np.array(group.pairs)
                    self._begins.append((rows, _COLUMNS.index(name), key.name, pairs, size))

    def columns(self, addresses: Addresses) -> NDArray[np.int64]:
        """The first columns of the table for arrays at these *addresses*."""
        begins: NDArray[np.int64] = self.template[:, : len(_COLUMNS)].copy()
        for rows, column, name, pairs, size in self._begins:
            begins[rows, column] += addresses[name][pairs] // size
        return begins


def updates_c_in_place(addresses: Addresses) -> bool:
    """Whether an out is the C of its pair."""
    return "c" in addresses and bool(np.any(addresses["c"] == addresses.get("out", -1)))
