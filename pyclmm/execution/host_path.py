"""A plan's way for NumPy arrays: converts what kernels cannot read, wraps the rest in place, and waits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl

from ..opencl import host_memory
from ..opencl.binding import Constant, scalars_of
from ..opencl.devices import device_info
from ..opencl.host_memory import Array
from ..problem.canonical import check_writeable
from ..problem.dtypes import dtype_of
from ..problem.gemm import Operand, dense
from .execute import Executable
from .operands import Operands, checked, passed, slot
from .options import Options, check_scalars


@dataclass(frozen=True)
class _Input:
    """How one operand reaches the kernels; its layout settles that once for all calls."""

    name: str
    slot: str
    as_it_is: bool
    form: host_memory.Form


class NumPyWay:
    """Runs one planned product on NumPy arrays."""

    def __init__(
        self, operands: Operands, options: Options, queue: cl.CommandQueue, alpha: complex, beta: complex
    ) -> None:
        out = operands.get("out")
        if out is not None:
            check_writeable(out.flags.writeable)
        self._device = device_info(queue.device)
        self._convert: dict[str, np.dtype[Any]] = {}
        gemm = checked(self._specs(operands), options, alpha, beta, clash=False)
        check_scalars(gemm, alpha, beta)
        self._convert = {slot(gemm, n): dtype_of(copy.target_type) for n, copy in gemm.copies}
        _, clashing = host_memory.signature(operands)
        self._in_place = (
            out is not None and not clashing and gemm.out_copy is None and host_memory.is_addressable(out)
        )
        kept = {n: x for n, x in operands.items() if n != "out" or self._in_place}
        specs = self._specs(kept)
        if not self._in_place:
            specs["out"] = replace(dense(gemm.shape, gemm.dtype), align=host_memory.HOST_ALIGN)
        gemm = checked(specs, options, alpha, beta, clash=False)
        self._inputs = [self._input(name, own, operands[name]) for name, own in passed(gemm, operands)]
        target: Any = out if self._in_place else np.empty(gemm.shape, gemm.dtype)
        self._form = host_memory.form_of(target, self._device, "out")
        self._constant = slot(gemm, "b") if options.constant_b else None
        self.executable = Executable(queue, gemm, options.kernel, options.workspace_limit)

    def _specs(self, operands: Operands) -> dict[str, Operand]:
        return {name: host_memory.operand(self._ready(name, x), self._device) for name, x in operands.items()}

    def _ready(self, name: str, x: Array) -> Array:
        """*x* as a kernel reads it; the array itself where that is possible."""
        if name == "out":  # one that kernels cannot address is filled from a dense result
            return x if host_memory.is_addressable(x) else np.empty(x.shape, x.dtype.newbyteorder("="))
        if name in self._convert:
            return np.array(x, dtype=self._convert[name], order="C", copy=True)
        return host_memory.compact(host_memory.addressable(x), self._device)

    def _input(self, name: str, slot: str, x: Array) -> _Input:
        ready = self._ready(name, x)
        form = host_memory.form_of(ready, self._device, name)
        return _Input(name, slot, ready is x, form)

    def run(
        self,
        operands: Operands,
        queue: cl.CommandQueue,
        alpha: complex,
        beta: complex,
        wait_for: list[cl.Event],
    ) -> Any:
        """The result, complete."""
        gemm = self.executable.gemm
        out = operands.get("out")
        if out is not None:
            check_writeable(out.flags.writeable)
        target: Any = out if self._in_place else np.empty(gemm.shape, gemm.dtype)
        if 0 not in gemm.shape:
            buffers = host_memory.HostBuffers(queue, self._device)
            try:
                self._multiply(operands, target, buffers, alpha, beta, wait_for)
            except BaseException:  # Ctrl-C too: the caller may free its arrays, or write to them
                buffers.settle()
                raise
        if out is None:
            return target if target.ndim else target[()]  # 1-D @ 1-D is a scalar, as NumPy's
        if target is not out:
            np.copyto(out, target, casting="same_kind")
        return out

    def _multiply(
        self,
        operands: Operands,
        target: Array,
        buffers: host_memory.HostBuffers,
        alpha: complex,
        beta: complex,
        wait_for: list[cl.Event],
    ) -> None:
        values: dict[str, Any] = {}
        offsets: dict[str, int] = {}
        for one in self._inputs:
            x = operands[one.name]
            ready = x if one.as_it_is else self._ready(one.name, x)
            values[one.slot], start = buffers.read(ready, one.form, one.name)
            if start:
                offsets[one.slot] = start
        values["out"], start = buffers.write(target, self._form)
        if start:
            offsets["out"] = start
        constant = None
        if self._constant is not None:
            b = operands["b"]
            constant = Constant(self._constant, host_memory.location(b), b)
        binding = self.executable.binding(buffers.queue)
        scalars = scalars_of(alpha, beta, offsets)
        events = binding.enqueue(values, scalars, wait_for + buffers.uploads, constant)
        buffers.bring_back(events[-1:])
