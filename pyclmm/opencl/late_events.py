"""LateEvents: the events of an Array, of which that of the last product is made when somebody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
from pyopencl.array import Array


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
    """Whether a product may write *x* without an event. The events of *x* are LateEvents then.

    A list that somebody else has too stays as it is: he would not learn of the product. A view has it.
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

    The *earlier* ones, which end before, are removed. This keeps the list short, because PyOpenCL waits for
    some events when it grows long.
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
