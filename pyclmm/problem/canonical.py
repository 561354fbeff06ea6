"""Checks the operands of a call and brings the call into the canonical form, a :class:`GemmProblem`.

An operand is given as :class:`Operand` (shape, strides, dtype), so nothing here depends on where the data
are. A column-major ``out`` gives the transposed product. Any other operand that does not fit gets a
:class:`Copy` before the product, or after it for ``out``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..errors import DTypeError, ShapeError, brief, unknown_name
from ..formats import format_named
from . import dtypes
from .extras import EXTRAS, Axes, ResultShape
from .gemm import MAX_ALIGN, Copy, Gemm, GemmProblem, Operand, dense, dense_strides
from .literals import Casting
from .matrices import (
    MatrixLayout,
    check_sizes,
    matrix_of,
    promoted,
    result_shape,
    stack_of_out,
    stack_of_result,
    transposed,
    unfit_out,
)
from .settings import check_activation, checked

LAYOUTS = ("NN", "NT", "TN", "TT")
WITH_WEIGHTS = ("float32", "float16", "bfloat16")  # the types in which quantised weights are multiplied


@dataclass(frozen=True)
class Epilogue:
    """The extras among *operands*, by name, and the activation. ``reads_c`` is false if beta is 0: C is
    checked, but not read.
    """

    operands: Mapping[str, Operand | None] = field(default_factory=dict)
    activation: str | None = None
    reads_c: bool = True


def problem_of(
    m: int,
    n: int,
    k: int,
    dtype: np.dtype[Any],
    layout: str = "NN",
    precision: str = "highest",
    stack: tuple[int, ...] = (),
    reproducible: bool = False,
) -> GemmProblem:
    """The problem of dense matrices, M x K and K x N, each stored transposed if its letter of *layout* is T.
    Raises ArgumentError for a layout other than "NN", "NT", "TN" and "TT".
    """
    if not isinstance(layout, str) or layout not in LAYOUTS:
        raise unknown_name("layout", layout, LAYOUTS)
    a = dense((*stack, m, k) if layout[0] == "N" else (*stack, k, m), dtype)
    b = dense((*stack, k, n) if layout[1] == "N" else (*stack, n, k), dtype)
    options: dict[str, Any] = {"precision": precision, "reproducible": reproducible}
    return checked_gemm(a, b, trans_a=layout[0], trans_b=layout[1], **options).problem


def checked_gemm(
    a: Operand,
    b: Operand,
    *,
    out: Operand | None = None,
    dtype: DTypeLike | None = None,
    casting: Casting = "same_kind",
    trans_a: str = "N",
    trans_b: str = "N",
    epilogue: Epilogue | None = None,
    alpha_is_zero: bool = False,
    out_is_copied: bool = False,
    precision: str = "highest",
    reproducible: bool = False,
    host_align: int | None = None,
    in_tiles: bool = False,
    b_format: str = "",
    quantize_a: str = "",
) -> Gemm:
    """Check a call and bring it into canonical form.

    *out_is_copied*: kernels write a dense temporary and not out, because out overlaps an operand or kernels
    cannot address it. *host_align*: the alignment in bytes of the copies that the host makes of operands;
    None if the device makes them. *in_tiles*: no kernel gets the whole product, so it may have any sizes.
    *b_format*: *b* holds the bytes of quantised weights, a row for each of the N columns of a product.
    *quantize_a*: as in :class:`GemmProblem`.

    Raises ShapeError (shapes), DTypeError (dtypes and casts), ArgumentError (an activation that cannot be
    *reproducible*) and UnsupportedError (dimensions and stacks over 2^31 - 2^16, strides that are not whole
    elements).
    """
    computed = _computed_dtype(a, b, out, dtype, casting, b_format)
    if b_format:
        b = _weights(a, b, trans_a, computed, casting, b_format)
    a2, b2 = promoted(a, b)
    is_complex = computed.kind == "c"
    ma = transposed(matrix_of(a2, "a"), trans_a, len(a.shape) == 1, is_complex)
    mb = transposed(matrix_of(b2, "b"), trans_b, len(b.shape) == 1, is_complex)
    batch = stack_of_result(a, b, ma, mb, out)
    if not in_tiles:
        check_sizes(a, b, (ma.rows, mb.cols, ma.cols, math.prod(batch)))
    core_axes = min(1, len(a.shape) - 1) + min(1, len(b.shape) - 1)  # of the result
    if out is not None:
        batch = stack_of_out(out, batch, core_axes)
    result = result_shape((*batch, ma.rows, mb.cols), a, b)
    shape = result.shape
    if out is None:
        out = replace(dense(shape, computed), align=MAX_ALIGN if host_align is None else host_align)
    elif out.shape != shape:
        raise unfit_out(out.shape, shape, core_axes)
    ways = (checked(precision), reproducible, out_is_copied, host_align, b_format)
    builder = _Builder(computed, batch, casting, *ways, quantize_a)
    builder.epilogue(epilogue or Epilogue(), result)
    return builder.build(
        ma, mb, _matrix(out, result.expanded(out.shape, out.strides), "out"), shape, alpha_is_zero
    )


@dataclass
class _Builder:
    """Builds a :class:`Gemm`: collects the extras, and the copies of operands that kernels cannot read."""

    dtype: np.dtype[Any]
    batch: tuple[int, ...]
    casting: Casting
    precision: str
    reproducible: bool
    out_is_copied: bool
    host_align: int | None
    b_format: str
    quantize_a: str
    copies: list[tuple[str, Copy]] = field(default_factory=list)
    extras: dict[str, MatrixLayout] = field(default_factory=dict)  # those that kernels read
    activation: str = "none"

    def __post_init__(self) -> None:
        self.computed = dtypes.type_name(self.dtype, "result")
        self.reproducible &= self.dtype.kind not in "biu"  # integers have the same bits anyway

    def epilogue(self, given: Epilogue, result: ResultShape) -> None:
        activation = given.activation or "none"
        if activation != "none" and self.dtype.kind in "biuc":
            raise DTypeError(f"activation {brief(activation)} needs a real float result, not {self.dtype}")
        if self.reproducible:
            check_activation(activation)
        self.activation = activation
        for name, extra in EXTRAS.items():
            x = given.operands.get(name)
            if x is None:
                continue
            self._check_cast(x, name)
            matrices = _matrix(x, extra.fitted(x.shape, x.strides, result), name)
            if given.reads_c or not extra.is_times_beta:
                self.extras[name] = self._readable(name, matrices, unit_stride=False)

    def _check_cast(self, x: Operand, argument: str) -> None:
        dtypes.type_name(x.dtype, argument)
        dtypes.check_cast(x.dtype, self.dtype, argument, self.casting)

    def _readable(self, name: str, x: MatrixLayout, unit_stride: bool = True) -> MatrixLayout:
        """*x* if kernels can read it, else a dense copy. *unit_stride*: *x* must have a unit stride."""
        if name == "b" and self.b_format:
            return x
        # Weights are rounded to A's type, which so must be that of the product.
        direct = x.type == self.computed if self.b_format else dtypes.is_direct(x.type, self.computed)
        if direct and (x.has_unit_stride or not unit_stride):
            return x
        shape = (*x.batch_shape, x.rows, x.cols)
        target = x.type if direct else self.computed
        strides = self._dense_strides(shape, turned=x.turned)
        source = (*x.batch_strides, x.rs, x.cs)
        self.copies.append((name, Copy(shape, x.type, source, target, strides)))
        return self._dense(x, target, strides)

    def build(
        self,
        a: MatrixLayout,
        b: MatrixLayout,
        target: MatrixLayout,
        shape: tuple[int, ...],
        alpha_is_zero: bool,
    ) -> Gemm:
        out, out_copy = self._writable(target)
        swapped = not out.row_contiguous
        if swapped:  # the transposed product, out^T = B^T A^T, has a row-major out
            a, b, out = b.T, a.T, out.T
            self.extras = {name: x.T for name, x in self.extras.items()}
        a, b = self._readable("a", a), self._readable("b", b)
        problem = self._problem(a, b, out, alpha_is_zero)
        return Gemm(problem, shape, self.dtype, swapped, tuple(self.copies), out_copy)

    def _writable(self, target: MatrixLayout) -> tuple[MatrixLayout, Copy | None]:
        """What the kernel writes: the user's out, or a dense temporary with the copy from it to out."""
        direct = target.has_unit_stride and dtypes.is_direct(target.type, self.computed)
        # In B^T A^T complex FMAs have another order, and the weights would be A.
        by_columns = any(EXTRAS[name].of_columns for name in self.extras)
        if (self.reproducible and self.computed in dtypes.COMPLEX) or self.b_format or by_columns:
            direct = direct and target.row_contiguous
        if direct and not self.out_is_copied:
            return target, None
        shape = (*target.batch_shape, target.rows, target.cols)
        strides = dense_strides(shape)
        back = (*target.batch_strides, target.rs, target.cs)
        temporary = self._dense(target, self.computed, strides)
        return temporary, Copy(shape, self.computed, strides, target.type, back)

    def _dense(self, x: MatrixLayout, name: str, strides: tuple[int, ...]) -> MatrixLayout:
        """A temporary of *x*'s shape, with *strides* in elements."""
        *batch, rs, cs = strides
        align = MAX_ALIGN if self.host_align is None else self.host_align
        return replace(x, type=name, rs=rs, cs=cs, batch_strides=tuple(batch), align=align)

    def _dense_strides(self, shape: tuple[int, ...], turned: bool) -> tuple[int, ...]:
        """Strides of a temporary: on the host an operand's own order, on the device contiguous rows."""
        if not turned or self.host_align is None:
            return dense_strides(shape)
        *batch, rows, cols = shape
        return (*dense_strides((*batch, cols, rows))[:-2], 1, rows)

    def _problem(
        self, a: MatrixLayout, b: MatrixLayout, out: MatrixLayout, alpha_is_zero: bool
    ) -> GemmProblem:
        trans_a, lda = a.leading()
        # Rows of weights lie along K, also a single one.
        trans_b, ldb = (True, b.T.leading()[1]) if self.b_format else b.leading()
        ldo = out.rs if out.rows > 1 else out.cols
        c = self.extras.get("c")
        c_batch = c.over(self.batch) if c else (0,) * len(self.batch)
        extras = [extra.fields(self.extras.get(name), out.type).items() for name, extra in EXTRAS.items()]
        return GemmProblem(
            m=a.rows, n=b.cols, k=0 if alpha_is_zero else a.cols,
            a_type=a.type, b_type=b.type, out_type=out.type,
            acc_type=dtypes.ELEMENTS[self.computed].accumulator,
            trans_a=trans_a, trans_b=trans_b, conj_a=a.conj, conj_b=b.conj,
            lda=lda, ldb=ldb, ldo=ldo,
            a_align=a.row_align(lda), b_align=b.row_align(ldb), out_align=out.row_align(ldo),
            batch_shape=self.batch,
            batch_strides=(a.over(self.batch), b.over(self.batch), c_batch, out.over(self.batch)),
            **dict(chain(*extras)),
            activation=self.activation,
            precision=self.precision,
            reproducible=self.reproducible, b_format=self.b_format,
            quantize_a="" if alpha_is_zero else self.quantize_a,
        )  # fmt: skip


