"""The shape of a result: how stacks broadcast, and what an ``out`` must have. Errors have NumPy's words."""

from __future__ import annotations

from ..errors import ShapeError, UnsupportedError
from .gemm import MAX_DIMENSION, Operand
from .matrices import MatrixLayout, squeezed


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
        wrong = _wrong_core(out.shape, squeezed((ma.rows, mb.cols), a, b)) if out else ""
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
