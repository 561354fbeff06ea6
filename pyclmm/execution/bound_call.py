"""BoundCall: a planned product of certain Arrays, with kernel objects that hold them as arguments."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

import pyopencl as cl
from pyopencl.array import Array

from ..errors import REFUSED, ArgumentError
from ..opencl import forks
from ..opencl.steps import Scales
from ..raising import OfProcess
from .operands import Operands

if TYPE_CHECKING:
    from .device_path import DevicePath


class BoundCall(OfProcess):
    """What :meth:`pyclmm.Matmul.bind` returns: ``call()`` enqueues the product and returns ``out``.

    It multiplies what is then in the memory that the Arrays had when they were bound, after the events that
    they then have. It keeps them alive, and belongs to the thread that made it; other threads bind their own.
    Raises as a call of the plan does, and ArgumentError in another thread.
    """

    def __init__(self, path: DevicePath, operands: Operands, queue: cl.CommandQueue, scales: Scales) -> None:
        self._path, self._operands, self._scales = path, operands, scales
        self._arrays, self._queue = tuple(operands.values()), queue
        self._out: Array = path.out_of(operands)
        self._memory = path.memory(operands, self._out)
        self._binding: Any = None  # made by the first call
        self._thread = get_ident()

    def __call__(self) -> Array:
        if get_ident() != self._thread:
            raise ArgumentError("the call is bound to the thread that made it; bind another in this one")
        forks.check_process()
        binding, out = self._binding, self._out
        if binding is None or binding.repeat(binding.last_call, self._arrays, out) is None:
            self._path.executable.launched(self._queue, self._in_full)
        return out

    def _in_full(self) -> None:
        try:
            own = self._memory, self._own
            self._path.enqueue(self._operands, self._out, self._queue, self._scales, [], *own)
        except REFUSED:
            self._binding = None
            raise

    def _own(self, queue: cl.CommandQueue) -> Any:
        found = self._binding
        if found is None or found.is_busy:  # a signal handler may call within the call
            self._binding = found = self._path.executable.spare_binding(queue)
        return found
