"""Workspace: the device memory that a product needs besides operands and result. A call borrows it.

Plans have none of their own. On an in-order queue one product runs after the other, so all plans of a thread
share the same buffers there, which are as large as the largest product needs. On an out-of-order queue each
plan has its own, so that products overlap. A thread keeps at most :func:`limit_of` bytes for each device. A
product that needs more gets buffers for one call.

A call takes the buffers out of a :class:`Lender` and puts them back when all is enqueued. So nobody shares
them with a call that a signal handler interrupts, and those of a call that fails are freed. A driver frees a
buffer after the last command that uses it. No lock is needed either.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import pyopencl as cl

from .. import environment
from ..byte_sizes import parse_limit
from ..errors import DeviceMemoryError, WorkspaceError
from ..kernels.device import DeviceInfo
from ..kernels.interface import Workspace
from . import host_memory
from .queues import PerThread, at_release
from .status import has_ended

# The part of a device's memory that a thread keeps at most. Eight threads then keep half of it.
_SHARE = 16
Needs = tuple[Workspace, ...]  # what one product needs, the largest first

_POLL = 0.01  # seconds between two looks

_watching = threading.RLock()  # for the two below
_watched: list[tuple[cl.Event, Callable[[], None]]] = []
_thread: threading.Thread | None = None
_numbers = itertools.count(1)
_limit: int | None = None  # set by keep_workspace()


def keep_workspace(nbytes: int | str | None) -> None:
    """Set how many bytes of workspace a thread keeps for each device, between products: a number, or a text
    such as "64 MiB". None: the default.

    Products share this memory. One that needs more allocates it in each call. The default is the value of
    ``PYCLMM_KEEP_WORKSPACE``, else a sixteenth of the device's memory. What is kept now is freed, in all
    threads.

    Raises DTypeError or ArgumentError if *nbytes* is no number of bytes, 0 or more.
    """
    global _limit  # noqa: PLW0603 - a setting of the process
    _limit = parse_limit("nbytes", nbytes, least=0)
    release()


def limit_of(device: DeviceInfo) -> int:
    """The most bytes that a thread keeps for *device*."""
    if _limit is not None:
        return _limit
    given = environment.KEEP_WORKSPACE.nbytes
    return device.global_mem_size // _SHARE if given is None else given


@at_release
def release() -> None:
    """Free the workspace that all threads keep. A call that is running keeps what it has borrowed."""
    for lender in _lenders.all():
        lender.empty()


def allocated(
    context: cl.Context, device: DeviceInfo, need: Workspace, nbytes: int | None = None
) -> cl.Buffer:
    """A buffer for *need*, of *nbytes* if more. Raises WorkspaceError; DeviceMemoryError for a copy."""
    try:
        return host_memory.allocate(context, nbytes or need.nbytes, device, need.symbol)
    except DeviceMemoryError as error:
        if need.copy_of:
            raise
        raise WorkspaceError(*error.args) from error.__cause__


class Spaces:
    """Buffers for the workspace of a product, and their sizes in bytes. Kernel objects that were given them
    know them by ``number``, unique in the process. ``is_kept``: they are within the limit.
    """

    __slots__ = ("buffers", "end", "is_kept", "number", "sizes")

    def __init__(self, buffers: list[cl.Buffer], sizes: Sequence[int], is_kept: bool) -> None:
        self.buffers, self.sizes, self.is_kept = buffers, tuple(sizes), is_kept
        self.number = next(_numbers)
        self.end: cl.Event | None = None  # of the last product that borrowed them, if they are not kept

    def hold(self, needs: Needs) -> bool:
        """Whether they are large enough."""
        return len(needs) <= len(self.sizes) and all(
            need.nbytes <= size for need, size in zip(needs, self.sizes, strict=False)
        )


class Lender:
    """Lends workspace to the products of one thread and queue, one product at a time. *bounded*: the limit
    applies.
    """

    def __init__(self, queue: cl.CommandQueue, device: DeviceInfo, bounded: bool = True) -> None:
        self.queue, self.is_bounded = queue, bounded
        self.home = threading.get_ident(), queue.device  # a limit applies to all that have the same
        self._device = device
        self._spaces: Spaces | None = None  # None while they are lent

    def borrow(self, needs: Needs, number: int) -> Spaces:
        """Buffers for *needs*; those of *number* are large enough. Raises the errors of the driver."""
        spaces, self._spaces = self._spaces, None
        if spaces is not None and (spaces.number == number or spaces.hold(needs)):
            return spaces
        return self._allocated(needs, spaces)

    def reserve(self, needs: Needs) -> None:
        """See that *needs* can be borrowed. Raises as :meth:`borrow` does."""
        spaces = Lender.borrow(self, needs, 0)
        if spaces.is_kept:
            self._spaces = spaces

    def take_back(self, spaces: Spaces, events: Sequence[cl.Event], is_waited_for: bool) -> None:
        """Lend *spaces* again after a product was enqueued, which the last of *events* ends. Those over the
        limit are freed then, or at once if *is_waited_for*. Until then they serve a burst of products.
        """
        if spaces.is_kept:
            self._spaces = spaces
        elif not is_waited_for:
            with contextlib.suppress(cl.Error):  # the device is lost; who waits for the product learns that
                spaces.end = end = events[-1] if events else cl.enqueue_marker(self.queue)
                self._spaces = spaces
                _after(end, lambda: self._free_after(spaces, end))

    def _free_after(self, spaces: Spaces, event: cl.Event) -> None:
        if self._spaces is spaces and spaces.end is event:
            self._spaces = None

    def empty(self) -> int:
        """Free what is kept; returns the bytes. Other threads may call this."""
        spaces, self._spaces = self._spaces, None
        return sum(spaces.sizes) if spaces is not None else 0

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        spaces = self._spaces
        return sum(spaces.sizes) if spaces is not None else 0

    def _allocated(self, needs: Needs, old: Spaces | None) -> Spaces:
        """New Spaces, of the buffers of *old* where they suffice."""
        limit = limit_of(self._device) if self.is_bounded else sys.maxsize
        least = sizes = [need.nbytes for need in needs]
        is_kept = sum(least) <= limit
        if is_kept:
            grown = _grown(least, old.sizes if old is not None else ())
            if sum(grown) <= limit and max(grown) <= self._device.max_mem_alloc_size:
                sizes = grown
            self._make_room(limit - sum(sizes))
        try:
            return Spaces(self._buffers(needs, sizes, old), sizes, is_kept)
        except DeviceMemoryError:
            freed = sum([lender.empty() for lender in _lenders.all()])
            if not freed and sizes == least:
                raise
        return Spaces(self._buffers(needs, least, None), least, is_kept)

    def _buffers(self, needs: Needs, sizes: Sequence[int], old: Spaces | None) -> list[cl.Buffer]:
        """Buffers of these sizes, of *old* or new; copies of operands first, as every kernel needs them."""
        buffers: dict[int, cl.Buffer] = {}
        if old is not None:
            same = [place for place, (x, y) in enumerate(zip(sizes, old.sizes, strict=False)) if x == y]
            buffers = {place: old.buffers[place] for place in same}
            old.buffers.clear()  # frees the others before new ones are allocated
        new = [place for place in range(len(sizes)) if place not in buffers]
        try:
            for place in sorted(new, key=lambda place: not needs[place].copy_of):
                buffers[place] = allocated(self.queue.context, self._device, needs[place], sizes[place])
        except DeviceMemoryError:
            buffers.clear()  # the error keeps this dict alive while others allocate
            raise
        return [buffers[place] for place in range(len(sizes))]

    def _make_room(self, nbytes: int) -> None:
        """Free what other lenders of this thread and device keep, if it is more than *nbytes*."""
        if not self.is_bounded:
            return
        others = [x for x in _lenders.all() if x.home == self.home and x.is_bounded and x is not self]
        if sum(x.nbytes for x in others) > nbytes:
            for lender in others:
                lender.empty()


def _grown(sizes: Sequence[int], old: Sequence[int]) -> list[int]:
    """The sizes of buffers for *sizes* where those of *old* are replaced: too small ones by half as much
    again, so that growing products allocate seldom, and a burst of them has at most three times the largest.
    """
    pairs = itertools.zip_longest(sizes, old, fillvalue=0)
    return [its if size <= its else max(size, its + its // 2) for size, its in pairs]


_lenders: PerThread[Lender] = PerThread()


def shared(queue: cl.CommandQueue, device: DeviceInfo) -> Lender:
    """What lends workspace to this thread's plans on *queue*; to one plan if the queue is out of order."""
    if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        return _lenders.add(Lender(queue, device))
    return _lenders.get(queue, lambda: Lender(queue, device))


