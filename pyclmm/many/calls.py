"""matmul_many: a list of products in a few launches, by a plan that is kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import pyopencl as cl

from .. import plan_cache
from ..errors import DeviceLostError
from ..opencl import queues
from ..opencl.devices import DeviceChoice
from ..problem.literals import Activation, Precision
from ..raising import guarded
from ..selection.select import KernelChoice
from .lists import given_of, signature
from .plan import ManyMatmul, checked_options, numbers_of, queue_for

_KEPT = 16  # plans, each with the memory into which its operands are packed
_plans: OrderedDict[Any, ManyMatmul] = OrderedDict()
_latest: queues.PerThread[Any] = queues.PerThread()  # (key, plan) of the last call: equal lists need no hash
_lock = threading.Lock()


@guarded("matmul_many")
def matmul_many(
    pairs: Sequence[tuple[Any, Any]],
    out: Sequence[Any] | None = None,
    *,
    c: Sequence[Any] | None = None,
    alpha: complex | Sequence[complex] = 1.0,
    beta: complex | Sequence[complex] | None = None,
    bias: Sequence[Any] | None = None,
    activation: Activation | None = None,
    queue: cl.CommandQueue | None = None,
    device: DeviceChoice | None = None,
    kernel: KernelChoice = "auto",
    precision: Precision | None = None,
    reproducible: bool | None = None,
    wait_for: list[cl.Event] | None = None,
) -> list[Any]:
    """The products of a list of pairs, each of its own shape and dtype, in a few launches.

    ``matmul_many([(a0, b0), (a1, b1)])`` gives ``[matmul(a0, b0), matmul(a1, b1)]``. One launch computes all
    products of about one size, of the same dtypes and layouts (docs/many.md).

    Parameters
    ----------
    pairs
        A list of ``(a, b)``, each pair as :func:`pyclmm.matmul` takes it: 1-D, 2-D or stacks. All are NumPy
        arrays, or what is like one, or all are pyopencl Arrays. NumPy arrays are copied into one array for
        each of a and b, unless they are consecutive parts of one and not small. Arrays that are slices of one
        buffer are read where they lie; those in buffers of their own cost a copy each, so make them slices
        of one Array. Arrays that must be converted or copied for their layout cost a launch each.
    out
        A list of arrays to write, or None for some. An out may overlap operands of its own pair, but share no
        element with another out or another pair's operands. If the call fails before it has launched anything
        outs are as they were; NumPy arrays are whenever it fails.
    c, bias
        Lists of arrays, or None for some, as for :func:`pyclmm.gemm`.
    alpha, beta
        A number for all pairs, or a list of numbers. One beta is for the pairs that have a c.
    activation, queue, device, kernel, precision, reproducible, wait_for
        As for :func:`pyclmm.gemm`, for all pairs.

    Returns
    -------
    The results in the order of the pairs. Those of one dtype are parts of one new array, so as operands of
    the next call they need no copy. Two vectors give a number, as :func:`numpy.matmul` does.

    Raises
    ------
    As :func:`pyclmm.gemm` does; the message names the pair. ArgumentError for lists of unequal lengths and
    outs that overlap. UnsupportedError for quantised weights, and within :func:`pyclmm.verified`.
    """
    given = given_of(pairs, c, bias, out)
    count = len(given.lists["a"])
    scalars = numbers_of("alpha", alpha, count), numbers_of("beta", beta, count)
    options = checked_options(activation, kernel, precision, reproducible)
    own = queue_for(given.lists, queue, device)
    if own is None:
        return []
    key = (own.context, own.device, type(own)), options.key, _typed(scalars), signature(given)
    plan = _kept(key) or _keep(key, ManyMatmul.of(given, options, own, scalars))
    try:
        return plan.run(given, own, wait_for)
    except (DeviceLostError, MemoryError) as error:
        plan_cache.failed(error, own.context, given.lists)
        raise


def _typed(scalars: tuple[Any, Any]) -> tuple[Any, ...]:
    """*scalars*, and of which types they are: equal numbers need not be taken for the same results."""
    return tuple([(x, frozenset(map(type, x if isinstance(x, tuple) else (x,)))) for x in scalars])


def _kept(key: Any) -> ManyMatmul | None:
    latest = _latest.mine.latest
    if latest is not None and latest[0] == key:
        found: ManyMatmul = latest[1]
        return found
    with _lock:
        plan = _plans.get(key)
        if plan is not None:
            _plans.move_to_end(key)
            _latest.mine.latest = key, plan
        return plan


def _keep(key: Any, plan: ManyMatmul) -> ManyMatmul:
    with _lock:
        _plans[key] = plan
        while len(_plans) > _KEPT:
            _plans.popitem(last=False)
    _latest.mine.latest = key, plan
    return plan


@queues.at_release
def release() -> None:
    """Drop every plan."""
    with _lock:
        _plans.clear()
    _latest.clear()


@queues.at_loss
def forget(context: Any) -> None:
    """Drop the plans of a lost context."""
    with _lock:
        for key in [key for key in _plans if key[0][0] == context]:
            del _plans[key]
    _latest.clear()
