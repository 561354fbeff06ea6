"""Binding: kernel objects and workspace of one thread and queue; the only module that enqueues kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from . import driver, host
from .device import DeviceInfo
from .dtypes import COMPLEX, dtype_of
from .kernels.base import Arg, Launch
from .program import new_kernel
from .recipe import Recipe

# Work-groups that a launch may have in dimension 2: CUDA's grid is narrow there, so a longer stack
# is enqueued in parts, each with an offset in that dimension.
_MAX_STACK = 65535
_SCALARS = ("alpha", "beta")
# An operand that does not change between calls: the problem's name of it, and what tells it from others.
Constant = tuple[str, Any]
_OWN_EVENTS = 16  # PyOpenCL's Arrays keep at most 12


@dataclass
class _Step:
    """One launch, ready: its kernel object, arguments (None where they vary), and sizes."""

    kernel: cl.Kernel
    args: list[Any]
    buffers: tuple[tuple[int, str], ...]  # arguments that vary: index and name
    scalars: tuple[tuple[int, str], ...]
    convert: Callable[[Any], Any]  # of alpha and beta
    parts: list[tuple[tuple[int, ...], tuple[int, ...] | None]]
    local_size: tuple[int, ...]
    packs: str
    current: tuple[Any, ...] | None = None  # the scalars that are set

    def set_args(self, values: dict[str, Any]) -> None:
        """Set what varies: buffers alone, at a fraction of the cost, where no scalar has changed."""
        wanted = tuple([values[name] for _, name in self.scalars])
        if wanted == self.current:
            for index, name in self.buffers:
                self.kernel.set_arg(index, values[name])
            return
        args = self.args.copy()  # the plan must not keep the caller's buffers alive
        for index, name in self.buffers:
            args[index] = values[name]
        for (index, name), value in zip(self.scalars, wanted, strict=True):
            args[index] = self.convert(value) if name in _SCALARS else value
        self.current = None
        self.kernel.set_args(*args)
        self.current = wanted


class Binding:
    """Kernel objects and workspace of one thread and queue, ready to be enqueued."""

    def __init__(self, queue: cl.CommandQueue, device: DeviceInfo, recipe: Recipe) -> None:
        context = queue.context
        self.queue = queue
        self.device = device
        self.out_of_order = bool(queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
        self.last: list[cl.Event] = []
        self._own: dict[int, cl.Event] = {}
        self._packed: Constant | None = None
        fixed: dict[str, cl.Buffer] = {}
        for space in recipe.workspace:
            fixed[space.symbol] = host.allocate(context, space.nbytes, device, space.symbol)
            if space.zeroed:
                self._fill(fixed[space.symbol], 0).wait()
        for name, table in recipe.tables.items():
            fixed[name] = host.filled(context, table, device, name)
        self._workspace = [(fixed[space.symbol], space.zeroed) for space in recipe.workspace]
        self._fixed = fixed  # a kernel does not keep its arguments alive
        self.nothing = fixed["batch_offsets"]  # stands in for operands that are never read
        self._steps = [self._step(context, launch, fixed) for launch in recipe.launches]

    def _step(self, context: cl.Context, launch: Launch, fixed: dict[str, cl.Buffer]) -> _Step:
        kernel = new_kernel(context, launch.program, launch.kernel)
        acc_type = str(launch.program.define("ACC_TYPE"))
        kernel.set_scalar_arg_dtypes([_scalar_dtype(arg, acc_type) for arg in launch.args])
        args: list[Any] = [fixed.get(arg) if isinstance(arg, str) else arg.item() for arg in launch.args]
        varying = [(i, arg) for i, arg in enumerate(launch.args) if isinstance(arg, str) and arg not in fixed]
        return _Step(
            kernel,
            args,
            tuple((i, name) for i, name in varying if not _is_scalar(name)),
            tuple((i, name) for i, name in varying if _is_scalar(name)),
            _converter(acc_type),
            _parts(launch.global_size),
            launch.local_size,
            launch.packs,
        )

    def fill_unused(self, values: dict[str, Any]) -> None:
        """Give C and bias, where the product has none, a buffer that is never read."""
        for name in ("c", "bias"):
            if name not in values:
                values[name], values[f"{name}_offset"] = self.nothing, 0

    def poison_workspace(self) -> None:
        """Fill it with NaN (-1 for integers): what a kernel reads there it must have written.

        What is zero when it is new becomes zero again.
        """
        for buffer, zeroed in self._workspace:
            self._fill(buffer, 0 if zeroed else 0xFF)

    def _fill(self, buffer: cl.Buffer, byte: int) -> cl.Event:
        return cl.enqueue_fill_buffer(self.queue, buffer, np.full(1, byte, np.uint8), 0, buffer.size)

    def enqueue(
        self, values: dict[str, Any], wait_for: list[cl.Event], constant: Constant | None = None
    ) -> list[cl.Event]:
        """Enqueue every launch; returns their events, the last of which ends the product.

        What packs a *constant* operand is left out if the last call packed the same.

        Raises LaunchError, DeviceMemoryError or DeviceLostError where the driver takes one of them not.
        """
        events: list[cl.Event] = []
        if self.out_of_order:  # the workspace is still the last call's until that has ended
            wait_for = wait_for + self.last
        elif wait_for:  # what this queue runs before anyway need not be waited for
            wait_for = [event for event in wait_for if id(event) not in self._own]
        there = constant[0] if constant is not None and constant == self._packed else None
        self._packed = None  # until this call has packed it again
        try:
            for step in self._steps:
                if step.packs and step.packs == there:
                    continue
                self._enqueue_step(step, values, wait_for, events)
        except BaseException:  # Ctrl-C too: whatever runs now must end before the workspace is used again
            self.last = self._marker()
            raise
        self.last = events[-1:]
        self._packed = constant
        self._remember(events[-1])
        return events

    def _remember(self, event: cl.Event) -> None:
        """Keep the last few events: as long as one is kept, its id is no other's."""
        self._own[id(event)] = event
        if len(self._own) > _OWN_EVENTS:
            del self._own[next(iter(self._own))]

    def _enqueue_step(
        self, step: _Step, values: dict[str, Any], wait_for: list[cl.Event], events: list[cl.Event]
    ) -> None:
        try:
            step.set_args(values)
            for global_size, offset in step.parts:
                after = wait_for if not events else events[-1:] if self.out_of_order else None
                events.append(
                    cl.enqueue_nd_range_kernel(
                        self.queue, step.kernel, global_size, step.local_size, offset, wait_for=after
                    )
                )
        except cl.Error as error:
            what = f"kernel {step.kernel.function_name!r} with work-groups of {step.local_size}"
            raise driver.refused(self.device, what, error) from error

    def _marker(self) -> list[cl.Event]:
        """An event that ends when all that is in an out-of-order queue by now has ended."""
        if not self.out_of_order:
            return []
        try:
            return [cl.enqueue_marker(self.queue)]
        except cl.Error:  # a lost device: nothing runs
            return []


