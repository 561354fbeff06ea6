"""LateEvents: events of an Array, of which the last product's is made when somebody looks. KnownEvents: those
that a later command of an in-order queue need not wait for again.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
from pyopencl.array import Array

from .queues import PerThread, at_release


class Late:
    """The last product of an in-order *queue* that wrote an Array, and has no event until somebody looks."""

    __slots__ = ("product", "queue", "seen")

    queue: cl.CommandQueue
    product: Product
    seen: Product | None  # the product whose event is in the list


def late(queue: cl.CommandQueue, product: Product) -> Late:
    """A new product; as for :func:`late_events`, a Python __init__ would take twice as long."""
    made = Late()
    made.queue, made.product, made.seen = queue, product, None
    return made


Product = list[cl.Event]  # an object for each product, which holds its event once that is made
Found = list[cl.Event] | Late  # the events of a product, or its late one


class LateEvents(list[cl.Event]):
    """The list ``Array.events`` of an Array that products write without events, which cost a GPU time.

    Each method looks first: it makes the events that are late. The class is a list, because PyOpenCL and its
    users add, slice and test for lists. Python and PyOpenCL read what is not exactly a list by its methods;
    only ``events + self`` takes the elements themselves, after __radd__.

    Threads may write parts of one Array, on a queue each, while others look. So a product only puts a new
    object in the place of the last one of its queue, and who looks notes which one he has seen.
    """

    __slots__ = ("_late",)

    _late: list[Late]

    def look(self) -> None:
        """Make the events that are late: markers, which end with all that a queue has got until then."""
        for one in self._late.copy():
            product = one.product
            if one.seen is not product:
                if not product:
                    marker = cl.enqueue_marker(one.queue)
                    one.queue.flush()  # who waits for it in another queue may have flushed this one before
                    product.append(marker)
                _append(self, product[0])
                one.seen = product  # last, so that another thread that looks misses nothing
            if len(self._late) > _QUEUES:
                _remove(self._late, one)
                self._keep(one)

    def _keep(self, one: Late) -> None:
        """Put *one* back that another thread has let go meanwhile, if it is late."""
        if one.seen is not one.product and one not in self._late:
            self._late.append(one)

    def before(self, queue: cl.CommandQueue) -> Sequence[cl.Event]:
        """The events that the next command of *queue* follows, but for what is late of that queue."""
        for one in self._late:
            if one.queue is not queue and one.seen is not one.product:
                self.look()
                break
        return _elements(self) if _length(self) else ()

    def are_quiet(self, queue: cl.CommandQueue) -> bool:
        """Whether there is nothing but late ones of *queue*."""
        for one in self._late:
            if one.queue is not queue and one.seen is not one.product:
                return False
        return not _length(self)

    def replace(self, earlier: Iterable[cl.Event], queue: cl.CommandQueue) -> Late:
        """Note a product that *queue* has got. Remove the *earlier* events, one by one: others add too."""
        for one in self._late:
            if one.queue is queue:
                one.product = []
                self._keep(one)
                break
        else:
            one = late(queue, [])
            self._late.append(one)
        for event in earlier:
            _remove(self, event)
        return one

    def __radd__(self, events: list[cl.Event]) -> Any:
        self.look()
        return NotImplemented  # the list's own + and += go on

    def __reduce_ex__(self, _protocol: object) -> Any:
        return list, (list(self),)  # a copy is a plain list


def late_events(events: Iterable[cl.Event] = (), *products: Late) -> LateEvents:
    """A new list of *events*, and of *products* whose events are late."""
    made = LateEvents(events)
    made._late = [*products]
    return made


def _remove(among: list[Any], one: Any) -> None:
    try:  # noqa: SIM105 - suppress() takes as long as the rest
        list.remove(among, one)
    except ValueError:  # another thread has removed it
        pass


_append: Callable[[Any, Any], None] = list.append  # a list's own, which do not look
_elements: Callable[[Any], list[cl.Event]] = list.copy
_QUEUES = 8  # that an Array keeps alive
_length: Callable[[Any], int] = list.__len__
_BLIND = {"__new__", "__init__", "__getattribute__", "__sizeof__", "__class_getitem__"}


def _looking(own: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(own)
    def looking(self: LateEvents, *args: Any, **keywords: Any) -> Any:
        self.look()
        return own(self, *args, **keywords)

    return looking


for _name, _own in vars(list).items():
    if callable(_own) and _name not in _BLIND:
        setattr(LateEvents, _name, _looking(_own))


def before(x: Array, queue: cl.CommandQueue) -> Sequence[cl.Event]:
    """The events of *x* that the next command of *queue* follows, as :meth:`LateEvents.before`."""
    events = x.events
    return events.before(queue) if type(events) is LateEvents else events.copy()


def takes_late(x: Array) -> bool:
    """Whether a product may write *x* without an event. The events of *x* are LateEvents then. A list that
    somebody else has too stays as it is: he would not learn of the product. A view has it.
    """
    own = x.events
    if type(own) is LateEvents:
        return True
    if type(own) is not list or _references(x) > _ALONE + 1:
        return False
    x.events = late_events(own)
    if _references(SimpleNamespace(events=own)) <= _ALONE + 1:
        return True
    x.events = own  # another thread has made a view meanwhile
    return False


def _references(x: Any) -> int:
    return sys.getrefcount(x.events)


_ALONE = _references(SimpleNamespace(events=[]))  # depends on Python's version


def ended(x: Array, earlier: Iterable[cl.Event], events: list[cl.Event], queue: cl.CommandQueue) -> Found:
    """Note in the events of *x* that *queue* has got a product that writes it; its *events*, or a late one.
    The *earlier* ones are removed: PyOpenCL waits for some events when its list grows long.
    """
    own: Any = x.events
    is_late = type(own) is LateEvents
    if not events:
        if is_late:
            product: Late = own.replace(earlier, queue)
            return product
        events = [cl.enqueue_marker(queue)]  # somebody has set other events since `takes_late`
    for one in earlier:
        _remove(own, one)
    if is_late:
        _append(own, events[-1])
    else:
        x.add_event(events[-1])
    return events


def as_list(found: Found) -> list[cl.Event]:
    """The events that :func:`ended` has *found*."""
    return late_events((), late(found.queue, found.product)) if isinstance(found, Late) else found


_MOST = 32  # events; PyOpenCL's Arrays keep at most 12 each
_FEW = 8  # events that nobody else holds; a driver may keep the operands of their commands alive


class KnownEvents:
    """Events that all later commands of one in-order queue follow anyway.

    While an event is held here, no other object has its id. PoCL and Intel's CPU runtime keep the buffers of
    a command as long as its event. So an event that nobody else holds is dropped soon: no Array can bring it.
    PyOpenCL's event of a transfer owns the host's memory until it has been waited for. So that is done once
    the transfer has ended.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        self._events: dict[int, cl.Event] = {}
        self.transfers: list[cl.NannyEvent] = []  # of those events, which own the host's memory
        self._room = _FEW

    def missing(self, given: Iterable[Array]) -> list[cl.Event]:
        """The events of the Arrays in *given* that are not held here, but for late ones of the queue."""
        known, queue = self._events, self._queue
        found = []
        for x in given:
            events: Iterable[cl.Event] = x.events
            if type(events) is LateEvents:
                events = events.before(queue)
            for event in events:
                if id(event) not in known:
                    found.append(event)
        return found

    def are_quiet(self, given: Iterable[Array]) -> bool:
        """Whether a command has nothing to wait for that uses these Arrays, and leaves their events alone."""
        known, queue = self._events, self._queue
        for x in given:
            events = x.events
            if type(events) is LateEvents:
                if not events.are_quiet(queue):
                    return False
                continue
            for event in events:
                if id(event) not in known:
                    return False
        return not self.transfers

    def add(self, waited_for: list[cl.Event], own: list[cl.Event]) -> None:
        """Hold what a command has *waited_for* too, and its *own* events."""
        known = self._events
        if waited_for:
            known.update((id(event), event) for event in waited_for)
            self.transfers += [event for event in waited_for if type(event) is cl.NannyEvent]
        for event in own:
            known[id(event)] = event
        if self.transfers:
            self.transfers = [event for event in self.transfers if not _has_let_go(event)]
        if len(known) > self._room:
            self._drop()

    def clear(self) -> None:
        """Hold nothing. Other threads may call this."""
        self._events, self.transfers = {}, []

    def _drop(self) -> None:
        kept = _held_elsewhere(self._events, _OURS)
        while len(kept) > _MOST:
            del kept[next(iter(kept))]
        self._events = kept
        self._room = len(kept) + max(_FEW, len(kept))


