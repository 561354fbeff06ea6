"""Lists of pyopencl Arrays: read where they lie if those of one name share a buffer, else copied into one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyopencl as cl

from .. import plan_cache
from ..execution import operands as calls
from ..execution.operands import Operands
from ..execution.options import Options
from ..kernels.interface import Workspace
from ..opencl import arrays, late_events, status, workspace
from ..opencl.arrays import Array, Results
from ..opencl.devices import device_info
from ..opencl.known_events import known_events
from ..opencl.mappings import reach
from ..problem.gemm import MAX_ALIGN
from .apart import Lists, check_apart
from .entries import Key, ListEntry, Starts, entry_of, scales_at
from .group import groups_of
from .lists import CallLists, naming, operands_at
from .rows import rows_of, starts_of


class _Gathered:
    """Arrays in many buffers, copied into one with the gaps that they have."""

    def __init__(self, given: Sequence[Any], indices: Iterable[int]) -> None:
        self.nbytes = 0
        self.starts: dict[int, int] = {}
        self._copies: list[tuple[int, int, int, int]] = []  # pair, place in its buffer, bytes, place here
        places: dict[Any, int] = {}  # of what several pairs have
        for index in indices:
            x = given[index]
            (low, high), same = reach(x, x.offset), (id(x.base_data), x.offset, x.shape, x.strides)
            if same not in places:
                places[same] = self.nbytes + (low - self.nbytes) % MAX_ALIGN  # it stays as aligned as it is
                self._copies.append((index, low, high - low, places[same]))
                self.nbytes = places[same] + high - low
            self.starts[index] = (places[same] + x.offset - low) // x.dtype.itemsize

    def copied(
        self, queue: cl.CommandQueue, given: Sequence[Any], buffer: cl.Buffer, after: Any, back: bool = False
    ) -> Iterator[cl.Event]:
        """Enqueue the copies into *buffer*, or *back* out of it."""
        for index, begin, nbytes, place in self._copies:
            there, here = (given[index].base_data, begin), (buffer, place)
            (source, first), (target, to) = (here, there) if back else (there, here)
            where = {"byte_count": nbytes, "src_offset": first, "dst_offset": to}
            yield cl.enqueue_copy(queue, target, source, **where, wait_for=after)


class DeviceMany:
    """A planned list of Arrays."""

    def __init__(self, given: CallLists, options: Options, queue: Any, scalars: tuple[Any, Any]) -> None:
        lists = given.lists
        if "out" in lists:
            check_apart(lists)
        self._device, self._options = device_info(queue.device), options
        entries = [self._entry(lists, index, options, scalars) for index in range(len(lists["a"]))]
        self._layouts = [(one.gemm.shape, one.gemm.dtype) for one in entries]
        full = [one for one in entries if not one.gemm.is_empty]
        together = self._together(full, lists)
        self._alone = [one for one in full if one.pair not in together]
        listed = [one for one in full if one.pair in together]
        starts = self._place(full, listed, lists)
        self.groups, _ = groups_of(listed, starts, options, queue)
        self._copied = sorted(self._gathered, key=lambda key: -self._gathered[key].nbytes)
        needs = [Workspace("_".join(key), self._gathered[key].nbytes, copy_of=key[0]) for key in self._copied]
        self._needs = tuple(needs)

    def _entry(self, lists: Lists, index: int, options: Options, scalars: tuple[Any, Any]) -> ListEntry:
        with naming(index):
            given = operands_at(lists, index)
            layouts = {name: arrays.operand(x, name) for name, x in given.items()}
            overlaps = bool(arrays.signature(given)[1])
            return entry_of(index, layouts, options, scales_at(index, *scalars, lists), overlaps)

    def _together(self, entries: Sequence[ListEntry], lists: Lists) -> set[int]:
        """The pairs that launches compute together. Each other one has a launch of its own: what must be
        converted or copied on the device, and results that cannot be copied to their out as they lie."""
        found: dict[Key, list[Any]] = {}
        for one in entries:
            for key in one.keys.values():
                found.setdefault(key, []).append(_array(lists, key, one.pair))
        buffers = {key: {None if x is None else id(x.base_data) for x in xs} for key, xs in found.items()}

        def fits(one: ListEntry, key: Key) -> bool:
            x = _array(lists, key, one.pair)
            if x is None or len(buffers[key]) == 1:
                return True
            copies = isinstance(x.base_data, cl.MemoryObjectHolder)
            return copies and (key[0] != "out" or (x.flags.forc and None not in buffers[key]))

        return {
            one.pair
            for one in entries
            if not (one.gemm.copies or one.gemm.out_copy) and all(fits(one, key) for key in one.keys.values())
        }

    def _place(self, entries: Sequence[ListEntry], together: Sequence[ListEntry], lists: Lists) -> Starts:
        """Find out where the operands and results of these entries lie; where each begins."""
        new = [one for one in entries if _array(lists, ("out", ""), one.pair) is None]
        rows = {key: row for key, row in rows_of(new, lists, {}).items() if key[0] == "out"}
        starts = {name: dict(its) for name, its in starts_of(rows).items()}
        self._rows = {key: Results((row.size,), row.dtype, self._device) for key, row in rows.items()}
        self._views = [
            (index, key, begin) for key, row in rows.items() for index, begin in row.starts.items()
        ]
        made = {layout: Results(*layout, self._device) for layout in set(self._layouts)}
        self._results = [made[layout] for layout in self._layouts]
        self._in_place: dict[Key, int] = {}
        self._gathered: dict[Key, _Gathered] = {}
        given: dict[Key, list[int]] = {}
        for one in together:
            for key in one.keys.values():
                if key[0] in lists and lists[key[0]][one.pair] is not None:
                    given.setdefault(key, []).append(one.pair)
        for key, indices in given.items():
            xs, its = lists[key[0]], starts.setdefault(key[0], {})
            if len({id(xs[index].base_data) for index in indices}) == 1:
                self._in_place[key] = indices[0]
                its.update((index, xs[index].offset // xs[index].dtype.itemsize) for index in indices)
            else:
                self._gathered[key] = gathered = _Gathered(xs, indices)
                its.update(gathered.starts)
        return starts

    def run(self, lists: Lists, queue: cl.CommandQueue, wait_for: list[cl.Event]) -> list[Any]:
        """The results, complete when their events are. Raises LaunchError, DeviceMemoryError or
        DeviceLostError."""
        allocator = lists["a"][0].allocator
        new = {key: whole.new(queue, allocator) for key, whole in self._rows.items()}
        results = list(lists["out"]) if "out" in lists else [None] * len(self._results)
        for index, key, begin in self._views:
            whole = new[key]
            results[index] = self._results[index].view(whole, begin * whole.dtype.itemsize)
        for index, x in enumerate(results):
            if x is None:  # it has no element
                results[index] = self._results[index].new(queue, allocator)
        alone = [
            self._product(one, {**operands_at(lists, one.pair), "out": results[one.pair]}, queue)
            for one in self._alone
        ]
        if self.groups:
            self._enqueue(lists, new, queue, wait_for)
        for multiply in alone:
            multiply(wait_for)
        return results

    def _product(self, one: ListEntry, operands: Operands, queue: cl.CommandQueue) -> Callable[..., Any]:
        """What enqueues a product that has a launch of its own, after its events. Raises as a plan does."""
        layouts = calls.signature(operands)
        product = plan_cache.plan_for(operands, layouts, self._options, queue, one.scales)
        return partial(product.multiply, operands, queue, one.scales)

    def _enqueue(
        self, lists: Lists, new: Mapping[Key, Array], queue: cl.CommandQueue, wait_for: list[cl.Event]
    ) -> None:
        """Enqueue the copies and the launches, and note in the events of what is written that they were."""
        written = [*new.values(), *[x for x in lists.get("out", ()) if x is not None]]
        is_late = all(map(late_events.takes_late, written))
        # Parts of one Array have one list of events.
        by_events = {id(x.events): x for x in written}
        earlier = [(x, late_events.before(x, queue)) for x in by_events.values()]
        by_events |= {id(x.events): x for xs in lists.values() for x in xs if x is not None}
        known = known_events(queue)
        after = wait_for + known.missing(by_events.values())
        lender = workspace.shared(queue, self._device)  # without order, one for this call
        spaces = lender.borrow(self._needs, 0) if self._needs else None
        memory = {key: lists[key[0]][pair].base_data for key, pair in self._in_place.items()}
        memory |= {key: whole.base_data for key, whole in new.items()}
        memory |= zip(self._copied, spaces.buffers if spaces else (), strict=False)
        try:
            if self._gathered and after:  # one event for many copies to wait for
                marker = [cl.enqueue_marker(queue, after)]
                known.add(after, marker)
                after = marker
            ends = self._launched(lists, memory, queue, after, not is_late)
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
                copied = list(gathered.copied(queue, lists[key[0]], memory[key], after))
                after = after if in_order else after + copied
        ends: list[cl.Event] = []
        for group in self.groups:
            wanted = with_events and (group is self.groups[-1] or not in_order)
            ends += group.enqueue(queue, memory, after, with_events=wanted)
        for key, gathered in self._gathered.items():
            if key[0] == "out":
                ends += list(gathered.copied(queue, lists["out"], memory[key], ends, back=True))
        if not in_order:
            ends = [cl.enqueue_marker(queue, ends)]
        return ends[-1:]

    def release(self) -> None:
        """Free the kernel objects."""
        for group in self.groups:
            group.executable.release()


def _array(lists: Lists, key: Key, index: int) -> Any:
    """The Array of a pair; None for a new result."""
    return lists[key[0]][index] if key[0] in lists else None
