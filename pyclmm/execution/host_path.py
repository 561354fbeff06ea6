"""Runs a plan on NumPy arrays: copies operands that kernels cannot read, and waits for the result."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from ..opencl import forks, host_memory
from ..opencl.binding import Binding, Constant
from ..opencl.devices import device_info
from ..opencl.host_memory import Array
from ..opencl.last_call import same
from ..opencl.steps import Scalars, Scales, scalars_of
from ..problem.dtypes import dtype_of, type_name
from ..problem.gemm import Gemm
from ..problem.ragged import SIZES
from .execute import Executable
from .operands import Operands, check_writeable, checked, problem_name, read_operands
from .options import Options, check_scalars
from .placement import placed
from .repair import moved


@dataclass(frozen=True)
class _Input:
    """How the kernels get one operand. The layout decides this once for all calls.

    ``copied_as`` is the dtype of the dense copy that each call makes; None where the array itself is read.
    """

    name: str
    problem_name: str
    copied_as: np.dtype[Any] | None
    form: host_memory.HostForm

    def as_read(self, x: Array) -> Array:
        """The array that the kernels read for *x*: *x* or its copy."""
        return x if self.copied_as is None else np.array(x, dtype=self.copied_as, order="C", copy=True)


class _PlainLayout(NamedTuple):
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class PlainCalls:
    """The calls of a plan whose operands, a and b, and result are plain arrays, used where they lie.

    What the general way finds out about each array takes longer than a product of 64 cubed. Two arrays that
    own their memory share none, and own memory lies at HOST_ALIGN. So the shape, strides and dtype of each,
    compared with those of the planned call, say everything. Each may also be a view of all the memory
    that another array owns: what ``x.T``, ``x.transpose`` and ``x.reshape`` return.
    """

    a: _PlainLayout
    b: _PlainLayout
    out: _PlainLayout
    makes_out: bool
    names: tuple[str, str]  # the problem's names of a and b

    def result(self, given: Mapping[str, Array]) -> Array | None:
        """The array for the result if *given* is such a call, else None."""
        out = given.get("out")
        if len(given) != (2 if out is None else 3):
            return None
        of_a, of_b = _owner(given["a"], self.a), _owner(given["b"], self.b)
        if of_a is None or of_b is None:
            return None
        if self.makes_out:
            return None if out is not None else np.empty(self.out.shape, self.out.dtype)
        of_out = None if out is None else _owner(out, self.out)
        return None if of_out is None or of_out is of_a or of_out is of_b else out

    def run(self, binding: Binding, given: Mapping[str, Array], out: Array, scalars: Scalars) -> None:
        """Compute *out*, the array that :meth:`result` gave. It is complete, unless this raises.

        Raises LaunchError, DeviceMemoryError or DeviceLostError.
        """
        a, b = given["a"], given["b"]
        first, second = self.names
        of_a = a if a.base is None else a.base
        of_b = b if b.base is None else b.base
        of_out = out if out.base is None else out.base
        context, device = binding.context, binding.device
        values = {first: host_memory.used_in_place(context, device, of_a, "a")}
        values[second] = (
            values[first] if of_a is of_b else host_memory.used_in_place(context, device, of_b, "b")
        )
        values["out"] = host_memory.used_in_place(context, device, of_out, "out")
        try:
            if binding.run_here(values, scalars):
                return
            events = binding.enqueue(values, scalars, [], is_waited_for=True)
            host_memory.wait(binding.device, events[-1:])
        except BaseException:  # Ctrl-C too: afterwards the caller may free the arrays or write to them
            host_memory.finish(binding.queue)
            raise
        binding.settle()


def _owner(x: Any, layout: _PlainLayout) -> Array | None:
    """The array that owns just the memory of *x*, if *x* has exactly this layout and may be written."""
    if type(x) is not np.ndarray:
        return None
    shape, strides, dtype = layout
    if x.dtype is not dtype or x.shape != shape or x.strides != strides:
        return None
    if not x.flags.writeable:
        return None
    memory = x if x.base is None else x.base
    if type(memory) is not np.ndarray or memory.nbytes != x.nbytes:
        return None
    flags = memory.flags
    return memory if flags.owndata and flags.writeable and flags.forc else None


class HostPath:
    """Runs one planned product on NumPy arrays."""

    def __init__(
        self, operands: Operands, overlaps: bool, options: Options, queue: cl.CommandQueue, scales: Scales
    ) -> None:
        out = operands.get("out")
        if out is not None:
            check_writeable(out)
        for name, x in operands.items():
            if x.dtype.hasobject or x.itemsize == 0:  # before their bytes are looked at
                type_name(x.dtype, name)
        self._device = device_info(queue.device)
        self._scales, self._scalars = scales, scalars_of(*scales)  # the latter of plain calls
        self._casting = options.casting
        copied = {name for name, x in operands.items() if self._is_copied(name, x)}
        gemm = self._checked(operands, copied, overlaps, options)
        self._constant = problem_name(gemm, "b") if options.constant_b else None
        self._in_place = out is not None and gemm.out_copy is None
        self._inputs = list(self._inputs_of(operands, copied, gemm))
        if out is not None and self._in_place:
            self._out_form = host_memory.form_of(out, self._device, "out")
        else:
            self._out_form = host_memory.dense_form(gemm.shape, gemm.dtype, self._device, "out")
        all_read = not (gemm.copies or gemm.out_copy)
        as_they_lie = all_read and not copied and self._device.in_place
        is_plain = as_they_lie and not (options.verify or options.constant_b)
        self._plain = self._plain_calls(operands, gemm) if is_plain else None
        on_device = gemm if all_read else replace(gemm, copies=(), out_copy=None)
        self.queue, self.elsewhere = placed(queue, on_device, options)
        self.executable = Executable(self.queue, on_device, options)

    def _checked(self, operands: Operands, copied: Collection[str], overlaps: bool, options: Options) -> Gemm:
        """The checked product, whose operands *copied* are dense copies that the host makes."""
        device = self._device
        layouts = {}
        for name, x in operands.items():
            if name not in copied:
                layouts[name] = host_memory.layout(x, device)
                continue
            # The rule "no" does not let a byte order change. That of ml_dtypes' types has no name of its own.
            own = x.dtype.newbyteorder("=") if x.dtype.kind == "V" else x.dtype
            layouts[name] = host_memory.dense_layout(x.shape, own, device)
        align = host_memory.new_align(device)
        gemm = checked(layouts, options, self._scales, "out" in copied or overlaps, align)
        check_scalars(gemm, self._scales)
        return gemm

    def _inputs_of(self, operands: Operands, copied: Collection[str], gemm: Gemm) -> Iterator[_Input]:
        """How the kernels get each array that they read."""
        converted = {problem_name(gemm, name): dtype_of(copy.target_type) for name, copy in gemm.copies}
        for name, in_problem in read_operands(gemm, operands):
            own = operands[name].dtype.newbyteorder("=") if name in copied else None
            copied_as = converted.get(name, own)
            if copied_as is None:
                form = host_memory.form_of(operands[name], self._device, name)
            else:
                form = host_memory.dense_form(operands[name].shape, copied_as, self._device, name)
            yield _Input(name, in_problem, copied_as, form)

    def _is_copied(self, name: str, x: Array) -> bool:
        """Whether the host copies *x* for its layout.

        A result is copied if kernels cannot address it, and also if its elements may share memory, because
        work-items write in any order. NumPy's order is fixed. Kernels read the sizes of groups
        without a stride.
        """
        if name == "out":
            return not host_memory.is_addressable(x) or host_memory.may_overlap_itself(x)
        return (name == SIZES and not x.flags.c_contiguous) or host_memory.is_copied(x, self._device)

    def _plain_calls(self, operands: Operands, gemm: Gemm) -> PlainCalls | None:
        """What calls with few checks look like, or None if this plan has none. Nothing is copied."""
        names = {one.name: one.problem_name for one in self._inputs}
        if operands.keys() - {"out"} != names.keys() or names.keys() != {"a", "b"}:
            return None
        if not gemm.shape or 0 in gemm.shape:
            return None
        out = operands.get("out")
        like = np.empty(gemm.shape, gemm.dtype) if out is None else out
        arrays = operands["a"], operands["b"], like
        if not all(host_memory.is_dense(x, self._device) for x in arrays):
            return None
        a, b, result = (_PlainLayout(x.shape, x.strides, x.dtype) for x in arrays)
        return PlainCalls(a, b, result, out is None, (names["a"], names["b"]))

    def again(
        self, given: Operands, queue: Any, scales: Scales, wait_for: list[cl.Event] | None
    ) -> tuple[Array, list[cl.Event]] | None:
        """The product, complete, if the call is on plain arrays like those of the plan: (result, no events).

        Returns None where :meth:`run` must be called, and raises as that does.
        """
        binding = self.executable.latest_binding()
        if self._plain is None or binding is None or wait_for is not None:
            return None
        if binding.queue is not (self.queue if queue is None else queue):
            return None
        if not same(scales, self._scales):
            return None
        out = self._plain.result(given)
        if out is None:
            return None
        forks.check_process()
        self._plain.run(binding, given, out, self._scalars)
        return out, []

    def run(
        self, operands: Operands, queue: cl.CommandQueue, scales: Scales, wait_for: list[cl.Event]
    ) -> Any:
        """The result, complete. Raises LaunchError, DeviceMemoryError or DeviceLostError."""
        gemm = self.executable.gemm
        out = operands.get("out")
        if out is not None:
            check_writeable(out)
        target: Any = out if self._in_place else np.empty(gemm.shape, gemm.dtype)
        if 0 not in gemm.shape:
            buffers = host_memory.HostBuffers(queue, self._device)
            try:
                self._multiply(operands, target, buffers, scales, wait_for)
            except BaseException:  # Ctrl-C too: afterwards the caller may free the arrays or write to them
                host_memory.finish(queue)
                raise
        if out is None:
            return target if target.ndim else target[()]  # 1-D @ 1-D gives a scalar, as in NumPy
        if target is not out:
            np.copyto(out, target, casting=self._casting)
        return out

    def _multiply(
        self,
        operands: Operands,
        target: Array,
        buffers: host_memory.HostBuffers,
        scales: Scales,
        wait_for: list[cl.Event],
    ) -> None:
        values: dict[str, Any] = {}
        offsets: dict[str, int] = {}
        for one in self._inputs:
            read = one.as_read(operands[one.name])
            values[one.problem_name], start = buffers.read(read, one.form, one.name)
            if start:
                offsets[one.problem_name] = start
        values["out"], start = buffers.write(target, self._out_form)
        if start:
            offsets["out"] = start
        constant = None
        if self._constant is not None:
            b = operands["b"]
            constant = Constant(self._constant, host_memory.location(b), b)
        binding = self.executable.binding(buffers.queue)
        before = wait_for + buffers.uploads
        events = binding.enqueue(values, (*scales, offsets), before, constant, is_waited_for=True)
        buffers.read_back(events[-1:])
        binding.settle()
        if binding.watch is None:
            return

        def again(other: Any, shifts: Mapping[str, int]) -> None:
            scalars = (*scales, moved(offsets, shifts))
            buffers.read_back(other.enqueue(values, scalars, [], is_waited_for=True)[-1:])

        updates_c = "c" in operands and np.may_share_memory(operands["c"], target)
        self.executable.conclude(binding, buffers.queue, again, updates_c)
