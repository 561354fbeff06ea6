"""Runs a plan on arrays of CUDA devices, in the stream in which their library works; returns at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyopencl as cl

from ..cuda import arrays, driver
from ..cuda.arrays import CudaArray
from ..cuda.streams import Stream
from ..errors import DeviceMemoryError, UnsupportedError, WorkspaceError
from ..opencl import forks
from ..opencl.last_call import same
from ..opencl.mappings import reach
from ..opencl.steps import Scales, scalars_of
from .kinds import KindWithAddresses
from .operands import Operands
from .options import Options, refuse_events, warn_of_dropped
from .path_on_device import PathOnDevice


def launch_with_block(
    binding: Any, kind: KindWithAddresses, stream: int, addresses: Mapping[str, int], scalars: Any
) -> None:
    """Launch what *binding* has, with workspace of the library's *kind*. Raises as CudaBinding.enqueue, and
    WorkspaceError."""
    block, at = None, 0
    if binding.workspace_nbytes:
        try:
            block, at = kind.block(binding.workspace_nbytes, binding.context.ordinal)
        except DeviceMemoryError as error:
            raise WorkspaceError(*error.args) from error
    binding.enqueue(stream, addresses, scalars, at)
    del block  # the allocator gives it to later work in this stream alone


def refuse_captured_repair(stream: Stream) -> None:
    """Raise UnsupportedError if *stream* is being captured, as verify="repair" waits."""
    if driver.capture_of(stream.handle):
        raise UnsupportedError(
            "verify='repair' waits for the result, which a stream that is being captured forbids; "
            "pass verify=True"
        )


class CudaPath(PathOnDevice):
    """Launches one planned product of arrays on a CUDA device."""

    def __init__(
        self, operands: Operands, overlaps: bool, options: Options, queue: Stream, scales: Scales
    ) -> None:
        layouts = {name: arrays.operand(x, name) for name, x in operands.items()}
        super().__init__(layouts, overlaps, options, queue, scales)
        self._shape, self._dtype = self.executable.gemm.shape, self.executable.gemm.dtype
        self._repeats = self._repeats and not (self._is_empty or self._overlaps)

    def again(
        self, given: Operands, queue: Any, scales: Scales, wait_for: list[cl.Event] | None
    ) -> tuple[Any, list[cl.Event]] | None:
        """The product, if the call follows this thread's last one in all but addresses: (result, no events).

        Returns None where :meth:`run` must be called, and raises as that does.
        """
        binding: Any = self.executable.latest_binding()
        call = None if binding is None else binding.last_call
        if call is None or queue is not None or wait_for is not None or len(given) != len(call.names):
            return None
        if binding.is_busy or not binding.context.is_known:
            return None
        if not same(scales, call.scales):
            return None
        places = call.addresses_of([given.get(name) for name in call.names])
        if places is None:
            return None
        if places != call.places:
            addresses = dict(zip(call.in_problem, places, strict=True))
            if call.may_overlap(addresses):
                return None
            call.places, call.addresses = places, addresses
        addresses = call.addresses
        forks.check_process()
        kind: KindWithAddresses = call.kind
        result = given.get("out")
        if result is None:
            result, address = kind.new(self._shape, self._dtype, binding.context.ordinal)
            addresses = {**addresses, "out": address}
        launch_with_block(binding, kind, kind.stream(binding.context.ordinal), addresses, None)
        if "out" in given:
            kind.written(result)
        return result, []

    def run(self, operands: Operands, queue: Stream, scales: Scales, wait_for: list[cl.Event]) -> CudaArray:
        """The result, which is complete when the work before in the stream is.

        Raises LaunchError, DeviceMemoryError or DeviceLostError.
        """
        out, kind = self._begin(operands, queue, wait_for), operands["a"].kind
        if self._is_empty:
            return out
        if self.executable.repairs:
            refuse_captured_repair(queue)
        addresses = {
            in_problem: (out if name == "out" else operands[name]).address
            for name, in_problem in self._arrays
        }
        binding: Any = self.executable.idle_binding(queue)
        binding.last_call = None
        try:
            launch_with_block(binding, kind, queue.handle, addresses, scalars_of(*scales))
        finally:  # Ctrl-C too: a part may have been launched
            kind.launched([*operands.values(), out], queue)
        if self.executable.repairs:

            def again(other: Any, shifts: Mapping[str, int]) -> None:
                launch_with_block(other, kind, queue.handle, addresses, scalars_of(*scales, shifts))
                driver.wait(queue.handle, "a repaired product")

            updates_c = "c" in operands and operands["c"].address == out.address
            self.executable.conclude(binding, queue, again, self._overlaps or updates_c)
        if self._repeats:
            binding.last_call = _CudaCall(kind, operands, scales, self._names)
        return out

    def _begin(self, operands: Operands, queue: Stream, wait_for: list[cl.Event]) -> CudaArray:
        """The caller's ``out``, or a new array where the operands are, which may be another device than the
        plan was made on. Warns of what is dropped. Raises ArgumentError."""
        refuse_events(wait_for)
        if self._warns and not self._is_empty:
            warn_of_dropped()
        out: CudaArray | None = operands.get("out")
        kind: KindWithAddresses = operands["a"].kind
        return arrays.new(kind, self._shape, self._dtype, queue.context.ordinal) if out is None else out


class _CudaCall:
    """The operands and scalars of a call, to compare the next with. *names*: the problem's, by argument."""

    __slots__ = ("_reaches", "addresses", "addresses_of", "in_problem", "kind", "names", "places", "scales")

    def __init__(
        self, kind: KindWithAddresses, operands: Operands, scales: Scales, names: dict[str, str]
    ) -> None:
        self.kind, self.scales = kind, scales
        self.names, self.in_problem = tuple(operands), tuple(names[name] for name in operands)
        self.addresses_of = kind.follower(tuple(operands.values()))
        self.places = [x.address for x in operands.values()]
        self.addresses = dict(zip(self.in_problem, self.places, strict=True))
        self._reaches = {names[name]: reach(x, 0) for name, x in operands.items()}

    def may_overlap(self, addresses: dict[str, int]) -> bool:
        """Whether ``out`` may overlap another operand where arrays lie at these *addresses*."""
        if "out" not in addresses:
            return False
        ranges = {
            name: (at + low, at + high)
            for name, at in addresses.items()
            for low, high in [self._reaches[name]]
        }
        low, high = ranges.pop("out")
        return any(low < its_high and its_low < high for its_low, its_high in ranges.values())
