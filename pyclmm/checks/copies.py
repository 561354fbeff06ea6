"""Runs the kernels that copy and convert operands on a small stack of matrices, and compares the results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyopencl as cl

from ..kernels.interface import Program, Work
from ..opencl import host_memory, status
from ..opencl.binding import Binding
from ..opencl.devices import device_info
from ..opencl.launches import batch_table, copy_launch
from ..opencl.steps import scalars_of
from ..problem.gemm import Copy
from .drawn import over_the_range
from .layouts import Array, Placed

_SOURCE = "copy.cl"
_SHAPE = (3, 5, 37)  # more columns than two work-groups have
_LEAD = 2  # elements before the arrays
_FILL = 0xA5


def wrong_copies(queue: cl.CommandQueue, programs: Iterable[Program]) -> str | None:
    """What is wrong with the first wrong copy among *programs* on *queue*'s device, or None.

    Some drivers compile a kernel only when it is launched. Raises as a product does.
    """
    for program in programs:
        if program.source == _SOURCE and not _is_right(queue, program):
            types = f"from {program.define('A_TYPE')} to {program.define('OUT_TYPE')}"
            return f"the copy of an operand {types} is wrong on this device"
    return None


def _is_right(queue: cl.CommandQueue, program: Program) -> bool:
    device = device_info(queue.device)
    _, rows, columns = _SHAPE
    source_strides, target_strides = (rows * columns * 2 + 5, 2, 2 * rows), (-rows * columns - 3, columns, 1)
    types = str(program.define("A_TYPE")), str(program.define("OUT_TYPE"))
    soft = bool(program.define("SOFT_FLOAT64"))
    copy = Copy(_SHAPE, types[0], source_strides, types[1], target_strides)
    source = Placed.of(_SHAPE, source_strides, types[0], _LEAD, 0)
    target = Placed.of(_SHAPE, target_strides, types[1], _LEAD, 0)
    source.view[...] = _numbers(source.view.dtype, target.view.dtype)
    target.memory[...] = _FILL
    launch = copy_launch(copy, ("a", "a_offset"), ("out", "out_offset"), "batch_offsets", soft)
    tables = {"batch_offsets": batch_table(_SHAPE[:1], (source_strides[:1], target_strides[:1]))}
    binding = Binding(queue, device, Work((launch,), tables=tables))
    memory = {"a": source.memory, "out": target.memory}
    buffers = {name: host_memory.filled(queue.context, x, device, name) for name, x in memory.items()}
    try:
        offsets = {"a": source.offset, "out": target.offset}
        events = binding.enqueue(buffers, scalars_of(1.0, 0.0, offsets), [])
        cl.enqueue_copy(queue, target.memory, buffers["out"], wait_for=events[-1:], is_blocking=True)
    except cl.Error as error:
        raise status.lost(device, error) from error
    binding.settle()
    got = target.view.copy()
    target.own_bytes[...] = _FILL
    return bool((target.memory == _FILL).all()) and _same(got, _converted(source.view, got.dtype))


def _numbers(source: np.dtype[Any], target: np.dtype[Any]) -> Array:
    """Numbers over the range of integers; floats of few digits, with infinity and NaN where these have a
    meaning.
    """
    rng = np.random.default_rng(20)
    if source.kind in "iu":
        few = rng.integers(0 if source.kind == "u" else -100, 100, _SHAPE)
        return np.where(rng.random(_SHAPE) < 0.5, few.astype(source), over_the_range(rng, _SHAPE, source))
    if source.kind == "b" or target.kind in "iu":
        return rng.integers(0 if target.kind == "u" else -3, 100, _SHAPE)
    x = rng.standard_normal(_SHAPE, np.float32).astype(np.complex64 if source.kind == "c" else np.float32)
    if source.kind == target.kind == "c":
        x.imag = rng.standard_normal(_SHAPE)
    x[..., 1], x[..., 3], x[..., 5], x[..., 7] = np.inf, np.nan, 0, -np.inf
    return x


def _converted(x: Array, target: np.dtype[Any]) -> Array:
    with np.errstate(all="ignore"):
        return (x.real if x.dtype.kind == "c" and target.kind not in "cb" else x).astype(target)


def _same(got: Array, expected: Array) -> bool:
    """Whether both have the same numbers. A sum of NaN and others is NaN in each part."""
    if got.dtype.kind in "biu":
        return np.array_equal(got, expected)
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    own, other = (np.ascontiguousarray(x.astype(wide)).view(np.float64) for x in (got, expected))
    return np.array_equal(own, other, equal_nan=True)
