"""Lists of NumPy arrays: read and written where they lie if kernels can, else packed in each call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..execution import operands as calls
from ..opencl import host_memory
from ..opencl.array_fields import reads_host
from ..opencl.devices import device_info
from ..opencl.host_memory import (
    HostBuffers,
    HostForm,
    dense_form,
    dense_layout,
    may_overlap_itself,
    new_align,
)
from ..opencl.queues import FreeQueue
from ..problem.dtypes import dtype_of, type_name
from ..problem.gemm import MAX_ALIGN, Gemm, Operand
from .addressed import ManyByAddress, updates_c_in_place
from .apart import Lists
from .groups import Key, ListEntry
from .lists import Addresses, CallLists, Layouts
from .planned import NEW

Array = NDArray[Any]
_ZEROS, _AT_ONCE = bytes(MAX_ALIGN), 128


class HostMany(ManyByAddress):
    """A planned list of NumPy arrays.

    The host copies what kernels cannot read: numbers of another type, in the other order of bytes or between
    elements, arrays without a unit stride. On a device that does not read the host's memory it copies all.
    """

    def __init__(self, given: CallLists, layouts: Layouts, options: Any, queue: Any, scalars: Any) -> None:
        self._device = device_info(queue.device)
        # A small list may go to a device of the platform that computes on the caller's thread: it reads too.
        self._in_place = self._device.unified_memory and reads_host(queue.device)
        self.align = new_align(self._device)
        # The type of an operand's copy; None for what is only packed.
        self._copied: dict[tuple[str, int], np.dtype[Any] | None] = {}
        self._layouts = dict(layouts.lists)
        super().__init__(given, layouts, options, queue, scalars)
        self._layouts.clear()  # they are for planning
        self._plain = HostForm(self._device.unified_memory, 0)
        self._forms = {
            key: dense_form((row.size,), row.dtype, self._device, "out") for key, row in self.rows.items()
        }

    def layout(self, x: Array, argument: str, pair: int) -> Operand:
        if x.dtype.hasobject or x.itemsize == 0:  # before its bytes are looked at
            type_name(x.dtype, argument)
        if self._is_addressed(argument, pair):
            return Operand(*self._layouts[argument][pair])
        return dense_layout(x.shape, x.dtype.newbyteorder("="), self._device)

    def _is_addressed(self, argument: str, pair: int) -> bool:
        """Whether kernels can read an operand, or write an out, where it lies."""
        _, strides, dtype, align = self._layouts[argument][pair]
        is_whole = not any(step % dtype.itemsize for step in (align, *strides))
        return self._in_place and bool(dtype.isnative) and is_whole

    def overlaps(self, operands: calls.Operands) -> bool:
        if "out" not in operands:
            return False
        is_written = host_memory.is_addressable(operands["out"]) and not may_overlap_itself(operands["out"])
        return not (self._in_place and is_written) or super().overlaps(operands)

    def divided(self, entries: Sequence[ListEntry]) -> tuple[list[ListEntry], list[ListEntry]]:
        """All together: what is copied is copied by the host."""
        for one in entries:
            if one.gemm.out_copy:
                one.keys["out"] = (*one.keys["out"][:2], NEW)
        return list(entries), []

    def placed(self, entries: Sequence[ListEntry], lists: Lists, queue: Any) -> Mapping[tuple[str, int], int]:
        for one in entries:
            converted = dict(one.gemm.copies)
            for name, (own, its_type, memory) in one.keys.items():
                if memory == NEW:
                    continue
                x, dtype = lists[own][one.pair], dtype_of(its_type)
                if name in converted or not self._is_addressed(own, one.pair):
                    is_packed = not self._in_place and x.dtype == dtype and x.flags.c_contiguous
                    self._copied[own, one.pair] = None if is_packed else dtype
        return super().placed(entries, lists, queue)

    def nothing(self, gemm: Gemm, given: CallLists, queue: Any) -> Array:
        return np.empty(gemm.shape, gemm.dtype)

    def multiply(
        self, given: CallLists, queue: cl.CommandQueue | None, wait_for: list[cl.Event]
    ) -> Iterable[tuple[int, Any]]:
        own = self.queue if queue is None or isinstance(queue, FreeQueue) else queue
        if self._in_place and not reads_host(own.device):
            raise ArgumentError(
                f"queue is on device {own.device.name!r}, which cannot read the host's memory as "
                "the plan's device does; make a plan with this queue"
            )
        if wait_for:  # the host reads the operands
            host_memory.wait(self._device, wait_for)
        outs = given.lists.get("out", (None,) * self.count)
        for pair, part in self._multiplied(given, own):
            out = outs[pair]
            if out is None:
                yield pair, part if part.shape else part[()]
            else:
                np.copyto(out, part, casting="same_kind")

    def _multiplied(self, given: CallLists, queue: cl.CommandQueue) -> Iterable[tuple[int, Array]]:
        """Compute the outs that kernels write, and what is returned: results, and the pair of each."""
        copies = self._copies(given.lists)
        addresses, row = self._placed(given, copies)
        new = {key: np.empty(row.size, row.dtype) for key, row in self.rows.items()}
        held: dict[Key, HostBuffers] = {key: HostBuffers(queue, self._device) for key in new}
        read = HostBuffers(queue, self._device)
        # Nobody else's while it is used: a signal handler, or a finalizer, may call within this call.
        rows, holds = self.tables.mine.held.pop(queue, None) or (self.template.copy(), None)
        memory: dict[Key, Any] = {}
        try:
            if row is not None:
                base, _ = read.read(row, self._plain, "pairs")
                memory = {key: base for group in self.groups for key in group.keys.values()}
            for key, result in new.items():
                memory[key], _ = held[key].write(result, self._forms[key])
            if addresses is not holds:
                columns = self.columns(addresses)
                rows[:, : columns.shape[1]] = columns
            at, ends, updates_c = 0, list[cl.Event](), self._in_place and updates_c_in_place(addresses)
            for group in self.groups:
                its = rows[at : (at := at + len(group.pairs))].view(np.uint8)
                products, _ = read.read(its, self._plain, "a table of products")
                own = {"products": products} | {name: memory.get(key) for name, key in group.keys.items()}
                how = {"is_waited_for": True, "updates_c": updates_c}
                ends += group.enqueue(queue, own, read.uploads, **how)[-1:]
            parts = [part for key, whole in new.items() for part in self.rows[key].parts(whole)]  # meanwhile
            host_memory.wait(self._device, ends)
            for key in new:
                held[key].read_back(ends)
        except BaseException:  # Ctrl-C too: afterwards the caller may free the arrays or write to them
            host_memory.finish(queue)
            raise
        self.tables.keep(queue, (rows, addresses))
        for group in self.groups:
            binding = group.executable.latest_binding()
            if binding is not None:
                binding.settle()
        return parts

    def _copies(self, lists: Lists) -> dict[tuple[str, int], Array]:
        """The copies of operands, by name and pair; one of what several pairs have. What is only packed is
        itself."""
        made: dict[Any, Array] = {}
        found = {}
        for (name, pair), dtype in self._copied.items():
            x = lists[name][pair]
            if dtype is not None:
                key = id(x), dtype
                if key not in made:
                    made[key] = np.array(x, dtype, order="C", copy=True)
                x = made[key]
            found[name, pair] = x
        return found

    def _placed(self, given: CallLists, copies: Mapping[tuple[str, int], Array]) -> tuple[Addresses, Any]:
        """Where each operand lies, in bytes: its address, or its place in the row that is the second."""
        addresses: Any = given.addresses
        if not copies:
            return addresses, None
        addresses = {name: its.copy() for name, its in addresses.items()}
        places, row = None, None
        if not self._in_place:
            places, row = _packed({id(x): x for x in copies.values()})
        for (name, pair), x in copies.items():
            addresses[name][pair] = host_memory.location(x) if places is None else places[id(x)]
        return addresses, row


def _packed(arrays: Mapping[int, Array]) -> tuple[dict[int, int], Array]:
    """Where each array begins, by the same keys, and all in one, some joined at a time: that takes half as
    long as all at once."""
    parts = [x if x.dtype.isbuiltin == 1 else x.tobytes() for x in arrays.values()]  # others are no buffers
    sizes = np.array([x.nbytes for x in arrays.values()], np.int64)
    padded = sizes + -sizes % MAX_ALIGN
    starts, gaps = (np.cumsum(padded) - padded).tolist(), [_ZEROS[:gap] for gap in (padded - sizes).tolist()]
    both: list[Any] = [*chain(*zip(parts, gaps, strict=True))]
    row = np.empty(padded.sum(), np.uint8)
    memory, at = row.data, 0
    for begin in range(0, len(both), _AT_ONCE):
        part = b"".join(both[begin : begin + _AT_ONCE])
        memory[at : at + len(part)] = part
        at += len(part)
    return dict(zip(arrays, starts, strict=True)), row
