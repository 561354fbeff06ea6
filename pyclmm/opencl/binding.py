"""Binding: kernel objects and workspace of one thread and queue; the only module that enqueues kernels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyopencl as cl

from ..errors import ArgumentError, LaunchError, PyclmmError
from ..kernels.device import DeviceInfo
from ..kernels.interface import Arg, Launch, Work
from ..problem.dtypes import COMPLEX, dtype_of
from . import host_memory, silent, status
from .program import new_kernel

# Work-groups that a launch may have in dimension 2: CUDA's grid is narrow there, so a longer stack
# is enqueued in parts, each with an offset in that dimension.
_MAX_STACK = 65535
_EVENTS_KEPT = 16  # PyOpenCL's Arrays keep at most 12
Buffers = Mapping[str, Any]  # what kernels read and write, by the problem's names


# What varies between calls besides buffers: alpha, beta, and offsets in elements, by operand.
SCALARS = ("alpha", "beta", "a_offset", "b_offset", "c_offset", "bias_offset", "out_offset")
Scalars = tuple[Any, ...]
_SCALES = 2  # alpha and beta come first


def scalars_of(alpha: complex, beta: complex, offsets: Mapping[str, int] | None = None) -> Scalars:
    """The scalars of a call, where *offsets* has those that are not 0, by operand."""
    if not offsets:
        return alpha, beta, 0, 0, 0, 0, 0
    return alpha, beta, *(offsets.get(name.removesuffix("_offset"), 0) for name in SCALARS[_SCALES:])


@dataclass(frozen=True)
class Constant:
    """An operand that does not change between calls: its problem's name, and what tells it from others.

    *memory* is only held: as long as it is, nothing else can lie where it lies.
    """

    name: str
    where: Any
    memory: Any = field(compare=False)


# (global size, offset, whether an event is made of it) of one enqueue.
_Part = tuple[tuple[int, ...], tuple[int, ...] | None, bool]


@dataclass
class _Step:
    """One launch, ready: its kernel object, arguments (None where they vary), and sizes."""

    kernel: cl.Kernel
    args: list[Any]
    buffers: tuple[tuple[int, str], ...]  # arguments that vary: index and name
    scalars: tuple[tuple[int, int], ...]  # index, and which of SCALARS
    convert: Callable[[Any], Any]  # of alpha and beta
    parts: tuple[_Part, ...]
    local_size: tuple[int, ...]
    packs: str
    current: Scalars | None = None  # those that are set

    def set_args(self, buffers: Buffers, scalars: Scalars) -> None:
        """Set what varies: buffers alone, at a fraction of the cost, where no scalar has changed."""
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


class Binding:
    """Kernel objects and workspace of one thread and queue, ready to be enqueued.

    *absent*: operands (the problem's names) that the caller has no buffers for, as no kernel reads them.
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
        self._behind: dict[int, cl.Event] = {}
        self._packed: Constant | None = None
        fixed: dict[str, cl.Buffer] = {}
        for space in work.workspace:
            fixed[space.symbol] = host_memory.allocate(context, space.nbytes, device, space.symbol)
            if space.zeroed:
                self._fill(fixed[space.symbol], 0).wait()
        for name, table in work.tables.items():
            fixed[name] = host_memory.filled(context, table, device, name)
        self._workspace = [(fixed[space.symbol], space.zeroed) for space in work.workspace]
        fixed |= dict.fromkeys(absent, fixed["batch_offsets"])  # any buffer does: it is never read
        self._fixed = fixed  # a kernel does not keep its arguments alive
        last = work.launches[-1] if work.launches else None
        self._steps = [self._step(x, every_event, ends=x is last) for x in work.launches]

    def _step(self, launch: Launch, every_event: bool, ends: bool) -> _Step:
        kernel = new_kernel(self.queue.context, launch.program, launch.kernel)
        acc_type = str(launch.program.define("ACC_TYPE"))
        kernel.set_scalar_arg_dtypes([_scalar_dtype(arg, acc_type) for arg in launch.args])
        sizes = _sizes(launch.global_size)
        named = [(index, arg) for index, arg in enumerate(launch.args) if isinstance(arg, str)]
        return _Step(
            kernel,
            [self._fixed.get(arg) if isinstance(arg, str) else arg.item() for arg in launch.args],
            tuple((i, name) for i, name in named if name not in self._fixed and name not in SCALARS),
            tuple((i, SCALARS.index(name)) for i, name in named if name in SCALARS),
            _converter(acc_type),
            tuple((*size, every_event or (ends and size is sizes[-1])) for size in sizes),
            launch.local_size,
            launch.packs,
        )

    def poison_workspace(self) -> None:
        """Fill it with NaN (-1 for integers): what a kernel reads there it must have written.

        What is zero when it is new becomes zero again.
        """
        for event in [self._fill(buffer, 0 if zeroed else 0xFF) for buffer, zeroed in self._workspace]:
            event.wait()  # an out-of-order queue would let the kernels begin before

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
        """Enqueue every launch; returns events, the last of which ends the product.

        There is one for each launch where the queue profiles or keeps no order, else only the last.

        What packs a *constant* operand is left out if the last call packed the same. Without events nothing
        tells when the product ends but the order of the queue, which must have one.

        Raises LaunchError, DeviceMemoryError or DeviceLostError where the driver takes one of them not, and
        ArgumentError where the queue keeps no order.
        """
        if self.out_of_order and not with_events:
            raise ArgumentError(
                "events=False: the queue is out of order, so only events tell when a product ends"
            )
        there = constant.name if constant is not None and constant == self._packed else None
        self._packed = None  # until this call has packed it again
        first = self._to_wait_for(wait_for) if wait_for or self.out_of_order else wait_for
        after: list[cl.Event] | None = first or None
        events: list[cl.Event] = []
        step: _Step | None = None
        begun = False
        try:
            for step in self._steps:
                if there is not None and step.packs == there:
                    continue
                step.set_args(buffers, scalars)
                for (
                    global_size,
                    offset,
                    marked,
                ) in step.parts:  # by position: PyOpenCL takes names more slowly
                    launch = (self.queue, step.kernel, global_size, step.local_size, offset, after)
                    wanted = marked and with_events
                    if wanted or not silent.enqueue(*launch):  # PyOpenCL says what is wrong
                        event = cl.enqueue_nd_range_kernel(*launch)
                        events += [event] if wanted else []
                    begun = True
                    after = events[-1:] if self.out_of_order else None
        except BaseException as error:  # Ctrl-C too
            self.last = self._marker()  # whatever runs now must end before the workspace is used again
            if isinstance(error, cl.Error):
                raise self._refused(step, error, begun=begun) from error
            raise
        self._packed = constant
        if self.out_of_order:
            self.last = events[-1:]
        else:
            self._remember([*first, *events[-1:]])
        return events

    def _to_wait_for(self, wait_for: list[cl.Event]) -> list[cl.Event]:
        """The events that the first launch has to wait for."""
        if self.out_of_order:  # the workspace is still the last call's until that has ended
            return wait_for + self.last
        behind = self._behind
        return [event for event in wait_for if id(event) not in behind]

    def _remember(self, events: list[cl.Event]) -> None:
        """Keep events that whatever an in-order queue runs from now on comes after anyway.

        Only the last few: as long as one is kept, its id is no other's.
        """
        behind = self._behind
        for event in events:
            behind[id(event)] = event
        while len(behind) > _EVENTS_KEPT:
            del behind[next(iter(behind))]

    def _refused(self, step: _Step | None, error: cl.Error, begun: bool) -> PyclmmError:
        what = "the arguments of a product"
        if step is not None:
            what = f"kernel {step.kernel.function_name!r} with work-groups of {step.local_size}"
        refusal = status.refused(self.device, what, error)
        if isinstance(refusal, LaunchError):
            refusal.begun = begun
        return refusal

    def _marker(self) -> list[cl.Event]:
        """An event that ends when all that is in an out-of-order queue by now has ended."""
        if not self.out_of_order:
            return []
        try:
            return [cl.enqueue_marker(self.queue)]
        except cl.Error:  # a lost device: nothing runs
            return []


def _scalar_dtype(arg: Arg, acc_type: str) -> np.dtype[Any] | None:
    """How PyOpenCL packs an argument; None for buffers, and for pairs, which it takes as they are."""
    if not isinstance(arg, str):
        return arg.dtype
    if arg not in SCALARS:
        return None
    if SCALARS.index(arg) >= _SCALES:
        return np.dtype(np.int64)
    return None if acc_type in COMPLEX else dtype_of(acc_type)


def _converter(acc_type: str) -> Callable[[Any], Any]:
    """Turns alpha and beta into arguments of the accumulator's type."""
    if acc_type.startswith("uint"):
        bits = 8 * dtype_of(acc_type).itemsize
        return lambda value: int(value) % (1 << bits)  # wraps, as NumPy's integers do
    return dtype_of(acc_type).type if acc_type in COMPLEX else float


def _sizes(
    global_size: tuple[int, ...],
) -> tuple[tuple[tuple[int, ...], tuple[int, ...] | None], ...]:
    """(global size, offset) of the enqueues that cover *global_size*."""
    if len(global_size) < 3 or global_size[2] <= _MAX_STACK:
        return ((global_size, None),)
    starts = range(0, global_size[2], _MAX_STACK)
    return tuple(((*global_size[:2], min(_MAX_STACK, global_size[2] - at)), (0, 0, at)) for at in starts)
