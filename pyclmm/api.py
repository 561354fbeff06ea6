"""matmul and gemm: the functions that users call."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np
import pyopencl as cl
from numpy.typing import ArrayLike, DTypeLike, NDArray
from pyopencl.array import Array

from . import plan_cache
from .errors import DeviceLostError, UnsupportedError
from .execution import kinds
from .execution.operands import (
    Operands,
    collect,
    named,
    queue_of,
    signature,
    single,
    with_core_axes_last,
)
from .execution.options import Options, beta_of, options_of, plain_numbers
from .execution.prepared import Prepared
from .execution.weights import as_given, unpacked
from .opencl import queues
from .opencl.devices import DeviceChoice
from .opencl.steps import Scales
from .problem.axes import back
from .problem.dtypes import named_dtype
from .problem.literals import Activation, Casting, Mixed, Precision, Trans, Verify
from .problem.ragged import SIZES
from .problem.settings import chosen, is_reproducible, is_verified
from .quantized import QuantizedArray
from .raising import OF_CALLER, briefly
from .selection.select import KernelChoice
from .streaming import entry
from .streaming.run import Report

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .execution.keywords import GemmKeywords, MatmulKeywords

HostOut: TypeAlias = NDArray[Any] | tuple[NDArray[Any]] | None
DeviceOut: TypeAlias = Array | tuple[Array] | None

# A warm call compares its options with the last one's in a tuple, which is made in a sixth of a dict's time.
# They have this order there; what reads one goes by its name.
_ASKED = (
    *("trans_a", "trans_b", "activation", "kernel"),
    *("precision", "reproducible", "casting", "verify", "dtype", "b_format"),
)
_TILES = ("memory_limit", "devices", "progress", "checkpoint")
AT_ONCE = (None,) * len(_TILES)  # of a call without tiles
PLAIN: Scales = (1.0, 0.0)  # alpha and beta of matmul


class _Latest(NamedTuple):
    """A thread's last call: the options asked for; what they are; the dtype by the rule of its arrays'
    library; what computed it, which this does not keep alive."""

    asked: tuple[Any, ...]
    options: Options
    own_dtype: Any
    product: Callable[[], Prepared | None]


# Of each thread the last call and, by shapes, those before: the layers of a network take turns.
_last: queues.PerThread[Any] = queues.PerThread(most=64)


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
        Two NumPy arrays, two pyopencl Arrays in one context, or two arrays of PyTorch's, CuPy's, JAX's or
        another library's in one place: the host's memory, or a CUDA device (docs/cuda.md). In place of a
        NumPy array: a list, a number in one, a memoryview, a DataFrame, what has ``__array__``.
        Shapes as for :func:`numpy.matmul`: 1-D operands are promoted, stacks (more than two dimensions)
        broadcast. Dtypes: bool, integers, float16, bfloat16, float32, float64, complex64, complex128. A
        subclass of ndarray is read as its plain array, but a masked array, or a subclass with its own
        arithmetic (physical units), raises DTypeError.
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
    axes
        Where the core axes lie, as for a NumPy ufunc: a list with a tuple for each of a, b and the result,
        ``[(-2, -1), (-2, -1), (-2, -1)]`` by default. A tuple of one axis, for a 1-D operand, may be an int;
        that of the result of two 1-D operands is ``()``. Nothing is copied: the operands and *out* are read
        and written as views, and a new result is a view of a C-contiguous array.
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
    tiles = (memory_limit, devices, progress, checkpoint)
    try:
        ways = (chosen(precision), is_reproducible(reproducible), casting, is_verified(verify))
        asked = ("N", "N", None, kernel, *ways, named_dtype(dtype), "")
        return called(given, asked, tiles, PLAIN, queue, device, mixed, wait_for, axes)
    except OF_CALLER as error:
        raise briefly(error) from error.__cause__


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
    mixed: Mixed = None,
    wait_for: list[cl.Event] | None = None,
    memory_limit: int | str | None = None,
    devices: Sequence[DeviceChoice] | str | None = None,
    progress: Report | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Any:
    """BLAS's GEMM with an epilogue: ``act(alpha op(a) op(b) + beta c + bias)``.

    Parameters as for :func:`matmul`, without *axes*, and:

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
    tiles = (memory_limit, devices, progress, checkpoint)
    try:
        ways = (chosen(precision), is_reproducible(reproducible), casting, is_verified(verify))
        asked = (trans_a, trans_b, activation, kernel, *ways, named_dtype(dtype), "")
        return called(given, asked, tiles, factors, queue, device, mixed, wait_for)
    except OF_CALLER as error:
        raise briefly(error) from error.__cause__


def release() -> None:
    """Free the memory that pyclmm keeps for later calls, in all threads.

    That is the workspace of all plans, the plans of :func:`matmul` and :func:`gemm`, compiled programs that
    no plan of yours needs, and the pinned memory of transfers. A :class:`Matmul` that you made goes on
    working: its next call allocates workspace again. Its ``release()`` frees its kernel objects too.
    """
    queues.release()


