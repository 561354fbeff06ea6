"""Lists of arrays on a CUDA device: its memory is one address space, so kernels read each where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pyopencl as cl

from ..cuda import arrays, driver
from ..cuda.rewritten import RewrittenTable
from ..cuda.streams import Stream
from ..execution.cuda_path import launch_with_block, refuse_captured_repair
from ..execution.options import refuse_events
from ..problem.gemm import Operand
from .apart import Addresses
from .lists import CallLists
from .planned import SCALARS, Key, ManyByAddress


class CudaMany(ManyByAddress):
    """A planned list of arrays on a CUDA device."""

    def layout(self, x: arrays.CudaArray, argument: str) -> Operand:
        return arrays.operand(x, argument)

    def memory_of(self, x: arrays.CudaArray, at: int) -> int:
        return at + 1 if x.address % x.dtype.itemsize else 0  # the table counts elements

    def multiply(self, given: CallLists, stream: Stream, wait_for: list[cl.Event]) -> list[tuple[int, Any]]:
        refuse_events(wait_for)
        kind: Any = None if given.like is None else given.like.kind
        results = self.multiply_in(given, stream, kind)
        for out in given.arrays.named("out"):
            if out is not None:
                kind.written(out)
        return results

    def multiply_in(self, given: CallLists, stream: Stream, kind: Any) -> list[tuple[int, Any]]:
        """:meth:`multiply` without what is the same for all libraries. *kind*: the arrays'."""
        new: dict[Key, int] = {}
        results: list[tuple[int, Any]] = []
        for key, row in self.rows.items():
            whole, new[key] = kind.new((row.size,), row.dtype, stream.context.ordinal)
            results += zip(row.pairs, kind.parts(whole, row.parts), strict=True)
        try:
            self.launch(given.addresses, stream, new, kind)
        finally:  # Ctrl-C too: a part may have been launched
            if given.lists is not given.arrays:  # its library may know nothing of the launch
                kind.launched([x for x in given.lists.arrays if x is not None], stream)
        return results

    def launch(self, addresses: Addresses, stream: Stream, new: Mapping[Key, int], kind: Any) -> None:
        """Launch all groups on arrays at these *addresses*, of each name; *new*: those of new memory; *kind*:
        that of the library which lends workspace."""
        if any(group.executable.repairs for group in self.groups):
            refuse_captured_repair(stream)
        begins = self.columns(addresses)
        with stream.context.current():
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
                own = {name: new.get(key, 0) for name, key in group.keys.items()} | {"products": at}
                how = {"kind": kind, "stream": stream.handle, "addresses": own, "scalars": SCALARS}
                updates_c = partial(self.updates_c, addresses, group)
                group.launched(stream, partial(launch_with_block, **how), False, updates_c)
                at += len(group.pairs) * self.template.strides[0]
            if not is_captured:
                self.tables.keep(stream, table)