def _is_scalar(name: str) -> bool:
    return name in _SCALARS or name.endswith("_offset")


def _scalar_dtype(arg: Arg, acc_type: str) -> np.dtype[Any] | None:
    """How PyOpenCL packs an argument; None for buffers, and for pairs, which it takes as they are."""
    if not isinstance(arg, str):
        return arg.dtype
    if arg.endswith("_offset"):
        return np.dtype(np.int64)
    return dtype_of(acc_type) if arg in _SCALARS and acc_type not in COMPLEX else None


def _converter(acc_type: str) -> Callable[[Any], Any]:
    """Turns alpha and beta into arguments of the accumulator's type."""
    if acc_type.startswith("uint"):
        bits = 8 * dtype_of(acc_type).itemsize
        return lambda value: int(value) % (1 << bits)  # wraps, as NumPy's integers do
    return dtype_of(acc_type).type if acc_type in COMPLEX else float


def _parts(global_size: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...] | None]]:
    """(global size, offset) of the enqueues that cover *global_size*."""
    if len(global_size) < 3 or global_size[2] <= _MAX_STACK:
        return [(global_size, None)]
    starts = range(0, global_size[2], _MAX_STACK)
    return [((*global_size[:2], min(_MAX_STACK, global_size[2] - at)), (0, 0, at)) for at in starts]
