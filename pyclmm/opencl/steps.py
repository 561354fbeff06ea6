"""Steps: the launches of a product, each with a kernel object, the arguments set in it, and its sizes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from ..kernels.interface import LISTED, Launch
from ..problem.dtypes import COMPLEX, converter_of, dtype_of

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
Addresses = tuple[int, ...]


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
_set_address: Any = _library_function("clSetKernelArgSVMPointer")
if _set_address is not None:  # to convert numbers takes 0.06 us less than to make objects of them
    _set_address.argtypes = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p
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
    """One enqueue of a launch, which has several where its stack is long."""

    # For PyOpenCL's function: queue, kernel, global and local size, offset
    with_event: tuple[Any, Any, Any, Any, Any]
    eventless: Eventless


class Step:
    """One launch: its kernel object, its arguments and its enqueues.

    *fixed* are the buffers that do not vary; *borrowed* maps workspace to its place among what a call
    borrows. *make*: as :func:`.program.new_kernel`.
    """

    def __init__(
        self,
        queue: cl.CommandQueue,
        launch: Launch,
        fixed: Buffers,
        borrowed: Mapping[str, int],
        make: Callable[..., cl.Kernel],
    ) -> None:
        self._queue, self._launch, self._make = queue, launch, make
        self.packs = launch.packs
        self._fixed: list[tuple[int, Any]] = []  # index, and a buffer or the bytes of a scalar
        self._buffers: list[tuple[int, str]] = []  # varying arguments: index and name
        self._workspace: list[tuple[int, int]] = []  # index, and place among what is borrowed
        # Index, "alpha", "beta" or the array whose offset it is, and what makes the bytes of the argument.
        self._scalars: list[tuple[int, str, Callable[[Any], bytes]]] = []
        acc_type = str(launch.program.define("ACC_TYPE") or "float32")  # without one, no alpha and beta
        scale = _bytes_of(acc_type)
        for index, arg in enumerate(launch.args):
            if not isinstance(arg, str):
                self._fixed.append((index, arg.tobytes()))
            elif arg in borrowed:
                self._workspace.append((index, borrowed[arg]))
            elif arg in SCALES:
                self._scalars.append((index, arg, scale))
            elif arg.endswith(OFFSET):
                self._scalars.append((index, arg.removesuffix(OFFSET), _offset_bytes))
            else:
                if arg in fixed:
                    self._fixed.append((index, fixed[arg]))
                if arg not in fixed or arg in LISTED:  # a call may name another table
                    self._buffers.append((index, arg))
        self._use_new_kernel()

    def _use_new_kernel(self) -> None:
        """Let the step have a new kernel object, which holds no argument."""
        launch = self._launch
        self.kernel = self._make(self._queue.context, launch.program, launch.kernel)
        self.scalars: Scalars | None = None  # the scalars that it holds
        self.addresses: Addresses = ()  # what it holds in place of buffers, if that is known
        self.parts = []
        for size, first in spans(launch):
            offset = (0, 0, first) if first or size != launch.global_size else None
            arguments = (self._queue, self.kernel, size, launch.local_size, offset)
            self.parts.append(Enqueue(arguments, eventless(*arguments)))

    def set_args(self, buffers: Buffers, scalars: Scalars | None, borrowed: Borrowed, moved: bool) -> None:
        """Set *buffers*, those *scalars* that differ from the last call's, and *borrowed* workspace that has
        *moved*.
        """
        if scalars is not None and scalars != self.scalars:
            self._set_scalars(scalars)
        set_arg = self.kernel.set_arg
        if buffers:
            self.addresses = ()
        for index, name in self._buffers:
            if name in buffers:
                set_arg(index, buffers[name])
        if moved:
            for index, place in self._workspace:
                set_arg(index, borrowed[place])

    def set_addresses(self, names: Sequence[str], addresses: Addresses, scalars: Scalars) -> bool:
        """Set *addresses* of host memory in place of the buffers of these *names*, the same in every call,
        and *scalars*: what differs. Returns False if the driver takes no addresses.
        """
        if scalars != self.scalars:
            self._set_scalars(scalars)
        self.scalars, held = scalars, self.addresses
        if _set_address is None:
            return False
        self.addresses = ()  # until all are set: Ctrl-C may come between
        kernel = self.kernel.int_ptr
        for index, name in self._buffers:
            place = names.index(name)
            if not (held and held[place] == addresses[place]) and _set_address(
                kernel, index, addresses[place]
            ):
                return False
        self.addresses = addresses
        return True

    def _set_scalars(self, scalars: Scalars) -> None:
        """Set the scalars that differ; all, and what stays, in a new kernel object."""
        before, self.scalars = self.scalars, None  # until all are set
        for index, value in self._fixed if before is None else ():
            if isinstance(value, bytes):
                _set_scalar(self.kernel, index, value)
            else:
                self.kernel.set_arg(index, value)
        held, values = None if before is None else _by_name(before), _by_name(scalars)
        for index, name, to_bytes in self._scalars:
            value = values.get(name, 0)
            if held is None or value != held.get(name, 0):
                _set_scalar(self.kernel, index, to_bytes(value))
        self.scalars = scalars

    def replace_kernel(self, buffers: Buffers, scalars: Scalars, borrowed: Borrowed) -> None:
        """Use a new kernel object with the same arguments."""
        self._use_new_kernel()
        self.set_args(buffers, scalars, borrowed, moved=True)


def _by_name(scalars: Scalars) -> dict[str, Any]:
    alpha, beta, offsets = scalars
    return {"alpha": alpha, "beta": beta, **offsets}


def spans(launch: Launch) -> list[tuple[tuple[int, ...], int]]:
    """The parts of a launch that one enqueue can have: (global size, the first product of the stack)."""
    *plane, stack = launch.global_size
    if len(plane) < 2 or stack <= _MAX_STACK:
        return [(launch.global_size, launch.first)]
    starts = range(0, stack, _MAX_STACK)
    return [((*plane, min(_MAX_STACK, stack - at)), launch.first + at) for at in starts]


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
