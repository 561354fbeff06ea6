"""Lists of pyopencl Arrays: one launch for those in the same buffers. Small ones in buffers of their own are
copied into one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import Any

import pyopencl as cl

from ..execution import operands as calls
from ..execution.options import Options
from ..opencl import arrays, late_events, status
from ..opencl.arrays import Array, Results
from ..opencl.devices import device_info
from ..opencl.known_events import known_events
from ..plan_cache import plan_for
from ..problem.gemm import Operand
from .apart import Lists, check_apart
from .groups import Key, ListEntry, entries_of, groups_of
from .lists import CallLists, Layouts, each, operands_at
from .rows import rows_of

NEW, _COPIED = -1, -2  # numbers of rows: of results that are made, and of what is copied
_LITTLE = 64 << 10  # bytes of an Array, up to which its copy takes less time than a launch for it


class ManyOnDevice(ABC):
    """A planned list."""

    align: int | None = None  # of the copies that the host makes of operands

    def __init__(
        self, given: CallLists, layouts: Layouts, options: Options, queue: Any, scalars: tuple[Any, Any]
    ) -> None:
        lists = given.lists
        found = self.layout, self._memory_of(lists, layouts), self.overlaps, self.align
        entries = entries_of(given, options, scalars, *found)
        self._count, self._empty = len(entries), [one for one in entries if one.gemm.is_empty]
        listed, alone = self.divided([one for one in entries if not one.gemm.is_empty])
        self.groups, self.queue = groups_of(listed, self._place(listed, lists, queue), options, queue)
        self._alone = []
        for one in alone:
            operands = operands_at(lists, one.pair)
            product = plan_for(operands, calls.signature(operands), options, queue, one.scales)
            self._alone.append((one, product))
        owners: list[Any] = [*self.groups, *[product for _, product in self._alone]]
        self.executables = [one.executable for one in owners]

    @abstractmethod
    def layout(self, x: Any, argument: str) -> Operand:
        """That of an operand."""

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
    def _memory_of(self, lists: Lists, layouts: Layouts) -> Callable[[str, int], int]:
        """What gives the number of an operand's memory, by name and pair. A launch has one for each name."""

    @abstractmethod
    def _place(self, entries: Sequence[ListEntry], lists: Lists, queue: Any) -> Mapping[tuple[str, int], int]:
        """Find out where each operand and result of *entries* begins in its memory."""


class DeviceMany(ManyOnDevice):
    """A planned list of Arrays."""

    def __init__(
        self, given: CallLists, layouts: Layouts, options: Options, queue: Any, scalars: tuple[Any, Any]
    ) -> None:
        self._device = device_info(queue.device)
        if "out" in given.lists:
            check_apart(given.lists)
        super().__init__(given, layouts, options, queue, scalars)
        self._nothing = [
            (one.pair, Results(one.gemm.shape, one.gemm.dtype, self._device)) for one in self._empty
        ]

    def layout(self, x: Any, argument: str) -> Operand:
        return arrays.operand(x, argument)

    def _memory_of(self, lists: Lists, layouts: Layouts) -> Callable[[str, int], int]:
        firsts = layouts.sharing
        sharing = {name: Counter(its) for name, its in firsts.items()}

        def memory_of(name: str, pair: int) -> int:
            if name not in lists or lists[name][pair] is None:
                return NEW
            x, first = lists[name][pair], firsts[name][pair]
            can_copy = isinstance(x.base_data, cl.MemoryObjectHolder) and x.flags.forc
            is_copied = can_copy and x.nbytes <= _LITTLE and sharing[name][first] == 1 < len(firsts[name])
            return _COPIED if is_copied else first

        return memory_of

    def _place(self, entries: Sequence[ListEntry], lists: Lists, queue: Any) -> dict[tuple[str, int], int]:
        packed = [
            one._replace(keys={name: key for name, key in one.keys.items() if key[2] < 0}) for one in entries
        ]
        self._rows, starts = rows_of(packed, lists)
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

    def run(self, given: CallLists, queue: cl.CommandQueue, wait_for: list[cl.Event]) -> list[Any]:
        """The results, complete when their events are. Raises LaunchError, DeviceMemoryError or
        DeviceLostError."""
        lists = given.lists
        allocator = lists["a"][0].allocator
        new = {key: whole.new(queue, allocator) for key, whole in self._wholes.items()}
        results = list(lists["out"]) if "out" in lists else [None] * self._count
        for key, pairs, layouts in self._views:
            for pair, view in zip(pairs, arrays.views(new[key], layouts), strict=True):
                results[pair] = view
        for pair, nothing in self._nothing:
            results[pair] = nothing.new(queue, allocator) if results[pair] is None else results[pair]
        if self.groups:
            self._enqueue(lists, new, queue, wait_for)
        for one, product in self._alone:
            results[one.pair] = product.multiply(operands_at(lists, one.pair), queue, one.scales, wait_for)
        return results

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
                ends += group.enqueue(queue, buffers, after, with_events=wanted)
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
