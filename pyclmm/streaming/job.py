"""What a streamed product is made of, and how one step of a tile is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from .. import plan_cache
from ..execution.operands import signature
from ..execution.options import Options
from ..opencl.watch import own_lock
from . import tiles
from .storage import Storage
from .tiles import Blocking, Region, Span, Tile, TiledProduct

Dtype = np.dtype[Any]


@dataclass(frozen=True)
class Job:
    """A product in tiles. ``operands``: "a", "b", and "c" where it is read; ``bias`` is the whole row or
    column, with two axes. ``dtype`` is that of the result, ``acc_dtype`` that of a tile between two chunks of
    K.
    """

    product: TiledProduct
    blocking: Blocking
    operands: Mapping[str, Storage]
    bias: NDArray[Any] | None
    sink: Storage
    options: Options
    alpha: complex
    beta: complex
    dtype: Dtype
    acc_dtype: Dtype

    @cached_property
    def chunks(self) -> Sequence[Span]:
        """The chunks of K."""
        return tiles.chunks(self.product, self.blocking)

    @cached_property
    def _options(self) -> tuple[Options, Options]:
        """Those of the products of all chunks but the last one, and of that, which ends a tile."""
        a, b = self.operands["a"], self.operands["b"]
        last = replace(self.options, trans_a=a.trans, trans_b=b.trans)
        if self.is_narrow:  # the caller's rule of casts is for the product, whose operands have its dtype
            last = replace(last, dtype=self.acc_dtype, casting="same_kind")
        return replace(last, activation=None), last

    def region(self, name: str, tile: Tile, chunk: int = 0) -> Region:
        """The block of A, B or C that a step reads, of matrices as they are stored."""
        operand = self.operands[name]
        rows = tile.rows if name != "b" else self.chunks[chunk]
        columns = tile.columns if name != "a" else self.chunks[chunk]
        stored = (rows, columns) if operand.trans == "N" else (columns, rows)
        return tiles.region(self.product.stack, operand.shape[:-2], tile.z, *stored)

    def largest(self, name: str) -> int:
        """Elements of the largest block of A or B, or of the largest tile."""
        at = self.blocking
        rows, columns = at.k if name == "b" else at.m, at.k if name == "a" else at.n
        return at.batch * rows * columns

    @property
    def is_narrow(self) -> bool:
        """Whether a tile is kept in another type than the result's until its last chunk."""
        return self.acc_dtype != self.dtype

    def bias_of(self, tile: Tile) -> tuple[slice, ...] | None:
        """The part of ``bias`` that a tile needs."""
        if self.bias is None:
            return None
        spans = zip(self.bias.shape, (tile.rows, tile.columns), strict=True)
        return tuple(slice(None) if length == 1 else slice(*span) for length, span in spans)

    def multiply(
        self,
        queue: cl.CommandQueue,
        chunk: int,
        operands: dict[str, Any],
        acc: Any,
        out: Any,
        wait_for: list[cl.Event],
    ) -> Any:
        """Multiply "a" and "b" of *operands*, add to *acc*, and end in *out* with the last chunk. "c" is for
        the first chunk, "bias" for the last. *acc* is *out* unless the job is narrow. Returns what was
        written. Raises as gemm.
        """
        is_last = chunk == len(self.chunks) - 1
        target = out if is_last else acc
        given, beta = {**operands, "out": target}, self.beta
        if chunk:
            given["c"], beta = acc, 1.0
        elif "c" not in operands:
            beta = 0.0
        if not is_last:
            given.pop("bias", None)
        options = self._options[is_last]
        scales = self.alpha, beta
        plan = plan_cache.plan_for(given, signature(given), options, queue, scales)
        with own_lock():  # of what settle() hears
            plan.multiply(given, queue, scales, wait_for)
            if options.verify:
                plan.settle()
        return target


def pieces(
    region: Region, turned: bool, itemsize: int, limit: int, step: int = 1
) -> Iterator[tuple[Region, int]]:
    """Cut a block into pieces of at most *limit* bytes: (piece, its start in the block, in elements). All lie
    in C order, or transposed if *turned*. Cuts are at multiples of *step* rows where there is room.
    """
    axes = (-3, -1, -2) if turned else (-3, -2, -1)
    if region.elements:
        yield from _cut(region, axes[3 - len(region.shape) :], limit // itemsize, step, 0)


def _cut(
    region: Region, axes: tuple[int, ...], most: int, step: int, start: int
) -> Iterator[tuple[Region, int]]:
    """Pieces of at most *most* elements, cut along the first of *axes* as far as that is enough."""
    if region.elements <= most:
        yield region, start
        return
    axis, *inner = axes
    length = region.shape[axis]
    each = region.elements // length
    many = max(1, most // each)
    if len(inner) == 1 and many >= step:
        many = many // step * step
    for at in range(0, length, many):
        piece = region.cut(axis, at, min(at + many, length))
        yield from _cut(piece, tuple(inner), most, step, start + at * each)


def stored_shape(region: Region, turned: bool) -> tuple[int, ...]:
    """The shape in which a block lies in memory."""
    return (*region.shape[:-2], region.shape[-1], region.shape[-2]) if turned else region.shape
