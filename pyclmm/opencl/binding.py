"""Binding: the kernel objects of one plan, thread and queue. The only module that enqueues kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyopencl as cl
from pyopencl.array import Array

from ..errors import REFUSED, DeviceMemoryError, LaunchError, WorkspaceError
from ..kernels.device import DeviceInfo
from ..kernels.interface import ALARM, VERDICT, Work
from . import host_memory, pocl, status, workspace
from .last_call import LastCall
from .late_events import Late, LateEvents, known_events
from .program import built, in_doubt, new_kernel, settle
from .queues import OwnThreadQueue
from .steps import Addresses, Borrowed, Buffers, Eventless, Scalars, Step, enqueue_eventless
from .watch import QueueWatch

_NOTHING: list[cl.Buffer] = []


@dataclass(frozen=True)
class Constant:
    """An operand that does not change between calls: its problem's name, and what identifies its memory.
    Holding *memory* keeps it alive, so that no other array can get the same address.
    """

    name: str
    where: Any
    memory: Any = field(compare=False)


class Binding:
    """The kernel objects of one plan, thread and queue, with the tables and what must stay between calls.
    Other workspace is borrowed for each call, from what *lend* makes. *absent*: arrays by name that no kernel
    reads. *make*: as :func:`.program.new_kernel`. Raises BuildError, DeviceLostError and DeviceMemoryError;
    WorkspaceError for memory that another kernel may not need.
    """

    def __init__(
        self,
        queue: cl.CommandQueue,
        device: DeviceInfo,
        work: Work,
        absent: Collection[str] = (),
        lend: Callable[[cl.CommandQueue, DeviceInfo], workspace.Lender] = workspace.shared,
        make: Callable[..., cl.Kernel] = new_kernel,
    ) -> None:
        context = self.context = queue.context
        self.queue = queue
        self.device = device
        kinds = cl.command_queue_properties
        self.out_of_order = bool(queue.properties & kinds.OUT_OF_ORDER_EXEC_MODE_ENABLE)
        # An event costs time. Order and profiling need one of each launch, else at most the last has one.
        self._every_event = self.out_of_order or bool(queue.properties & kinds.PROFILING_ENABLE)
        self._is_immediate = isinstance(queue, OwnThreadQueue)  # to enqueue a launch is to run it
        self.last: list[cl.Event] = []  # ends the previous call, on an out-of-order queue
        lent = [space for space in work.workspace if not space.zeroed]
        self._needs = tuple(sorted(lent, key=lambda space: space.nbytes, reverse=True))
        self._lender = lend(queue, device) if lent else None
        self._number = 0  # of the workspace that the kernel objects hold as arguments
        self.last_call: LastCall | None = None  # the call whose arguments the kernel objects hold
        self.is_busy = False  # a call is setting arguments and enqueueing
        self.known = known_events(queue)  # before the next launch anyway, by the queue alone
        self._packed: Constant | None = None
        self._alone: Eventless | None = None  # the last call, if it is one launch and nothing else
        self._first: cl.Event | None = None  # of the last launch of the first call
        self._has_own = any(not space.copy_of for space in work.workspace)
        fixed = {x: host_memory.filled(context, table, device, x) for x, table in work.tables.items()}
        fixed |= self._zeroed(work)
        if absent:  # any buffer will do, because it is not read
            fixed |= dict.fromkeys(absent, fixed["batch_offsets"])
        self._fixed = fixed  # a kernel does not keep its arguments alive
        self.watch: QueueWatch | None = None
        if ALARM in work.workspace:
            self.watch = QueueWatch(queue, fixed[ALARM.symbol], fixed[VERDICT.symbol])
        places = {space.symbol: place for place, space in enumerate(self._needs)}
        self._steps = [Step(queue, launch, fixed, places, make) for launch in work.launches]
        parts = sum(len(step.parts) for step in self._steps)
        self._is_alone = parts == 1 and self._lender is None and not self._every_event
        programs = {launch.program for launch in work.launches}
        self._held = [built(context, program) for program in programs]  # see program.py
        self._unsettled = in_doubt(context, programs)
        if self._lender is not None:
            self._lender.reserve(self._needs)  # a plan for which there is no memory is not made

    def _zeroed(self, work: Work) -> dict[str, cl.Buffer]:
        """New workspace that begins as zeros, by symbol. It stays between calls."""
        found: dict[str, cl.Buffer] = {}
        for space in work.workspace:
            if space.zeroed:
                buffer = workspace.allocated(self.context, self.device, space)
                cl.enqueue_fill_buffer(self.queue, buffer, np.zeros(1, np.uint8), 0, buffer.size).wait()
                found[space.symbol] = buffer
        return found

    def settle(self) -> None:
        """Record that a run has ended, so that the programs are no longer in doubt (see crash_marks.py)."""
        if self._unsettled:
            settle(self.context, self._unsettled)
            self._unsettled, self._first = set(), None

    def _settle_if_ended(self, first: cl.Event) -> None:
        with contextlib.suppress(cl.Error):  # a lost device: the call itself will say so
            state: Any = first.command_execution_status
            if state == cl.command_execution_status.COMPLETE:
                self.settle()

    def enqueue(
        self,
        buffers: Buffers,
        scalars: Scalars,
        wait_for: list[cl.Event],
        constant: Constant | None = None,
        with_events: bool = True,
        call: LastCall | None = None,
        is_waited_for: bool = False,
    ) -> list[cl.Event]:
        """Enqueue every launch. Returns the events, of which the last ends with the product.

        Each launch has an event if the queue profiles or is out of order. Otherwise the last launch has one;
        none has one without *with_events*, once a run of the programs has ended. A launch that packs a
        *constant* operand is skipped if the previous call packed the same memory. *call* is what these
        arguments come from; it is remembered for :meth:`enqueue_again`. *is_waited_for*: the caller waits for
        the product, so it has no other one in flight.

        Raises LaunchError, DeviceMemoryError (of a kernel with workspace: WorkspaceError) or DeviceLostError
        if the driver rejects a launch.
        """
        launch = self._launch
        if self._unsettled and self.device.threadless:  # PoCL links at the first run, here in this thread
            launch = pocl.uninterrupted()(launch)
        if self.watch is not None:
            self.watch.begin()
        self.is_busy = True
        try:
            packed = constant.name if constant is not None and constant == self._packed else None
            events = launch(buffers, scalars, wait_for, packed, with_events, is_waited_for)
            self._packed, self.last_call = constant, call
        finally:
            self.is_busy = False
            if self.watch is not None:
                self.watch.end()
        return events

    def repeat(self, call: LastCall | None, given: Iterable[Array], out: Array) -> Late | None:
        """Enqueue *call* again on *given*, if it is the last one: one launch without an event. Else None."""
        events = out.events
        if type(events) is not LateEvents or not self.known.are_quiet(given):
            return None
        self.is_busy = True
        try:
            launch = self._alone
            if launch is None or self.last_call is not call or not enqueue_eventless(launch):
                return None
        finally:
            self.is_busy = False
        return events.replace((), self.queue)

    def run_at(self, names: Sequence[str], addresses: Addresses, scalars: Scalars) -> bool:
        """Run the product on host memory at *addresses*, of the arrays of these *names*; complete. Returns
        False if the driver takes no addresses. Raises as :meth:`enqueue` does.
        """
        self.is_busy = True
        try:
            for step in self._steps:
                holds = step.addresses == addresses and step.scalars is scalars
                if not (holds or step.set_addresses(names, addresses, scalars)):
                    return False
            if self._alone is None:
                events = self.enqueue({}, scalars, [], is_waited_for=True)[-1:]
            else:  # Intel's runtime takes longer to finish a queue than to wait for an event
                events = [cl.enqueue_nd_range_kernel(*step.parts[0].with_event)]
            if not self._is_immediate:
                host_memory.wait(self.device, events)
        except BaseException as error:  # Ctrl-C too: the caller may free the arrays then, or write to them
            host_memory.finish(self.queue)
            if isinstance(error, cl.Error):
                self._fail(step, error, begun=False)
            raise
        finally:
            self.is_busy = False
        if self._unsettled:
            self.settle()
        return True

    def enqueue_again(
        self,
        earlier: LastCall,
        call: LastCall,
        changed: Buffers,
        wait_for: list[cl.Event],
        with_events: bool = True,
    ) -> list[cl.Event] | None:
        """Enqueue every launch of *call*, which differs from *earlier* only in the buffers *changed*, as
        :meth:`enqueue` does. None if that must be called: *earlier* is not the last call, or the constant
        operand or the kernel objects have changed.
        """
        constant = self._packed
        packed = None if constant is None else constant.name
        if packed in changed:
            return None
        if self.watch is not None:
            self.watch.begin()
        self.is_busy = True
        try:
            if self.last_call is not earlier:
                return None
            events = self._launch(changed, None, wait_for, packed, with_events)
            self._packed, self.last_call = constant, call
        except LaunchError as error:
            cause = error.__cause__
            if error.begun or not (isinstance(cause, cl.Error) and status.arguments_rejected(cause)):
                raise
            return None
        finally:
            self.is_busy = False
            if self.watch is not None:
                self.watch.end()
        return events

    def _launch(
        self,
        buffers: Buffers,
        scalars: Scalars | None,
        wait_for: list[cl.Event],
        packed: str | None,
        with_events: bool,
        is_waited_for: bool = False,
    ) -> list[cl.Event]:
        """Set *buffers* and *scalars*, without scalars only these buffers, and enqueue every launch. Launches
        that pack the operand *packed* are skipped, unless it was packed into other workspace.
        """
        if self._first is not None:  # between the first call and its end
            self._settle_if_ended(self._first)
        with_events = with_events or bool(self._unsettled)
        first = self._awaited(wait_for)
        # 1. Workspace. What was packed into other workspace must be packed again.
        lender, borrowed, moved = self._lender, _NOTHING, False
        if lender is not None:
            spaces = lender.borrow(self._needs, self._number)
            borrowed, moved = spaces.buffers, spaces.number != self._number
            packed = None if moved else packed
        # 2. Until this call has succeeded, nobody knows what the kernel objects and the workspace hold.
        self._packed = self.last_call = self._alone = None
        self._number = 0
        # 3. The launches.
        given = buffers, scalars, borrowed
        events: list[cl.Event] = []
        step, begun, after = None, False, first or None
        try:
            for step in self._steps:
                if packed is not None and step.packs == packed:
                    continue
                if buffers or moved:
                    step.set_args(buffers, scalars, borrowed, moved)
                for number in range(len(step.parts)):
                    events += self._enqueue_part(step, number, after, given, with_events)
                    begun, after = True, events[-1:] if self.out_of_order else None
        except BaseException as error:  # Ctrl-C too
            self._fail(step, error, begun, first)
            raise
        # 4. What the next call must know.
        self._remember(first, events)
        if lender is not None:
            self._number = spaces.number
            lender.take_back(spaces, events, is_waited_for)
        return events

    def _awaited(self, wait_for: list[cl.Event]) -> list[cl.Event]:
        """What the first launch waits for: *wait_for*, and the previous call, which may still use the
        workspace, unless that has failed. PoCL waits for what has failed forever. Raises ArgumentError.
        """
        status.refuse_failed(wait_for)
        return wait_for + [event for event in self.last if not status.failure_of(event)]

    def _enqueue_part(
        self,
        step: Step,
        number: int,
        after: list[cl.Event] | None,
        given: tuple[Buffers, Scalars | None, Borrowed],
        with_events: bool,
    ) -> list[cl.Event]:
        """Enqueue part *number* of a launch with arguments *given*. Returns its event, if it is to have one.

        On NVIDIA's driver (580.159.04) a kernel object that was given shared virtual memory as an argument
        rejects a buffer there from then on. A new kernel object takes it; without *scalars* its arguments are
        not known here.
        """
        part, is_last = step.parts[number], step is self._steps[-1] and number + 1 == len(step.parts)
        wanted = self._every_event or (with_events and is_last)
        if not wanted and enqueue_eventless(part.eventless, after):
            return []
        # A launch without an event that failed is repeated here, so that PyOpenCL raises its error.
        try:
            event = cl.enqueue_nd_range_kernel(*part.with_event, after)  # PyOpenCL is slower with keywords
        except cl.Error as error:
            buffers, scalars, borrowed = given
            if scalars is None or not status.arguments_rejected(error):
                raise
            step.replace_kernel(buffers, scalars, borrowed)
            event = cl.enqueue_nd_range_kernel(*step.parts[number].with_event, after)
        return [event] if wanted else []

    def _remember(self, first: list[cl.Event], events: list[cl.Event]) -> None:
        """Keep what a call has waited for, *first*, and the last of its events."""
        if self._unsettled and self._first is None and events:
            self._first = events[-1]
        if self.watch is not None:
            self.watch.follow(events[-1:])
        if self.out_of_order:
            self.last = events[-1:]
            return
        if first or events or self.known.transfers:
            self.known.add(first, events[-1:])
        if self._is_alone and not self._unsettled:
            self._alone = self._steps[0].parts[0].eventless

    def _fail(
        self, step: Step | None, error: BaseException, begun: bool, before: Iterable[cl.Event] = ()
    ) -> None:
        """After a launch of *step*, which waits for the events *before*, that failed.

        Raises pyclmm's error for one of the driver's.
        """
        if self.watch is not None:
            self.watch.skip(self._marker())
        self.last = self._marker()  # what stays between calls is in use until all launches so far end
        if step is None or not isinstance(error, cl.Error):
            return
        status.check_events(before, self.context, "the events of an operand, or of out, have")
        *_, local_size, _ = step.parts[0].with_event
        what = f"kernel {step.kernel.function_name!r} with work-groups of {local_size}"
        rejection = status.rejected(self.device, what, error)
        if self._has_own and isinstance(rejection, DeviceMemoryError):  # drivers may allocate at a launch
            rejection = WorkspaceError(*rejection.args)
        if isinstance(rejection, REFUSED):
            rejection.begun = begun
        raise rejection from error

    def _marker(self) -> list[cl.Event]:
        """An event that ends after all commands now in an out-of-order queue. Empty for an in-order queue."""
        if not self.out_of_order:
            return []
        try:
            return [cl.enqueue_marker(self.queue)]
        except cl.Error:  # the device is lost, so nothing runs
            return []
