"""Executable: a checked product with its kernel built, and the only module that enqueues.

Everything that is written during a call (kernel objects, workspace) belongs to one thread and queue,
so an executable may be shared between threads without a lock.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl

from . import host, select
from .device import DeviceInfo, device_info
from .dtypes import COMPLEX, dtype_of
from .errors import BuildError, UnsupportedError
from .kernels.base import Arg, Launch, Work
from .problem import Gemm, GemmProblem
from .program import new_kernel
from .recipe import Recipe

# Work-groups that a launch may have in dimension 2: CUDA's grid is narrow there, so a longer stack
# is enqueued in parts, each with an offset in that dimension.
_MAX_STACK = 65535
_BINDINGS_KEPT = 8  # queues a thread may use one executable on before workspace is given back
_SCALARS = ("alpha", "beta")


class KernelWarning(RuntimeWarning):
    """A kernel could not be used on this device, and the next one was taken."""


@dataclass
class _Step:
    """One launch, ready: its kernel object, arguments (None where they vary), and sizes."""

    kernel: cl.Kernel
    args: list[Any]
    varying: tuple[tuple[int, str], ...]
    scalar: Callable[[Any], Any]
    parts: list[tuple[tuple[int, ...], tuple[int, ...] | None]]
    local_size: tuple[int, ...]


class _Binding:
    """Kernel objects and workspace of one thread and queue, ready to be enqueued."""

    def __init__(self, queue: cl.CommandQueue, device: DeviceInfo, recipe: Recipe) -> None:
        context = queue.context
        self.queue = queue
        self.out_of_order = bool(queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
        self.last: list[cl.Event] = []
        fixed: dict[str, cl.Buffer] = {}
        for space in recipe.workspace:
            fixed[space.symbol] = host.allocate(context, space.nbytes, device, space.symbol)
        for name, table in recipe.tables.items():
            flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
            fixed[name] = cl.Buffer(context, flags, hostbuf=table)
        self._fixed = fixed  # a kernel does not keep its arguments alive
        self.nothing = fixed["batch_offsets"]  # stands in for operands that are never read
        self._steps = [self._step(context, launch, fixed) for launch in recipe.launches]

    def _step(self, context: cl.Context, launch: Launch, fixed: dict[str, cl.Buffer]) -> _Step:
        kernel = new_kernel(context, launch.program, launch.kernel)
        acc_type = str(launch.program.define("ACC_TYPE"))
        kernel.set_scalar_arg_dtypes([_scalar_dtype(arg, acc_type) for arg in launch.args])
        args: list[Any] = [fixed.get(arg) if isinstance(arg, str) else arg.item() for arg in launch.args]
        varying = tuple(
            (i, arg) for i, arg in enumerate(launch.args) if isinstance(arg, str) and arg not in fixed
        )
        return _Step(
            kernel, args, varying, _converter(acc_type), _parts(launch.global_size), launch.local_size
        )

    def fill_unused(self, values: dict[str, Any]) -> None:
        """Give C and bias, where the product has none, a buffer that is never read."""
        for name in ("c", "bias"):
            if name not in values:
                values[name], values[f"{name}_offset"] = self.nothing, 0

    def enqueue(self, values: dict[str, Any], wait_for: list[cl.Event]) -> list[cl.Event]:
        """Enqueue every launch; returns their events, the last of which ends the product."""
        events: list[cl.Event] = []
        if self.out_of_order:  # the workspace is still the last call's until that has ended
            wait_for = wait_for + self.last
        for step in self._steps:
            args = step.args
            for index, name in step.varying:
                args[index] = step.scalar(values[name]) if name in _SCALARS else values[name]
            step.kernel.set_args(*args)
            for global_size, offset in step.parts:
                after = wait_for if not events else events[-1:] if self.out_of_order else None
                events.append(
                    cl.enqueue_nd_range_kernel(
                        self.queue, step.kernel, global_size, step.local_size, offset, wait_for=after
                    )
                )
        self.last = events[-1:]
        return events


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


class Executable:
    """A checked product with its kernel built for one device and context."""

    def __init__(
        self,
        queue: cl.CommandQueue,
        gemm: Gemm,
        kernel: select.KernelChoice = "auto",
        workspace_limit: int | None = None,
    ) -> None:
        self.device = device_info(queue.device)
        self.gemm = gemm
        self.workspace_limit = workspace_limit
        self._bound = threading.local()
        self.choice, self.recipe = self._choose(kernel, queue)

    @property
    def problem(self) -> GemmProblem:
        return self.gemm.problem

    def _choose(
        self, kernel: select.KernelChoice, queue: cl.CommandQueue
    ) -> tuple[select.Choice | None, Recipe]:
        """The first choice that builds; steps down the ladder with a warning for each that fails."""
        if self.gemm.is_empty:
            return None, Recipe(replace(self.gemm, copies=(), out_copy=None), Work(()))
        failures: list[str] = []
        last: Exception | None = None
        for choice in select.candidates(self.problem, self.device, kernel):
            work = choice.kernel.launches(self.problem, choice.config, self.device)
            recipe = Recipe(self.gemm, work)
            reason = self._over_limit(recipe)
            try:
                if reason is None:
                    self._bind(queue, recipe)
                    if failures:
                        self._warn(failures, choice)
                    return choice, recipe
            except (BuildError, cl.Error) as error:
                if kernel != "auto":
                    raise
                last, reason = error, str(error).splitlines()[0]
            failures.append(f"{choice.kernel.name}: {reason}")
        raise UnsupportedError(
            f"no kernel could be used for {self.problem} on {self.device.name!r}: {'; '.join(failures)}"
        ) from last

    def _warn(self, failures: list[str], choice: select.Choice) -> None:
        warnings.warn(
            f"device {self.device.name!r}: {'; '.join(failures)}; {choice.kernel.name!r} is used instead",
            KernelWarning,
            stacklevel=2,
        )

    def _over_limit(self, recipe: Recipe) -> str | None:
        limit = self.workspace_limit
        if limit is None or recipe.workspace_nbytes <= limit:
            return None
        return f"needs {recipe.workspace_nbytes} bytes of workspace, workspace_limit is {limit}"

    def binding(self, queue: cl.CommandQueue) -> _Binding:
        """This thread's kernels and workspace for *queue*."""
        bindings = getattr(self._bound, "by_queue", None)
        if bindings is None:
            bindings = self._bound.by_queue = {}
        found: _Binding | None = bindings.get(queue)
        return found if found is not None else self._bind(queue, self.recipe)

    def _bind(self, queue: cl.CommandQueue, recipe: Recipe) -> _Binding:
        bindings = self._bound.__dict__.setdefault("by_queue", {})
        while len(bindings) >= _BINDINGS_KEPT:
            bindings.pop(next(iter(bindings)))
        binding = _Binding(queue, self.device, recipe)
        bindings[queue] = binding
        return binding

    def release(self) -> None:
        """Give back this thread's kernels and workspace."""
        self._bound.__dict__.pop("by_queue", None)
