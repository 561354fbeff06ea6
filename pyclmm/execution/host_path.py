"""Runs a plan on NumPy arrays: copies operands that kernels cannot read, and waits for the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl

from ..opencl import forks, host_memory
from ..opencl.array_fields import READABLE, WORDS
from ..opencl.binding import Binding, Constant
from ..opencl.host_memory import Array
from ..opencl.last_call import same
from ..opencl.launcher import info_of
from ..opencl.mappings import overlaps_itself
from ..opencl.steps import Scales, scalars_of
from ..problem.dtypes import check_scalars, dtype_of, type_name
from ..problem.gemm import Gemm
from ..problem.ragged import SIZES
from .casts import cast_into, converted
from .execute import Executable
from .operands import Operands, check_writeable, checked, problem_name, read_operands
from .options import Options, wait_here
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


_ALIGN, _ndarray, _empty = host_memory.HOST_ALIGN, np.ndarray, np.empty
# Where the arrays of a call lie: addresses of a, b and the result, and the result.
_Places = tuple[tuple[int, int, int], Array]
PlainCalls = Callable[[Mapping[str, Any]], _Places | None]


def _places_like(a: Array, b: Array, out: Array, makes_out: bool) -> PlainCalls:
    """A function: where the arrays of a call lie, with a new result if the plan *makes_out*; None unless they
    are plain arrays with exactly the layouts of these.

    What the general way finds out about each array takes longer than a product of 64 cubed. A kernel is given
    addresses here, which need no buffer. So the shape, strides, dtype and phase of each say everything; of
    *out* also that it owns its memory, or is a view of an array that does, and no operand is. (What a
    function compares with it finds sooner than an object's attributes.)
    """
    a_shape, a_strides, a_dtype = a.shape, a.strides, a.dtype
    b_shape, b_strides, b_dtype = b.shape, b.strides, b.dtype
    shape, strides, dtype = out.shape, out.strides, out.dtype
    a_phase, b_phase, phase = (host_memory.location(x) % _ALIGN for x in (a, b, out))
    count = 2 if makes_out else 3

    def places(given: Mapping[str, Any]) -> _Places | None:
        x, y = given["a"], given.get("b")
        if not (
            type(x) is type(y) is _ndarray
            and x.dtype is a_dtype
            and y.dtype is b_dtype
            and x.shape == a_shape
            and y.shape == b_shape
            and x.strides == a_strides
            and y.strides == b_strides
            and len(given) == count
        ):
            return None
        result: Any = _empty(shape, dtype) if makes_out else given.get("out")
        if not (makes_out or takes_result(result, x, y)):
            return None
        addresses = first, second, third = WORDS[id(x) >> 3], WORDS[id(y) >> 3], WORDS[id(result) >> 3]
        if first % _ALIGN != a_phase or second % _ALIGN != b_phase:
            return None
        return (addresses, result) if makes_out or third % _ALIGN == phase else None

    def takes_result(result: Any, x: Array, y: Array) -> bool:
        if type(result) is not _ndarray or result.dtype is not dtype:
            return False
        alike = result.shape == shape and result.strides == strides
        return alike and result.flags.writeable and _are_apart(result, x, y)

    return places


def _are_apart(out: Array, *operands: Array) -> bool:
    """Whether *out* surely shares no memory with an *operand*."""
    owner, *others = (x if x.base is None else x.base for x in (out, *operands))
    owns = [type(x) is np.ndarray and x.flags.owndata for x in (owner, *others)]
    return all(owns) and not any(owner is other for other in others)


# By a device's platform and name, whether its kernels read and write host memory by its address; and the
# bytes of a result that is computed twice to see it.
_takes_addresses: dict[tuple[str, str], bool] = {}
_MOST_TO_SHOW = 1 << 20


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
        self._names: tuple[str, ...] = ()  # the problem's, of a, b and the result of plain calls
        self._is_shown = False  # that the device takes addresses
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
        check_scalars(gemm.dtype, self._scales)
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

        A result is copied if kernels cannot address it, and also if its elements share memory, because
        work-items write in any order. NumPy's order is fixed. Kernels read the sizes of groups
        without a stride.
        """
        if name == "out":
            return not host_memory.is_addressable(x) or overlaps_itself(x)
        return (name == SIZES and not x.flags.c_contiguous) or host_memory.is_copied(x, self._device)

    def _plain_calls(self, operands: Operands, gemm: Gemm) -> PlainCalls | None:
        """What calls with few checks look like, or None if this plan has none. Nothing is copied."""
        names = {one.name: one.problem_name for one in self._inputs}
        if operands.keys() - {"out"} != names.keys() or names.keys() != {"a", "b"}:
            return None
        if 0 in gemm.shape or not READABLE:
            return None
        out = operands.get("out")
        like = np.empty(gemm.shape, gemm.dtype) if out is None else out
        arrays = operands["a"], operands["b"], like
        if not all(host_memory.is_used_whole(x, self._device) for x in arrays):
            return None
        self._names = names["a"], names["b"], "out"
        return _places_like(*arrays, makes_out=out is None)

    def again(
        self, given: Operands, queue: Any, scales: Scales, wait_for: list[cl.Event] | None
    ) -> tuple[Array, None] | None:
        """The product, complete, if the call is on plain arrays like those of the plan: (result, no events).

        Returns None where :meth:`run` must be called, and raises as that does.
        """
        binding, plain = self.executable.latest_binding(), self._plain
        if plain is None or binding is None or binding.is_busy or wait_for is not None:
            return None
        if binding.queue is not (self.queue if queue is None else queue):
            return None
        if scales is not self._scales and not same(scales, self._scales):
            return None
        places = plain(given)
        if places is None:
            return None
        forks.check_process()
        addresses, result = places
        if not (
            binding.run_at(self._names, addresses, self._scalars)
            if self._is_shown
            else self._shown(binding, places, given)
        ):
            return None
        return result if result.ndim or "out" in given else result[()], None

    def _shown(self, binding: Binding, places: _Places, given: Operands) -> bool:
        """Compute the first result of *places*. It is complete, unless this raises or returns False: the
        device takes no addresses.

        OpenCL promises that kernels may be given any address of the host only where a device says so, and
        PoCL 3 does not. So the first such result of a device is compared with what buffers give.

        Raises LaunchError, DeviceMemoryError or DeviceLostError.
        """
        (addresses, result), device = places, binding.device
        own = device.platform, device.name
        shown = _takes_addresses.get(own)
        if shown is None and not host_memory.may_be_addressed(binding.queue.device, device):
            shown = _takes_addresses[own] = False
        if shown is False or (shown is None and result.nbytes > _MOST_TO_SHOW):
            return False
        right = None if shown else self._by_buffers(given, binding.queue, result)
        done = binding.run_at(self._names, addresses, self._scalars)
        if right is not None:
            done = _takes_addresses[own] = done and result.tobytes() == right
        self._is_shown = done
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
        if out is None:
            return target if target.ndim else target[()]  # 1-D @ 1-D gives a scalar, as in NumPy
        if target is not out:
            cast_into(out, target, self._casting)
        return out

    def _multiply(
        self, operands: Operands, target: Array, buffers: host_memory.HostBuffers, scales: Scales
    ) -> None:
        values: dict[str, Any] = {}
        offsets: dict[str, int] = {}
        for one in self._inputs:
            x = operands[one.name]
            read = x if one.copied_as is None else converted(x, one.copied_as)
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
