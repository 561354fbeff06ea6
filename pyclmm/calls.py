"""One call of matmul, gemm or ragged_matmul: it follows the thread's last one, or goes the whole way.

docs/design.md has the cases of a warm call.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import plan_cache
from .errors import DeviceLostError, UnsupportedError
from .execution import kinds
from .execution.operands import Operands, check_mixed, collect, queue_of, signature, with_core_axes_last
from .execution.options import Options, beta_of, computed_in, plain_numbers, unnamed_options, wait_here
from .execution.prepared import Prepared
from .execution.weights import as_given, unpacked
from .opencl import queues
from .opencl.steps import Scales
from .problem.axes import back
from .problem.ragged import SIZES
from .streaming import entry

PLAIN: Scales = (1.0, 0.0)  # alpha and beta of matmul
_ndarray = np.ndarray


class _Latest:
    """A thread's last call: the options that it asked for, which its arrays' library may add a dtype to, what
    computed it, which this does not keep alive, and the shape of a."""

    __slots__ = ("asked", "options", "product", "shape")  # read sooner than the fields of a tuple

    def __init__(self, asked: Options, options: Options, product: Prepared, shape: Any) -> None:
        self.asked, self.options, self.product, self.shape = asked, options, weakref.ref(product), shape

    def again(self, given: Operands, queue: Any, scales: tuple[Any, Any], wait_for: Any) -> Any:
        """The result if the call is so much like this one, in options too, that few checks do; else None."""
        product = self.product()
        if product is None:
            return None
        if scales is not PLAIN and scales[1] is None:
            if "c" in given:  # without beta it is refused
                return None
            scales = scales[0], 0.0
        a = given["a"]
        if type(a) is _ndarray:
            if a.shape != self.shape:
                return None
            # These arrays may have been a library's own, which NumPy's view of them does not tell.
            if self.options is not self.asked:
                return None
            if queue is None:
                queue = queues.free_queue()
        try:
            return product.again(given, queue, scales, wait_for)
        except (DeviceLostError, MemoryError) as error:
            plan_cache.failed(error, product.context, *given.values())
            raise


# Of each thread the last call and, by shapes, those before: the layers of a network take turns.
_last: queues.PerThread[Any] = queues.PerThread(most=64)


def repeated(a: Any, b: Any, out: Any) -> Any:
    """The result of :func:`matmul` without options if it follows a call of this thread; else None."""
    given = {"a": a, "b": b} if out is None else {"a": a, "b": b, "out": out}
    return _followed(given, unnamed_options(), None, PLAIN, None)


def tiles_of(memory_limit: Any, devices: Any, progress: Any, checkpoint: Any) -> dict[str, Any] | None:
    """What a product in tiles is asked with; None if nothing asks for one."""
    if memory_limit is devices is progress is checkpoint is None:
        return None
    return {"memory_limit": memory_limit, "devices": devices, "progress": progress, "checkpoint": checkpoint}


def called(
    given: Operands,
    asked: Options,
    scales: tuple[Any, Any],
    tiles: Mapping[str, Any] | None = None,
    queue: Any = None,
    device: Any = None,
    wait_for: Any = None,
    mixed: Any = None,
    axes: Any = None,
) -> Any:
    """:func:`matmul`, :func:`gemm` and :func:`pyclmm.ragged_matmul`. *asked*: made by :func:`options_of`.
    *tiles*: those of :func:`tiles_of`."""
    arrays = given
    if asked.b_format:
        given = unpacked(given, asked.trans_a, asked.trans_b)
        _check_whole(tiles or {}, axes, given)
    if mixed is not None:
        check_mixed(mixed)
    if device is axes is tiles is None:
        again = _followed(given, asked, queue, scales, wait_for)
        if again is not None:
            return again if given is arrays else as_given(arrays, again)
    own_dtype = kinds.computed_dtype(given) if asked.dtype is None else None
    options = asked if own_dtype is None else computed_in(asked, own_dtype)
    if tiles or (not kinds.are_known(given) and entry.is_stored(*given.values())):
        (alpha, beta), unfit = scales, {"axes": axes, "mixed": mixed}
        how = {"alpha": alpha, "beta": beta, "queue": queue, "device": device, **(tiles or {})}
        return entry.streamed(given, options, unfit=unfit, wait_for=wait_for, **how)
    if mixed is not None:  # NumPy arrays are copied at once
        wait_here(wait_for)
    operands, core = collect(given, mixed, queue), None
    if axes is not None:
        operands, core = with_core_axes_last(operands, axes)
    if scales is not PLAIN:  # a call is compared with the latest by these very numbers first
        alpha, beta = scales
        scales = plain_numbers(alpha, beta_of(beta, given.get("c")))
    queue = queue_of(operands, queue, device)
    result = _product(operands, asked, options, queue, scales, wait_for)
    if core is not None and "out" not in given:
        result = result.transpose(back(result.ndim, core))
    return kinds.returned(arrays, result)


def _check_whole(tiles: Mapping[str, Any], axes: Any, given: Operands) -> None:
    """Raise UnsupportedError for what a product with quantised weights does not take."""
    for name, value in {**tiles, "axes": axes}.items():
        if value is not None:
            raise UnsupportedError(
                f"b is a QuantizedArray, with which {name} is not offered; leave it out. Slices of rows, "
                "q[2:8].T, take less memory"
            )
    for name, x in given.items():
        if entry.is_stored(x):
            raise UnsupportedError(f"{name} is in a file, b a QuantizedArray; read it first, {name}[...]")


def _followed(given: Operands, asked: Options, queue: Any, scales: tuple[Any, Any], wait_for: Any) -> Any:
    """The result if the call follows the thread's latest, or the last one of its shapes; else None.

    That one becomes the latest.
    """
    latest: _Latest | None = _last.mine.latest
    if latest is not None and latest.asked is asked:
        again = latest.again(given, queue, scales, wait_for)
        if again is not None:
            return again
    try:
        earlier: _Latest | None = _last.mine.held.get(_shapes(given))
    except TypeError:  # a shape that is no tuple
        return None
    if earlier is None or earlier is latest or earlier.asked is not asked:
        return None
    _last.mine.latest = earlier
    return earlier.again(given, queue, scales, wait_for)


def _shapes(given: Operands) -> Any:
    """The shapes of arrays, by which a thread's calls are kept; None where one cannot be told."""
    try:
        return tuple([getattr(x, "shape", None) for x in given.values()])
    except Exception:  # a property of somebody else's, as of a dataset whose file is closed
        return None


def _product(
    operands: Operands, asked: Options, options: Options, queue: Any, scales: Scales, wait_for: Any
) -> Any:
    """The product of *operands*, by what computed the last call, a kept plan or a new one."""
    is_whole = SIZES in operands or not isinstance(operands["a"], np.ndarray)
    if not is_whole and entry.pays(operands, options, queue):
        alpha, beta = scales
        return entry.streamed(operands, options, queue=queue, alpha=alpha, beta=beta, wait_for=wait_for)
    try:
        layouts, latest = signature(operands), _last.mine.latest
        product = latest.product() if latest is not None and latest.options is options else None
        if product is None or not product.fits(layouts, queue, scales):
            product = plan_cache.plan_for(operands, layouts, options, queue, scales)
            _last.keep(_shapes(operands), _Latest(asked, options, product, operands["a"].shape))
        return product.multiply(operands, queue, scales, wait_for)
    except (DeviceLostError, MemoryError) as error:
        plan_cache.failed(error, queue.context, operands)
        raise