def _has_let_go(event: cl.NannyEvent) -> bool:
    """Whether a transfer has ended, so that its event owns no host memory any more."""
    try:
        state: Any = event.command_execution_status
        if state != cl.command_execution_status.COMPLETE:
            return False
        event.wait()  # returns at once, and lets go
    except cl.Error:  # the device is lost: the call itself says so
        return False
    return True


def _held_elsewhere(events: dict[int, cl.Event], ours: int) -> dict[int, cl.Event]:
    """Those of *events* that have more than *ours* references. A call within this one may add events."""
    references = sys.getrefcount
    return {number: event for number, event in events.copy().items() if references(event) > ours}


def _references_of_ours() -> int:
    """The references that an event has there if nobody else holds it. It depends on Python's version."""
    stand_in: dict[int, Any] = {0: object()}
    return next(count for count in itertools.count() if not _held_elsewhere(stand_in, count))


_OURS = _references_of_ours()
_all: PerThread[KnownEvents] = PerThread()


def known_events(queue: cl.CommandQueue) -> KnownEvents:
    """This thread's events of *queue*; of an out-of-order queue there are none."""
    if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        return KnownEvents(queue)
    return _all.get(queue, partial(KnownEvents, queue))


@at_release
def release() -> None:
    """Drop the events that all threads hold. Later commands wait for them again, which costs little."""
    for one in _all.all():
        one.clear()
