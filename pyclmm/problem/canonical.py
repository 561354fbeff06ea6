"""Checks the operands of a call and brings the call into the canonical form, a :class:`GemmProblem`.

An operand is given as :class:`Operand` (shape, strides, dtype), so nothing here depends on where the data
are. A column-major ``out`` gives the transposed product. Any other operand that does not fit gets a
:class:`Copy` before the product, or after it for ``out``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..errors import DTypeError, ShapeError, UnsupportedError, unknown_name
from . import dtypes
from .gemm import (
    MAX_ALIGN,
    MAX_DIMENSION,
    Copy,
    Gemm,
    GemmProblem,
    Operand,
    alignment,
    dense,
    dense_strides,
)
from .precision import checked
from .reproducible import check_activation
from .words import Casting

LAYOUTS = ("NN", "NT", "TN", "TT")


@dataclass(frozen=True)
class _Matrix:
    """A stack of matrices: element type, rows x cols, strides in elements, whether it is to be conjugated."""

    type: str
    rows: int
    cols: int
    rs: int
    cs: int
    batch_shape: tuple[int, ...]
    batch_strides: tuple[int, ...]
    align: int
    conj: bool = False
    turned: bool = False  # the rows are the columns of the stored operand

    @property
    def T(self) -> _Matrix:
        return replace(self, rows=self.cols, cols=self.rows, rs=self.cs, cs=self.rs, turned=not self.turned)

    @property
    def itemsize(self) -> int:
        return dtypes.ELEMENTS[self.type].nbytes

    @property
    def row_contiguous(self) -> bool:
        return self.cs == 1 or self.cols == 1

    @property
    def has_unit_stride(self) -> bool:
        return self.row_contiguous or self.T.row_contiguous

    def over(self, batch_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The batch strides in elements after broadcasting to *batch_shape*."""
        missing = len(batch_shape) - len(self.batch_shape)
        own = tuple(
            0 if length == 1 else stride
            for length, stride in zip(self.batch_shape, self.batch_strides, strict=True)
        )
        return (0,) * missing + own

    def leading(self) -> tuple[bool, int]:
        """(whether it is stored transposed, leading dimension) of a matrix with a unit stride."""
        if self.row_contiguous:
            return False, self.rs if self.rows > 1 else self.cols
        return True, self.cs if self.cols > 1 else self.rows

    def row_align(self, ld: int) -> int:
        return alignment(self.align, *(s * self.itemsize for s in (ld, *self.batch_strides)))


def _matrix(operand: Operand, argument: str) -> _Matrix:
    name = dtypes.type_name(operand.dtype, argument)
    strides = operand.element_strides
    if any(s % operand.dtype.itemsize for s in operand.strides):
        raise UnsupportedError(
            f"{argument} has strides {operand.strides} in bytes, not whole elements of "
            f"{operand.dtype}; copy it first"
        )
    shape = operand.shape
    return _Matrix(
        name, shape[-2], shape[-1], strides[-2], strides[-1], shape[:-2], strides[:-2], operand.align
    )


