"""An operand as a stack of matrices: rows, columns and strides, with the axes that a 1-D operand lacks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import ShapeError, UnsupportedError
from . import dtypes
from .gemm import Operand, alignment

TRANSPOSES = ("N", "T", "C")


@dataclass(frozen=True)
class MatrixLayout:
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
    def T(self) -> MatrixLayout:
        return replace(self, rows=self.cols, cols=self.rows, rs=self.cs, cs=self.rs, turned=not self.turned)

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
        size = dtypes.ELEMENTS[self.type].nbytes
        return alignment(self.align, ld * size, *[s * size for s in self.batch_strides])


def matrix_of(operand: Operand, argument: str) -> MatrixLayout:
    """*operand*, of two axes or more. Raises DTypeError, and UnsupportedError for odd strides."""
    name = dtypes.type_name(operand.dtype, argument)
    size = operand.dtype.itemsize
    if [s for s in operand.strides if s % size]:
        raise UnsupportedError(
            f"{argument} has strides {operand.strides} in bytes, not whole elements of "
            f"{operand.dtype}; copy it first"
        )
    shape, strides = operand.shape, tuple([s // size for s in operand.strides])
    return MatrixLayout(
        name, shape[-2], shape[-1], strides[-2], strides[-1], shape[:-2], strides[:-2], operand.align
    )


def promoted(a: Operand, b: Operand) -> tuple[Operand, Operand]:
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


def transposed(x: MatrixLayout, trans: str, vector: bool) -> MatrixLayout:
    """op(x). A *vector* equals its transpose, as in NumPy."""
    if trans == "N":
        return x
    conj = trans == "C" and x.type in dtypes.COMPLEX
    return replace(x if vector else x.T, conj=conj)


def squeezed(shape: tuple[int, ...], a: Operand, b: Operand) -> tuple[int, ...]:
    """The shape of the user's result, without the axes that 1-D operands lack."""
    *batch, m, n = shape
    return (*batch, *([m] if len(a.shape) > 1 else []), *([n] if len(b.shape) > 1 else []))


def expanded(x: Operand, a: Operand, b: Operand) -> Operand:
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
