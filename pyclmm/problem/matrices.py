"""An operand as a stack of matrices: rows, columns and strides, with the axes that a 1-D operand lacks; how
the stacks of two broadcast, and what an ``out`` must have. Errors have NumPy's words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import ShapeError, UnsupportedError, brief
from . import dtypes
from .extras import ResultShape, StridedMatrix
from .gemm import MAX_DIMENSION, Operand, alignment


@dataclass(frozen=True)
class MatrixLayout(StridedMatrix):
    """A stack of matrices: each of them, strides of the stack in elements, whether it is to be conjugated."""

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


def transposed(x: MatrixLayout, trans: str, vector: bool, is_complex: bool) -> MatrixLayout:
    """op(x), of a product that *is_complex* or not. A *vector* equals its transpose, as in NumPy."""
    if trans == "N":
        return x
    conj = trans == "C" and is_complex and x.type in dtypes.COMPLEX
    return replace(x if vector else x.T, conj=conj)


def result_shape(full: tuple[int, ...], a: Operand, b: Operand) -> ResultShape:
    """The shape of the product of operands as they were given."""
    return ResultShape(full, len(a.shape) == 1, len(b.shape) == 1)


def stack_of_result(
    a: Operand, b: Operand, ma: MatrixLayout, mb: MatrixLayout, out: Operand | None
) -> tuple[int, ...]:
    """The stack of the result. An *out* with other rows or columns is named beside stacks that do not fit."""
    if ma.cols != mb.rows:
        raise ShapeError(
            f"b has a mismatch in its core dimension: a of shape {a.shape} and b of shape {b.shape} do not "
            f"multiply, K is {ma.cols} in a and {mb.rows} in b"
        )
    try:
        batch = _broadcast(ma.batch_shape, mb.batch_shape)
    except ValueError as error:
        wrong = _wrong_core(out.shape, result_shape((ma.rows, mb.cols), a, b).shape) if out else ""
        raise ShapeError(
            f"operands could not be broadcast together: the stacks of a {ma.batch_shape} and b "
            f"{mb.batch_shape} do not broadcast: a of shape {a.shape}, b of shape {b.shape}"
            + (f"; out{wrong}" if wrong else "")
        ) from error
    return batch


def check_sizes(a: Operand, b: Operand, sizes: tuple[int, ...]) -> None:
    """Raise UnsupportedError if *sizes*, of a product and its stack, are more than kernels count to."""
    if max(sizes) > MAX_DIMENSION:
        raise UnsupportedError(
            f"a has shape {brief(a.shape)} and b {brief(b.shape)}: M, N, K and the stack must be at most "
            f"2^31 - 2^16: {', '.join(map(brief, sizes))}; matmul and gemm cut larger NumPy arrays into "
            "tiles (memory_limit= where a kernel is named), multiply parts of Arrays"
        )


def _broadcast(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
    """Both shapes' broadcast, of any number of axes: np.broadcast_shapes takes 32. Raises ValueError."""
    long, short = (x, y) if len(x) >= len(y) else (y, x)
    pairs = list(zip(long, (1,) * (len(long) - len(short)) + short, strict=True))
    if any(m != n and 1 not in (m, n) for m, n in pairs):
        raise ValueError(f"{x} and {y} do not broadcast")
    return tuple(n if m == 1 else m for m, n in pairs)


def stack_of_out(out: Operand, batch: tuple[int, ...], core_axes: int) -> tuple[int, ...]:
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


def unfit_out(out: tuple[int, ...], shape: tuple[int, ...], core_axes: int) -> ShapeError:
    """The error for an ``out`` that cannot hold the result, worded as NumPy words each case."""
    what = ""
    if len(out) < len(shape):
        what = " requires a reduction"
    elif core_axes:
        what = _wrong_core(out, shape[-core_axes:])
    return ShapeError(
        f"non-broadcastable output operand{what}: out has shape {out}, but a @ b has shape {shape}"
    )
