"""Lists of arrays on a CUDA device: its memory is one address space, so kernels read each where it lies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from ..cuda import arrays, driver
from ..cuda.rewritten import RewrittenTable
from ..cuda.streams import Stream, forget
from ..errors import DeviceLostError
from ..execution import kinds
from ..execution.cuda_path import launch_with_block, refuse_captured_repair
from ..execution.operands import collect
from ..execution.options import refuse_events
from ..opencl.queues import PerThread
from ..problem.dtypes import dtype_of
from ..problem.gemm import dense_strides
from .apart import Lists
from .device import NEW, ManyOnDevice
from .groups import SCALARS, Key, LaunchGroup, ListEntry
from .lists import CallLists, Layouts, operands_at
from .rows import rows_of

_STREAMS = 8  # whose tables a thread keeps
# The first columns of the table of products (listed.h): where each begins, in elements.
_COLUMNS = ("a", "b", "c", "out", "bias")
Rows = NDArray[np.int64]


class CudaMany(ManyOnDevice):
    """A planned list of arrays on a CUDA device.

    To kernels every operand's memory begins at address 0: the table of products says where each lies, and is
    written when a call has others than the one before. New results lie in one array, which may move.
    """

    layout = staticmethod(arrays.operand)

    def __init__(self, *planned: Any) -> None:
        super().__init__(*planned)
        self.tables: PerThread[RewrittenTable] = PerThread(_STREAMS)
        tables = [group.executable.work.tables["products"] for group in self.groups]
        self._template: Rows = np.concatenate(tables) if tables else np.empty((0, len(_COLUMNS)), np.int64)
        # What is added to rows of a column: by argument name and pair the address, in units of so many bytes.
        self._begins: list[tuple[slice, int, str, Rows, int]] = []
        row = 0
        for group in self.groups:
            rows = slice(row, row := row + len(group.pairs))
            for name, (own, its_type, memory) in group.keys.items():
                if memory != NEW:
                    size = dtype_of(its_type).itemsize
                    self._begins.append((rows, _COLUMNS.index(name), own, np.array(group.pairs), size))

    def _memory_of(self, lists: Lists, layouts: Layouts) -> Callable[[str, int], int]:
        def memory_of(name: str, pair: int) -> int:
            x = lists[name][pair] if name in lists else None
            if x is None:
                return NEW
            return pair + 1 if x.address % x.dtype.itemsize else 0  # the table counts elements

        return memory_of

    def _place(self, entries: Sequence[ListEntry], lists: Lists, queue: Any) -> Mapping[tuple[str, int], int]:
        new = [one._replace(keys={"out": one.keys["out"]}) for one in entries if one.keys["out"][2] == NEW]
        self._rows, starts = rows_of(new, lists, {})
        self._parts = {
            key: [
                (shape, dense_strides(shape), start)
                for shape, start in zip(row.shapes, row.starts.values(), strict=True)
            ]
            for key, row in self._rows.items()
        }
        return defaultdict(int, starts)

    def run(self, given: CallLists, stream: Stream, wait_for: list[cl.Event]) -> list[Any]:
        """The results, complete when the work before in the stream is. Raises ArgumentError, LaunchError,
        DeviceMemoryError or DeviceLostError."""
        refuse_events(wait_for)
        tensors: Any = given.tensors
        kind = tensors.like.kind
        results = list(given.arrays.get("out", (None,) * self._count))
        if self.groups:
            try:
                self._multiply(given, results, kind, stream)
            except DeviceLostError:
                forget(stream.context)
                raise
        for one in self._empty:
            if results[one.pair] is None:
                nothing = arrays.new(kind, one.gemm.shape, one.gemm.dtype, stream.context.ordinal)
                results[one.pair] = kind.back(nothing)
        for out in given.arrays.get("out", ()):
            if out is not None:
                kind.written(out)
        for one, product in self._alone:
            its = operands_at(given.arrays, one.pair)
            results[one.pair] = kinds.returned(its, product.multiply(collect(its), stream, one.scales, None))
        return results

    def _multiply(self, given: CallLists, results: list[Any], kind: Any, stream: Stream) -> None:
        """Compute what launches compute together. New results of theirs go into *results*."""
        new: dict[Key, int] = {}
        for key, row in self._rows.items():
            whole, new[key] = kind.new((row.size,), row.dtype, stream.context.ordinal)
            for pair, part in zip(row.order, kind.parts(whole, self._parts[key]), strict=True):
                results[pair] = part
        tensors: Any = given.tensors
        try:
            self.launch(tensors.addresses, stream, new, kind)
        finally:  # Ctrl-C too: a part may have been launched
            if given.layouts is None:  # its library may know nothing of the launch
                kind.launched([x for xs in given.lists.values() for x in xs if x is not None], stream)

    def launch(
        self, addresses: Mapping[str, Rows], stream: Stream, new: Mapping[Key, int], kind: Any
    ) -> None:
        """Launch all groups on arrays at these *addresses*, of each name; *new*: those of new memory; *kind*:
        that of the library which lends workspace."""
        if any(group.executable.repairs for group in self.groups):
            refuse_captured_repair(stream)
        updates_c = "c" in addresses and bool(np.any(addresses["c"] == addresses.get("out", -1)))
        begins = self._template[:, : len(_COLUMNS)].copy()
        for rows, column, name, pairs, size in self._begins:
            begins[rows, column] += addresses[name][pairs] // size
        with driver.current(stream.context.handle):
            kept, is_captured = self.tables.mine.held, driver.capture_of(stream.handle) != 0
            # Nobody else's while it is used: a signal handler, or a finalizer, may call within this call.
            table = None if is_captured else kept.pop(stream, None)
            if table is None:
                table = RewrittenTable(stream.context, self._template)
            if is_captured:
                table.keep(begins)
            else:
                table.write(begins, stream.handle)
            at = table.address
            for group in self.groups:
                own = {name: new.get(key, 0) for name, key in group.keys.items()}
                _enqueue(group, stream, own | {"products": at}, kind, updates_c)
                at += len(group.pairs) * self._template.strides[0]
            if not is_captured:
                self.tables.keep(stream, table)


def _enqueue(
    group: LaunchGroup, stream: Stream, addresses: Mapping[str, int], kind: Any, updates_c: bool
) -> None:
    def again(other: Any, _shifts: Any = None) -> None:
        launch_with_block(other, kind, stream.handle, addresses, SCALARS)
        driver.wait(stream.handle, "a repaired list")

    def launch() -> None:
        binding = group.executable.idle_binding(stream)
        launch_with_block(binding, kind, stream.handle, addresses, SCALARS)
        if group.executable.repairs:
            group.executable.conclude(binding, stream, again, updates_c)

    group.launched(stream, launch)
