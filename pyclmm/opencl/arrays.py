"""pyopencl Arrays as operands: strides, offsets, and whether two Arrays share memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

from ..errors import ArgumentError, UnsupportedError
from ..kernels.device import DeviceInfo
from ..problem.dtypes import check_order
from ..problem.gemm import MAX_ALIGN, Operand, alignment
from . import forks
from .devices import device_info
from .host_memory import check_size, new_memory
from .late_events import late_events
from .mappings import check_out, meet, reach
from .status import out_of_memory

Array = cla.Array

_no_memory: Any = lambda _nbytes: None  # noqa: E731 - allocates nothing
_PARENT = cl.mem_info.ASSOCIATED_MEMOBJECT


def operand(x: Array, argument: str) -> Operand:
    """The layout of an Array. Raises UnsupportedError for an odd offset, DTypeError for the other order,
    ArgumentError as :func:`check_out` does."""
    check_order(x.dtype, argument)
    if argument == "out":
        check_out(x)
    if x.offset % x.dtype.itemsize:
        raise UnsupportedError(
            f"{argument} begins {x.offset} bytes into its buffer, not at a whole element of {x.dtype}; "
            "copy it first"
        )
    shape, strides = (tuple(map(int, its)) for its in (x.shape, x.strides))  # they may be NumPy's integers
    return Operand(shape, strides, x.dtype, alignment(x.offset) if x.offset else MAX_ALIGN)


def common_queue(operands: Mapping[str, Array], queue: cl.CommandQueue | None) -> cl.CommandQueue:
    """*queue*, or the first one of an Array. Raises ArgumentError if none has one, or contexts differ."""
    if queue is None:
        queue = next((x.queue for x in operands.values() if x.queue is not None), None)
        if queue is None:
            raise ArgumentError("none of the Arrays has a queue; pass queue=")
    for name, x in operands.items():
        if x.queue is not queue and x.context != queue.context:  # the same queue needs no look at contexts
            raise ArgumentError(
                f"{name} is in another OpenCL context than the queue; allocate all operands and out "
                "in one context"
            )
    return queue


def _parent(base: cl.MemoryObjectHolder) -> Any:
    """The buffer of which *base* is a sub-buffer; None if it is none. -1 for a parent that nobody else holds
    on Intel's runtime, which tells no more of it: all such may be one.
    """
    try:
        return base.get_info(_PARENT)
    except cl.LogicError:
        return -1


def location(x: Array) -> tuple[int, int]:
    """Identifies the memory of *x*: its allocation, and the offset in it in bytes."""
    base = x.base_data
    if not isinstance(base, cl.MemoryObjectHolder):  # shared virtual memory is one address space
        return 0, int(getattr(base, "svm_ptr", id(base))) + x.offset
    parent = _parent(base)
    if parent is None:
        return base.int_ptr, x.offset
    offset: Any = base.get_info(cl.mem_info.OFFSET)
    return parent if isinstance(parent, int) else parent.int_ptr, offset + x.offset


def phase(x: Array) -> int:
    """Where *x* begins between aligned addresses."""
    return x.offset % MAX_ALIGN


def is_whole(base: Any) -> bool:
    """Whether a buffer is known to be a whole allocation, not a sub-buffer."""
    return type(base) is cl.Buffer and _parent(base) is None


def may_share(x: Array, y: Array) -> bool:
    """Whether the byte ranges of the two overlap."""
    its, other = x.base_data, y.base_data
    if its != other and is_whole(its) and is_whole(other):
        return False  # two separate allocations: the usual case
    (x_root, x_at), (y_root, y_at) = location(x), location(y)
    return x_root == y_root and meet(x, x_at, y, y_at)


def end_of(x: Array) -> int:
    """How many bytes of its buffer *x* needs, from the buffer's start. Negative if it begins before that."""
    low, high = reach(x, x.offset) if x.size else (0, 0)
    return high if low >= 0 else low


def is_writeable(base: Any) -> bool:
    """Whether kernels may write to a buffer."""
    return not (isinstance(base, cl.MemoryObjectHolder) and base.flags & cl.mem_flags.READ_ONLY)