def own(queue: cl.CommandQueue, device: DeviceInfo) -> Lender:
    """What lends workspace to one plan that relies on finding there what its last call left. No limit."""
    return _lenders.add(Lender(queue, device, bounded=False))


class _Poisoned(Lender):
    """Lends new buffers full of NaN (-1 for integers), to reveal reads of what was never written."""

    def borrow(self, needs: Needs, number: int) -> Spaces:
        spaces = super().borrow(needs, number)
        poison = np.full(1, 0xFF, np.uint8)
        fills = [cl.enqueue_fill_buffer(self.queue, x, poison, 0, x.size) for x in spaces.buffers]
        cl.wait_for_events(fills)  # on an out-of-order queue the kernels could start first
        return spaces


def poisoned(queue: cl.CommandQueue, device: DeviceInfo) -> Lender:
    """What lends workspace in a check: full of NaN in each call."""
    return _Poisoned(queue, device, bounded=False)


def _after(event: cl.Event, action: Callable[[], None]) -> None:
    """Call *action*, from another thread, when *event* has ended; never if the process ends before.

    A thread looks at the events every now and then, as long as there are any. It does not wait for one,
    because an event that never ends would then hold up the end of the process. OpenCL's callbacks are not
    used: PyOpenCL calls them from threads that Python does not wait for when it exits.
    """
    global _thread  # noqa: PLW0603
    with _watching:
        _watched.append((event, action))
        if _thread is None:
            _thread = threading.Thread(target=_run, name="pyclmm-watch")
            try:
                _thread.start()
            except RuntimeError:  # no more threads, or the process ends; the next call tries again
                _thread = None


def _run() -> None:
    while _look():
        time.sleep(_POLL)


def _look() -> bool:
    """Do what is due. Returns whether there is more to wait for."""
    global _thread  # noqa: PLW0603
    with _watching:
        due = [each for each in list(_watched) if has_ended(each[0])]  # a finalizer may add others meanwhile
        for each in due:
            _watched.remove(each)
        more = bool(_watched) and threading.main_thread().is_alive()
        if not more:
            _thread = None
    for _, action in due:
        action()
    return more
