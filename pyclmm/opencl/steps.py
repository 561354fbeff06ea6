"""Steps: the launches of a product, each with a kernel object, the arguments set in it, and its sizes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
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
OFFSET = "_offset"
_NO_OFFSETS: Mapping[str, int] = {}


def scalars_of(alpha: complex, beta: complex, offsets: Mapping[str, int] | None = None) -> Scalars:
    """The scalars of a call."""
    return alpha, beta, offsets or _NO_OFFSETS


def _library_function(name: str) -> Callable[..., int] | None:
    """A function of the library that PyOpenCL is linked with; None if it is not found."""
    try:
        function: Any = getattr(ctypes.CDLL(cl._cl.__file__), name)
    except (AttributeError, OSError):
        return None
    function.restype = ctypes.c_int32  # no argtypes: its arguments are ctypes' own, which need no conversion
    return function  # type: ignore[no-any-return]


_enqueue = _library_function("clEnqueueNDRangeKernel")
_set_arg = _library_function("clSetKernelArg")
_set_address = _library_function("clSetKernelArgSVMPointer")
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


def _set_scalar(kernel: cl.Kernel, index: int, content: bytes) -> None:
    """Set a scalar argument of *kernel*.

    PyOpenCL takes ten times as long, or else generates code for each kernel object, in as much time as all
    else that a plan needs.
    """
    place, size = ctypes.c_uint32(index), ctypes.c_size_t(len(content))
    if _set_arg is None or _set_arg(ctypes.c_void_p(kernel.int_ptr), place, size, content):
        kernel.set_arg(index, content)  # which raises PyOpenCL's error


class Enqueue(NamedTuple):
    """One enqueue of a launch: a part of its work-items, and whether it needs an event."""

    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    offset: tuple[int, ...] | None
    needs_event: bool


@dataclass
class Step:
    """One launch: its kernel object, its arguments and its enqueues."""

    queue: cl.CommandQueue
    new_kernel: Callable[[], cl.Kernel]
    kernel: cl.Kernel
    fixed: list[tuple[int, Any]]  # arguments that stay: index, and a buffer or the bytes of a scalar
    buffers: list[tuple[int, str]]  # varying arguments: index and name
    workspace: list[tuple[int, int]]  # borrowed arguments: index, and place among what is borrowed
    # Index, "alpha", "beta" or the array whose offset it is, and what makes the bytes of the argument.
    scalars: list[tuple[int, str, Callable[[Any], bytes]]]
    enqueues: tuple[Enqueue, ...]
    packs: str
    current: Scalars | None = None  # the scalars that the kernel object holds
    values: Mapping[str, Any] = field(default_factory=dict)  # the same by name

    def __post_init__(self) -> None:
        self.addresses: dict[int, int] = {}  # what the kernel object holds in place of buffers
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
        scale = _bytes_of(acc_type)
        stay: list[tuple[int, Any]] = []
        buffers, lent, scalars = [], [], []
        for index, arg in enumerate(launch.args):
            if not isinstance(arg, str):
                stay.append((index, arg.tobytes()))
            elif arg in borrowed:
                lent.append((index, borrowed[arg]))
            elif arg in SCALES:
                scalars.append((index, arg, scale))
            elif arg.endswith(OFFSET):
                scalars.append((index, arg.removesuffix(OFFSET), _offset_bytes))
            else:
                if arg in fixed:
                    stay.append((index, fixed[arg]))
                if arg not in fixed or arg in LISTED:  # a call may name another table
                    buffers.append((index, arg))
        kernel = partial(make, queue.context, launch.program, launch.kernel)
        enqueues = _enqueues(launch, every_event, ends)
        return cls(queue, kernel, kernel(), stay, buffers, lent, scalars, enqueues, launch.packs)

    def set_args(self, buffers: Buffers, scalars: Scalars | None, borrowed: Borrowed, moved: bool) -> None:
        """Set *buffers*, those *scalars* that differ from the last call's, and *borrowed* workspace that has
        *moved*.
        """
        if scalars is not None and scalars != self.current:
            self._set_scalars(scalars)
        set_arg = self.kernel.set_arg
        if buffers:
            self.addresses.clear()
        for index, name in self.buffers:
            if name in buffers:
                set_arg(index, buffers[name])
        if moved:
            for index, place in self.workspace:
                set_arg(index, borrowed[place])

    def set_addresses(self, addresses: Mapping[str, int], scalars: Scalars) -> bool:
        """Set addresses of host memory in place of buffers, and *scalars*, those that differ. Returns False
        if the driver takes none.
        """
        if _set_address is None:
            return False
        if scalars != self.current:
            self._set_scalars(scalars)
        held, kernel = self.addresses, None
        for index, name in self.buffers:
            address = addresses[name]
            if held.get(index) == address:
                continue
            kernel = kernel or ctypes.c_void_p(self.kernel.int_ptr)
            held.pop(index, None)  # until it is set: Ctrl-C may come between
            if _set_address(kernel, ctypes.c_uint32(index), ctypes.c_void_p(address)):
                return False
            held[index] = address
        return True

    def _set_scalars(self, scalars: Scalars) -> None:
        """Set the scalars that differ; all, and what stays, in a new kernel object."""
        is_new, self.current = self.current is None, None  # until all are set
        for index, value in self.fixed if is_new else ():
            if isinstance(value, bytes):
                _set_scalar(self.kernel, index, value)
            else:
                self.kernel.set_arg(index, value)
        alpha, beta, offsets = scalars
        values = {"alpha": alpha, "beta": beta, **offsets}
        for index, name, to_bytes in self.scalars:
            value = values.get(name, 0)
            if is_new or value != self.values.get(name, 0):
                _set_scalar(self.kernel, index, to_bytes(value))
        self.current, self.values = scalars, values

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
    """The function that makes alpha and beta numbers of the accumulator's kind."""
    if acc_type.startswith("uint"):
        bits = 8 * dtype_of(acc_type).itemsize
        return lambda value: int(value) % (1 << bits)  # wraps like NumPy's integers
    return complex if acc_type in COMPLEX else float


@cache
def _bytes_of(acc_type: str) -> Callable[[Any], bytes]:
    """The function that makes an argument of alpha or beta. Beyond the type's range it is infinity."""
    convert, dtype = converter_of(acc_type), dtype_of(acc_type)
    ctype: Any = np.ctypeslib.as_ctypes_type(dtype.type(0).real.dtype)
    if acc_type in COMPLEX:
        return lambda value: bytes((2 * ctype)(value.real, value.imag))
    return lambda value: bytes(ctype(convert(value)))


def _offset_bytes(offset: int) -> bytes:
    return bytes(ctypes.c_int64(offset))
