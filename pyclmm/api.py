"""matmul and gemm: the functions that users call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, overload

import pyopencl as cl
from numpy.typing import ArrayLike, DTypeLike, NDArray
from pyopencl.array import Array

from .calls import PLAIN, called, repeated, tiles_of
from .execution.operands import named, single
from .execution.options import options_of
from .execution.weights import format_of
from .opencl import queues
from .opencl.devices import DeviceChoice
from .problem.literals import Activation, Casting, Mixed, Precision, Rounded, Trans, Verify
from .quantized import QuantizedArray
from .raising import OF_CALLER, briefly
from .selection.select import KernelChoice
from .streaming.run import Report
from .untraced import Function, untraced

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .execution.keywords import GemmKeywords, MatmulKeywords

HostOut: TypeAlias = NDArray[Any] | tuple[NDArray[Any]] | None
DeviceOut: TypeAlias = Array | tuple[Array] | None


def _following(function: Function) -> Function:
    """A decorator of :func:`matmul`: a call without options is compared with the thread's last one first. To
    fill in 17 defaults and to look them up takes an eighth of a product of 16 cubed (docs/kernels/packed.md).
    """

    @wraps(function)
    def call(a: Any, b: Any, /, out: Any = None, **options: Any) -> Any:
        try:
            again = None if options else repeated(a, b, out)
            return function(a, b, out, **options) if again is None else again
        except OF_CALLER as error:
            raise briefly(error) from error.__cause__

    return untraced(cast(Function, call))


@overload
def matmul(
    a: ArrayLike,
    b: ArrayLike | QuantizedArray,
    /,
    out: HostOut = None,
    *,
    mixed: None = None,
    **keywords: Unpack[MatmulKeywords],
) -> NDArray[Any]: ...
@overload
def matmul(
    a: Array,
    b: Array | QuantizedArray,
    /,
    out: DeviceOut = None,
    *,
    mixed: None = None,
    **keywords: Unpack[MatmulKeywords],
) -> Array: ...
@overload
def matmul(
    a: Any, b: Any, /, out: DeviceOut = None, *, mixed: Literal["copy"], **keywords: Unpack[MatmulKeywords]
) -> Any: ...


@_following
def matmul(
    a: Any,
    b: Any,
    /,
    out: Any = None,
    *,
    queue: cl.CommandQueue | None = None,
    device: DeviceChoice | None = None,
    kernel: KernelChoice = "auto",
    precision: Precision | None = None,
    reproducible: bool | None = None,
    verify: Verify | None = None,
    dtype: DTypeLike | None = None,
    casting: Casting = "same_kind",
    quantize_a: Rounded | None = None,
    axes: list[Any] | None = None,
    mixed: Mixed = None,
    wait_for: list[cl.Event] | None = None,
    memory_limit: int | str | None = None,
    devices: Sequence[DeviceChoice] | str | None = None,
    progress: Report | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Any:
    """The matrix product of two arrays, as :func:`numpy.matmul` defines it.

    Parameters
    ----------
    a, b
        Two NumPy arrays, or what becomes one (docs/semantics.md), two pyopencl Arrays in one context, or two
        arrays of PyTorch's, CuPy's, JAX's or another library's in one place: the host's memory, or a CUDA
        device (docs/cuda.md). Shapes as for :func:`numpy.matmul`: 1-D operands are promoted, stacks (more
        than two dimensions) broadcast. Dtypes: bool, integers, float16, bfloat16, float32, float64,
        complex64, complex128.
        b may be quantised weights, ``q.T`` of a :class:`pyclmm.QuantizedArray` where a is: the product is
        that with ``q.dequantize(a.dtype).T``, for a of float32, float16 or bfloat16.
    out
        The array to write, or a tuple of it. It has the result's shape, and a dtype to which the result casts
        by *casting*. It may overlap an operand.
    queue
        The queue to use. Default for Arrays: their own queue. Default for NumPy arrays: a cached queue on the
        device that ``PYOPENCL_CTX`` names, else on the largest GPU, else on the first device, or, for small
        products, on one without threads beside it (docs/howto/tuning.md). Arrays on a
        CUDA device take none: the stream in which their library works is used.
    device
        The device to use, in place of *queue*: "cpu", "gpu", a number, a name or a part of one (see
        :func:`pyclmm.devices`), or a ``pyopencl.Device``. Arrays must be on it.
    kernel
        "auto", or the name of a kernel (``pyclmm.KERNELS``), or ``(name, TileConfig)``.
    precision
        "highest" (float32 products are IEEE float32 FMA), "high" or "medium"; see
        :mod:`pyclmm.problem.settings`. Default: the precision of the enclosing
        :func:`pyclmm.default_precision` block, else "highest".
    reproducible
        True: the bits of the result are the same on every device, for every shape of the same rows and
        columns: each sum is one chain of fused multiply-adds over K, in order (docs/reproducibility.md).
        Default: the setting of the enclosing :func:`pyclmm.default_reproducible` block, else False.
    verify
        True: the device checks the result by row sums (docs/verification.md). A wrong one raises
        VerificationError: of NumPy arrays in this call, else in the next one or in :func:`pyclmm.finish`.
        "repair": the call waits, and what is wrong is computed again by another kernel, with a
        VerificationWarning. Default: the setting of the enclosing :func:`pyclmm.verified` block, else False.
    dtype
        The dtype to compute in, as for a NumPy ufunc.
    casting
        NumPy's rule for the casts of the operands and of the result: "no", "equiv", "safe", "same_kind" or
        "unsafe". A cast that drops imaginary parts gives NumPy's ComplexWarning.
    quantize_a
        "int8", for quantised weights on CPU devices: the elements of a in each group of the weights, along K,
        are rounded to multiples of s = (their largest absolute value) / 127, and integers are multiplied. The
        result is that with :func:`pyclmm.reference.int8_groups`; rounding a changes it by at most the sum
        over groups of 0.5001 s times the sum of the weights' absolute values. A row with a NaN or an infinity
        becomes NaN. Default: a is multiplied as it is.
    axes
        Where the core axes lie, as for a NumPy ufunc: a list with a tuple for each of a, b and the result,
        ``[(-2, -1), (-2, -1), (-2, -1)]`` by default. Nothing is copied: the operands and *out* are read and
        written as views, and a new result is a view of a C-contiguous array.
    mixed
        "copy": NumPy arrays beside Arrays are copied to the Arrays' device, and the result is an Array;
        *out* must be one. Default: they raise DTypeError.
    wait_for
        Events to wait for before the product begins.
    memory_limit, devices, checkpoint
        The product is computed in tiles, as :class:`pyclmm.StreamedMatmul` describes, so that it needs at
        most *memory_limit* bytes of a device, uses several *devices*, or can be resumed from *checkpoint*.
        That is done without being asked where an operand is a dataset of HDF5 or Zarr, where operands or
        result are too large for the device, and where it is faster.
    progress
        A function that is called with a :class:`pyclmm.StreamProgress` after each tile.

    Returns
    -------
    The result, or *out*: an array of the kind that was given. Its dtype is the one that :func:`numpy.matmul`
    gives, but that two bfloat16 arrays of another library give bfloat16. For NumPy arrays the result is
    complete. For Arrays the call returns at once: the result is complete when its ``events`` are, and
    operations on it wait for them. On a CUDA device it is complete when the stream has come to it.

    Raises
    ------
    ShapeError, ArgumentError (ValueErrors), DTypeError (a TypeError), UnsupportedError, BuildError,
    DeviceMemoryError, LaunchError, DeviceLostError, VerificationError, NoDeviceError, ForkError;
    see :mod:`pyclmm.errors`.
    """
    if isinstance(out, tuple):
        out = single(out)
    given = {"a": a, "b": b} if out is None else {"a": a, "b": b, "out": out}
    tiles = tiles_of(memory_limit, devices, progress, checkpoint)
    options = options_of(
        kernel=kernel, precision=precision, reproducible=reproducible, casting=casting, verify=verify,
        dtype=dtype, quantize_a=quantize_a,
        b_format=format_of(b),
    )  # fmt: skip
    return called(given, options, PLAIN, tiles, queue, device, wait_for, mixed, axes)


@overload
def gemm(
    a: ArrayLike,
    b: ArrayLike | QuantizedArray,
    c: ArrayLike | None = None,
    /,
    *,
    bias: ArrayLike | None = None,
    out: NDArray[Any] | None = None,
    mixed: None = None,
    **keywords: Unpack[GemmKeywords],
) -> NDArray[Any]: ...
@overload
def gemm(
    a: Array,
    b: Array | QuantizedArray,
    c: Array | None = None,
    /,
    *,
    bias: Array | None = None,
    out: Array | None = None,
    mixed: None = None,
    **keywords: Unpack[GemmKeywords],
) -> Array: ...
@overload
def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    /,
    *,
    bias: Any = None,
    out: Array | None = None,
    mixed: Literal["copy"],
    **keywords: Unpack[GemmKeywords],
) -> Any: ...


@untraced
def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    /,
    *,
    alpha: complex = 1.0,
    beta: complex | None = None,
    trans_a: Trans = "N",
    trans_b: Trans = "N",
    bias: Any = None,
    activation: Activation | None = None,
    out: Any = None,
    queue: cl.CommandQueue | None = None,
    device: DeviceChoice | None = None,
    kernel: KernelChoice = "auto",
    precision: Precision | None = None,
    reproducible: bool | None = None,
    verify: Verify | None = None,
    dtype: DTypeLike | None = None,
    casting: Casting = "same_kind",
    quantize_a: Rounded | None = None,
    mixed: Mixed = None,
    wait_for: list[cl.Event] | None = None,
    memory_limit: int | str | None = None,
    devices: Sequence[DeviceChoice] | str | None = None,
    progress: Report | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Any:
    """BLAS's GEMM with an epilogue: ``act(alpha op(a) op(b) + beta c + bias)``.

    Parameters as for :func:`matmul`, without *axes* and a tuple as *out*, and:

    c
        Multiplied by *beta* and added. Its shape is the result's shape, and its dtype casts to the result's
        by *casting*. It is not changed unless it is also *out*: ``gemm(a, b, c, beta=1.0, out=c)`` updates
        it in place, as BLAS does.
    alpha, beta
        Scalars, converted to the accumulator's type. *beta* is required with *c*; without *c* it must be 0 or
        absent. With ``beta == 0``, *c* is checked and not read. With ``alpha == 0``, a and b are not read, so
        a NaN in them does not reach the result.
    trans_a, trans_b
        "N": as it is; "T": the last two axes transposed; "C": conjugated and transposed.
    bias
        Shape (N,) or (1, N): a value for each column. Shape (M, 1): a value for each row. The dtype as for
        *c*.
    activation
        "relu", "leaky_relu" (slope 0.01), "gelu" (exact), "gelu_tanh", "sigmoid", "tanh", "silu". Only the
        first two can be reproducible.

    Returns and raises as :func:`matmul` does.
    """
    given, factors = named(a, b, c, bias, out), (alpha, beta)
    tiles = tiles_of(memory_limit, devices, progress, checkpoint)
    try:
        options = options_of(
            trans_a=trans_a, trans_b=trans_b, activation=activation, kernel=kernel, precision=precision,
            reproducible=reproducible, casting=casting, verify=verify, dtype=dtype, quantize_a=quantize_a,
            b_format=format_of(b),
        )  # fmt: skip
        return called(given, options, factors, tiles, queue, device, wait_for, mixed)
    except OF_CALLER as error:
        raise briefly(error) from error.__cause__


def release() -> None:
    """Free the memory that pyclmm keeps for later calls, in all threads.

    That is the workspace of all plans, the plans of :func:`matmul` and :func:`gemm`, compiled programs that
    no plan of yours needs, and the pinned memory of transfers. A :class:`pyclmm.Matmul` that you made goes on
    working: its next call allocates workspace again. Its ``release()`` frees its kernel objects too. In a
    process that was forked after use nothing is freed: it is all its parent's.
    """
    queues.release()
