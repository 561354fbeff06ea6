"""What a streamed product is made of, and how one step of a tile is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from .. import plan_cache
from ..execution.operands import signature
from ..execution.options import Options
from . import blocks, tiles
from .blocks import Part
from .storage import Sink, Source
from .tiles import Blocking, Product, Tile

Dtype = np.dtype[Any]


@dataclass(frozen=True)
class Stored:
    """An operand: where it is read, and its batch shape. ``turned``: its blocks are kept as transposes."""

    source: Source
    stack: tuple[int, ...]
    trans: str = "N"

    @property
    def dtype(self) -> Dtype:
        """The dtype of its blocks."""
        return self.source.dtype.newbyteorder("=")

    def part(self, stack: tuple[int, ...], z: blocks.Span, rows: blocks.Span, columns: blocks.Span) -> Part:
        """The block of these rows and columns of op(X)."""
        if self.trans != "N":
            rows, columns = columns, rows
        return blocks.part(stack, self.stack, z, rows, columns)


@dataclass(frozen=True)
class Job:
    """A product in tiles. ``bias`` is the whole vector; ``c`` is read only if beta is not 0.

    ``dtype`` is that of the result, ``acc_dtype`` that of a tile between two chunks of K.
    """

    product: Product
    blocking: Blocking
    a: Stored
    b: Stored
    c: Stored | None
    bias: NDArray[Any] | None
    sink: Sink
    options: Options
    alpha: complex
    beta: complex
    dtype: Dtype
    acc_dtype: Dtype
    chunks: Sequence[blocks.Span] = field(init=False)
    _options_of_last: Options = field(init=False)  # of the last chunk's product, which ends a tile
    _options_of_others: Options = field(init=False)

    def __post_init__(self) -> None:
        dtype = self.acc_dtype if self.is_narrow else self.options.dtype
        last = replace(self.options, trans_a=self.a.trans, trans_b=self.b.trans, dtype=dtype)
        object.__setattr__(self, "chunks", tiles.chunks(self.product, self.blocking))
        object.__setattr__(self, "_options_of_last", last)
        object.__setattr__(self, "_options_of_others", replace(last, activation=None))

    def operand(self, name: str) -> Stored:
        """A or B."""
        return self.a if name == "a" else self.b

    def key(self, name: str, tile: Tile, chunk: int) -> Any:
        """Equal keys: the same block of A or B."""
        return (tiles.a_key if name == "a" else tiles.b_key)(self.product, self.blocking, tile, chunk)

    def part(self, name: str, tile: Tile, chunk: int) -> Part:
        """The block of A or B that a step reads."""
        ks = self.chunks[chunk]
        stack = self.product.stack
        if name == "a":
            return self.a.part(stack, tile.z, tile.rows, ks)
        return self.b.part(stack, tile.z, ks, tile.columns)

    def largest(self, name: str) -> int:
        """Elements of the largest block of A or B."""
        at = self.blocking
        return at.batch * at.k * (at.m if name == "a" else at.n)

    @property
    def largest_tile(self) -> int:
        """Elements of the largest tile."""
        return self.blocking.batch * self.blocking.m * self.blocking.n

    @property
    def is_narrow(self) -> bool:
        """Whether a tile is kept in another type than the result's until its last chunk."""
        return self.acc_dtype != self.dtype

    def bias_of(self, tile: Tile) -> tuple[slice, ...] | None:
        """The part of ``bias`` that a tile needs."""
        if self.bias is None:
            return None
        if self.bias.ndim == 2 and self.bias.shape[1] == 1 and self.product.n != 1:
            return (slice(*tile.rows), slice(None))
        along = slice(*tile.columns)
        return (slice(None), along) if self.bias.ndim == 2 else (along,)

    def multiply(
        self,
        queue: cl.CommandQueue,
        chunk: int,
        operands: dict[str, Any],
        acc: Any,
        out: Any,
        wait_for: list[cl.Event],
    ) -> Any:
        """Multiply the blocks "a" and "b" of *operands*, add to *acc*, and end in *out* with the last chunk.

        *operands* has "c" for the first chunk and "bias" for the last one, where there are any. *acc* is
        *out* unless the job is narrow. Returns what was written. Raises as :func:`pyclmm.gemm` does.
        """
        is_last = chunk == len(self.chunks) - 1
        target = out if is_last else acc
        given = {"a": operands["a"], "b": operands["b"]}
        beta: complex = 0.0
        if chunk:
            given["c"], beta = acc, 1.0
        elif "c" in operands:
            given["c"], beta = operands["c"], self.beta
        if is_last and "bias" in operands:
            given["bias"] = operands["bias"]
        given["out"] = target
        options = self._options_of_last if is_last else self._options_of_others
        plan = plan_cache.plan_for(given, signature(given), options, queue, self.alpha, beta)
        plan.run(given, queue, self.alpha, beta, wait_for)
        return target


def pieces(part: Part, turned: bool, itemsize: int, limit: int, step: int = 1) -> Iterator[tuple[Part, int]]:
    """Cut a block into pieces of at most *limit* bytes: (piece, its start in the block, in elements).

    The block lies in C order, or its transposes if *turned*, and so does each piece. Cuts are at multiples of
    *step* rows where there is room for that many.
    """
    rows, columns = part.shape[-2:]
    lines, length = (columns, rows) if turned else (rows, columns)
    if rows * columns * itemsize * 2 <= limit and len(part.shape) == 3:
        yield from _of_matrices(part, max(1, limit // (rows * columns * itemsize)))
        return
    for z, matrix in enumerate(part.matrices()):
        start = z * rows * columns
        fitting = limit // (length * itemsize)
        many = max(1, fitting // step * step if fitting >= step else fitting)
        for line in range(0, lines, many):
            stop = min(line + many, lines)
            run = matrix.columns_of(line, stop) if turned else matrix.rows_of(line, stop)
            yield from _of_line(run, turned, start + line * length, limit // itemsize)


def _of_matrices(part: Part, many: int) -> Iterator[tuple[Part, int]]:
    count, rows, columns = part.shape
    last = part.index[-1]
    first = last.start if isinstance(last, slice) else 0
    for z in range(0, count, many):
        stop = min(z + many, count)
        index = (*part.index[:-1], slice(first + z, first + stop))
        shape = (stop - z, rows, columns)
        yield Part(index, part.rows, part.columns, shape), z * rows * columns


def _of_line(run: Part, turned: bool, start: int, most: int) -> Iterator[tuple[Part, int]]:
    """*run*, or parts of it if one line alone has more than *most* elements."""
    if run.elements <= most:
        yield run, start
        return
    length = run.shape[-2] if turned else run.shape[-1]
    for at in range(0, length, most):
        stop = min(at + most, length)
        yield (run.rows_of(at, stop) if turned else run.columns_of(at, stop)), start + at


def stored_shape(part: Part, turned: bool) -> tuple[int, ...]:
    """The shape in which a block lies in memory."""
    return (*part.shape[:-2], part.shape[-1], part.shape[-2]) if turned else part.shape
