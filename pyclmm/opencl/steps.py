"""Steps: the launches of a product, each with a kernel object, the arguments set in it, and its sizes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from ..kernels.interface import LISTED, Launch
from ..problem.dtypes import COMPLEX, dtype_of
from .program import new_kernel

# The most work-groups of an enqueue in dimension 2, as in CUDA's grid. A longer stack takes several enqueues,
# each with an offset in that dimension.
_MAX_STACK = 65535
Buffers = Mapping[str, Any]  # the buffers that kernels read and write, by the problem's names
Borrowed = Sequence[cl.Buffer]  # the workspace of a call


Scales = tuple[complex, complex]  # alpha and beta
# The scalars that vary between calls: alpha, beta, and the offsets in elements that are not 0, by the name of
# the array. An argument of this name and OFFSET is an offset.
Scalars = tuple[complex, complex, Mapping[str, int]]
SCALES = ("alpha", "beta")
OFFSET, _OFFSET_DTYPE = "_offset", np.dtype(np.int64)
_NO_OFFSETS: Mapping[str, int] = {}


def scalars_of(alpha: complex, beta: complex, offsets: Mapping[str, int] | None = None) -> Scalars:
    """The scalars of a call."""
    return alpha, beta, offsets or _NO_OFFSETS


def _library_function() -> Callable[..., int] | None:
    """clEnqueueNDRangeKernel of the library that PyOpenCL is linked with; None if it is not found."""
    try:
        function = ctypes.CDLL(cl._cl.__file__).clEnqueueNDRangeKernel
    except (AttributeError, OSError):
        return None
    function.restype = ctypes.c_int32  # no argtypes: its arguments are ctypes' own, which need no conversion
    return function


_enqueue = _library_function()
_NONE = ctypes.c_uint32(0)


def _size(values: Sequence[int] | None) -> Any:
    return None if values is None else (ctypes.c_size_t * len(values))(*values)


Eventless = tuple[Any, ...]  # arguments of the driver's function: queue, kernel, dimensions, sizes


def eventless(
    queue: cl.CommandQueue,
    kernel: cl.Kernel,
    global_size: Sequence[int],
    local_size: Sequence[int],
    offset: Sequence[int] | None = None,
) -> Eventless:
    """What :func:`enqueue_eventless` takes. It does not keep *kernel* alive."""
    objects = ctypes.c_void_p(queue.int_ptr), ctypes.c_void_p(kernel.int_ptr)
    return (*objects, ctypes.c_uint32(len(global_size)), *map(_size, (offset, global_size, local_size)))


def enqueue_eventless(launch: Eventless, wait_for: Sequence[cl.Event] | None = None) -> bool:
    """Enqueue a kernel whose arguments are set, without an event. Returns False if nothing was enqueued.

    PyOpenCL makes an event for every launch, and the device takes time to signal it: on an NVIDIA H200 an
    empty kernel takes 3.3 us with an event and 1.7 us without (driver 580.159.04, 2026-11-21).
    """
    if _enqueue is None:
        return False
    if not wait_for:
        return not _enqueue(*launch, _NONE, None, None)
    events = [event.int_ptr for event in wait_for]
    waits = (ctypes.c_void_p * len(events))(*events)
    return not _enqueue(*launch, ctypes.c_uint32(len(events)), waits, None)


class Enqueue(NamedTuple):
    """One enqueue of a launch: a part of its work-items, and whether it needs an event."""

    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    offset: tuple[int, ...] | None
    needs_event: bool


@dataclass
class Step:
    """One launch: its kernel object, its arguments (None for those that vary) and its enqueues."""

    queue: cl.CommandQueue
    new_kernel: Callable[[], cl.Kernel]
    kernel: cl.Kernel
    args: list[Any]
    buffers: list[tuple[int, str]]  # varying arguments: index and name
    workspace: list[tuple[int, int]]  # borrowed arguments: index, and place among what is borrowed
    scales: list[tuple[int, str]]  # alpha and beta: index and name
    offsets: list[tuple[int, str]]  # index, and name of the array
    convert: Callable[[Any], Any]  # alpha and beta to the accumulator's type
    enqueues: tuple[Enqueue, ...]
    packs: str
    current: Scalars | None = None  # the scalars that the kernel object holds

    def __post_init__(self) -> None:
        self.parts = [
            (part, eventless(self.queue, self.kernel, part.global_size, part.local_size, part.offset))
            for part in self.enqueues
        ]

    @classmethod
    def of(
        cls,
        queue: cl.CommandQueue,
        launch: Launch,
        fixed: Buffers,
        borrowed: Mapping[str, int],
        every_event: bool,
        ends: bool,
        make: Callable[..., cl.Kernel] = new_kernel,
    ) -> Step:
        """The step of *launch*. *fixed* are the buffers that do not vary; *borrowed* maps workspace to its
        place among what a call borrows. *ends*: it ends the product. *make*: as :func:`.program.new_kernel`.
        """
        acc_type = str(launch.program.define("ACC_TYPE") or "float32")  # without one, no alpha and beta
        scale_dtype = None if acc_type in COMPLEX else dtype_of(acc_type)
        args: list[Any] = []
        dtypes: list[np.dtype[Any] | None] = []  # what PyOpenCL converts to: not buffers, not complex numbers
        buffers, lent, scales, offsets = [], [], [], []
        for index, arg in enumerate(launch.args):
            value, dtype = None, None
            if not isinstance(arg, str):
                value, dtype = arg.item(), arg.dtype
            elif arg in fixed:
                value = fixed[arg]
                if arg in LISTED:  # a call may name another table
                    buffers.append((index, arg))
            elif arg in borrowed:
                lent.append((index, borrowed[arg]))
            elif arg in SCALES:
                scales.append((index, arg))
                dtype = scale_dtype
            elif arg.endswith(OFFSET):
                offsets.append((index, arg.removesuffix(OFFSET)))
                dtype = _OFFSET_DTYPE
            else:
                buffers.append((index, arg))
            args.append(value)
            dtypes.append(dtype)
        kernel = partial(make, queue.context, launch.program, launch.kernel, tuple(dtypes))
        return cls(
            *(queue, kernel, kernel(), args, buffers, lent, scales, offsets),
            *(converter_of(acc_type), _enqueues(launch, every_event, ends), launch.packs),
        )

    def set_args(self, buffers: Buffers, scalars: Scalars | None, borrowed: Borrowed, moved: bool) -> None:
        """Set the varying arguments; only buffers, which is much faster, if no scalar has changed, and
        without *scalars* only these. *borrowed* workspace is set if it has *moved*.
        """
        if scalars is None or scalars == self.current:
            set_arg = self.kernel.set_arg
            for index, name in self.buffers:
                if name in buffers:
                    set_arg(index, buffers[name])
            if moved:
                for index, place in self.workspace:
                    set_arg(index, borrowed[place])
            return
        args = self.args.copy()  # the plan must not keep the caller's buffers alive
        for index, name in self.buffers:
            args[index] = buffers[name] if args[index] is None else buffers.get(name, args[index])
        for index, place in self.workspace:
            args[index] = borrowed[place]
        alpha, beta, offsets = scalars
        for index, name in self.scales:
            args[index] = self.convert(alpha if name == "alpha" else beta)
        for index, name in self.offsets:
            args[index] = offsets.get(name, 0)
        self.current = None
        self.kernel.set_args(*args)
        self.current = scalars

    def replace_kernel(self, buffers: Buffers, scalars: Scalars, borrowed: Borrowed) -> None:
        """Use a new kernel object with the same arguments."""
        self.kernel = self.new_kernel()
        self.__post_init__()
        self.current = None
        self.set_args(buffers, scalars, borrowed, moved=True)


def _enqueues(launch: Launch, every_event: bool, ends: bool) -> tuple[Enqueue, ...]:
    """The enqueues that cover a launch."""
    local, parts = launch.local_size, []
    for size, first in spans(launch):
        offset = (0, 0, first) if first or size != launch.global_size else None
        parts.append(Enqueue(size, local, offset, every_event))
    if ends:
        parts[-1] = parts[-1]._replace(needs_event=True)
    return tuple(parts)


def spans(launch: Launch) -> list[tuple[tuple[int, ...], int]]:
    """The parts of a launch that one enqueue can have: (global size, the first product of the stack)."""
    *plane, stack = launch.global_size
    if len(plane) < 2 or stack <= _MAX_STACK:
        return [(launch.global_size, launch.first)]
    starts = range(0, stack, _MAX_STACK)
    return [((*plane, min(_MAX_STACK, stack - at)), launch.first + at) for at in starts]


def converter_of(acc_type: str) -> Callable[[Any], Any]:
    """The function that converts alpha and beta to the accumulator's type."""
    if acc_type.startswith("uint"):
        bits = 8 * dtype_of(acc_type).itemsize
        return lambda value: int(value) % (1 << bits)  # wraps like NumPy's integers
    return partial(_to_complex, dtype_of(acc_type)) if acc_type in COMPLEX else float


def _to_complex(dtype: np.dtype[Any], value: complex) -> Any:
    with np.errstate(over="ignore"):  # beyond the type's range it is infinity, as a real number is
        return dtype.type(value)
