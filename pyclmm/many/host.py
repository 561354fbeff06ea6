"""Lists of NumPy arrays: each call packs the operands, one behind the other, and the results are views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl

from ..execution.operands import check_writeable
from ..execution.options import Options
from ..opencl import host_memory
from ..opencl.devices import device_info
from ..opencl.host_memory import HostBuffers, dense_form, dense_layout
from ..opencl.queues import FreeQueue, PerThread
from .apart import Lists, check_apart
from .entries import Key, ListEntry, entry_of, scales_at
from .group import groups_of
from .lists import CallLists, naming, operands_at, repeats_of
from .rows import Array, rows_of, starts_of

_KEPT = 64 << 20  # the most bytes of packed operands that a plan keeps for a thread


class _PackedOperands(dict[Key, Array]):
    """Memory of one thread for packed operands; unlike a dict, PerThread can hold it."""


class HostMany:
    """A planned list of NumPy arrays."""

    def __init__(self, given: CallLists, options: Options, queue: Any, scalars: tuple[Any, Any]) -> None:
        self._device, lists = device_info(queue.device), given.lists
        each = [replace(options, dtype=own) for own in given.dtypes] or [options] * len(lists["a"])
        entries = [self._entry(lists, index, its, scalars) for index, its in enumerate(each)]
        self._count = len(entries)
        # Results that are not parts of a row: empty ones, and numbers.
        others = [one for one in entries if one.gemm.is_empty or not one.gemm.shape]
        self._others = [(one.pair, one.gemm.shape, one.gemm.dtype) for one in others]
        computed = [one for one in entries if not one.gemm.is_empty]
        rows = rows_of(computed, lists, repeats_of(lists))
        self._results = {key: row for key, row in rows.items() if key[0] == "out"}
        self._operands = {key: row for key, row in rows.items() if key[0] != "out"}
        self._shapes = {
            key: [entries[pair].gemm.shape for pair in row.order] for key, row in self._results.items()
        }
        self._forms = {
            key: dense_form((row.size,), row.dtype, self._device, key[0]) for key, row in rows.items()
        }
        self.groups, self.queue = groups_of(computed, starts_of(rows), options, queue)
        # What is large takes longer to fill than to allocate.
        self._keeps = sum(row.size * row.dtype.itemsize for row in self._operands.values()) <= _KEPT
        self._packed: PerThread[_PackedOperands] = PerThread(1)

    def _entry(self, lists: Lists, index: int, options: Options, scalars: tuple[Any, Any]) -> ListEntry:
        """The product of a pair whose operands are packed and whose result is copied to its out."""
        with naming(index):
            operands = operands_at(lists, index)
            layouts = {
                name: dense_layout(x.shape, x.dtype.newbyteorder("="), self._device)
                for name, x in operands.items()
            }
            scales, align = scales_at(index, *scalars, lists), host_memory.new_align(self._device)
            return entry_of(index, layouts, options, scales, False, align)

    def run(self, lists: Lists, queue: cl.CommandQueue | None, wait_for: list[cl.Event]) -> list[Any]:
        """The results, complete. Raises ArgumentError for outs that overlap or are read-only, LaunchError,
        DeviceMemoryError or DeviceLostError. No out is written unless all is computed."""
        outs = lists.get("out", ())
        if wait_for:  # the host reads the operands
            host_memory.wait(self._device, wait_for)
        if outs:
            for index, out in enumerate(outs):
                if out is not None:
                    with naming(index):
                        check_writeable(out)
            check_apart(lists)
        new = {key: np.empty(row.size, row.dtype) for key, row in self._results.items()}
        if self.groups:
            own = self.queue if queue is None or isinstance(queue, FreeQueue) else queue
            self._multiply(lists, new, own)
        results = self._parts(new)
        for index, out in enumerate(outs):
            if out is not None:
                np.copyto(out, results[index], casting="same_kind")
                results[index] = out
        return results

    def _multiply(self, lists: Lists, new: Mapping[Key, Array], queue: cl.CommandQueue) -> None:
        """Compute the rows of *new*, which are complete then."""
        packed = self._packed.get(None, self._memory) if self._keeps else self._memory()
        held: dict[Key, HostBuffers] = {key: HostBuffers(queue, self._device) for key in self._forms}
        memory, before = {}, list[cl.Event]()
        try:
            for key, row in self._operands.items():
                filled = row.filled(lists[key[0]], packed[key])
                memory[key], _ = held[key].read(filled, self._forms[key], key[0])
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
            group.settle()

    def _memory(self) -> _PackedOperands:
        return _PackedOperands((key, np.empty(row.size, row.dtype)) for key, row in self._operands.items())

    def _parts(self, new: Mapping[Key, Array]) -> list[Any]:
        """The results in the order of the pairs, as views of the rows of *new*, or numbers."""
        results: list[Any] = [None] * self._count
        for key, row in self._results.items():
            for pair, part in zip(row.order, row.parts(new[key], self._shapes[key]), strict=True):
                results[pair] = part
        for pair, shape, dtype in self._others:
            results[pair] = results[pair][()] if shape == () else np.empty(shape, dtype)
        return results

    def release(self) -> None:
        """Free the memory into which operands are packed, and the kernel objects."""
        self._packed.clear()
        for group in self.groups:
            group.executable.release()
