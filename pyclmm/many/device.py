"""Lists of pyopencl Arrays: read where they lie if those of one name share a buffer, else copied into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import Any

import pyopencl as cl

from ..execution.options import Options
from ..execution.prepared import Prepared
from ..kernels.interface import Workspace
from ..opencl import arrays, late_events, status, workspace
from ..opencl.arrays import Array, Results
from ..opencl.devices import device_info
from ..opencl.known_events import known_events
from ..opencl.mappings import reach
from ..problem.gemm import MAX_ALIGN
from .apart import Lists, check_apart
from .groups import Key, ListEntry, entries_of, groups_of
from .lists import CallLists, Layouts, each, operands_at
from .rows import rows_of

_NEW = "new"  # in place of "out" in the keys of results that are made


class _Gathered:
    """Arrays in many buffers, copied into one with the gaps that they have."""

    def __init__(self, given: Sequence[Any], pairs: Iterable[int]) -> None:
        self.nbytes = 0
        self.starts: dict[int, int] = {}
        self._copies: list[tuple[int, int, int, int]] = []  # pair, place in its buffer, bytes, place here
        places: dict[Any, int] = {}  # of what several pairs have
        for pair in pairs:
            x = given[pair]
            (low, high), same = reach(x, x.offset), (id(x.base_data), x.offset, x.shape, x.strides)
            if same not in places:
                places[same] = self.nbytes + (low - self.nbytes) % MAX_ALIGN  # it stays as aligned as it is
                self._copies.append((pair, low, high - low, places[same]))
                self.nbytes = places[same] + high - low
            self.starts[pair] = (places[same] + x.offset - low) // x.dtype.itemsize

    def copied(
        self, queue: cl.CommandQueue, given: Sequence[Any], buffer: cl.Buffer, after: Any, back: bool = False
    ) -> list[cl.Event]:
        """Enqueue the copies into *buffer*, or *back* out of it."""
        events = []
        for pair, begin, nbytes, place in self._copies:
            there, here = (given[pair].base_data, begin), (buffer, place)
            (source, first), (target, to) = (here, there) if back else (there, here)
            where = {"byte_count": nbytes, "src_offset": first, "dst_offset": to}
            events.append(cl.enqueue_copy(queue, target, source, **where, wait_for=after))
        return events


class DeviceMany:
    """A planned list of Arrays."""

    def __init__(
        self, given: CallLists, layouts: Layouts, options: Options, queue: Any, scalars: tuple[Any, Any]
    ) -> None:
        lists, self._device = given.lists, device_info(queue.device)
        if "out" in lists:
            check_apart(lists)
        entries = entries_of(given, options, scalars, arrays.operand, lambda x: bool(arrays.signature(x)[1]))
        self._count, outs = len(entries), lists.get("out", (None,) * len(entries))
        empty = [one for one in entries if one.gemm.is_empty]
        self._empty = [(one.pair, Results(one.gemm.shape, one.gemm.dtype, self._device)) for one in empty]
        full = [
            one._replace(keys=one.keys | {"out": (_NEW, one.keys["out"][1])})
            if outs[one.pair] is None
            else one
            for one in entries
            if not one.gemm.is_empty
        ]
        listed = self._listed(full, lists, layouts.sharing)
        self.groups, _ = groups_of(listed, self._place(listed, lists, queue), options, queue)
        pairs = {one.pair for one in listed}
        self._alone = [
            (one, Prepared(operands_at(lists, one.pair), options, queue, one.scales))
            for one in full
            if one.pair not in pairs
        ]

    def _listed(
        self, entries: Sequence[ListEntry], lists: Lists, firsts: Mapping[str, Sequence[int]]
    ) -> list[ListEntry]:
        """Those that launches compute together. Each other one has a launch of its own: what must be
        converted or copied on the device, and what cannot be copied as it lies."""
        direct = [one for one in entries if not (one.gemm.copies or one.gemm.out_copy)]
        self._in_place = {
            key: pairs[0]
            for key, pairs in _pairs_by_key(direct).items()
            if len({firsts[key[0]][pair] for pair in pairs}) == 1
        }

        def fits(key: Key, pair: int) -> bool:
            if key[0] == _NEW or key in self._in_place:
                return True
            x = lists[key[0]][pair]
            return isinstance(x.base_data, cl.MemoryObjectHolder) and (key[0] != "out" or x.flags.forc)

        return [one for one in direct if all(fits(key, one.pair) for key in one.keys.values())]

    def _place(self, entries: Sequence[ListEntry], lists: Lists, queue: Any) -> dict[tuple[str, int], int]:
        """Find out where the operands and results of *entries* lie; where each begins."""
        new = [one._replace(keys={"out": one.keys["out"]}) for one in entries if one.keys["out"][0] == _NEW]
        rows, starts = rows_of(new, lists, {})
        self._rows = {key: Results((row.size,), row.dtype, self._device) for key, row in rows.items()}
        self._views = {}
        for key, row in rows.items():
            places = zip(row.shapes, row.offsets, strict=True)
            self._views[key] = (
                row.order,
                [Results(shape, row.dtype, self._device).layout(queue, offset) for shape, offset in places],
            )
        self._gathered: dict[Key, _Gathered] = {}
        for key, pairs in _pairs_by_key(entries).items():
            xs = lists[key[0]]
            if key in self._in_place:
                its = {pair: xs[pair].offset // xs[pair].dtype.itemsize for pair in pairs}
            else:
                self._gathered[key] = _Gathered(xs, pairs)
                its = self._gathered[key].starts
            starts |= {(key[0], pair): start for pair, start in its.items()}
        self._gathered = dict(sorted(self._gathered.items(), key=lambda item: -item[1].nbytes))
        self._needs = tuple(
            [Workspace("_".join(key), its.nbytes, copy_of=key[0]) for key, its in self._gathered.items()]
        )
        return starts

    def run(self, lists: Lists, queue: cl.CommandQueue, wait_for: list[cl.Event]) -> list[Any]:
        """The results, complete when their events are. Raises LaunchError, DeviceMemoryError or
        DeviceLostError."""
        allocator = lists["a"][0].allocator
        new = {key: whole.new(queue, allocator) for key, whole in self._rows.items()}
        results = list(lists["out"]) if "out" in lists else [None] * self._count
        for key, (pairs, layouts) in self._views.items():
            for pair, view in zip(pairs, arrays.views(new[key], layouts), strict=True):
                results[pair] = view
        for pair, nothing in self._empty:
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
        lender = workspace.shared(queue, self._device)  # without order, one for this call
        spaces = lender.borrow(self._needs, 0) if self._needs else None
        memory = {key: lists[key[0]][pair].base_data for key, pair in self._in_place.items()}
        memory |= {key: whole.base_data for key, whole in new.items()}
        if spaces:
            memory |= zip(self._gathered, spaces.buffers, strict=False)
        try:
            if self._gathered and after:  # one event for many copies to wait for
                marker = [cl.enqueue_marker(queue, after)]
                known.add(after, marker)
                after = marker
            ends = self._launched(lists, memory, queue, after, with_events)
        except cl.Error as error:
            raise status.rejected(self._device, "the copies of a list's operands", error) from error
        if spaces:
            lender.take_back(spaces, ends, False)
        for x, events in earlier:
            late_events.ended(x, events, ends, queue)

    def _launched(
        self,
        lists: Lists,
        memory: Mapping[Key, Any],
        queue: cl.CommandQueue,
        after: list[cl.Event],
        with_events: bool,
    ) -> list[cl.Event]:
        """Enqueue the copies and the launches. Returns the event that ends with all, if one is wanted."""
        kinds = cl.command_queue_properties
        in_order = not queue.properties & kinds.OUT_OF_ORDER_EXEC_MODE_ENABLE
        for key, gathered in self._gathered.items():
            if key[0] != "out":
                copied = gathered.copied(queue, lists[key[0]], memory[key], after)
                after = after if in_order else after + copied
        ends: list[cl.Event] = []
        for group in self.groups:
            wanted = with_events and (group is self.groups[-1] or not in_order)
            ends += group.enqueue(queue, memory, after, with_events=wanted)
        for key, gathered in self._gathered.items():
            if key[0] == "out":
                ends += gathered.copied(queue, lists["out"], memory[key], ends, back=True)
        return ends[-1:] if in_order else [cl.enqueue_marker(queue, ends)]

    def release(self) -> None:
        """It keeps no memory."""


def _pairs_by_key(entries: Iterable[ListEntry]) -> dict[Key, list[int]]:
    """The pairs that have given an array of each key."""
    found: dict[Key, list[int]] = {}
    for one in entries:
        for key in one.keys.values():
            if key[0] != _NEW:
                found.setdefault(key, []).append(one.pair)
    return found


def _by_events(xs: Sequence[Any]) -> list[Array]:
    """One of *xs* for each list of events: parts of one Array share theirs."""
    events = each(attrgetter("events"), xs)
    if all(map(is_, events, repeat(events[0]))):
        return [x for x in xs[:1] if x is not None]
    return list({id(its): x for its, x in zip(events, xs, strict=True) if x is not None}.values())
