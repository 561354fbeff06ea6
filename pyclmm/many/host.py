"""Lists of NumPy arrays: each call packs the operands, one behind the other, and the results are views."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from ..execution.operands import check_writeable
from ..execution.options import Options
from ..opencl import host_memory
from ..opencl.devices import device_info
from ..opencl.host_memory import HostBuffers, dense_form, dense_layout, new_align
from ..opencl.queues import FreeQueue, PerThread
from .apart import Lists, check_apart
from .groups import Key, entries_of, groups_of
from .lists import CallLists, Layouts, naming
from .rows import Array, rows_of

_KEPT = 64 << 20  # the most bytes of packed operands that a plan keeps for a thread


class HostMany:
    """A planned list of NumPy arrays."""

    def __init__(
        self, given: CallLists, layouts: Layouts, options: Options, queue: Any, scalars: tuple[Any, Any]
    ) -> None:
        self._device = device = device_info(queue.device)

        def dense(x: Array, _name: str) -> Any:
            return dense_layout(x.shape, x.dtype.newbyteorder("="), device)

        entries = entries_of(given, options, scalars, dense, host_align=new_align(device))
        gemms = [one.gemm for one in entries]
        self._blank = [np.empty(gemm.shape, gemm.dtype) if gemm.is_empty else None for gemm in gemms]
        self._numbers = [one.pair for one in entries if not one.gemm.shape]
        computed = [one for one in entries if not one.gemm.is_empty]
        rows, starts = rows_of(computed, given.lists, layouts.sharing)
        self._results = {key: row for key, row in rows.items() if key[0] == "out"}
        self._operands = {key: row for key, row in rows.items() if key[0] != "out"}
        self._forms = {key: dense_form((row.size,), row.dtype, device, key[0]) for key, row in rows.items()}
        # What is large takes longer to fill than to allocate.
        keeps = sum(row.size * row.dtype.itemsize for row in self._operands.values()) <= _KEPT
        self.packed: PerThread[Array] = PerThread(len(rows) if keeps else 0)
        self.groups, self.queue = groups_of(computed, starts, options, queue)
        self.executables = [group.executable for group in self.groups]

    def run(self, lists: Lists, queue: cl.CommandQueue | None, wait_for: list[cl.Event]) -> list[Any]:
        """The results, complete. Raises ArgumentError for outs that overlap or are read-only, LaunchError,
        DeviceMemoryError or DeviceLostError. No out is written unless all is computed."""
        if wait_for:  # the host reads the operands
            host_memory.wait(self._device, wait_for)
        outs = [(pair, out) for pair, out in enumerate(lists.get("out", ())) if out is not None]
        for pair, out in outs:
            with naming(pair):
                check_writeable(out)
        if outs:
            check_apart(lists)
        new = {key: np.empty(row.size, row.dtype) for key, row in self._results.items()}
        if self.groups:
            own = self.queue if queue is None or isinstance(queue, FreeQueue) else queue
            self._multiply(lists, new, own)
        results: list[Any] = [None if x is None else np.empty_like(x) for x in self._blank]
        for key, row in self._results.items():
            for pair, part in row.parts(new[key]):
                results[pair] = part
        for pair in self._numbers:
            results[pair] = results[pair][()]
        for pair, out in outs:
            np.copyto(out, results[pair], casting="same_kind")
            results[pair] = out
        return results

    def _multiply(self, lists: Lists, new: Mapping[Key, Array], queue: cl.CommandQueue) -> None:
        """Compute the rows of *new*, which are complete then."""
        held: dict[Key, HostBuffers] = {key: HostBuffers(queue, self._device) for key in self._forms}
        memory, before = {}, list[cl.Event]()
        try:
            for key, row in self._operands.items():
                own = self.packed.get(key, partial(np.empty, row.size, row.dtype))
                memory[key], _ = held[key].read(row.filled(lists[key[0]], own), self._forms[key], key[0])
                before += held[key].uploads
            for key, result in new.items():
                memory[key], _ = held[key].write(result, self._forms[key])
            ends = [group.enqueue(queue, memory, before, is_waited_for=True)[-1] for group in self.groups]
            for key in new:
                held[key].read_back(ends)
        except BaseException:  # Ctrl-C too: afterwards the caller may free the arrays or write to them
            host_memory.finish(queue)
            raise
        for group in self.groups:
            binding = group.executable.latest_binding()
            if binding is not None:
                binding.settle()
