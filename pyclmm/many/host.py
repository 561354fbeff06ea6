"""Lists of NumPy arrays: read and written where they lie if kernels can, else packed in each call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import methodcaller
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..execution.casts import cast_into, converted
from ..execution.operands import Operands
from ..execution.options import wait_here
from ..opencl import host_memory
from ..opencl.array_fields import reads_host
from ..opencl.devices import device_info
from ..opencl.host_memory import HostBuffers, dense_layout, new_is_plain
from ..opencl.mappings import overlaps_itself
from ..opencl.queues import FreeQueue
from ..problem.dtypes import dtype_of, type_name
from ..problem.gemm import MAX_ALIGN, Operand
from .apart import Addresses, Lists
from .lists import CallLists
from .planned import NEW, SCALARS, ListEntry, ManyByAddress

Array = NDArray[Any]
_ZEROS, _AT_ONCE = bytes(MAX_ALIGN), 128


class HostMany(ManyByAddress):
    """A planned list of NumPy arrays.

    The host copies what kernels cannot read: numbers of another type, in the other order of bytes or between
    elements, arrays without a unit stride. On a device that does not read the host's memory it copies all.
    """

    def __init__(self, given: CallLists, options: Any, queue: Any, scalars: Any) -> None:
        self._device = device_info(queue.device)
        # A small list may go to a device of the platform that computes on the caller's thread: it reads too.
        self._in_place = self._device.unified_memory and reads_host(queue.device)
        self.align = host_memory.new_align(self._device)
        # The type of an operand's copy, by its number in the lists; None for what is only packed.
        self._copied: dict[int, np.dtype[Any] | None] = {}
        super().__init__(given, options, queue, scalars)
        self._plain = self._device.unified_memory
        self._rows_are_plain = {
            key: new_is_plain((row.size,), row.dtype, self._device, "out") for key, row in self.rows.items()
        }

    def layout(self, x: Array, argument: str) -> Operand:
        if x.dtype.hasobject or x.itemsize == 0:  # before its bytes are looked at
            type_name(x.dtype, argument)
        if self._is_addressed(x):
            return host_memory.layout(x, self._device)
        return dense_layout(x.shape, x.dtype.newbyteorder("="), self._device)

    def _is_addressed(self, x: Array) -> bool:
        """Whether kernels can read an operand where it lies."""
        return self._in_place and host_memory.is_addressable(x)

    def overlaps(self, operands: Operands) -> bool:
        out = operands.get("out")
        if out is None:
            return False
        return not self._is_addressed(out) or overlaps_itself(out) or super().overlaps(operands)

    def is_alone(self, entry: ListEntry, alike: int) -> bool:
        return False  # what is copied is copied by the host

    def place(self, entries: Sequence[ListEntry], lists: Lists, queue: cl.CommandQueue) -> None:
        super().place(entries, lists, queue)
        for one in entries:
            converted = dict(one.gemm.copies)
            for name, key in one.keys.items():
                if key.memory == NEW:
                    continue
                at, dtype = lists.number(key.name, one.pair), dtype_of(key.type)
                x = lists.arrays[at]
                if name in converted or not self._is_addressed(x):
                    is_packed = not self._in_place and x.dtype == dtype and x.flags.c_contiguous
                    self._copied[at] = None if is_packed else dtype

    def multiply(
        self, given: CallLists, queue: cl.CommandQueue, wait_for: list[cl.Event]
    ) -> Iterable[tuple[int, Any]]:
        own = self.queue if isinstance(queue, FreeQueue) else queue
        if self._in_place and not reads_host(own.device):
            raise ArgumentError(
                f"queue is on device {own.device.name!r}, which cannot read the host's memory as "
                "the plan's device does; make a plan with this queue"
            )
        wait_here(wait_for)
        outs = given.lists.named("out")
        for pair, part in self._multiplied(given, own):
            if outs[pair] is None:
                yield pair, part if part.shape else part[()]
            else:
                cast_into(outs[pair], part, "same_kind")

    def _multiplied(self, given: CallLists, queue: cl.CommandQueue) -> list[tuple[int, Array]]:
        """Compute the outs that kernels write, and what is returned: the pair of each result, and that."""
        addresses, row, _copies = self._placed(given)  # which must stay
        new = {key: np.empty(its.size, its.dtype) for key, its in self.rows.items()}
        buffers, ends = HostBuffers(queue, self._device), list[cl.Event]()
        # Nobody else's while it is used: a signal handler, or a finalizer, may call within this call.
        rows, holds = self.tables.mine.held.pop(queue, None) or (self.template.copy(), None)
        try:
            base = None if row is None else buffers.read(row, self._plain, "pairs")[0]
            memory = {key: buffers.write(whole, self._rows_are_plain[key])[0] for key, whole in new.items()}
            if addresses is not holds:
                columns = self.columns(addresses)
                rows[:, : columns.shape[1]] = columns
            at = 0
            for group in self.groups:
                its = rows[at : (at := at + len(group.pairs))].view(np.uint8)
                own = {name: memory.get(key, base) for name, key in group.keys.items()}
                own["products"], _ = buffers.read(its, self._plain, "a table of products")
                launch = methodcaller("enqueue", own, SCALARS, buffers.uploads, is_waited_for=True)
                ends += group.launched(queue, launch, True, partial(self.updates_c, addresses, group))[-1:]
            parts = []  # meanwhile
            for key, whole in new.items():
                its = self.rows[key]
                each = zip(its.pairs, its.shapes, its.offsets, strict=True)
                parts += [(pair, np.ndarray(shape, its.dtype, whole, at)) for pair, shape, at in each]
            buffers.read_back(ends)
        except BaseException:  # Ctrl-C too: afterwards the caller may free the arrays or write to them
            host_memory.finish(queue)
            raise
        self.tables.keep(queue, (rows, addresses))
        for group in self.groups:
            binding = group.executable.latest_binding()
            if binding is not None:
                binding.settle()
        return parts

    def _placed(self, given: CallLists) -> tuple[Addresses, Any, Any]:
        """Where each operand lies, in bytes: its address, or its place in the row that is the second. The
        third has the copies: one of what several pairs have."""
        if not self._copied:
            return given.addresses, None, ()
        made: dict[Any, Array] = {}
        keys = {at: (id(given.lists.arrays[at]), dtype) for at, dtype in self._copied.items()}
        for at, key in keys.items():
            if key not in made:
                x, dtype = given.lists.arrays[at], key[1]
                made[key] = x if dtype is None else converted(x, dtype)
        row, begins = (None, map(host_memory.location, made.values())) if self._in_place else _packed(made)
        addresses, places = given.addresses.copy(), dict(zip(made, begins, strict=True))
        addresses[[*keys]] = [places[key] for key in keys.values()]
        return addresses, row, made


def _packed(arrays: Mapping[Any, Array]) -> tuple[Array, list[int]]:
    """All in one, some joined at a time, which takes half as long as all at once; where each begins."""
    parts = [x if x.dtype.isbuiltin == 1 else x.tobytes() for x in arrays.values()]  # others are no buffers
    sizes = np.array([x.nbytes for x in arrays.values()], np.int64)
    padded = sizes + -sizes % MAX_ALIGN
    starts, gaps = (np.cumsum(padded) - padded).tolist(), [_ZEROS[:gap] for gap in (padded - sizes).tolist()]
    both: list[Any] = [*chain(*zip(parts, gaps, strict=True))]
    row, at = np.empty(padded.sum(), np.uint8), 0
    for begin in range(0, len(both), _AT_ONCE):
        part = b"".join(both[begin : begin + _AT_ONCE])
        row.data[at : (at := at + len(part))] = part
    return row, starts
