"""KnownEvents: events that a later command of an in-order queue need not wait for again."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from functools import partial
from typing import Any

import pyopencl as cl
from pyopencl.array import Array

from .late_events import LateEvents
from .queues import PerThread, at_release

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
    """Those of *events* that have more than *ours* references."""
    references = sys.getrefcount
    return {number: event for number, event in events.items() if references(event) > ours}


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
