"""Lists of pyopencl Arrays: one launch for those in the same buffers. Small ones in buffers of their own are
copied into one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import Any

import pyopencl as cl

from ..execution.options import Options
from ..opencl import arrays, late_events, status
from ..opencl.arrays import Array, Results
from ..opencl.devices import device_info
from ..opencl.late_events import known_events
from ..problem.gemm import Gemm, Operand
from .apart import Lists, check_apart
from .groups import Key, ListEntry
from .lists import CallLists, Layouts, each
from .planned import NEW, PlannedList
from .rows import rows_of

_COPIED = -2  # the number of the memory of what is copied
_LITTLE = 64 << 10  # bytes of an Array, up to which its copy takes less time than a launch for it


class DeviceMany(PlannedList):
    """A planned list of Arrays."""

    def __init__(
        self, given: CallLists, layouts: Layouts, options: Options, queue: Any, scalars: tuple[Any, Any]
    ) -> None:
        self._device = device_info(queue.device)
        if "out" in given.lists:
            check_apart(given.lists)
        self._firsts = layouts.sharing
        self._sharing = {name: Counter(its) for name, its in self._firsts.items()}
        super().__init__(given, options, queue, scalars)

    def layout(self, x: Any, argument: str, pair: int) -> Operand:
        return arrays.operand(x, argument)

    def memory_of(self, lists: Lists, name: str, pair: int) -> int:
        if super().memory_of(lists, name, pair) == NEW:
            return NEW
        x, firsts = lists[name][pair], self._firsts[name]
        can_copy = isinstance(x.base_data, cl.MemoryObjectHolder) and x.flags.forc and x.nbytes <= _LITTLE
        return _COPIED if can_copy and self._sharing[name][firsts[pair]] == 1 < len(firsts) else firsts[pair]

    def placed(self, entries: Sequence[ListEntry], lists: Lists, queue: Any) -> Mapping[tuple[str, int], int]:
        self._rows, starts = rows_of(entries, lists, (NEW, _COPIED))
        self._wholes = {key: Results((row.size,), row.dtype, self._device) for key, row in self._rows.items()}
        self._views = []
        for key, row in self._rows.items():
            if key[2] == NEW:
                made = [Results(shape, row.dtype, self._device) for shape in row.shapes]
                views = [its.layout(queue, offset) for its, offset in zip(made, row.offsets, strict=True)]
                self._views.append((key, row.order, views))
        self._memory: dict[Key, int] = {}  # the pair whose Array has the buffer
        for one in entries:
            for key in one.keys.values():
                if key[2] >= 0:
                    x = lists[key[0]][one.pair]
                    starts[key[0], one.pair] = x.offset // x.dtype.itemsize
                    self._memory[key] = key[2]
        return starts

    def multiply(
        self, given: CallLists, queue: cl.CommandQueue, wait_for: list[cl.Event]
    ) -> Iterable[tuple[int, Array]]:
        allocator = given.lists["a"][0].allocator
        new = {key: whole.new(queue, allocator) for key, whole in self._wholes.items()}
        self._enqueue(given.lists, new, queue, wait_for)
        for key, pairs, layouts in self._views:
            yield from zip(pairs, arrays.views(new[key], layouts), strict=True)

    def nothing(self, gemm: Gemm, given: CallLists, queue: cl.CommandQueue) -> Array:
        return Results(gemm.shape, gemm.dtype, self._device).new(queue, given.lists["a"][0].allocator)

    def _enqueue(
        self, lists: Lists, new: Mapping[Key, Array], queue: cl.CommandQueue, wait_for: list[cl.Event]
    ) -> None:
        """Enqueue the copies and the launches, and note in the events of what is written that they were."""
        written = [*new.values(), *_by_events(lists.get("out", (None,)))]
        with_events = not all(map(late_events.takes_late, written))
        earlier = [(x, late_events.before(x, queue)) for x in written]
        read = [x for name, xs in lists.items() if name != "out" for x in _by_events(xs)]
        known = known_events(queue)
        after = wait_for + known.missing(written + read)
        memory = {key: lists[key[0]][pair].base_data for key, pair in self._memory.items()}
        memory |= {key: whole.base_data for key, whole in new.items()}
        kinds = cl.command_queue_properties
        in_order = not queue.properties & kinds.OUT_OF_ORDER_EXEC_MODE_ENABLE
        try:
            if len(after) > 1:  # one event for many copies to wait for
                marker = [cl.enqueue_marker(queue, after)]
                known.add(after, marker)
                after = marker
            copied = self._copy(lists, memory, queue, after, back=False)
            if copied:
                after = [] if in_order else [cl.enqueue_marker(queue, copied)]
            ends: list[cl.Event] = []
            for group in self.groups:
                wanted = with_events and (group is self.groups[-1] or not in_order)
                buffers = {name: memory[key] for name, key in group.keys.items()}
                updates_c = buffers.get("c") is buffers["out"]
                ends += group.enqueue(queue, buffers, after, with_events=wanted, updates_c=updates_c)
            ends += self._copy(lists, memory, queue, ends, back=True)
            ends = ends[-1:] if in_order else [cl.enqueue_marker(queue, ends)]
        except cl.Error as error:
            raise status.rejected(self._device, "the copies of a list's operands", error) from error
        for x, events in earlier:
            late_events.ended(x, events, ends, queue)

    def _copy(
        self, lists: Lists, memory: Mapping[Key, Any], queue: cl.CommandQueue, after: Any, *, back: bool
    ) -> list[cl.Event]:
        """Enqueue the copies of operands into their rows, or *back* out of them to outs."""
        events = []
        for key, row in self._rows.items():
            if key[2] == _COPIED and (key[0] == "out") == back:
                for number, offset in zip(row.order, row.offsets, strict=True):
                    x = lists[key[0]][number]
                    its, own = (x.base_data, x.offset), (memory[key], offset)
                    (source, first), (target, to) = (own, its) if back else (its, own)
                    where = {"byte_count": x.nbytes, "src_offset": first, "dst_offset": to}
                    events.append(cl.enqueue_copy(queue, target, source, **where, wait_for=after))
        return events


def _by_events(xs: Sequence[Any]) -> list[Array]:
    """One of *xs* for each list of events: parts of one Array share theirs."""
    events = each(attrgetter("events"), xs)
    if all(map(is_, events, repeat(events[0]))):
        return [x for x in xs[:1] if x is not None]
    return list({id(its): x for its, x in zip(events, xs, strict=True) if x is not None}.values())
