"""LastCall: the operands of a binding's last call, so that the next call sets only what differs.

Nothing of an operand is remembered by its id, handle or address, because freed ones come back. Arrays are
held by weak references.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyopencl as cl
from pyopencl.array import Array

from .arrays import end_of, is_whole, is_writeable
from .steps import Buffers, Scales

_PLAIN = (float, int)
_NO_BUFFERS: Buffers = {}


class Seen(weakref.ref[Array]):
    """An Array as a call saw it. :func:`_seen` makes one.

    Arrays are mutable, so the same Array can have another buffer or layout later. The objects kept here to
    compare with cannot change themselves, but for the buffer's contents, which do not matter.

    PyOpenCL's buffers take no weak references. The buffer is kept until its Array is freed.
    """

    __slots__ = ("dtype", "end", "memory", "offset", "queue", "shape", "strides", "whole")

    memory: Any
    queue: cl.CommandQueue | None
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    end: int  # bytes of the buffer that are needed
    whole: bool | None  # whether the buffer is a whole allocation, once that has been asked

    def successor(self, x: Any) -> Seen | None:
        """*x* as it is now, if it has the layout and the queue of then; this object if it is still that."""
        if (
            type(x) is Array
            and x.base_data is not None
            and x.queue is self.queue
            and x.offset == self.offset
            and x.shape == self.shape  # so it is a tuple, as this one is
            and x.strides == self.strides
            and x.dtype is self.dtype
        ):
            if x.base_data is self.memory and x is self():
                return self
            size = x.base_data.size
            if size is None or size >= self.end:
                return _seen(x, self.end)
        return None

    def is_apart_from(self, others: Iterable[Seen]) -> bool:
        """Whether it is in another allocation than each other one. False if that is not known."""
        if self.whole is None:
            self.whole = is_whole(self.memory)
        for its in others:
            if its is self:
                continue
            if its.whole is None:
                its.whole = is_whole(its.memory)
            if not (self.whole and its.whole and self.memory != its.memory):
                return False
        return True


def _seen(x: Array, end: int) -> Seen:
    made = Seen(x, _let_go)  # attributes are set here, because a Python __init__ takes twice as long
    made.memory, made.queue, made.offset = x.base_data, x.queue, x.offset
    made.shape, made.strides, made.dtype = x.shape, x.strides, x.dtype
    made.end, made.whole = end, None
    return made


def _let_go(seen: Any) -> None:
    """Called when the Array of *seen* is freed."""
    seen.memory = None


def _can_be_seen(x: Any, queue: cl.CommandQueue) -> bool:
    """Whether *x* is an Array of *queue* with memory whose layout is in objects that cannot change."""
    return (
        type(x) is Array
        and x.queue is queue
        and x.base_data is not None
        and type(x.offset) is int
        and type(x.shape) is tuple
        and type(x.strides) is tuple
    )


class LastCall:
    """The operands and scalars of a call, which its binding's kernel objects hold. *names*: the problem's, by
    argument name. *overlaps*: whether ``out`` overlaps an operand that it would change.
    """

    __slots__ = ("_names", "_overlaps", "_seen", "scales")

    def __init__(
        self, seen: dict[str, Seen], scales: Scales, names: Mapping[str, str], overlaps: bool
    ) -> None:
        self._seen, self.scales = seen, scales
        self._names, self._overlaps = names, overlaps

    @classmethod
    def of(
        cls,
        queue: cl.CommandQueue,
        given: Mapping[str, Any],
        scales: Scales,
        names: Mapping[str, str],
        overlaps: bool,
    ) -> LastCall | None:
        """The call; None if Arrays of its kind cannot be remembered."""
        seen = {}
        for name, x in given.items():
            if not _can_be_seen(x, queue):
                return None
            seen[name] = _seen(x, end_of(x))
        return cls(seen, scales, names, overlaps)

    def followed_by(self, given: Mapping[str, Any]) -> tuple[LastCall, Buffers] | None:
        """The call with these operands, and the buffers that it changes, by the problem's names. None if more
        than buffers may differ: a queue, a layout, or what ``out`` overlaps.
        """
        if len(given) != len(self._seen):
            return None
        for name, its in self._seen.items():
            x: Any = given.get(name)
            then: Any = its()
            if not (
                then is not None  # as it is when the Array has been freed, and then x may be None too
                and then is x
                and then.base_data is its.memory
                and then.queue is its.queue
                and then.offset == its.offset
                and then.shape is its.shape
                and then.strides is its.strides
                and then.dtype is its.dtype
            ):
                return None if self._overlaps else self._with_others(given)
        return self, _NO_BUFFERS

    def _with_others(self, given: Mapping[str, Any]) -> tuple[LastCall, Buffers] | None:
        """:meth:`followed_by` where an operand is not as it was."""
        seen: dict[str, Seen] = {}
        buffers: dict[str, Any] = {}
        for name, its in self._seen.items():
            new = its.successor(given.get(name))
            if new is None:
                return None
            seen[name] = new
            if new is not its:
                buffers[self._names[name]] = new.memory
        out = seen.get("out")
        if out is not None and not (is_writeable(out.memory) and out.is_apart_from(seen.values())):
            return None
        return LastCall(seen, self.scales, self._names, self._overlaps), buffers


def same(scales: Scales, kept: Scales) -> bool:
    """Whether plain numbers are those *kept*. NumPy's numbers equal others that only round to them."""
    return scales is kept or all(
        number is its or (type(number) in _PLAIN and number == its)
        for number, its in zip(scales, kept, strict=True)
    )
