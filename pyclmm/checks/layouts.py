"""Small problems of a program: other sizes, and operands that lie in memory in other ways."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyopencl as cl

from ..formats import format_named
from ..kernels.interface import round_up
from ..opencl.program import new_kernel
from ..problem import dtypes
from ..problem.extras import EXTRAS
from ..problem.gemm import GemmProblem, alignment
from . import lists

Array = np.ndarray[Any, np.dtype[Any]]

TAIL = 127  # elements behind an array that must not change, or must not be read
_NEIGHBOURS = 300  # products side by side: more than two times as many as a kernel computes together


def resized(problem: GemmProblem, m: int, n: int, k: int, stack: int = 2) -> GemmProblem:
    """*problem* with other sizes; if it is a stack, one of *stack* products. Rows keep their alignment and
    are padded by at least one element. K becomes whole blocks of quantised weights.

    A vector with a leading dimension of 1 keeps it, because some kernels support no other. Dot products that
    lie side by side stay so, with their gaps, up to ``_NEIGHBOURS`` of them, *stack* times. A list gets
    *stack* products, and rows are divided among so many groups.
    """
    if problem.is_listed:
        # Products of lists and groups do not lie side by side, however near they are.
        whole = replace(lists.stack_of(problem), batch_shape=(1,), batch_strides=((0,),) * 4)
        return lists.listed(problem, resized(whole, m, n, k, stack))
    side_by_side = m * n == 1 and problem.is_side_by_side
    near = min(problem.batch_shape[-1], _NEIGHBOURS) if side_by_side else 1
    steps = (its[-1] if side_by_side else 1 for its in problem.batch_strides[:2])
    gap_a, gap_b = (step if step in (0, 1) else max(2, abs(step)) for step in steps)  # < 0: as with gaps

    def leading(length: int, align: int, name: str, own: int) -> int:
        return 1 if length == own == 1 else round_up(length + 1, _unit(align, name))

    b_row = k if problem.trans_b else n * near * gap_b
    in_blocks = False
    if problem.b_format:
        form = format_named(problem.b_format)
        k = round_up(k, math.lcm(form.block, 64 if problem.quantize_a else 1))
        b_row, in_blocks = form.row_nbytes(k), form.order == "fragments"
    lda = leading(m * near * gap_a if problem.trans_a else k, problem.a_align, problem.a_type, problem.lda)
    ldb = b_row if in_blocks else leading(b_row, problem.b_align, problem.b_type, problem.ldb)
    ldo = leading(n, problem.out_align, problem.out_type, problem.ldo)
    rows = (k if problem.trans_a else m, n if problem.trans_b else k)
    batch: tuple[int, ...] = ()
    strides: tuple[tuple[int, ...], ...] = ((),) * 4
    if side_by_side:
        batch, strides = (stack, near), ((k * lda, gap_a), (k * ldb, gap_b), (near, 1), (near * ldo, ldo))
    elif problem.batch_shape:
        apart = 0 if problem.b_format else rows[1] * ldb  # a stack shares its weights
        batch, strides = (stack,), ((rows[0] * lda,), (apart,), (m * n,), (m * ldo,))
    return replace(
        problem,
        m=m, n=n, k=k, lda=lda, ldb=ldb, ldo=ldo,
        a_align=min(problem.a_align, alignment(lda * dtypes.dtype_of(problem.a_type).itemsize)),
        b_align=min(problem.b_align, alignment(ldb * dtypes.dtype_of(problem.b_type).itemsize)),
        out_align=min(problem.out_align, alignment(ldo * dtypes.dtype_of(problem.out_type).itemsize)),
        batch_shape=batch, batch_strides=strides, c_strides=(n, 1), bias_stride=1,
    )  # fmt: skip


@dataclass
class Decks:
    """Draws that repeat nothing before all has come: a deck of cards for each name.

    ``kernel`` is :func:`.program.new_kernel`, but makes each kernel object once: the cases of a check run one
    after another in one thread, and PyOpenCL takes 0.3 ms to make one.
    """

    rng: np.random.Generator
    kernel: Callable[..., cl.Kernel] = field(default_factory=lambda: functools.cache(new_kernel))
    _left: dict[str, list[Any]] = field(default_factory=dict)

    def next(self, name: str, cards: Sequence[Any]) -> Any:
        """One of *cards*, which are always the same for a *name*."""
        left = self._left.setdefault(name, [])
        if not left:
            left.extend(self.rng.permutation(len(cards)))
        return cards[left.pop()]


def rearranged(problem: GemmProblem, decks: Decks) -> GemmProblem:
    """*problem* of :func:`resized` with drawn strides of C, bias and stack, as views of arrays have them.
    Products of a stack may have gaps between them, share an operand, or lie in the opposite order.
    """
    m, n = problem.m, problem.n
    of_c = (
        (n + 3, 1), (2 * n + 1, 2), (-n - 1, 1), (n, 1), (1, m + 2), (3, 3 * m), (0, 1), (1, 0),
        (problem.ldo, 1),
    )  # fmt: skip
    c_strides = decks.next("c", of_c)
    if problem.is_listed:
        return problem
    own = replace(problem, c_strides=c_strides, bias_stride=decks.next("bias", (2, -1, 3, 1)))
    if not problem.batch_shape:
        return own
    (a, *near), (b, *_), _, (_, *near_out) = problem.batch_strides
    gap_a, gap_b = (3 * _unit(p, t) for p, t in ((own.a_align, own.a_type), (own.b_align, own.b_type)))
    kinds = ((a + gap_a, b + gap_b), (0, b), (a, 0), (-a, -b))
    if own.b_format:
        kinds = ((a + gap_a, 0), (0, 0), (a, 0), (-a, 0))
    a, b = decks.next("stack", kinds)
    inner = problem.batch_shape[-1] if near else 1
    out = m * own.ldo * inner + _unit(own.out_align, own.out_type) * decks.next("out", (0, 2, 1))
    apart = (abs(c_strides[0]) * m + abs(c_strides[1]) * n) * inner
    c = out if c_strides == (own.ldo, 1) else apart * decks.next("c of a stack", (1, 1, 0))
    return replace(own, batch_strides=((a, *near), (b, *near), (c, *near_out), (out, *near_out)))


def _unit(align: int, name: str) -> int:
    """The fewest elements whose bytes are a multiple of *align*."""
    return max(1, align // dtypes.dtype_of(name).itemsize)


@dataclass(frozen=True)
class Placed:
    """An array somewhere in a longer memory: all its bytes, the view, and where it starts, in elements."""

    memory: Array
    view: Array
    offset: int

    @property
    def own_bytes(self) -> Array:
        """The bytes of the array alone, along a last axis of their own."""
        x = self.view
        return np.ndarray(
            (*x.shape, x.itemsize), np.uint8, self.memory, self.offset * x.itemsize, (*x.strides, 1)
        )

    @classmethod
    def of(cls, shape: tuple[int, ...], strides: tuple[int, ...], name: str, lead: int, fill: Any) -> Placed:
        """Memory full of *fill*. At least *lead* elements lie before the array, and ``TAIL`` behind it."""
        dtype = dtypes.dtype_of(name)
        reach = [max(0, length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
        offset = lead - sum(min(0, r) for r in reach)
        memory = np.empty((offset + sum(max(0, r) for r in reach) + 1 + TAIL) * dtype.itemsize, np.uint8)
        np.ndarray((memory.size // dtype.itemsize,), dtype, memory)[...] = fill
        steps = tuple(stride * dtype.itemsize for stride in strides)
        return cls(memory, np.ndarray(shape, dtype, memory, offset * dtype.itemsize, steps), offset)


def is_in_place(p: GemmProblem) -> bool:
    """Whether C has the layout of the result, so that it may be the result's memory."""
    apart = lists.stack_of(p).batch_strides
    return p.has_c and p.c_type == p.out_type and (p.c_strides, apart.c) == ((p.ldo, 1), apart.out)


