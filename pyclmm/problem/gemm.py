"""GemmProblem: one product in the form that kernels see. Plain data, no check and no driver.

::

    out[z] = act(alpha * op(A[z]) op(B[z]) + beta * C[z] + bias)          z = batch entry

``out`` has unit column stride, A and B have unit stride along one of their axes.
:mod:`pyclmm.problem.canonical` brings what users pass into this form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import dtypes

ACTIVATIONS = ("none", "relu", "leaky_relu", "gelu", "gelu_tanh", "sigmoid", "tanh", "silu")
BIASES = ("none", "row", "column")  # a value for each column (one row of them); one for each row
MAX_DIMENSION = 2**31 - 2**16  # M, N and K are 32-bit in kernels, whose loops count past them by a tile
MAX_ALIGN = 64  # bytes; more than this no kernel asks for


# What a plan depends on of its operands: (argument, shape, strides, dtype, alignment) of each.
Layouts = tuple[tuple[Any, ...], ...]


def alignment(*byte_counts: int) -> int:
    """The largest power of two, at most 64, that divides all of *byte_counts*."""
    together = MAX_ALIGN
    for count in byte_counts:
        together |= count
    return together & -together


@dataclass(frozen=True)
class Operand:
    """An array as the checks see it: *shape*, *strides* in bytes, *dtype*, alignment of its start."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    align: int = MAX_ALIGN

    @property
    def element_strides(self) -> tuple[int, ...]:
        return tuple(s // self.dtype.itemsize for s in self.strides)


def dense(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Operand:
    """A C-contiguous operand of that shape."""
    return Operand(shape, tuple(s * dtype.itemsize for s in dense_strides(shape)), dtype)


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a C-contiguous array."""
    strides = [1]
    for length in shape[:0:-1]:
        strides.append(strides[-1] * max(1, length))
    return tuple(reversed(strides)) if shape else ()


@dataclass(frozen=True)
class Copy:
    """A converting copy of a stack of matrices, on the device; strides in elements."""

    shape: tuple[int, ...]
    source_type: str
    source_strides: tuple[int, ...]
    target_type: str
    target_strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class GemmProblem:
    """A product as kernels see it (see the module's head). Strides and ``ld*`` count elements.

    ``trans_a`` false: element (i, k) of A lies at ``i * lda + k``; true: at ``k * lda + i``; B
    likewise with (k, j). ``*_align`` is the power of two, in bytes and at most 64, that every row
    of that operand starts on. ``batch_strides`` has the strides of A, B, C and out over
    ``batch_shape``.
    """

    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    out_type: str
    acc_type: str
    trans_a: bool = False
    trans_b: bool = False
    conj_a: bool = False
    conj_b: bool = False
    lda: int = 0
    ldb: int = 0
    ldo: int = 0
    a_align: int = MAX_ALIGN
    b_align: int = MAX_ALIGN
    out_align: int = MAX_ALIGN
    batch_shape: tuple[int, ...] = ()
    batch_strides: tuple[tuple[int, ...], ...] = ((), (), (), ())
    has_c: bool = False
    c_type: str = "float32"
    c_strides: tuple[int, int] = (0, 0)
    bias: str = "none"
    bias_type: str = "float32"
    bias_stride: int = 0
    activation: str = "none"
    precision: str = "highest"

    @property
    def batch(self) -> int:
        """How many products the stack holds."""
        return math.prod(self.batch_shape)

    @property
    def types(self) -> tuple[str, ...]:
        """Every element type that a kernel touches."""
        return (self.a_type, self.b_type, self.out_type, self.acc_type, *self.extra_types)

    @property
    def extra_types(self) -> tuple[str, ...]:
        c = (self.c_type,) if self.has_c else ()
        return c + ((self.bias_type,) if self.bias != "none" else ())

    @property
    def flops(self) -> int:
        """Floating-point operations: 2 M N K a product; four times that for complex numbers."""
        return 2 * self.m * self.n * self.k * self.batch * (4 if self.acc_type in dtypes.COMPLEX else 1)

    @property
    def nbytes(self) -> int:
        """The fewest bytes the product must move: A, B (and C) read once, out written once."""
        size = {name: dtypes.dtype_of(name).itemsize for name in self.types}
        one = (
            self.m * self.k * size[self.a_type]
            + self.k * self.n * size[self.b_type]
            + self.m * self.n * (size[self.out_type] + (size[self.c_type] if self.has_c else 0))
        )
        return one * self.batch

    @property
    def transposed(self) -> GemmProblem:
        """The product out^T = B^T A^T, whose A is this one's B. ``ldo`` stays that of out's rows."""
        a, b, *others = self.batch_strides
        return replace(
            self,
            m=self.n,
            n=self.m,
            a_type=self.b_type,
            b_type=self.a_type,
            trans_a=not self.trans_b,
            trans_b=not self.trans_a,
            conj_a=self.conj_b,
            conj_b=self.conj_a,
            lda=self.ldb,
            ldb=self.lda,
            a_align=self.b_align,
            b_align=self.a_align,
            batch_strides=(b, a, *others),
            c_strides=self.c_strides[::-1],
            bias={"row": "column", "column": "row"}.get(self.bias, self.bias),
        )

    def __str__(self) -> str:
        stack = f"{self.batch} x " if self.batch_shape else ""
        trans = ("T" if self.trans_a else "N") + ("T" if self.trans_b else "N")
        precision = "" if self.precision == "highest" else f' "{self.precision}"'
        return f"{stack}{self.m} x {self.n} x {self.k} {self.a_type} @ {self.b_type} {trans}{precision}"


@dataclass(frozen=True)
class Gemm:
    """A checked call: the product, what is copied around it, and what the user gets.

    ``swapped``: the problem is the transposed one, its A is the user's b and its B the user's a.
    ``copies`` maps problem operands ("a", "b", "c", "bias") to the copy that makes them readable;
    ``out_copy`` brings the result from a dense temporary of ``dtype`` to the user's ``out``.
    """

    problem: GemmProblem
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    swapped: bool = False
    copies: tuple[tuple[str, Copy], ...] = ()
    out_copy: Copy | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the result has no element, so that there is nothing to enqueue."""
        return 0 in self.shape

    @property
    def unread(self) -> tuple[str, ...]:
        """The problem's operands that nothing reads, so that no buffer is needed for them."""
        p = self.problem
        read = {"a": p.k > 0, "b": p.k > 0, "c": p.has_c, "bias": p.bias != "none"}
        return tuple(name for name, is_read in read.items() if not is_read)
