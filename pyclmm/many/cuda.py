"""Lists of arrays on a CUDA device: its memory is one address space, so kernels read each where it lies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyopencl as cl

from ..cuda import arrays, driver
from ..cuda.rewritten import RewrittenTable
from ..cuda.streams import Stream, forget
from ..errors import DeviceLostError
from ..execution import kinds
from ..execution.cuda_path import launch_with_block, refuse_captured_repair
from ..execution.operands import collect
from ..execution.options import refuse_events
from ..problem.gemm import Gemm, Operand, dense_strides
from .addressed import ManyByAddress, updates_c_in_place
from .apart import Lists
from .groups import SCALARS, Key, LaunchGroup, ListEntry
from .lists import Addresses, CallLists
from .planned import NEW


class CudaMany(ManyByAddress):
    """A planned list of arrays on a CUDA device."""

    def __init__(self, *planned: Any) -> None:
        super().__init__(*planned)
        self._parts = {
            key: [
                (shape, dense_strides(shape), start)
                for shape, start in zip(row.shapes, row.starts.values(), strict=True)
            ]
            for key, row in self.rows.items()
        }

    def layout(self, x: Any, argument: str, pair: int) -> Operand:
        return arrays.operand(x, argument)

    def memory_of(self, lists: Lists, name: str, pair: int) -> int:
        x = lists[name][pair] if name in lists else None
        if x is None:
            return NEW
        return pair + 1 if x.address % x.dtype.itemsize else 0  # the table counts elements

    def multiply(
        self, given: CallLists, stream: Stream, wait_for: list[cl.Event]
    ) -> Iterable[tuple[int, Any]]:
        refuse_events(wait_for)
        try:
            results = self.multiply_in(given, stream)
        except DeviceLostError:
            forget(stream.context)
            raise
        for out in given.arrays.get("out", ()):
            if out is not None:
                _kind_of(given).written(out)
        return results

    def multiply_in(self, given: CallLists, stream: Stream) -> list[tuple[int, Any]]:
        """:meth:`multiply` without what is the same for all libraries."""
        kind, addresses = _kind_of(given), given.addresses or {}
        new: dict[Key, int] = {}
        results: list[tuple[int, Any]] = []
        for key, row in self.rows.items():
            whole, new[key] = kind.new((row.size,), row.dtype, stream.context.ordinal)
            results += zip(row.order, kind.parts(whole, self._parts[key]), strict=True)
        try:
            self.launch(addresses, stream, new, kind)
        finally:  # Ctrl-C too: a part may have been launched
            if given.layouts is None:  # its library may know nothing of the launch
                kind.launched([x for xs in given.lists.values() for x in xs if x is not None], stream)
        return results

    def nothing(self, gemm: Gemm, given: CallLists, stream: Stream) -> Any:
        kind = _kind_of(given)
        return kind.back(arrays.new(kind, gemm.shape, gemm.dtype, stream.context.ordinal))

    def multiply_alone(
        self, product: Any, operands: Mapping[str, Any], stream: Any, entry: ListEntry, wait_for: list[Any]
    ) -> Any:
        refuse_events(wait_for)
        made = product.multiply(collect(operands), stream, entry.scales, None)
        return kinds.returned(operands, made)

    def launch(self, addresses: Addresses, stream: Stream, new: Mapping[Key, int], kind: Any) -> None:
        """Launch all groups on arrays at these *addresses*, of each name; *new*: those of new memory; *kind*:
        that of the library which lends workspace."""
        if any(group.executable.repairs for group in self.groups):
            refuse_captured_repair(stream)
        begins, updates_c = self.columns(addresses), updates_c_in_place(addresses)
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
                _enqueue(group, stream, own | {"products": at}, kind, updates_c)
                at += len(group.pairs) * self.template.strides[0]
            if not is_captured:
                self.tables.keep(stream, table)


def _enqueue(
    group: LaunchGroup, stream: Stream, addresses: Mapping[str, int], kind: Any, updates_c: bool
) -> None:
    def again(other: Any, _shifts: Any = None) -> None:
        launch_with_block(other, kind, stream.handle, addresses, SCALARS)
        driver.wait(stream.handle, "a repaired list")

    def launch() -> None:
        binding = group.executable.idle_binding(stream)
        launch_with_block(binding, kind, stream.handle, addresses, SCALARS)
        if group.executable.repairs:
            group.executable.conclude(binding, stream, again, updates_c)

    group.launched(stream, launch)


def _kind_of(given: CallLists) -> Any:
    return None if given.like is None else given.like.kind
