"""Lists of pyopencl Arrays: one launch for those in the same buffers. Small ones in buffers of their own are
copied into one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from operator import attrgetter, is_, methodcaller
from typing import Any

import numpy as np
import pyopencl as cl

from ..opencl import arrays, late_events, status
from ..opencl.arrays import Array, Results
from ..opencl.late_events import known_events
from ..opencl.launcher import info_of
from ..problem.gemm import Operand
from .apart import Lists, Spans
from .lists import CallLists, each, places
from .planned import NEW, SCALARS, Key, LaunchGroup, ListEntry, PlannedList

_COPIED = -2  # the number of the memory of what is copied
_LITTLE = 64 << 10  # bytes of an Array, up to which its copy takes less time than a launch for it


class DeviceMany(PlannedList):
    """A planned list of Arrays."""

    packed = NEW, _COPIED

    def __init__(self, given: CallLists, options: Any, queue: Any, scalars: tuple[Any, Any]) -> None:
        self._device, lists = info_of(queue), given.lists
        if "out" in lists.names:
            # Addresses of which no allocation's are beside another's.
            far = iter(
                [(8 + root << 44) + at for root, at in places(x for x in lists.arrays if x is not None)]
            )
            at = [0 if x is None else next(far) for x in lists.arrays]
            Spans(lists).check(lists, np.array(at, np.int64))
        self._firsts, self._length = given.layouts.firsts, lists.length
        self._sharing = Counter(self._firsts)
        super().__init__(given, options, queue, scalars)

    def layout(self, x: Array, argument: str) -> Operand:
        return arrays.operand(x, argument)

    def memory_of(self, x: Array, at: int) -> int:
        first = self._firsts[at]
        can_copy = isinstance(x.base_data, cl.MemoryObjectHolder) and x.flags.forc and x.nbytes <= _LITTLE
        return _COPIED if can_copy and self._sharing[first] == 1 < self._length else first

    def start_of(self, lists: Lists, key: Key, pair: int) -> int:
        x = None if key in self.rows else lists.arrays[lists.number(key.name, pair)]
        return super().start_of(lists, key, pair) if x is None else int(x.offset // x.dtype.itemsize)

    def place(self, entries: Sequence[ListEntry], lists: Lists, queue: cl.CommandQueue) -> None:
        super().place(entries, lists, queue)
        self._wholes = {key: Results((row.size,), row.dtype, self._device) for key, row in self.rows.items()}
        self._views = []
        for key, row in self.rows.items():
            if key.memory == NEW:
                made = [Results(shape, row.dtype, self._device) for shape in row.shapes]
                views = [its.layout(queue, offset) for its, offset in zip(made, row.offsets, strict=True)]
                self._views.append((key, row.pairs, views))

    def multiply(
        self, given: CallLists, queue: cl.CommandQueue, wait_for: list[cl.Event]
    ) -> Iterable[tuple[int, Array]]:
        allocator = given.lists.arrays[0].allocator
        new = {key: whole.new(queue, allocator) for key, whole in self._wholes.items()}
        self._enqueue(given.lists, new, queue, wait_for)
        for key, pairs, layouts in self._views:
            yield from zip(pairs, arrays.views(new[key], layouts), strict=True)

    def _enqueue(
        self, lists: Lists, new: Mapping[Key, Array], queue: cl.CommandQueue, wait_for: list[cl.Event]
    ) -> None:
        """Enqueue the copies and the launches, and note in the events of what is written that they were."""
        found = {name: _by_events(lists.named(name)) for name in lists.names}
        written = [*new.values(), *found.pop("out", ())]
        with_events = not all(map(late_events.takes_late, written))
        earlier = [(x, late_events.before(x, queue)) for x in written]
        known = known_events(queue)
        after = wait_for + known.missing(chain(written, *found.values()))
        status.refuse_failed(after)
        memory = {key: whole.base_data for key, whole in new.items()}
        for key in {key for group in self.groups for key in group.keys.values()} - memory.keys():
            memory[key] = lists.arrays[key.memory].base_data
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
                launch = methodcaller("enqueue", buffers, SCALARS, after, with_events=wanted)
                updates_c = partial(self._updates_c, group, lists)
                ends += group.launched(queue, launch, False, updates_c)
            ends += self._copy(lists, memory, queue, ends, back=True)
            ends = ends[-1:] if in_order else [cl.enqueue_marker(queue, ends)]
        except cl.Error as error:
            status.check_events(after, queue.context, "the events of an operand, or of an out, have")
            raise status.rejected(self._device, "the copies of a list's operands", error) from error
        for x, events in earlier:
            late_events.ended(x, events, ends, queue)

    def _updates_c(self, group: LaunchGroup, lists: Lists) -> bool:
        """Whether an out of *group* is its C."""
        keys, c, out = group.keys, lists.named("c"), lists.named("out")
        if "c" not in keys or not self.rows.keys().isdisjoint([keys["c"], keys["out"]]):
            return False
        return any(arrays.may_share(c[pair], out[pair]) for pair in group.pairs)

    def _copy(
        self, lists: Lists, memory: Mapping[Key, Any], queue: cl.CommandQueue, after: Any, *, back: bool
    ) -> list[cl.Event]:
        """Enqueue the copies of operands into their rows, or *back* out of them to outs."""
        events = []
        for key, row in self.rows.items():
            if key.memory == _COPIED and (key.name == "out") == back:
                for pair, offset in zip(row.pairs, row.offsets, strict=True):
                    x = lists.arrays[lists.number(key.name, pair)]
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
