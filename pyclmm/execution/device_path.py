"""Runs a plan on pyopencl Arrays: all copies are made on the device, and a call returns at once."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyopencl as cl

from ..opencl import arrays
from ..opencl.binding import Constant, scalars_of
from .execute import Executable
from .operands import Operands, checked, problem_name, read_operands
from .options import Options, check_scalars

_DROPPED = "Casting complex values to real discards the imaginary part"  # NumPy's words


class DevicePath:
    """Enqueues one planned product of Arrays."""

    def __init__(
        self, operands: Operands, options: Options, queue: cl.CommandQueue, alpha: complex, beta: complex
    ) -> None:
        specs = {name: arrays.operand(x, name) for name, x in operands.items()}
        _, overlapping = arrays.signature(operands)
        gemm = checked(specs, options, alpha, beta, out_is_copied=bool(overlapping))
        check_scalars(gemm, alpha, beta)
        self.executable = Executable(queue, gemm, options.kernel, options.workspace_limit)
        self._is_empty, self._warns = gemm.is_empty, gemm.warns
        self._results = arrays.Results(gemm.shape, gemm.dtype, self.executable.device)
        self._arrays = [*read_operands(gemm, operands), ("out", "out")]
        self._constant = problem_name(gemm, "b") if options.constant_b else None

    def run(
        self,
        operands: Operands,
        queue: cl.CommandQueue,
        alpha: complex,
        beta: complex,
        wait_for: list[cl.Event],
    ) -> arrays.Array:
        """The result Array, which is complete when its events are. Raises as :meth:`enqueue` does."""
        if "out" not in operands:
            operands = {**operands, "out": self._results.new(queue, operands["a"].allocator)}
        self.enqueue(operands, queue, alpha, beta, wait_for)
        result: arrays.Array = operands["out"]
        return result

    def enqueue(
        self,
        operands: Operands,
        queue: cl.CommandQueue,
        alpha: complex,
        beta: complex,
        wait_for: list[cl.Event],
        with_events: bool = True,
    ) -> list[cl.Event]:
        """Enqueue the product into ``out``. Returns the events of its launches; none without *with_events*.

        Raises as :meth:`Binding.enqueue` does.
        """
        if self._is_empty:
            return []
        if self._warns:
            warnings.warn(_DROPPED, np.exceptions.ComplexWarning, stacklevel=2)
        buffers: dict[str, Any] = {}
        offsets: dict[str, int] = {}
        out = operands["out"]
        earlier = out.events.copy()
        for name, in_problem in self._arrays:
            x = operands[name]
            buffers[in_problem] = x.base_data
            if x.offset:
                offsets[in_problem] = x.offset // x.dtype.itemsize
            if x.events:
                wait_for += earlier if x is out else x.events
        constant = None
        if self._constant is not None:
            b = operands["b"]
            constant = Constant(self._constant, arrays.location(b), b.base_data)
        binding = self.executable.binding(queue)
        scalars = scalars_of(alpha, beta, offsets)
        events = binding.enqueue(buffers, scalars, wait_for, constant, with_events)
        if events:
            arrays.add_event(out, events[-1], earlier)
        return events
