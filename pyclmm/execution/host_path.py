"""Runs a plan on NumPy arrays: copies operands that kernels cannot read, and waits for the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl

from ..opencl import forks, host_memory
from ..opencl.array_fields import address_of
from ..opencl.binding import Binding, Constant
from ..opencl.host_memory import Array
from ..opencl.last_call import same
from ..opencl.launcher import info_of
from ..opencl.steps import Scales, scalars_of
from ..problem.dtypes import dtype_of, type_name
from ..problem.gemm import Gemm
from ..problem.ragged import SIZES
from .execute import Executable
from .operands import Operands, check_writeable, checked, problem_name, read_operands
from .options import Options, check_scalars, wait_here
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
    plain: bool  # whether OpenCL takes what is read itself

    def as_read(self, x: Array) -> Array:
        """The array that the kernels read for *x*: *x* or its copy."""
        return x if self.copied_as is None else np.array(x, dtype=self.copied_as, order="C", copy=True)


_ALIGN, _ndarray = host_memory.HOST_ALIGN, np.ndarray


def _places_like(planned: Array) -> Callable[[Any], int | None]:
    """A function: the address of an array, if it is a plain one with exactly the layout of *planned*. (What
    it compares with it finds sooner than an object's attributes.)
    """
    shape, strides, dtype = planned.shape, planned.strides, planned.dtype
    phase = host_memory.location(planned) % _ALIGN

    def place(x: Any) -> int | None:
        if type(x) is not _ndarray or x.dtype is not dtype or x.shape != shape or x.strides != strides:
            return None
        at = address_of(x)
        return at if at % _ALIGN == phase else None

    return place


# Where the arrays of a call lie: addresses by the problem's names, and the result.
_Places = tuple[dict[str, int], Array]


@dataclass(frozen=True, slots=True)
class PlainCalls:
    """The calls of a plan whose operands, a and b, and result are plain arrays, used where they lie.

    What the general way finds out about each array takes longer than a product of 64 cubed. A kernel is given
    addresses here, which need no buffer. So the shape, strides, dtype and phase of each, compared with those
    of the planned call, say everything; of *out* also that it owns its memory, or is a view of an array that
    does, and no operand is.
    """

    a: Callable[[Any], int | None]  # of _places_like
    b: Callable[[Any], int | None]
    out: Callable[[Any], int | None]
    shape: tuple[int, ...] | None  # of the result that a call makes
    dtype: np.dtype[Any]
    names: tuple[str, str]  # the problem's names of a and b

    def places(self, given: Mapping[str, Array]) -> _Places | None:
        """Where the arrays lie, with a new one for the result, if *given* is such a call, else None."""
        a: Any = given["a"]
        b: Any = given.get("b")
        first, second = self.a(a), self.b(b)
        if first is None or second is None or len(given) != (3 if self.shape is None else 2):
            return None
        if self.shape is None:
            out: Any = given.get("out")
            at = self.out(out)
            if at is None or not (out.flags.writeable and _are_apart(out, a, b)):
                return None
        else:
            out = np.empty(self.shape, self.dtype)
            at = address_of(out)
        x, y = self.names
        return {x: first, y: second, "out": at}, out


def _are_apart(out: Array, *operands: Array) -> bool:
    """Whether *out* surely shares no memory with an *operand*."""
    owner, *others = (x if x.base is None else x.base for x in (out, *operands))
    owns = [type(x) is np.ndarray and x.flags.owndata for x in (owner, *others)]
    return all(owns) and not any(owner is other for other in others)


# By a device's platform and name, whether its kernels read and write host memory by its address; and the
# bytes of a result that is computed twice to see it.
_takes_addresses: dict[tuple[str, str], bool] = {}
_MOST_TO_SHOW = 1 << 20


def _returned(result: Array, out: Array | None) -> Any:
    """What a call returns for *result*: 1-D @ 1-D gives a scalar, as in NumPy."""
    if out is not None:
        return out
    return result if result.ndim else result[()]


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
        self._device = info_of(queue)
        self._scales, self._scalars = scales, scalars_of(*scales)  # the latter of plain calls
        self._casting = options.casting
        copied = {name for name, x in operands.items() if self._is_copied(name, x)}
        gemm = self._checked(operands, copied, overlaps, options)
        self._constant = problem_name(gemm, "b") if options.constant_b else None
        self._in_place = out is not None and gemm.out_copy is None
        self._inputs = list(self._inputs_of(operands, copied, gemm))
        if out is not None and self._in_place:
            self._out_is_plain = host_memory.is_plain(out, self._device, "out")
        else:
            self._out_is_plain = host_memory.new_is_plain(gemm.shape, gemm.dtype, self._device, "out")
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
                plain = host_memory.is_plain(operands[name], self._device, name)
            else:
                plain = host_memory.new_is_plain(operands[name].shape, copied_as, self._device, name)
            yield _Input(name, in_problem, copied_as, plain)

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
        if 0 in gemm.shape:
            return None
        out = operands.get("out")
        like = np.empty(gemm.shape, gemm.dtype) if out is None else out
        arrays = operands["a"], operands["b"], like
        if not all(host_memory.is_used_whole(x, self._device) for x in arrays):
            return None
        shape = gemm.shape if out is None else None
        a, b, result = map(_places_like, arrays)
        return PlainCalls(a, b, result, shape, gemm.dtype, (names["a"], names["b"]))

    def again(
        self, given: Operands, queue: Any, scales: Scales, wait_for: list[cl.Event] | None
    ) -> tuple[Array, list[cl.Event]] | None:
        """The product, complete, if the call is on plain arrays like those of the plan: (result, no events).

        Returns None where :meth:`run` must be called, and raises as that does.
        """
        binding, plain = self.executable.latest_binding(), self._plain
        if plain is None or binding is None or binding.is_busy or wait_for is not None:
            return None
        if binding.queue is not (self.queue if queue is None else queue):
            return None
        if not same(scales, self._scales):
            return None
        places = plain.places(given)
        if places is None:
            return None
        forks.check_process()
        if not self._run_at(binding, places, given):
            return None
        return _returned(places[1], given.get("out")), []

    def _run_at(self, binding: Binding, places: _Places, given: Operands) -> bool:
        """Compute the result of *places*. It is complete, unless this raises or returns False: the device
        takes no addresses.

        OpenCL promises that kernels may be given any address of the host only where a device says so, and
        PoCL 3 does not. So the first such result is compared with what buffers give.

        Raises LaunchError, DeviceMemoryError or DeviceLostError.
        """
        (addresses, result), device = places, binding.device
        own = device.platform, device.name
        shown = _takes_addresses.get(own)
        if not shown and (shown is False or result.nbytes > _MOST_TO_SHOW):
            return False
        if shown is None and not host_memory.may_be_addressed(binding.queue.device, device):
            _takes_addresses[own] = False
            return False
        right = None if shown else self._by_buffers(given, binding.queue, result)
        try:
            done = binding.run_at(addresses, self._scalars)
        except BaseException:  # Ctrl-C too: afterwards the caller may free the arrays or write to them
            host_memory.finish(binding.queue)
            raise
        binding.settle()
        if right is not None:
            done = _takes_addresses[own] = done and result.tobytes() == right
        return done

    def _by_buffers(self, given: Operands, queue: cl.CommandQueue, target: Array) -> bytes:
        """The product by buffers. Each element of *target* becomes another number."""
        right = np.array(self.run(given, queue, self._scales, []))
        target[...] = right == 0
        return right.tobytes()

    def run(
        self, operands: Operands, queue: cl.CommandQueue, scales: Scales, wait_for: list[cl.Event]
    ) -> Any:
        """The result, complete. Raises LaunchError, DeviceMemoryError or DeviceLostError."""
        gemm = self.executable.gemm
        out = operands.get("out")
        if out is not None:
            check_writeable(out)
        wait_here(wait_for)
        target: Any = out if self._in_place else np.empty(gemm.shape, gemm.dtype)
        if 0 not in gemm.shape:
            buffers = host_memory.HostBuffers(queue, self._device)
            try:
                self._multiply(operands, target, buffers, scales)
            except BaseException:  # Ctrl-C too: afterwards the caller may free the arrays or write to them
                host_memory.finish(queue)
                raise
        if out is not None and target is not out:
            np.copyto(out, target, casting=self._casting)
        return _returned(target, out)

    def _multiply(
        self, operands: Operands, target: Array, buffers: host_memory.HostBuffers, scales: Scales
    ) -> None:
        values: dict[str, Any] = {}
        offsets: dict[str, int] = {}
        for one in self._inputs:
            read = one.as_read(operands[one.name])
            values[one.problem_name], start = buffers.read(read, one.plain, one.name)
            if start:
                offsets[one.problem_name] = start
        values["out"], start = buffers.write(target, self._out_is_plain)
        if start:
            offsets["out"] = start
        constant = None
        if self._constant is not None:
            b = operands["b"]
            constant = Constant(self._constant, host_memory.location(b), b)
        binding = self.executable.idle_binding(buffers.queue)
        uploads = buffers.uploads
        events = binding.enqueue(values, (*scales, offsets), uploads, constant, is_waited_for=True)
        buffers.read_back(events[-1:])
        binding.settle()
        if binding.watch is None:
            return

        def again(other: Any, shifts: Mapping[str, int]) -> None:
            scalars = (*scales, moved(offsets, shifts))
            buffers.read_back(other.enqueue(values, scalars, [], is_waited_for=True)[-1:])

        updates_c = "c" in operands and np.may_share_memory(operands["c"], target)
        self.executable.conclude(binding, buffers.queue, again, updates_c)