def check_buffer(x: Array, name: str, pair: str = "") -> None:
    """Raise ArgumentError unless the elements of *x* lie in its buffer, and kernels may write an ``out``.

    *pair*: what an error about a list begins with.
    """
    end, base = end_of(x), x.base_data
    if end and base is None:
        raise ArgumentError(f"{pair}{name} has no memory, its base_data is None; pass an Array with a buffer")
    if isinstance(base, cl.Image):  # whose elements lie in an order of the driver's
        raise ArgumentError(f"{pair}{name} has an image as its base_data; pass an Array with a buffer")
    size = getattr(base, "size", None)  # some shared virtual memory has None
    if end and size is not None and not 0 < end <= size:
        raise ArgumentError(
            f"{pair}{name} has elements outside of its buffer: by its shape {x.shape}, strides {x.strides} "
            f"and offset {x.offset} it reaches to byte {end}, and the buffer has {size} bytes; pass an "
            "Array with a larger buffer"
        )
    if name == "out" and not is_writeable(base):
        raise ArgumentError(f"{pair}{name} has a READ_ONLY buffer; pass an Array whose buffer is READ_WRITE")


def same_view(x: Array, y: Array) -> bool:
    """Whether the two are one view of the same memory."""
    mine, other = ((v.shape, v.strides, v.dtype, v.offset, v.base_data) for v in (x, y))
    return mine == other


class Results:
    """Makes new C-contiguous Arrays of one shape and dtype, faster than Array's constructor."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: DeviceInfo) -> None:
        self._shape, self._dtype, self._device = shape, dtype, device
        self._nbytes, self._flags = math.prod(shape) * dtype.itemsize, new_memory(device)
        self._blank: Array | None = None

    def new(self, queue: cl.CommandQueue, allocator: Any) -> Array:
        """A new Array in *queue*'s context, from *allocator* if that is given. Raises DeviceMemoryError."""
        made = self._bare(queue)
        made.queue, made.context, made.allocator = queue, queue.context, allocator
        made.events = late_events()
        if self._nbytes:
            made.base_data = self.memory(made.context, allocator)
        return made

    def layout(self, queue: cl.CommandQueue, offset: int) -> dict[str, Any]:
        """Of such an Array that begins at byte *offset* of another's memory, for :func:`views`."""
        return vars(self._bare(queue)) | {"offset": offset}

    def _bare(self, queue: Any) -> Array:
        """An Array without memory or events."""
        if self._blank is None:
            check_size(self._nbytes, self._device, "out")
            self._blank = cla.Array(queue.context, self._shape, self._dtype, allocator=_no_memory)
        made = cla.Array.__new__(cla.Array)  # three times as fast as copy.copy
        vars(made).update(vars(self._blank))
        return made

    def memory(self, context: cl.Context, allocator: Any) -> Any:
        """Memory for one, from *allocator* if that is given. Raises DeviceMemoryError, and ArgumentError for
        memory of an allocator that kernels cannot write a result to.
        """
        try:
            if allocator is None:
                return cl.Buffer(context, self._flags, max(1, self._nbytes))
            memory = allocator(self._nbytes)
        except cl.Error as error:
            raise out_of_memory(self._nbytes, self._device, "out", error) from error
        size = getattr(memory, "size", None)  # of some shared virtual memory, None
        is_short = memory is None or (size is not None and size < self._nbytes)
        if is_short or not is_writeable(memory):
            gave = f"{size or 'no'} bytes" if is_short else "a READ_ONLY buffer"
            raise ArgumentError(
                f"an operand's allocator gave {gave} where out needs {self._nbytes} bytes; set "
                "x.allocator to one that gives so many, which kernels may write"
            )
        return memory


def views(base: Array, layouts: Iterable[dict[str, Any]]) -> list[Array]:
    """Views of *base* with these :meth:`Results.layout`, and its events."""
    its = {name: getattr(base, name) for name in ("queue", "context", "allocator", "base_data", "events")}
    found = []
    for layout in layouts:
        made = cla.Array.__new__(cla.Array)
        made.__dict__ = layout | its
        found.append(made)
    return found


def empty(queue: cl.CommandQueue, shape: tuple[int, ...], dtype: Any, allocator: Any = None) -> Array:
    """A new C-contiguous Array, as PyOpenCL's, whose memory is there. Raises DeviceMemoryError."""
    return Results(shape, np.dtype(dtype), device_info(queue.device)).new(queue, allocator)


def fetched(x: Array) -> np.ndarray[Any, Any]:
    """The elements of an Array of any strides as a new NumPy array. Raises ForkError."""
    forks.check_process()
    if x.size == 0:
        return np.empty(x.shape, x.dtype)
    if x.flags.forc:
        return np.asarray(x.get())
    low, high = reach(x, x.offset)
    bytes_of = cla.Array(
        x.queue or x.context, (high - low,), np.uint8, data=x.base_data, offset=low, events=x.events
    )
    first = bytes_of.get()[x.offset - low :][: x.dtype.itemsize].view(x.dtype)
    return np.array(np.lib.stride_tricks.as_strided(first, x.shape, x.strides), order="C")
