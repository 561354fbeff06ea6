"""Lists in one address space, of a CUDA device or of the process: kernels read each array where it lies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..opencl.queues import PerThread
from ..problem.dtypes import dtype_of
from .apart import Lists
from .groups import ListEntry
from .lists import Addresses, CallLists, Layouts
from .planned import NEW, PlannedList
from .rows import rows_of

_KEPT = 8  # streams or queues whose tables a thread keeps
# The first columns of the table of products (listed.h): where each begins, in elements.
_COLUMNS = ("a", "b", "c", "out", "bias")
Rows = NDArray[np.int64]


class ManyByAddress(PlannedList):
    """A planned list of arrays in one address space.

    To kernels every operand's memory begins at address 0: the table of products says where each lies, and is
    written when a call has others than the one before. New results lie in one array, which may move.
    """

    def __init__(self, given: CallLists, layouts: Layouts, options: Any, queue: Any, scalars: Any) -> None:
        super().__init__(given, options, queue, scalars)
        self.tables: PerThread[Any] = PerThread(_KEPT)
        tables = [group.executable.work.tables["products"] for group in self.groups]
        self.template: Rows = np.concatenate(tables) if tables else np.empty((0, len(_COLUMNS)), np.int64)
        # What is added to rows of a column: by argument name and pair the address, in units of so many bytes.
        self._begins: list[tuple[slice, int, str, Rows, int]] = []
        row = 0
        for group in self.groups:
            rows = slice(row, row := row + len(group.pairs))
            for name, (own, its_type, memory) in group.keys.items():
                if memory != NEW:
                    size = dtype_of(its_type).itemsize
                    self._begins.append((rows, _COLUMNS.index(name), own, np.array(group.pairs), size))

    def columns(self, addresses: Addresses) -> Rows:
        """The first columns of the table for arrays at these *addresses*."""
        begins = self.template[:, : len(_COLUMNS)].copy()
        for rows, column, name, pairs, size in self._begins:
            begins[rows, column] += addresses[name][pairs] // size
        return begins

    def placed(self, entries: Sequence[ListEntry], lists: Lists, queue: Any) -> Mapping[tuple[str, int], int]:
        self.rows, starts = rows_of(entries, lists, (NEW,))
        return defaultdict(int, starts)


def updates_c_in_place(addresses: Addresses) -> bool:
    """Whether an out is the C of its pair."""
    return "c" in addresses and bool(np.any(addresses["c"] == addresses.get("out", -1)))
