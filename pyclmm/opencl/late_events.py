"""LateEvents: the events of an Array, of which that of the last product is made when somebody looks."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
from pyopencl.array import Array


class Late:
    """The event of a product that has none yet, and its *queue*, which is in order."""

    __slots__ = ("_event", "queue")

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue = queue
        self._event: cl.Event | None = None

    def event(self) -> cl.Event:
        """A marker, which ends after all that the queue has got until it was first asked for."""
        if self._event is None:
            marker: cl.Event = cl.enqueue_marker(self.queue)
            self.queue.flush()  # whoever waits for it in another queue may have flushed this one before
            self._event = marker
        return self._event


class LateEvents(list[cl.Event]):
    """The list ``Array.events`` of an Array that products write without events, which cost a GPU time.

    Each method looks first: it makes the events that are late. The class is a list, because PyOpenCL and its
    users add, slice and test for lists. Python and PyOpenCL read what is not exactly a list by its methods;
    only ``events + self`` takes the elements themselves, after __radd__.
    """

    __slots__ = ("_late",)

    def __init__(self, events: Iterable[cl.Event] = (), late: Iterable[Late] = ()) -> None:
        super().__init__(events)
        self._late = list(late)

    def look(self) -> None:
        """Make the events that are late."""
        for one in self._late.copy():
            _append(self, one.event())
            _remove(self._late, one)  # afterwards, so that another thread that looks misses nothing

    def before(self, queue: cl.CommandQueue) -> list[Any]:
        """What the next command of *queue* follows: the events, and what is late of that queue."""
        late: list[Any] = self._late.copy()
        for one in late:
            if one.queue is not queue:
                self.look()
                break
        late += _elements(self)
        return late

    def replace(self, earlier: Iterable[Any], new: cl.Event | Late) -> None:
        """Add *new*, and remove what :meth:`before` gave *earlier*, one by one: other threads add too."""
        _append(self._late if type(new) is Late else self, new)
        for one in earlier:
            _remove(self._late if type(one) is Late else self, one)

    def __radd__(self, events: list[cl.Event]) -> Any:
        self.look()
        return NotImplemented  # the list's own + and += go on

    def __reduce_ex__(self, _protocol: object) -> Any:
        return list, (list(self),)  # a copy is a plain list


def _remove(among: list[Any], one: Any) -> None:
    try:  # noqa: SIM105 - suppress() takes as long as the rest
        list.remove(among, one)
    except ValueError:  # another thread has removed it
        pass


_append: Callable[[Any, Any], None] = list.append  # a list's own, which do not look
_elements: Callable[[Any], list[cl.Event]] = list.copy
_BLIND = {"__new__", "__init__", "__getattribute__", "__sizeof__", "__class_getitem__"}


def _looking(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def looking(self: LateEvents, *args: Any, **keywords: Any) -> Any:
        self.look()
        return own(self, *args, **keywords)

    return looking


for _name, _own in vars(list).items():
    if callable(_own) and _name not in _BLIND:
        setattr(LateEvents, _name, _looking(_own))


def before(x: Array, queue: cl.CommandQueue) -> list[Any]:
    """What the next command of *queue* that uses *x* follows, as :meth:`LateEvents.before`."""
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
    x.events = LateEvents(own)
    if _references(SimpleNamespace(events=own)) <= _ALONE + 1:
        return True
    x.events = own  # another thread has made a view meanwhile
    return False


def _references(x: Any) -> int:
    return sys.getrefcount(x.events)


_ALONE = _references(SimpleNamespace(events=[]))  # depends on Python's version


def add(x: Array, new: cl.Event | Late, earlier: Iterable[Any]) -> None:
    """Add *new*, of a product that writes *x*, to its events; remove the *earlier* ones, which end before.

    This keeps the list short, because PyOpenCL waits for some events when it grows long.
    """
    events = x.events
    if type(events) is LateEvents:
        events.replace(earlier, new)
        return
    for one in earlier:
        _remove(events, one)
    x.add_event(new.event() if isinstance(new, Late) else new)
