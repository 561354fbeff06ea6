"""Arrivals: whether the parts of a checked result came to the host as the device has them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl

from ..checks import selfcheck
from ..errors import VerificationError
from ..execution import verdicts
from ..kernels.device import DeviceInfo
from ..kernels.interface import Work
from ..kernels.verification import SUMS, sum_of, transfer_sums
from ..opencl import host_memory
from ..opencl.binding import Binding
from ..opencl.steps import scalars_of
from ..problem.settings import REPAIR
from .tiles import Region

_AGAIN = 2  # times a damaged part is fetched again, before "repair" gives up
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Arrivals:
    """Fetches parts of a result whose stack has shape *stack*, again if damaged and *verify* is "repair"."""

    def __init__(
        self, queue: cl.CommandQueue, device: DeviceInfo, verify: bool | str, stack: tuple[int, ...]
    ) -> None:
        self._queue, self._device, self._stack = queue, device, stack
        self._again = _AGAIN if verify == REPAIR else 0
        self._mine = threading.local()
        selfcheck.require_right_sums(queue)

    def fetch(
        self, fetch: Callable[[], object], memory: Bytes, buffer: cl.Buffer, start: int, part: Region
    ) -> None:
        """*fetch* the bytes from *start* of *buffer* into *memory* until both are alike. Warns of a *part*
        that was damaged, and raises VerificationError if it is each time.
        """

        def arrives() -> bool:
            fetch()
            return sum_of(memory) == self._sum_on_device(buffer, start, memory.nbytes)

        if arrives():
            return
        error = self._error(part)
        if not any(arrives() for _ in range(self._again)):
            raise error
        verdicts.repaired(error, "fetched again")

    def _sum_on_device(self, buffer: cl.Buffer, start: int, nbytes: int) -> int:
        made: Any = self._mine.__dict__  # by bytes
        if nbytes not in made:
            binding = Binding(self._queue, self._device, Work((transfer_sums(nbytes, self._device),)))
            sums = host_memory.allocate(self._queue.context, 4 * SUMS, self._device, "sums of a transfer")
            made[nbytes] = binding, sums
        binding, sums = made[nbytes]
        events = binding.enqueue({"data": buffer, "sums": sums}, scalars_of(1, 0, {"data": start}), [])
        found = np.empty(SUMS, np.uint32)
        cl.enqueue_copy(self._queue, found, sums, is_blocking=False, wait_for=events).wait()
        return int(np.add.reduce(found, dtype=np.uint32))

    def _error(self, part: Region) -> VerificationError:
        rows, columns = ((x.start, x.stop) for x in (part.rows, part.columns))
        at = [x.start if isinstance(x, slice) else x for x in part.index]
        first = int(np.ravel_multi_index(at, self._stack)) if at else 0
        name = self._device.name
        said = (
            f"a part of the result was damaged on its way from {name!r}: {part}. Compute it again, or pass "
            'verify="repair"; if it comes back, test the bus and the memory of the host'
        )
        stack = first, first + math.prod(part.shape[:-2])
        about: Any = {"device": name, "kernel": "transfer", "rows": rows, "columns": columns, "stack": stack}
        return verdicts.counted(VerificationError(said, **about, seed=0, error=math.nan, limit=0.0))
