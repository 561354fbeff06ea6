"""GemmProblem: one product in the form that kernels see. Plain data without checks.

::

    out[z] = act(alpha * op(A[z]) op(B[z]) + beta * C[z] + bias)          z = batch entry

The rows of ``out`` are contiguous. A and B have a unit stride along one of their axes.
:mod:`pyclmm.problem.canonical` brings a call into this form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, TypeVar, get_args

import numpy as np

from ..formats import format_named
from . import dtypes
from .extras import EXTRAS, ExtraFields
from .literals import Activation

T = TypeVar("T")
ACTIVATIONS: tuple[str, ...] = get_args(Activation)
MAX_DIMENSION = 2**31 - 2**16  # kernels hold M, N and K in 32 bits, and their loops count one tile further
MAX_GROUPS = 2047  # among which rows are divided: cl/ragged.cl keeps a number for each in local memory
SIZE_TYPES = ("int32", "int64")  # of the groups' sizes
_NEAR = 8  # elements, at most, between neighbours in a stack that are near in memory: a cache line of float64
MAX_ALIGN = 64  # bytes; no kernel needs more


class Layout(NamedTuple):
    """What a plan depends on of the operand *name*. *phase*: bytes from an aligned address to its start. A
    dtype's letter tells longlong from int64, which are equal dtypes but give results of different dtypes.
    """

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    dtype: np.dtype[Any]
    letter: str
    phase: int


Layouts = tuple[Layout, ...]


def reaching(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The *strides* of the axes with more than one element. Nothing lies a stride of the others away."""
    return tuple([stride for length, stride in zip(shape, strides, strict=True) if length != 1])


def overlapping(
    operands: Mapping[str, T], shares: Callable[[T, T], bool], same: Callable[[T, T], bool]
) -> tuple[str, ...]:
    """The operands that writing ``out`` would change: those that it *shares* memory with. C in place is safe:
    the work-item that writes out(i, j) reads C(i, j) just before. *same*: whether two are one view.
    """
    found, out = [], operands.get("out")
    if out is not None:
        for name, x in operands.items():
            if name != "out" and shares(x, out) and not (name == "c" and same(x, out)):
                found.append(name)
    return tuple(found)


def alignment(*byte_counts: int) -> int:
    """The largest power of two, at most 64, that divides every one of *byte_counts*."""
    together = MAX_ALIGN
    for count in byte_counts:
        together |= count
    return together & -together


@dataclass(frozen=True)
class Operand:
    """The layout of an array: *shape*, *strides* in bytes, *dtype*, alignment of its start in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    align: int = MAX_ALIGN


def dense(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Operand:
    """A C-contiguous operand of that shape."""
    return Operand(shape, tuple(s * dtype.itemsize for s in dense_strides(shape)), dtype)


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a C-contiguous array, in elements."""
    strides = [1]
    for length in shape[:0:-1]:
        strides.append(strides[-1] * max(1, length))
    return tuple(reversed(strides)) if shape else ()


@dataclass(frozen=True)
class Copy:
    """A copy of a stack of matrices on the device that may convert its type; strides in elements."""

    shape: tuple[int, ...]
    source_type: str
    source_strides: tuple[int, ...]
    target_type: str
    target_strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def warns(self) -> bool:
        """Whether NumPy warns of dropped imaginary parts."""
        return dtypes.drops_parts(*map(dtypes.dtype_of, (self.source_type, self.target_type)))


class ListedProduct(NamedTuple):
    """One product of a list: its sizes, and its offsets from the start of the buffer, in elements."""

    m: int
    n: int
    k: int
    a: int
    b: int
    out: int
    lda: int
    ldb: int
    ldo: int
    c: int = 0
    c_rs: int = 0
    c_cs: int = 0
    bias: int = 0
    bias_stride: int = 0
    alpha: complex = 1.0
    beta: complex = 0.0

    @property
    def steps(self) -> int:
        """Multiply-adds."""
        return self.m * self.n * self.k


@dataclass(frozen=True)
class Ragged:
    """Rows that are divided among *groups* products by sizes which are on the device.

    ``axis`` "m": rows of A and of out are divided, and group g is multiplied by the g-th B. "k": K is
    divided, and group g gives the g-th result. ``stride``: elements from one B, or one result, to the next.
    """

    axis: str
    groups: int
    stride: int
    size_type: str = "int32"  # of the sizes

    def begins_along(self, trans_a: bool, trans_b: bool) -> tuple[bool, bool]:
        """Whether groups begin within lines of A, and of B, so that only elements are aligned."""
        return (trans_a, False) if self.axis == "m" else (not trans_a, trans_b)