def _promoted(a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """1-D operands as a row of A or a column of B. Raises ShapeError for 0-D operands."""
    for argument, x in (("a", a), ("b", b)):
        if not x.shape:
            raise ShapeError(
                f"{argument} is 0-dimensional and does not have enough dimensions; "
                "matmul takes 1 or more, use * to scale"
            )
    if len(a.shape) == 1:
        a = replace(a, shape=(1, *a.shape), strides=(0, *a.strides))
    if len(b.shape) == 1:
        b = replace(b, shape=(*b.shape, 1), strides=(*b.strides, 0))
    return a, b


def _transposed(x: _Matrix, trans: str, vector: bool) -> _Matrix:
    """op(x). A *vector* equals its transpose, as in NumPy."""
    if trans == "N":
        return x
    conj = trans == "C" and x.type in dtypes.COMPLEX
    return replace(x if vector else x.T, conj=conj)


def _result_shape(a: Operand, b: Operand, ma: _Matrix, mb: _Matrix, out: Operand | None) -> tuple[int, ...]:
    """The stack of the result. An *out* with other rows or columns is named beside stacks that do not fit."""
    if ma.cols != mb.rows:
        raise ShapeError(
            f"b has a mismatch in its core dimension: a of shape {a.shape} and b of shape {b.shape} do not "
            f"multiply, K is {ma.cols} in a and {mb.rows} in b"
        )
    try:
        batch = _broadcast(ma.batch_shape, mb.batch_shape)
    except ValueError as error:
        wrong = _wrong_core(out.shape, _squeezed((ma.rows, mb.cols), a, b)) if out else ""
        raise ShapeError(
            f"operands could not be broadcast together: the stacks of a {ma.batch_shape} and b "
            f"{mb.batch_shape} do not broadcast: a of shape {a.shape}, b of shape {b.shape}"
            + (f"; out{wrong}" if wrong else "")
        ) from error
    return batch


def _check_sizes(a: Operand, b: Operand, sizes: tuple[int, ...]) -> None:
    """Raise UnsupportedError if *sizes*, of a product and its stack, are more than kernels count to."""
    if max(sizes) > MAX_DIMENSION:
        raise UnsupportedError(
            f"a has shape {a.shape} and b {b.shape}: M, N, K and the stack must be at most 2^31 - 2^16: "
            f"{', '.join(map(str, sizes))}; matmul and gemm cut larger NumPy arrays into tiles "
            "(memory_limit= where a kernel is named), multiply parts of Arrays"
        )


def _broadcast(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that both shapes broadcast to. Raises ValueError if there is none.

    np.broadcast_shapes takes at most 32 axes, but an array may have 64.
    """
    long, short = (x, y) if len(x) >= len(y) else (y, x)
    pairs = list(zip(long, (1,) * (len(long) - len(short)) + short, strict=True))
    if any(m != n and 1 not in (m, n) for m, n in pairs):
        raise ValueError(f"{x} and {y} do not broadcast")
    return tuple(n if m == 1 else m for m, n in pairs)


def _stack_of(out: Operand, batch: tuple[int, ...], core_axes: int) -> tuple[int, ...]:
    """The stack of ``out`` if *batch* broadcasts to it, else *batch*. NumPy repeats the products then."""
    wanted = out.shape[: max(0, len(out.shape) - core_axes)]
    try:
        return wanted if _broadcast(batch, wanted) == wanted else batch
    except ValueError:
        return batch


def _wrong_core(out: tuple[int, ...], core: tuple[int, ...]) -> str:
    """What is wrong with the last lengths of an ``out`` of that shape, in NumPy's words; "" if nothing is."""
    if len(out) < len(core):
        return ""
    pairs = zip(out[len(out) - len(core) :], core, strict=True)
    wrong = [axis for axis, (given, wanted) in enumerate(pairs) if given != wanted]
    return f" has a mismatch in its core dimension {wrong[0]}" if wrong else ""


def _unfit(out: tuple[int, ...], shape: tuple[int, ...], core_axes: int) -> ShapeError:
    """The error for an ``out`` that cannot hold the result, worded as NumPy words each case."""
    what = ""
    if len(out) < len(shape):
        what = " requires a reduction"
    elif core_axes:
        what = _wrong_core(out, shape[-core_axes:])
    return ShapeError(
        f"non-broadcastable output operand{what}: out has shape {out}, but a @ b has shape {shape}"
    )


def _squeezed(shape: tuple[int, ...], a: Operand, b: Operand) -> tuple[int, ...]:
    """The shape of the user's result, without the axes that 1-D operands lack."""
    *batch, m, n = shape
    return (*batch, *([m] if len(a.shape) > 1 else []), *([n] if len(b.shape) > 1 else []))


def _expanded(x: Operand, a: Operand, b: Operand) -> Operand:
    """An operand of the result's shape, with the axes that 1-D operands lack put back."""
    shape, strides = list(x.shape), list(x.strides)
    if len(b.shape) == 1:
        shape.append(1)
        strides.append(0)
    if len(a.shape) == 1:
        at = len(shape) - 1
        shape.insert(at, 1)
        strides.insert(at, 0)
    return replace(x, shape=tuple(shape), strides=tuple(strides))


@dataclass(frozen=True)
class Epilogue:
    """C, bias and activation as the user passed them.

    ``reads_c`` is false if beta is 0: C is checked but not read.
    """

    c: Operand | None = None
    bias: Operand | None = None
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
    if layout not in LAYOUTS:
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
) -> Gemm:
    """Check a call and bring it into canonical form.

    *out_is_copied*: kernels write a dense temporary and not out, because out overlaps an operand or kernels
    cannot address it. *host_align*: the alignment in bytes of the copies that the host makes of operands;
    None if the device makes them. *in_tiles*: no kernel gets the whole product, so it may have any sizes.

    Raises ShapeError (shapes), DTypeError (dtypes and casts), ArgumentError (an activation that cannot be
    *reproducible*) and UnsupportedError (dimensions and stacks over 2^31 - 2^16, strides that are not whole
    elements).
    """
    computed = dtypes.result_dtype(a.dtype, b.dtype, dtype, out.dtype if out else None, casting)
    a2, b2 = _promoted(a, b)
    ma = _transposed(_matrix(a2, "a"), trans_a, len(a.shape) == 1)
    mb = _transposed(_matrix(b2, "b"), trans_b, len(b.shape) == 1)
    batch = _result_shape(a, b, ma, mb, out)
    if not in_tiles:
        _check_sizes(a, b, (ma.rows, mb.cols, ma.cols, math.prod(batch)))
    core_axes = min(1, len(a.shape) - 1) + min(1, len(b.shape) - 1)  # of the result
    if out is not None:
        batch = _stack_of(out, batch, core_axes)
    full_shape = (*batch, ma.rows, mb.cols)
    shape = _squeezed(full_shape, a, b)
    if out is not None and out.shape != shape:
        raise _unfit(out.shape, shape, core_axes)
    new = replace(dense(shape, computed), align=MAX_ALIGN if host_align is None else host_align)
    target = _expanded(new if out is None else out, a, b)
    builder = _Builder(computed, batch, casting, checked(precision), reproducible, out_is_copied, host_align)
    builder.epilogue(epilogue or Epilogue(), a, b, full_shape, shape)
    return builder.build(ma, mb, _matrix(target, "out"), shape, alpha_is_zero)


class _Builder:
    """Builds a :class:`Gemm`: collects C, bias, and the copies of operands that kernels cannot read."""

    def __init__(
        self,
        computed: np.dtype[Any],
        batch: tuple[int, ...],
        casting: Casting,
        precision: str,
        reproducible: bool,
        out_is_copied: bool,
        host_align: int | None,
    ) -> None:
        self.dtype = computed
        self.computed = dtypes.type_name(computed, "result")
        self.batch = batch
        self.casting = casting
        self.precision = precision
        self.reproducible = reproducible and computed.kind not in "biu"  # integers have the same bits anyway
        self.out_is_copied = out_is_copied
        self.on_host = host_align is not None
        self.copy_align = MAX_ALIGN if host_align is None else host_align
        self.copies: list[tuple[str, Copy]] = []
        self.c: _Matrix | None = None
        self.bias: _Matrix | None = None
        self.activation = "none"

    def epilogue(
        self,
        given: Epilogue,
        a: Operand,
        b: Operand,
        full_shape: tuple[int, ...],
        shape: tuple[int, ...],
    ) -> None:
        activation = given.activation or "none"
        if (activation != "none" and self.dtype.kind in "biu") or (
            activation != "none" and (self.computed in dtypes.COMPLEX)
        ):
            raise DTypeError(f"activation {activation!r} needs a real float result, not {self.dtype}")
        if self.reproducible:
            check_activation(activation)
        self.activation = activation
        if given.c is not None:
            self._check_cast(given.c, "c")
            if given.c.shape != shape:
                raise ShapeError(f"c has shape {given.c.shape}, but the result has shape {shape}")
            c = _matrix(_expanded(given.c, a, b), "c")
            self.c = self._readable("c", c, unit_stride=False) if given.reads_c else None
        if given.bias is not None:
            self._check_cast(given.bias, "bias")
            self.bias = self._readable("bias", self._bias(given.bias, a, b, full_shape), unit_stride=False)

    def _check_cast(self, x: Operand, argument: str) -> None:
        dtypes.type_name(x.dtype, argument)
        dtypes.check_cast(x.dtype, self.dtype, argument, self.casting)

    def _bias(self, bias: Operand, a: Operand, b: Operand, full: tuple[int, ...]) -> _Matrix:
        m, n = full[-2:]
        x = bias
        if len(x.shape) < 2:
            missing_column = len(b.shape) == 1 and len(x.shape) == 1
            shape = (*x.shape, 1) if missing_column else (1,) * (2 - len(x.shape)) + x.shape
            strides = (*x.strides, 0) if missing_column else (0,) * (2 - len(x.strides)) + x.strides
            x = replace(x, shape=shape, strides=strides)
        if x.shape not in ((1, n), (m, 1), (1, 1)):
            raise ShapeError(
                f"bias has shape {bias.shape}; for a result of {m} x {n} it must be ({n},) or "
                f"(1, {n}), a value for each column, or ({m}, 1), a value for each row"
            )
        return _matrix(x, "bias")

    def _readable(self, name: str, x: _Matrix, unit_stride: bool = True) -> _Matrix:
        """*x* if kernels can read it, else a dense copy. *unit_stride*: *x* must have a unit stride."""
        direct = dtypes.is_direct(x.type, self.computed)
        if direct and (x.has_unit_stride or not unit_stride):
            return x
        shape = (*x.batch_shape, x.rows, x.cols)
        target = x.type if direct else self.computed
        strides = self._dense_strides(shape, turned=x.turned)
        source = (*x.batch_strides, x.rs, x.cs)
        self.copies.append((name, Copy(shape, x.type, source, target, strides)))
        return self._dense(x, target, strides)

    def build(
        self, a: _Matrix, b: _Matrix, target: _Matrix, shape: tuple[int, ...], alpha_is_zero: bool
    ) -> Gemm:
        out, out_copy = self._writable(target)
        swapped = not out.row_contiguous
        if swapped:  # the transposed product, out^T = B^T A^T, has a row-major out
            a, b, out = b.T, a.T, out.T
            self.c = self.c.T if self.c else None
            self.bias = self.bias.T if self.bias else None
        a, b = self._readable("a", a), self._readable("b", b)
        problem = self._problem(a, b, out, alpha_is_zero)
        return Gemm(problem, shape, self.dtype, swapped, tuple(self.copies), out_copy)

    def _writable(self, target: _Matrix) -> tuple[_Matrix, Copy | None]:
        """What the kernel writes: the user's out, or a dense temporary with the copy from it to out."""
        direct = target.has_unit_stride and dtypes.is_direct(target.type, self.computed)
        if self.reproducible and self.computed in dtypes.COMPLEX:  # in B^T A^T the FMAs have another order
            direct = direct and target.row_contiguous
        if direct and not self.out_is_copied:
            return target, None
        shape = (*target.batch_shape, target.rows, target.cols)
        strides = dense_strides(shape)
        back = (*target.batch_strides, target.rs, target.cs)
        temporary = self._dense(target, self.computed, strides)
        return temporary, Copy(shape, self.computed, strides, target.type, back)

    def _dense(self, x: _Matrix, name: str, strides: tuple[int, ...]) -> _Matrix:
        """A temporary of *x*'s shape, with *strides* in elements."""
        *batch, rs, cs = strides
        return replace(x, type=name, rs=rs, cs=cs, batch_strides=tuple(batch), align=self.copy_align)

    def _dense_strides(self, shape: tuple[int, ...], turned: bool) -> tuple[int, ...]:
        """The strides of a temporary. The host keeps the order of a transposed operand; the device makes rows
        contiguous."""
        if not (turned and self.on_host):
            return dense_strides(shape)
        *batch, rows, cols = shape
        return (*dense_strides((*batch, cols, rows))[:-2], 1, rows)

    def _problem(self, a: _Matrix, b: _Matrix, out: _Matrix, alpha_is_zero: bool) -> GemmProblem:
        trans_a, lda = a.leading()
        trans_b, ldb = b.leading()
        ldo = out.rs if out.rows > 1 else out.cols
        c, bias = self.c, self.bias
        c_batch = c.over(self.batch) if c else (0,) * len(self.batch)
        return GemmProblem(
            m=a.rows,
            n=b.cols,
            k=0 if alpha_is_zero else a.cols,
            a_type=a.type,
            b_type=b.type,
            out_type=out.type,
            acc_type=dtypes.ELEMENTS[self.computed].accumulator,
            trans_a=trans_a,
            trans_b=trans_b,
            conj_a=a.conj,
            conj_b=b.conj,
            lda=lda,
            ldb=ldb,
            ldo=ldo,
            a_align=a.row_align(lda),
            b_align=b.row_align(ldb),
            out_align=out.row_align(ldo),
            batch_shape=self.batch,
            batch_strides=(a.over(self.batch), b.over(self.batch), c_batch, out.over(self.batch)),
            has_c=c is not None,
            c_type=c.type if c else out.type,
            c_strides=(c.rs, c.cs) if c else (0, 0),
            bias=_bias_kind(bias),
            bias_type=bias.type if bias else out.type,
            bias_stride=_bias_stride(bias),
            activation=self.activation,
            precision=self.precision,
            reproducible=self.reproducible,
        )


def _bias_kind(bias: _Matrix | None) -> str:
    if bias is None:
        return "none"
    return "row" if bias.rows == 1 else "column"


def _bias_stride(bias: _Matrix | None) -> int:
    if bias is None or bias.rows == bias.cols == 1:
        return 0
    return bias.cs if bias.rows == 1 else bias.rs
