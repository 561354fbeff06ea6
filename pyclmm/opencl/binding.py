"""Binding: kernel objects and workspace of one thread and queue. The only module that enqueues kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from ..errors import ArgumentError, LaunchError, PyclmmError
from ..kernels.device import DeviceInfo
from ..kernels.interface import Arg, Launch, Work
from ..problem.dtypes import COMPLEX, dtype_of
from . import host_memory, silent, status
from .program import built, new_kernel, settle

# The most work-groups of an enqueue in dimension 2, as in CUDA's grid. A longer stack takes several enqueues,
# each with an offset in that dimension.
_MAX_STACK = 65535
_EVENTS_KEPT = 16  # PyOpenCL's Arrays keep at most 12
Buffers = Mapping[str, Any]  # the buffers that kernels read and write, by the problem's names


# The scalars that vary between calls: alpha, beta, and the offset of each array in elements.
SCALARS = ("alpha", "beta", "a_offset", "b_offset", "c_offset", "bias_offset", "out_offset")
Scalars = tuple[Any, ...]
_SCALES = 2  # alpha and beta, which come first


def scalars_of(alpha: complex, beta: complex, offsets: Mapping[str, int] | None = None) -> Scalars:
    """The scalars of a call. *offsets* maps array names to the offsets that are not 0."""
    if not offsets:
        return alpha, beta, 0, 0, 0, 0, 0
    return alpha, beta, *(offsets.get(name.removesuffix("_offset"), 0) for name in SCALARS[_SCALES:])


@dataclass(frozen=True)
class Constant:
    """An operand that does not change between calls: its problem's name, and what identifies its memory.

    Holding *memory* keeps it alive, so that no other array can get the same address.
    """

    name: str
    where: Any
    memory: Any = field(compare=False)


# One enqueue: (global size, offset, whether it needs an event).
_Enqueue = tuple[tuple[int, ...], tuple[int, ...] | None, bool]
# What PyOpenCL takes after the queue and the kernel: global size, local size, offset, events to wait for.
_Sizes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...] | None, list[cl.Event] | None]


@dataclass
class _Step:
    """One launch: its kernel object, its arguments (None for those that vary) and its sizes."""

    new_kernel: Callable[[], cl.Kernel]
    kernel: cl.Kernel
    args: list[Any]
    buffers: tuple[tuple[int, str], ...]  # varying arguments: index and name
    scalars: tuple[tuple[int, int], ...]  # varying arguments: index, and index in SCALARS
    convert: Callable[[Any], Any]  # alpha and beta to the accumulator's type
    enqueues: tuple[_Enqueue, ...]
    local_size: tuple[int, ...]
    packs: str
    current: Scalars | None = None  # the scalars that the kernel object holds

    def set_args(self, buffers: Buffers, scalars: Scalars) -> None:
        """Set the varying arguments. If no scalar has changed, only buffers are set, which is much faster."""
        if scalars == self.current:
            set_arg = self.kernel.set_arg
            for index, name in self.buffers:
                set_arg(index, buffers[name])
            return
        args = self.args.copy()  # the plan must not keep the caller's buffers alive
        for index, name in self.buffers:
            args[index] = buffers[name]
        for index, which in self.scalars:
            args[index] = self.convert(scalars[which]) if which < _SCALES else scalars[which]
        self.current = None
        self.kernel.set_args(*args)
        self.current = scalars

    def replace_kernel(self, buffers: Buffers, scalars: Scalars) -> None:
        """Use a new kernel object with the same arguments."""
        self.kernel = self.new_kernel()
        self.current = None
        self.set_args(buffers, scalars)


class Binding:
    """Kernel objects and workspace of one thread and queue.

    *absent*: arrays (the problem's names) without a buffer, which no kernel reads.

    Raises BuildError, DeviceMemoryError, DeviceLostError.
    """

    def __init__(
        self, queue: cl.CommandQueue, device: DeviceInfo, work: Work, absent: Collection[str] = ()
    ) -> None:
        context = queue.context
        self.queue = queue
        self.device = device
        kinds = cl.command_queue_properties
        self.out_of_order = bool(queue.properties & kinds.OUT_OF_ORDER_EXEC_MODE_ENABLE)
        # An event costs time. Order and profiling need one of each launch, else the last one's will do.
        every_event = self.out_of_order or bool(queue.properties & kinds.PROFILING_ENABLE)
        self.last: list[cl.Event] = []
        self._ordered: dict[int, cl.Event] = {}
        self._packed: Constant | None = None
        self._unsettled = {launch.program for launch in work.launches}  # in doubt, see doubts.py
        self._first: cl.Event | None = None  # of the last launch of the first call
        fixed: dict[str, cl.Buffer] = {}
        for space in work.workspace:
            fixed[space.symbol] = host_memory.allocate(context, space.nbytes, device, space.symbol)
            if space.zeroed:
                self._fill(fixed[space.symbol], 0).wait()
        for name, table in work.tables.items():
            fixed[name] = host_memory.filled(context, table, device, name)
        self._workspace = [(fixed[space.symbol], space.zeroed) for space in work.workspace]
        fixed |= dict.fromkeys(absent, fixed["batch_offsets"])  # any buffer will do, because it is not read
        self._fixed = fixed  # a kernel does not keep its arguments alive
        last = work.launches[-1] if work.launches else None
        self._steps = [self._step(x, every_event, ends=x is last) for x in work.launches]
        self._held = [built(context, program) for program in self._unsettled]  # see program.py

    def _step(self, launch: Launch, every_event: bool, ends: bool) -> _Step:
        acc_type = str(launch.program.define("ACC_TYPE"))
        dtypes = [_scalar_dtype(arg, acc_type) for arg in launch.args]
        # Not a closure over self: a binding that holds itself would wait for the garbage collector.
        kernel = partial(new_kernel, self.queue.context, launch.program, launch.kernel, dtypes)
        sizes = _sizes(launch.global_size)
        named = [(index, arg) for index, arg in enumerate(launch.args) if isinstance(arg, str)]
        return _Step(
            kernel,
            kernel(),
            [self._fixed.get(arg) if isinstance(arg, str) else arg.item() for arg in launch.args],
            tuple((i, name) for i, name in named if name not in self._fixed and name not in SCALARS),
            tuple((i, SCALARS.index(name)) for i, name in named if name in SCALARS),
            _converter(acc_type),
            tuple((*size, every_event or (ends and size is sizes[-1])) for size in sizes),
            launch.local_size,
            launch.packs,
        )

    def settle(self) -> None:
        """Record that a run has ended, so that the programs are no longer in doubt (see doubts.py)."""
        if self._unsettled:
            settle(self.queue.context, self._unsettled)
            self._unsettled, self._first = set(), None

    def _settle_if_first_has_ended(self) -> None:
        if self._first is None:  # but between the first call and its end
            return
        with contextlib.suppress(cl.Error):  # a lost device: the call itself will say so
            state: Any = self._first.command_execution_status
            if state == cl.command_execution_status.COMPLETE:
                self.settle()

    def poison_workspace(self) -> None:
        """Fill the workspace with NaN (-1 for integers), to reveal reads of what was never written.

        Workspace that begins as zeros is filled with zeros.
        """
        for event in [self._fill(buffer, 0 if zeroed else 0xFF) for buffer, zeroed in self._workspace]:
            event.wait()  # on an out-of-order queue the kernels could start first

    def _fill(self, buffer: cl.Buffer, byte: int) -> cl.Event:
        return cl.enqueue_fill_buffer(self.queue, buffer, np.full(1, byte, np.uint8), 0, buffer.size)

    def enqueue(
        self,
        buffers: Buffers,
        scalars: Scalars,
        wait_for: list[cl.Event],
        constant: Constant | None = None,
        with_events: bool = True,
    ) -> list[cl.Event]:
        """Enqueue every launch. Returns the events, of which the last ends with the product.

        Each launch has an event if the queue profiles or is out of order; otherwise only the last launch has
        one. A launch that packs a *constant* operand is skipped if the previous call packed the same memory.

        Raises LaunchError, DeviceMemoryError or DeviceLostError if the driver rejects a launch, and
        ArgumentError without events on an out-of-order queue, where only events can tell that the product has
        ended.
        """
        if self.out_of_order and not with_events:
            raise ArgumentError(
                "events=False: the queue is out of order, so only events tell when a product ends"
            )
        self._settle_if_first_has_ended()
        packed = constant.name if constant is not None and constant == self._packed else None
        self._packed = None  # set again when this call has packed it
        first = self._to_wait_for(wait_for) if wait_for or self.out_of_order else wait_for
        after: list[cl.Event] | None = first or None
        events: list[cl.Event] = []
        step: _Step | None = None
        begun = False
        try:
            for step in self._steps:
                if packed is not None and step.packs == packed:
                    continue
                step.set_args(buffers, scalars)
                for global_size, offset, needs_event in step.enqueues:
                    sizes = (global_size, step.local_size, offset, after)  # PyOpenCL is slower with keywords
                    wanted = needs_event and with_events
                    if wanted or not silent.enqueue(self.queue, step.kernel, *sizes):
                        # A silent launch that failed is repeated here, so that PyOpenCL raises its error.
                        event = self._with_event(step, sizes, buffers, scalars)
                        events += [event] if wanted else []
                    begun = True
                    after = events[-1:] if self.out_of_order else None
        except BaseException as error:  # Ctrl-C too
            self.last = self._marker()  # the workspace is in use until all launches so far end
            if isinstance(error, cl.Error):
                raise self._rejected(step, error, begun=begun) from error
            raise
        self._packed = constant
        self._remember(first, events[-1:])
        return events

    def _with_event(self, step: _Step, sizes: _Sizes, buffers: Buffers, scalars: Scalars) -> cl.Event:
        """Enqueue one kernel through PyOpenCL.

        On NVIDIA's driver (580.159.04) a kernel object that was given shared virtual memory as an argument
        rejects a buffer there from then on. A new kernel object takes it.
        """
        try:
            return cl.enqueue_nd_range_kernel(self.queue, step.kernel, *sizes)
        except cl.Error as error:
            if not status.arguments_rejected(error):
                raise
        step.replace_kernel(buffers, scalars)
        return cl.enqueue_nd_range_kernel(self.queue, step.kernel, *sizes)

    def _to_wait_for(self, wait_for: list[cl.Event]) -> list[cl.Event]:
        """The events that the first launch has to wait for."""
        if self.out_of_order:  # the previous call uses the workspace until it ends
            return wait_for + self.last
        ordered = self._ordered
        return [event for event in wait_for if id(event) not in ordered]

    def _remember(self, first: list[cl.Event], last: list[cl.Event]) -> None:
        """Keep what a call has waited for, *first*, and its last event.

        All later commands of an in-order queue follow these anyway, so a few of them are kept. While an event
        is kept, no other object has its id.
        """
        if self._unsettled and self._first is None and last:
            self._first = last[0]
        if self.out_of_order:
            self.last = last
            return
        ordered = self._ordered
        for event in (*first, *last):
            ordered[id(event)] = event
        while len(ordered) > _EVENTS_KEPT:
            del ordered[next(iter(ordered))]

    def _rejected(self, step: _Step | None, error: cl.Error, begun: bool) -> PyclmmError:
        what = "the arguments of a product"
        if step is not None:
            what = f"kernel {step.kernel.function_name!r} with work-groups of {step.local_size}"
        rejection = status.rejected(self.device, what, error)
        if isinstance(rejection, LaunchError):
            rejection.begun = begun
        return rejection

    def _marker(self) -> list[cl.Event]:
        """An event that ends after all commands now in an out-of-order queue. Empty for an in-order queue."""
        if not self.out_of_order:
            return []
        try:
            return [cl.enqueue_marker(self.queue)]
        except cl.Error:  # the device is lost, so nothing runs
            return []


def _scalar_dtype(arg: Arg, acc_type: str) -> np.dtype[Any] | None:
    """The dtype that PyOpenCL converts an argument to; None for buffers and complex numbers."""
    if not isinstance(arg, str):
        return arg.dtype
    if arg not in SCALARS:
        return None
    if SCALARS.index(arg) >= _SCALES:
        return np.dtype(np.int64)
    return None if acc_type in COMPLEX else dtype_of(acc_type)


def _converter(acc_type: str) -> Callable[[Any], Any]:
    """The function that converts alpha and beta to the accumulator's type."""
    if acc_type.startswith("uint"):
        bits = 8 * dtype_of(acc_type).itemsize
        return lambda value: int(value) % (1 << bits)  # wraps like NumPy's integers
    return dtype_of(acc_type).type if acc_type in COMPLEX else float


def _sizes(
    global_size: tuple[int, ...],
) -> tuple[tuple[tuple[int, ...], tuple[int, ...] | None], ...]:
    """(global size, offset) of each of the enqueues that together cover *global_size*."""
    if len(global_size) < 3 or global_size[2] <= _MAX_STACK:
        return ((global_size, None),)
    starts = range(0, global_size[2], _MAX_STACK)
    return tuple(((*global_size[:2], min(_MAX_STACK, global_size[2] - at)), (0, 0, at)) for at in starts)
