"""Runs a plan on pyopencl Arrays: all copies are made on the device, and a call returns at once.

A BoundCall runs it on certain Arrays, which kernel objects of its own hold as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import get_ident
from typing import Any

import pyopencl as cl
from pyopencl.array import Array

from ..errors import REFUSED, ArgumentError
from ..opencl import arrays, forks, late_events
from ..opencl.binding import Constant
from ..opencl.last_call import LastCall, same
from ..opencl.steps import Scales
from ..raising import OfProcess
from .operands import Operands, problem_name
from .options import Options, events_of, warn_of_dropped
from .path_on_device import PathOnDevice
from .repair import moved

# Where the operands of a call lie: buffers and offsets in elements, by the problem's names; the constant one.
OperandMemory = tuple[dict[str, Any], dict[str, int], Constant | None]


class DevicePath(PathOnDevice):
    """Enqueues one planned product of Arrays."""

    def __init__(
        self, operands: Operands, overlaps: bool, options: Options, queue: cl.CommandQueue, scales: Scales
    ) -> None:
        layouts = {name: arrays.operand(x, name) for name, x in operands.items()}
        super().__init__(layouts, overlaps, options, queue, scales)
        gemm = self.executable.gemm
        self._results = arrays.Results(gemm.shape, gemm.dtype, self.executable.device)
        self._constant = problem_name(gemm, "b") if options.constant_b else None

    def again(
        self, given: Operands, queue: Any, scales: Scales, wait_for: list[cl.Event] | None
    ) -> tuple[Array, late_events.Found] | None:
        """The product, if the call follows this thread's last one in all but buffers: (result, its end).

        Returns None where :meth:`enqueue` must be called, and raises as that does.
        """
        binding = self.executable.latest_binding()
        earlier = None if binding is None or binding.is_busy else binding.last_call
        if binding is None or earlier is None or not (queue is None or queue is binding.queue):
            return None
        if not same(scales, earlier.scales):
            return None
        followed = earlier.followed_by(given)
        if followed is None:
            return None
        call, changed = followed
        forks.check_process()
        out = given.get("out")
        if not (out is None or changed) and wait_for is None:
            late = binding.repeat(earlier, given.values(), out)
            if late is not None:
                return out, late
        if out is None:
            out = self._results.new(binding.queue, given["a"].allocator)
            changed = {**changed, "out": out.base_data}
        asked = [] if wait_for is None else events_of(wait_for, binding.queue)
        with_events = bool(asked) or not late_events.takes_late(out)
        before_out = late_events.before(out, binding.queue)
        # After `before_out`: no event is removed that is not waited for.
        before = asked + binding.known.missing(given.values())
        events = binding.enqueue_again(earlier, call, changed, before, with_events)
        if events is None:
            return None
        return out, late_events.ended(out, before_out, events, binding.queue)

    def run(
        self, operands: Operands, queue: cl.CommandQueue, scales: Scales, wait_for: list[cl.Event]
    ) -> Array:
        """The result Array, which is complete when its events are. Raises as :meth:`enqueue` does."""
        out: Array | None = operands.get("out")
        if out is None:
            out = self._results.new(queue, operands["a"].allocator)
        self.enqueue(operands, out, queue, scales, wait_for)
        return out

    def out_of(self, operands: Operands) -> Array:
        """The caller's ``out``. Raises ArgumentError if there is none."""
        if "out" not in operands:
            raise ArgumentError("out is None; pass an Array to write, to a plan that was made with out=")
        out: Array = operands["out"]
        return out

    def memory(self, operands: Operands, out: Array) -> OperandMemory:
        """Where these operands and *out* lie now. Raises ArgumentError for one that is not in its buffer."""
        buffers: dict[str, Any] = {}
        offsets: dict[str, int] = {}
        for name, in_problem in self._arrays:
            x = out if name == "out" else operands[name]
            arrays.check_buffer(x, name)
            buffers[in_problem] = x.base_data
            if x.offset:
                offsets[in_problem] = x.offset // x.dtype.itemsize
        constant = None
        if self._constant is not None:
            b = operands["b"]
            constant = Constant(self._constant, arrays.location(b), b.base_data)
        return buffers, offsets, constant

    def enqueue(
        self,
        operands: Operands,
        out: Array,
        queue: cl.CommandQueue,
        scales: Scales,
        wait_for: list[cl.Event],
        memory: OperandMemory | None = None,
        binding_of: Callable[[cl.CommandQueue], Any] | None = None,
    ) -> list[cl.Event]:
        """Enqueue the product into *out*, by this thread's binding or that of *binding_of*.

        *memory*: that of the operands, if they may have another one by now. Returns its events. Raises as
        :meth:`Binding.enqueue` does.
        """
        if self._is_empty:
            return []
        if self._warns:
            warn_of_dropped()
        buffers, offsets, constant = memory or self.memory(operands, out)
        with_events = bool(wait_for) or not late_events.takes_late(out)
        earlier = late_events.before(out, queue)
        read = [out if name == "out" else operands[name] for name, _ in self._arrays]
        binding = (binding_of or self.executable.idle_binding)(queue)
        before = wait_for + binding.known.missing(read)
        call = None
        if self._repeats:
            call = LastCall.of(queue, operands, scales, self._names, self._overlaps)
        scalars = (*scales, offsets)
        events: list[cl.Event] = binding.enqueue(buffers, scalars, before, constant, with_events, call)
        if self.executable.repairs:

            def again(other: Any, shifts: Mapping[str, int]) -> None:
                other.enqueue(buffers, (*scales, moved(offsets, shifts)), [])[-1].wait()

            updates_c = "c" in operands and arrays.may_share(operands["c"], out)
            self.executable.conclude(binding, queue, again, self._overlaps or updates_c)
        return late_events.as_list(late_events.ended(out, earlier, events, queue))


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
