"""Lists of arrays on a CUDA device: its memory is one address space, so kernels read each where it lies."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from ..cuda import arrays, driver
from ..cuda.streams import Context, Stream, forget, own_stream
from ..errors import DeviceLostError
from ..execution import kinds
from ..execution.cuda_path import refuse_events
from ..execution.operands import collect
from ..opencl.queues import PerThread
from ..problem.dtypes import dtype_of
from ..problem.gemm import dense_strides
from .apart import Lists
from .device import NEW, ManyOnDevice
from .groups import SCALARS, Key, LaunchGroup, ListEntry
from .lists import CallLists, Layouts, operands_at
from .rows import rows_of

_STREAMS = 8  # whose tables a thread keeps
_COLUMNS = (
    "a",
    "b",
    "c",
    "out",
    "bias",
)  # of the table of products (listed.h): where each begins, in elements
Rows = NDArray[np.int64]


class CudaMany(ManyOnDevice):
    """A planned list of arrays on a CUDA device.

    To kernels every operand's memory begins at address 0: the table of products says where each lies, and is
    written when a call has others than the one before. New results lie in one array, which may move.
    """

    layout = staticmethod(arrays.operand)

    def __init__(self, *planned: Any) -> None:
        super().__init__(*planned)
        self.tables: PerThread[_Table] = PerThread(_STREAMS)
        self._rows_of_all = _RowsOfAll(self.groups, self._count)

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
            self.launch(tensors.addresses, stream, new)
        finally:  # Ctrl-C too: a part may have been launched
            if given.layouts is None:  # its library may know nothing of the launch
                kind.launched([x for xs in given.lists.values() for x in xs if x is not None], stream)

    def launch(self, addresses: Mapping[str, Rows], stream: Stream, new: Mapping[Key, int]) -> None:
        """Launch all groups on arrays at these *addresses*, of each name; *new*: those of new memory."""
        with driver.current(stream.context.handle):
            kept, number = self.tables.mine.held, driver.capture_of(stream.handle)
            # Nobody else's while it is used: a signal handler, or a finalizer, may call within this call.
            table = None if number else kept.pop(stream, None)
            if table is None:
                with driver.uncaptured():
                    table = _Table(stream.context, self._rows_of_all.template)
            starts = self._rows_of_all.starts_of(addresses)
            if number:
                table.keep(starts)
            else:
                table.write(starts, stream.handle)
            for group, begin in zip(self.groups, self._rows_of_all.begins, strict=True):
                own = {name: new.get(key, 0) for name, key in group.keys.items()}
                _enqueue(group, stream, own | {"products": table.address + begin})
            if not number:
                self.tables.keep(stream, table)


def _enqueue(group: LaunchGroup, stream: Stream, addresses: Mapping[str, int]) -> None:
    binding = group.executable.idle_binding
    group.launched(stream, lambda: binding(stream).enqueue(stream.handle, addresses, SCALARS))


class _RowsOfAll:
    """The rows of products of all groups, one group behind the other, and what is added in each call.

    ``begins``: where each group begins, in bytes.
    """

    def __init__(self, groups: Sequence[LaunchGroup], count: int) -> None:
        rows = [group.executable.work.tables["products"] for group in groups]
        self.template: Rows = np.concatenate(rows) if rows else np.empty((0, len(_COLUMNS)), np.int64)
        self.begins = np.cumsum([0, *(its.nbytes for its in rows)]).tolist()[:-1]
        # Of each row and column: where its address is among all, the last of which is 0, and log2 of the size
        # of an element.
        shape = (len(self.template), len(_COLUMNS))
        keys = [key for group in groups for key in group.keys.values() if key[2] != NEW]
        self._names = sorted({name for name, _, _ in keys})
        self._at, self._shift = np.full(shape, -1), np.zeros(shape, np.int64)
        row = 0
        for group in groups:
            here = slice(row, row := row + len(group.pairs))
            for name, (own, its_type, memory) in group.keys.items():
                if memory != NEW:
                    column = _COLUMNS.index(name)
                    self._at[here, column] = self._names.index(own) * count + np.array(group.pairs)
                    self._shift[here, column] = dtype_of(its_type).itemsize.bit_length() - 1

    def starts_of(self, addresses: Mapping[str, Rows]) -> Rows:
        """The first columns of all rows, for arrays at these *addresses*."""
        of_all = np.concatenate([*(addresses[name] for name in self._names), [0]])
        starts: Rows = self.template[:, : len(_COLUMNS)] + (of_all[self._at] >> self._shift)
        return starts


class _Table:
    """The rows of a plan's products in a device's memory, for one thread and stream, or for a graph."""

    def __init__(self, context: Context, template: Rows) -> None:
        self._context, self._template = context, template
        self._memory = driver.Memory(template.nbytes, "the table of a list")
        self.address = self._memory.address
        self._starts: Rows | None = None  # what it holds
        self._sent: list[_Sent] = []

    def write(self, starts: Rows, stream: int) -> None:
        """Let it hold these *starts*, in the order of *stream*; nothing is copied if it does."""
        if self._starts is not None and np.array_equal(starts, self._starts):
            return
        self._starts = None  # until all is copied, as Ctrl-C may come
        sent = next((one for one in self._sent if one.has_ended()), None)
        if sent is None:
            with driver.uncaptured():  # another stream may be being captured
                sent = _Sent(self._template)
            self._sent.append(sent)
        sent.rows[:, : len(_COLUMNS)] = starts
        self._memory.write(sent.memory.address, stream)
        sent.copied = driver.Event(self._context.handle, stream)
        self._starts = starts

    def keep(self, starts: Rows) -> None:
        """Hold these *starts* for the graph that is captured, to the end of the process, as the graph may be
        there so long. They are copied beside the capture, which is waited for: so no replay copies them, and
        no memory of the host must stay. The stream waits for nothing."""
        own = own_stream(self._context).handle
        with driver.uncaptured():
            self.write(starts, own)
            driver.wait(own, "the table of a list")
        self._context.kept.append(self._memory)


class _Sent:
    """Rows in memory of the host from which they are copied, and what ends when they are."""

    copied: driver.Event | None = None

    def __init__(self, template: Rows) -> None:
        self.memory = driver.HostMemory(template.nbytes, "the table of a list")
        whole = (ctypes.c_int64 * template.size).from_address(self.memory.address)
        self.rows = np.ctypeslib.as_array(whole).reshape(template.shape)
        self.rows[...] = template

    def has_ended(self) -> bool:
        return self.copied is not None and self.copied.has_ended()
