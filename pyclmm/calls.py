"""One call of matmul, gemm or ragged_matmul: it follows the thread's last one, or goes the whole way.

docs/design.md has the cases of a warm call.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from . import plan_cache
from .errors import DeviceLostError, UnsupportedError
from .execution import kinds
from .execution.operands import Operands, collect, queue_of, signature, with_core_axes_last
from .execution.options import Options, beta_of, options_of, plain_numbers
from .execution.prepared import Prepared
from .execution.weights import as_given, unpacked
from .opencl import queues
from .opencl.steps import Scales
from .problem.axes import back
from .problem.ragged import SIZES
from .quantized import QuantizedArray
from .streaming import entry

# A warm call compares its options with the last one's in a tuple, which is made in a sixth of a dict's time.
# They have this order there; what reads one goes by its name.
_ASKED = (
    *("trans_a", "trans_b", "activation", "kernel"),
    *("precision", "reproducible", "casting", "verify", "dtype", "quantize_a", "b_format"),
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