def called(
    given: Operands,
    asked: tuple[Any, ...],
    tiles: tuple[Any, ...],
    scales: tuple[Any, Any],
    queue: Any,
    device: Any,
    mixed: Any,
    wait_for: Any,
    axes: Any = None,
) -> Any:
    """:func:`matmul`, :func:`gemm` and :func:`pyclmm.ragged_matmul`. Of their arguments *asked* are those of
    _ASKED, *tiles* of _TILES."""
    arrays = given
    if type(given["b"]) is QuantizedArray:
        given, b_format = unpacked(given, *asked[:2])
        asked = (*asked[:-1], b_format)
        _check_whole(tiles, axes, given)
    latest = _last.mine.latest
    # The very objects: dtypes that are equal need not mean the same.
    if latest is not None and not all(map(is_, asked, latest.asked)):
        latest = None
    if device is axes is None and tiles == AT_ONCE:
        again = _followed(latest, given, asked, (queue, scales, wait_for))
        if again is not None:
            return as_given(arrays, given, again)
    if tiles != AT_ONCE or entry.is_stored(*given.values()):
        options = _options(asked, kinds.computed_dtype(given))
        how = {"alpha": scales[0], "beta": scales[1], "queue": queue, "device": device}
        how |= zip(_TILES, tiles, strict=True)
        unfit = {"axes": axes, "mixed": mixed}
        result = entry.streamed(given, options, unfit=unfit, wait_for=wait_for, **how)
        return result if "out" in given else kinds.back(given, result)
    operands, core = collect(given, mixed, queue), None
    if axes is not None:
        operands, core = with_core_axes_last(operands, axes)
    if scales is not PLAIN:  # a call is compared with the latest by these very numbers first
        alpha, beta = scales
        scales = plain_numbers(alpha, beta_of(beta, given.get("c")))
    queue, own_dtype = queue_of(operands, queue, device), kinds.computed_dtype(given)
    if latest is None or latest.own_dtype is not own_dtype:
        latest = _Latest(asked, _options(asked, own_dtype), own_dtype, lambda: None)
    result = _product(operands, latest, queue, scales, wait_for)
    if core is not None and "out" not in given:
        result = result.transpose(back(result.ndim, core))
    return kinds.returned(arrays, result)


def _check_whole(tiles: tuple[Any, ...], axes: Any, given: Operands) -> None:
    """Raise UnsupportedError for what a product with quantised weights does not take."""
    asked = [name for name, value in zip(_TILES, tiles, strict=True) if value is not None]
    asked += [] if axes is None else ["axes"]
    if asked:
        raise UnsupportedError(
            f"b is a QuantizedArray, with which {asked[0]} is not offered; leave it out. Slices of rows, "
            "q[2:8].T, take less memory"
        )
    for name, x in given.items():
        if entry.is_stored(x):
            raise UnsupportedError(f"{name} is in a file, b a QuantizedArray; read it first, {name}[...]")


def _followed(latest: _Latest | None, given: Operands, asked: tuple[Any, ...], how: Any) -> Any:
    """The result if the call follows the *latest*, or the last one of its shapes; else None."""
    again = None if latest is None else _again(latest, given, *how)
    if again is None and (earlier := _earlier(given, asked, latest)) is not None:
        again = _again(earlier, given, *how)
    return again


def _shapes(given: Operands) -> Any:
    """The shapes of arrays, by which a thread's calls are kept."""
    return tuple([getattr(x, "shape", None) for x in given.values()])


def _earlier(given: Operands, asked: tuple[Any, ...], latest: _Latest | None) -> _Latest | None:
    """The last call on operands of these shapes, which becomes the latest, if it asked for the same."""
    try:
        found: _Latest | None = _last.mine.held.get(_shapes(given))
    except TypeError:  # a shape that is no tuple
        return None
    if found is None or found is latest or not all(map(is_, asked, found.asked)):
        return None
    _last.mine.latest = found
    return found


def _again(latest: _Latest, given: Operands, queue: Any, scales: tuple[Any, Any], wait_for: Any) -> Any:
    """The result if the call is so much like the *latest*, in options too, that few checks do; else None."""
    product, (alpha, beta) = latest.product(), scales
    if product is None or (beta is None and "c" in given):  # c without beta is refused
        return None
    if type(given["a"]) is np.ndarray:
        # The last arrays may have been a library's own, which NumPy's view of them does not tell.
        if latest.own_dtype is not None:
            return None
        if queue is None:
            queue = queues.free_queue()
    try:
        return product.again(given, queue, alpha, beta, wait_for)
    except (DeviceLostError, MemoryError) as error:
        plan_cache.failed(error, product.context, *given.values())
        raise


def _options(asked: tuple[Any, ...], own_dtype: Any) -> Options:
    """The options *asked* for; without a dtype, *own_dtype* is what the arrays' library computes in."""
    named = dict(zip(_ASKED, asked, strict=True))
    return options_of(named if named["dtype"] is not None else named | {"dtype": own_dtype})


def _product(operands: Operands, call: _Latest, queue: Any, scales: Scales, wait_for: Any) -> Any:
    """The product of *operands*, by what computed the last call, a kept plan or a new one."""
    is_whole = SIZES in operands or not isinstance(operands["a"], np.ndarray)
    if not is_whole and entry.pays(operands, call.options, queue):
        alpha, beta = scales
        return entry.streamed(operands, call.options, queue=queue, alpha=alpha, beta=beta, wait_for=wait_for)
    try:
        layouts, product = signature(operands), call.product()
        if product is None or not product.fits(layouts, queue, scales):
            product = plan_cache.plan_for(operands, layouts, call.options, queue, scales)
            _last.keep(_shapes(operands), call._replace(product=weakref.ref(product)))
        return product.multiply(operands, queue, scales, wait_for)
    except (DeviceLostError, MemoryError) as error:
        plan_cache.failed(error, queue.context, operands)
        raise
