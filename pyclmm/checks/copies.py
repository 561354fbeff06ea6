"""Runs the kernels that copy operands, once: some drivers compile a kernel only when it is launched."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyopencl as cl

from ..kernels.interface import Program, Work
from ..opencl import host_memory, status
from ..opencl.binding import Binding
from ..opencl.devices import device_info
from ..opencl.launches import batch_table, copy_launch
from ..opencl.steps import scalars_of
from ..problem.gemm import Copy

_ELEMENT = 16  # bytes of the largest element
_SOURCE = "copy.cl"


def run_once(queue: cl.CommandQueue, programs: Iterable[Program]) -> None:
    """Run each copy among *programs* on *queue*'s device. Raises as a product does."""
    device = device_info(queue.device)
    for program in programs:
        if program.source != _SOURCE:
            continue
        copy = Copy((1, 1), str(program.define("A_TYPE")), (1, 1), str(program.define("OUT_TYPE")), (1, 1))
        launch = copy_launch(copy, ("a", "a_offset"), ("out", "out_offset"), "batch_offsets")
        tables = {"batch_offsets": batch_table((), ((), ()))}
        binding = Binding(queue, device, Work((launch,), tables=tables))
        element = np.zeros(_ELEMENT, np.uint8)
        buffers = {name: host_memory.filled(queue.context, element, device, name) for name in ("a", "out")}
        events = binding.enqueue(buffers, scalars_of(1.0, 0.0), [])
        try:
            cl.wait_for_events(events)
        except cl.Error as error:
            raise status.lost(device, error) from error
        binding.settle()