def _matrix(x: Operand, axes: Axes, argument: str) -> MatrixLayout:
    """*x* with these *axes*."""
    shape, strides = axes
    return matrix_of(replace(x, shape=shape, strides=strides), argument)


def _computed_dtype(
    a: Operand, b: Operand, out: Operand | None, dtype: DTypeLike | None, casting: Casting, b_format: str
) -> np.dtype[Any]:
    """The dtype to compute in. With quantised weights it is that of what they multiply."""
    if b_format and dtype is None:
        dtype = a.dtype.newbyteorder("=")
    of_b = None if b_format else b.dtype
    return dtypes.result_dtype(a.dtype, of_b, dtype, out.dtype if out else None, casting)


def _weights(
    a: Operand, b: Operand, trans_a: str, computed: np.dtype[Any], casting: Casting, b_format: str
) -> Operand:
    """The bytes *b* of quantised weights as the K x N matrices that they stand for. Raises DTypeError or
    ShapeError for an *a* that does not multiply it."""
    if computed.name not in WITH_WEIGHTS:
        rule = next(r for r in (casting, "same_kind", "unsafe") if np.can_cast(a.dtype, np.float32, r))
        also = "" if rule == casting else f", casting={rule!r}"
        raise DTypeError(
            f"a has dtype {a.dtype}, and the product would be computed in {computed}; quantised weights are "
            f"multiplied in {', '.join(WITH_WEIGHTS)}: pass a.astype(np.float32), or dtype=np.float32{also}"
        )
    if not a.shape:
        raise ShapeError("a is 0-dimensional and does not have enough dimensions; matmul takes 1 or more")
    k = a.shape[-1 if trans_a == "N" or len(a.shape) == 1 else -2]
    wanted = format_named(b_format).row_nbytes(k)
    *stack, n, nbytes = b.shape
    if nbytes != wanted:
        raise ShapeError(f"a of shape {a.shape} has K = {k}, but a row of b has {nbytes} bytes, not {wanted}")
    *apart, rows, columns = b.strides
    return Operand((*stack, k, n), (*apart, columns, rows), b.dtype, b.align)
