"""Prepared: a product chosen and built for operands of certain layouts; plans run it, plan_cache keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl
from pyopencl.array import Array

from .. import environment
from ..cuda.arrays import CudaArray
from ..errors import REFUSED, ArgumentError
from ..kernels.interface import Program
from ..opencl.queues import FreeQueue
from ..opencl.steps import Scales
from ..problem.dtypes import check_scalars
from .cuda_path import CudaPath
from .device_path import DevicePath
from .host_path import HostPath
from .operands import Operands, Signature, collect, fits, mismatch, on_host, queue_of, signature
from .options import Options, events_of, plain_numbers, zeros_of

Path = DevicePath | HostPath | CudaPath
# What runs a product, by the type of its operands; an adapter may add its own.
PATHS: dict[type, Callable[..., Path]] = {np.ndarray: HostPath, Array: DevicePath, CudaArray: CudaPath}
CLOSED = "the plan is closed: its `with` block has ended, or close() was called; make another pyclmm.Matmul"


class Prepared:
    """A product of *operands* of these *layouts*, ready to run: :func:`collect` has checked them. Raises as a
    plan does."""

    def __init__(
        self, operands: Operands, layouts: Signature, options: Options, queue: Any, scales: Scales
    ) -> None:
        environment.check()
        self.signature: Signature | None = layouts  # None: it is closed, and fits no operands
        self._scales, self._zeros = scales, zeros_of(scales)
        # Each call on arrays of a device uses the queue, or the stream, of its arrays.
        self._queue: cl.CommandQueue | None = queue if on_host(operands) else None
        self.context = queue.context
        make = PATHS[layouts.kind]
        self.path: Path = make(operands, bool(layouts.overlapping), options, queue, scales)
        # Where a product whose caller has chosen no device is computed.
        is_free = isinstance(queue, FreeQueue)
        self._placed = self.path.queue if is_free and isinstance(self.path, HostPath) else None
        self.executable = self.path.executable

    @property
    def programs(self) -> frozenset[Program]:
        """The programs that its launches run."""
        return frozenset(launch.program for launch in self.executable.work.launches)

    def fits(self, layouts: Signature, queue: Any, scales: Scales) -> bool:
        """Whether it is for NumPy arrays of these *layouts* on *queue*, and for such scalars."""
        return queue is self._queue and layouts == self.signature and zeros_of(scales) == self._zeros

    def checked(
        self, operands: Operands, queue: cl.CommandQueue | None, alpha: complex | None, beta: complex | None
    ) -> tuple[cl.CommandQueue, Scales]:
        """The queue, alpha and beta of a call. Raises ArgumentError if it was made for others."""
        given = signature(operands)
        if self.signature is None or not fits(self.signature, given):
            raise ArgumentError(CLOSED if self.signature is None else mismatch(self.signature, given))
        own = queue_of(operands, self._queue if queue is None else queue)
        scales = self.scales_of(alpha, beta)
        if scales is self._scales:
            return own, scales
        scales = plain_numbers(*scales)
        check_scalars(self.executable.gemm.dtype, scales)
        if zeros_of(scales) != self._zeros:
            raise ArgumentError("the plan fixes whether alpha and beta are zero; make another plan for these")
        return own, scales

    def scales_of(self, alpha: complex | None, beta: complex | None) -> Scales:
        """alpha and beta, not checked; None for the plan's own."""
        if alpha is beta is None:
            return self._scales
        its_alpha, its_beta = self._scales
        return its_alpha if alpha is None else alpha, its_beta if beta is None else beta

    def again(self, given: Operands, queue: Any, scales: Scales, wait_for: list[cl.Event] | None) -> Any:
        """The product if the call is so much like the thread's last one that few checks do; else None."""
        if self.signature is None:
            return None
        choice = self.executable.choice
        if self._placed is not None and isinstance(queue, FreeQueue):
            queue = self._placed
        try:
            done = self.path.again(given, queue, scales, wait_for)
        except REFUSED as error:
            own = queue if queue is not None else self._own(self._queue) or queue_of(collect(given), None)
            self.executable.fall_back(choice, own, error)
            return None
        return None if done is None else done[0]

    def multiply(
        self, operands: Operands, queue: Any, scales: Scales, wait_for: list[cl.Event] | None
    ) -> Any:
        """The product of operands that are known to fit. Raises DTypeError for scalars that do not."""
        check_scalars(self.executable.gemm.dtype, scales)
        return self.run(operands, queue, scales, wait_for)

    def run(self, operands: Operands, queue: Any, scales: Scales, wait_for: list[cl.Event] | None) -> Any:
        """The same, with scalars that are known to fit."""
        own = self._own(queue)
        events = events_of(wait_for, queue if own is queue else None)  # else the host waits for them
        return self.executable.launched(own, lambda: self.path.run(operands, own, scales, events))

    def _own(self, queue: Any) -> Any:
        """*queue*, or for a free one where the product was placed, if it is a plan for free queues."""
        return (self._placed or queue) if isinstance(queue, FreeQueue) else queue

    def settle(self) -> None:
        """Wait for this thread's last product, if that is checked. Raises VerificationError."""
        binding = self.executable.latest_binding()
        if binding is not None and binding.watch is not None:
            binding.watch.finish()

    def close(self) -> None:
        """Fit no operands from now on, and free what can be made again."""
        self.signature = None
        self.executable.release()
