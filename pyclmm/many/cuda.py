"""Lists of arrays on a CUDA device: its memory is one address space, so kernels read each where it lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyopencl as cl

from ..cuda import arrays, driver
from ..cuda.rewritten import RewrittenTable
from ..cuda.streams import Stream, forget
from ..errors import DeviceLostError
from ..execution import kinds
from ..execution.operands import collect
from ..execution.options import refuse_events
from ..problem.gemm import Operand, dense_strides
from .addressed import ManyByAddress
from .apart import Lists
from .device import NEW
from .groups import SCALARS, Key, LaunchGroup
from .lists import Addresses, CallLists, Layouts, operands_at


class CudaMany(ManyByAddress):
    """A planned list of arrays on a CUDA device."""

    def __init__(self, *planned: Any) -> None:
        super().__init__(*planned)
        self._parts = {
            key: [
                (shape, dense_strides(shape), start)
                for shape, start in zip(row.shapes, row.starts.values(), strict=True)
            ]
            for key, row in self._rows.items()
        }

    def layout(self, x: Any, argument: str) -> Operand:
        return arrays.operand(x, argument)

    def _memory_of(self, lists: Lists, layouts: Layouts) -> Callable[[str, int], int]:
        def memory_of(name: str, pair: int) -> int:
            x = lists[name][pair] if name in lists else None
            if x is None:
                return NEW
            return pair + 1 if x.address % x.dtype.itemsize else 0  # the table counts elements

        return memory_of

    def run(self, given: CallLists, stream: Stream, wait_for: list[cl.Event]) -> list[Any]:
        """The results, complete when the work before in the stream is. Raises ArgumentError, LaunchError,
        DeviceMemoryError or DeviceLostError."""
        refuse_events(wait_for)
        like: Any = given.like
        kind = like.kind
        results = list(given.arrays.get("out", (None,) * self._count))
        if self.groups:
            try:
                self._multiply(given, results, kind, stream)
            except DeviceLostError:
                forget(stream.context)
                raise
        for one in self._empty:
            if results[one.pair] is None:
                nothing = arrays.new(kind, one.gemm.shape, one.gemm.dtype, stream.context.ordinal)
                results[one.pair] = kind.back(nothing)
        for out in given.arrays.get("out", ()):
            if out is not None:
                kind.written(out)
        for one, product in self._alone:
            its = operands_at(given.arrays, one.pair)
            results[one.pair] = kinds.returned(its, product.multiply(collect(its), stream, one.scales, None))
        return results

    def _multiply(self, given: CallLists, results: list[Any], kind: Any, stream: Stream) -> None:
        """Compute what launches compute together. New results of theirs go into *results*."""
        new: dict[Key, int] = {}
        for key, row in self._rows.items():
            whole, new[key] = kind.new((row.size,), row.dtype, stream.context.ordinal)
            for pair, part in zip(row.order, kind.parts(whole, self._parts[key]), strict=True):
                results[pair] = part
        addresses: Any = given.addresses
        try:
            self.launch(addresses, stream, new)
        finally:  # Ctrl-C too: a part may have been launched
            if given.layouts is None:  # its library may know nothing of the launch
                kind.launched([x for xs in given.lists.values() for x in xs if x is not None], stream)

    def launch(self, addresses: Addresses, stream: Stream, new: Mapping[Key, int]) -> None:
        """Launch all groups on arrays at these *addresses*, of each name; *new*: those of new memory."""
        begins = self.columns(addresses)
        with driver.current(stream.context.handle):
            kept, is_captured = self.tables.mine.held, driver.capture_of(stream.handle) != 0
            # Nobody else's while it is used: a signal handler, or a finalizer, may call within this call.
            table = None if is_captured else kept.pop(stream, None)
            if table is None:
                table = RewrittenTable(stream.context, self.template)
            if is_captured:
                table.keep(begins)
            else:
                table.write(begins, stream.handle)
            at = table.address
            for group in self.groups:
                own = {name: new.get(key, 0) for name, key in group.keys.items()}
                _enqueue(group, stream, own | {"products": at})
                at += len(group.pairs) * self.template.strides[0]
            if not is_captured:
                self.tables.keep(stream, table)


def _enqueue(group: LaunchGroup, stream: Stream, addresses: Mapping[str, int]) -> None:
    binding = group.executable.idle_binding
    group.launched(stream, lambda: binding(stream).enqueue(stream.handle, addresses, SCALARS))