class BatchStrides(NamedTuple):
    """The strides of A, B, C and out over the axes of a stack, in elements."""

    a: tuple[int, ...] = ()
    b: tuple[int, ...] = ()
    c: tuple[int, ...] = ()
    out: tuple[int, ...] = ()


@dataclass(frozen=True)
class GemmProblem(ExtraFields):
    """A product as kernels see it. Strides and leading dimensions (``ld*``) are in elements.

    Element (i, k) of A is at ``i * lda + k`` if ``trans_a`` is false, else at ``k * lda + i``; element (k, j)
    of B likewise. ``*_align`` is a power of two of bytes, at most 64: the start of every stored row of that
    operand is a multiple of it. ``batch_strides`` are :class:`BatchStrides` over ``batch_shape``.

    With ``products`` it is a list: M, N and K are the largest, alpha and beta those of each product. Neither
    a list nor a ``ragged`` product is a stack.

    With a ``b_format`` B is a matrix of bytes, N rows of quantised weights ``ldb`` bytes apart, and is read
    as their values rounded to A's type (:mod:`pyclmm.formats`). With ``quantize_a`` A is rounded, by groups
    of them, and their values are not (:func:`pyclmm.reference.int8_groups`).
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
    batch_strides: Any = ((), (), (), ())  # becomes BatchStrides
    activation: str = "none"
    precision: str = "highest"
    reproducible: bool = False  # whether sums must be chains of FMAs over K in order; never for integers
    soft_fma: bool = False  # whether the FMAs of these are computed by integers, for a device that flushes
    soft_float64: bool = False  # whether float64 is computed by integers, for a device without cl_khr_fp64
    moduli: tuple[int, ...] = ()  # out[z] is taken modulo number z % n of these n (cl/include/moduli.h)
    dot_bytes: bool = False  # whether elements are words of four signed bytes along K (cl/include/types.h)
    fallback: bool = False  # whether the device computes this only if it has decided against residues
    b_format: str = ""  # the name of the format of quantised weights, or "": B is an array of numbers
    quantize_a: str = ""  # "int8", or "": A is multiplied as it is
    products: tuple[ListedProduct, ...] = ()
    ragged: Ragged | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_strides", BatchStrides(*self.batch_strides))

    @cached_property
    def sums(self) -> dtypes.ElementType:
        """The type of the sums."""
        return dtypes.ELEMENTS[self.acc_type]

    @cached_property
    def asked(self) -> frozenset[str]:
        """The names of the fields that have no default, or another value than their default."""
        mine = vars(self)
        return frozenset([name for name, f in self.__dataclass_fields__.items() if mine[name] != f.default])

    @cached_property
    def is_side_by_side(self) -> bool:
        """Whether it is dot products of a stack whose neighbours are near in memory, in A and in B, and no
        farther than steps of K. One operand may be the same for all.
        """
        if not (self.m == self.n == 1 and not self.trans_b and self.batch_shape):
            return False
        nearest = [abs(strides[-1]) for strides in self.batch_strides[:2]]
        steps = self.lda if self.trans_a else 0, self.ldb
        return any(nearest) and all(map(lambda x, step: x <= min(_NEAR, abs(step)), nearest, steps))

    @cached_property
    def batch(self) -> int:
        """The number of products in the stack."""
        return math.prod(self.batch_shape)

    @property
    def is_listed(self) -> bool:
        """Whether work-groups find their product in a table."""
        return bool(self.products) or self.ragged is not None

    @cached_property
    def divisors(self) -> tuple[int, int, int]:
        """The largest numbers that divide M, N and K of each product: M, N and K where there is one."""
        if self.products:
            m, n, k = (math.gcd(*sizes) for sizes in list(zip(*self.products, strict=True))[:3])
            return m, n, k
        axis = self.ragged.axis if self.ragged else ""
        return 1 if axis == "m" else self.m, self.n, 1 if axis == "k" else self.k

    @cached_property
    def typical(self) -> GemmProblem:
        """A stack of equal products that takes about as long as this list: what estimates are made of. Sizes
        are means over the multiply-adds, so that products which take no time do not count.
        """
        if not self.is_listed:
            return self
        found = replace(self, products=(), ragged=None)
        m, n, k, count = self.m, self.n, self.k, 1
        if self.ragged is not None:
            count = max(1, self.ragged.groups)
            m, k = (-(-m // count), k) if self.ragged.axis == "m" else (m, -(-k // count))
        elif total := sum(one.steps for one in self.products):
            m, n, k = (
                round(sum(size * one.steps for size, one in zip(sizes, self.products, strict=True)) / total)
                for sizes in list(zip(*self.products, strict=True))[:3]
            )
            count = max(1, round(total / (m * n * k)))
        else:
            count = len(self.products)
        strides = ((m * k,), (k * n,), (m * n,), (m * n,))
        return replace(found, m=m, n=n, k=k, batch_shape=(count,), batch_strides=strides)

    @property
    def has_same_bits(self) -> bool:
        """Whether the bits of results are the same on every device. Those of integers always are."""
        return self.reproducible or self.acc_type.startswith("uint")

    @property
    def layout(self) -> str:
        """ "NN", "NT", "TN" or "TT"."""
        return "NT"[self.trans_a] + "NT"[self.trans_b]

    @property
    def types(self) -> tuple[str, ...]:
        """Every element type that a kernel touches."""
        return (self.a_type, self.b_type, self.out_type, self.acc_type, *self.extras.values())

    @property
    def extras(self) -> dict[str, str]:
        """The arrays that kernels read besides A and B, with their element types."""
        return {name: getattr(self, f"{name}_type") for name, extra in EXTRAS.items() if extra.is_read(self)}

    @property
    def flops(self) -> int:
        """Operations: 2 M N K for each product, four times that for complex numbers."""
        whole = self.m * self.n * self.k * self.batch
        steps = sum(one.steps for one in self.products) if self.products else whole
        return 2 * steps * (4 if self.acc_type in dtypes.COMPLEX else 1)

    @cached_property
    def nbytes(self) -> int:
        """The fewest bytes that the product must move: A, B and C read once, out written once."""
        if self.is_listed:
            return self.typical.nbytes
        size = {name: dtypes.ELEMENTS[name].nbytes for name in self.types}
        weights = format_named(self.b_format) if self.b_format else None
        column = weights.row_nbytes(self.k) if weights else self.k * size[self.b_type]
        one = (
            self.m * self.k * size[self.a_type]
            + self.n * column
            + self.m * self.n * (size[self.out_type] + (size[self.c_type] if self.has_c else 0))
        )
        return one * self.batch

    @cached_property
    def transposed(self) -> GemmProblem:
        """The product out^T = B^T A^T, whose A is this B. ``ldo`` stays the leading dimension of out."""
        strides: BatchStrides = self.batch_strides
        extras = [extra.transposed(self).items() for extra in EXTRAS.values()]
        return replace(
            self,
            m=self.n, n=self.m,
            a_type=self.b_type, b_type=self.a_type,
            trans_a=not self.trans_b, trans_b=not self.trans_a,
            conj_a=self.conj_b, conj_b=self.conj_a,
            lda=self.ldb, ldb=self.lda,
            a_align=self.b_align, b_align=self.a_align,
            batch_strides=strides._replace(a=strides.b, b=strides.a),
            **dict(chain(*extras)),
        )  # fmt: skip

    def __str__(self) -> str:
        stack = f"{self.batch} x " if self.batch_shape else ""
        if self.products:
            stack = f"{len(self.products)} of up to "
        elif self.ragged is not None:
            stack = f"{self.ragged.groups} groups along {self.ragged.axis.upper()} of "
        precision = "" if self.precision == "highest" else f' "{self.precision}"'
        ordered = " reproducible" if self.reproducible else ""
        rounded = f" as {self.quantize_a}" if self.quantize_a else ""
        return (
            f"{stack}{self.m} x {self.n} x {self.k} {self.a_type}{rounded} @ {self.b_format or self.b_type} "
            f"{self.layout}{precision}{ordered}"
        )


@dataclass(frozen=True)
class Gemm:
    """A checked call: the problem, the copies before and after it, and the shape and dtype of the result.

    ``swapped``: the problem is the transposed product; its A is the user's b and its B the user's a.
    ``copies`` lists operands of the problem ("a", "b", "c", "bias") with the copy that makes each readable.
    ``out_copy`` copies the result from a dense temporary of ``dtype`` to the user's ``out``.
    """

    problem: GemmProblem
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    swapped: bool = False
    copies: tuple[tuple[str, Copy], ...] = ()
    out_copy: Copy | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the result has no element, so that nothing is enqueued."""
        return 0 in self.shape

    @property
    def warns(self) -> bool:
        """Whether a copy of an operand that is read, or of the result, drops imaginary parts."""
        copies = [copy for name, copy in self.copies if name not in self.unread]
        return any(copy.warns for copy in (*copies, self.out_copy) if copy)

    @property
    def unread(self) -> tuple[str, ...]:
        """The problem's arrays that no kernel reads, so that they need no buffer."""
        p = self.problem
        read = {"a": p.k > 0, "b": p.k > 0} | {name: extra.is_read(p) for name, extra in EXTRAS.items()}
        read["group_sizes"] = p.ragged is not None
        return tuple([name for name, is_read in read.items() if not is_read])