def placed(problem: GemmProblem, name: str, lead: int, fill: Any) -> Placed:
    """Memory for the operand or result *name* of *problem*, *lead* times its alignment before it."""
    p, ragged = lists.stack_of(problem), problem.ragged
    k_of_b = format_named(p.b_format).row_nbytes(p.k) if p.b_format else p.k
    shapes: dict[str, tuple[str, int, tuple[int, ...], tuple[int, ...]]] = {
        "a": (p.a_type, p.a_align, (p.k, p.m) if p.trans_a else (p.m, p.k), (p.lda, 1)),
        "b": (p.b_type, p.b_align, (p.n, k_of_b) if p.trans_b else (p.k, p.n), (p.ldb, 1)),
        "out": (p.out_type, p.out_align, (p.m, p.n), (p.ldo, 1)),
    }
    if ragged is not None:
        shapes["group_sizes"] = (ragged.size_type, 1, (ragged.groups,), (1,))
    if name in EXTRAS:
        shapes[name] = (getattr(p, f"{name}_type"), 1, *EXTRAS[name].stored(p, p.m, p.n))
    element, align, shape, strides = shapes[name]
    is_stack = name in p.batch_strides._fields
    batch, stack = (p.batch_shape, getattr(p.batch_strides, name)) if is_stack else ((), ())
    if ragged is not None and name == ("b" if ragged.axis == "m" else "out"):
        batch, stack = (ragged.groups,), (ragged.stride,)
    return Placed.of((*batch, *shape), (*stack, *strides), element, lead * _unit(align, element), fill)
