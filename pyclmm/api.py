"""matmul and gemm: the functions that users call."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import DTypeLike

from .errors import DeviceLostError
from .execution.operands import Operands, collect, queue_of, signature
from .execution.options import Options, plain_numbers
from .opencl import program, queues
from .plan import Matmul
from .problem.precision import chosen
from .selection.select import KernelChoice

_PLANS_KEPT = 256
_plans: OrderedDict[Any, Matmul] = OrderedDict()
_lock = threading.Lock()


def matmul(
    a: Any,
    b: Any,
    /,
    out: Any = None,
    *,
    queue: cl.CommandQueue | None = None,
    kernel: KernelChoice = "auto",
    precision: str | None = None,
    dtype: DTypeLike | None = None,
    wait_for: list[cl.Event] | None = None,
) -> Any:
    """The matrix product of two arrays, as :func:`numpy.matmul` defines it.

    Parameters
    ----------
    a, b
        NumPy arrays, or pyopencl Arrays in one context; not one of each. 1-D operands are promoted,
        stacks (more than two dimensions) broadcast.
    out
        Where the result goes: its shape, and a dtype the result casts to by "same_kind". It may
        overlap an operand.
    queue
        The queue to use. Default: the Arrays' own; for NumPy arrays a cached one on the device that
        ``PYOPENCL_CTX`` names, else on a GPU, else on what there is.
    kernel
        "auto", or the name of a kernel (``pyclmm.KERNELS``), or ``(name, TileConfig)``.
    precision
        "highest" (float32 products are IEEE float32 FMA), "high", "medium"; see :mod:`pyclmm.problem.precision`.
        Default: that of the :func:`pyclmm.default_precision` block, else "highest".
    dtype
        The dtype to compute in, as for a NumPy ufunc.
    wait_for
        Events to wait for before the product begins.

    Returns
    -------
    For NumPy arrays the complete result. For Arrays the result Array at once; its ``events`` say when
    it is complete, and operations on it wait for them.

    Raises
    ------
    ShapeError (a ValueError), DTypeError (a TypeError), ArgumentError (a ValueError),
    UnsupportedError, BuildError, DeviceMemoryError, LaunchError, DeviceLostError, NoDeviceError, ForkError;
    see :mod:`pyclmm.errors`.
    """
    operands = collect(a, b, out=out)
    asked = ("N", "N", None, kernel, chosen(precision), _dtype(dtype))
    return _run(operands, asked, queue, 1.0, 0.0, wait_for)


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    /,
    *,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    trans_a: str = "N",
    trans_b: str = "N",
    bias: Any = None,
    activation: str | None = None,
    out: Any = None,
    queue: cl.CommandQueue | None = None,
    kernel: KernelChoice = "auto",
    precision: str | None = None,
    dtype: DTypeLike | None = None,
    wait_for: list[cl.Event] | None = None,
) -> Any:
    """BLAS's GEMM with an epilogue: ``act(alpha op(a) op(b) + beta c + bias)``.

    Parameters as for :func:`matmul`, and:

    c
        Added after multiplication with *beta*; has the result's shape. It is not changed unless it
        is also *out*: ``gemm(a, b, c, beta=1.0, out=c)`` updates it in place, as BLAS does.
    alpha, beta
        Scalars, converted to the type that products are summed in. With ``beta == 0`` *c* is never
        read; with ``alpha == 0`` a and b are not, so nothing of theirs (NaN) reaches the result.
    trans_a, trans_b
        "N": as it is, "T": transposed, "C": conjugated and transposed; of the last two axes.
    bias
        Shape (N,) or (1, N): a value for each column; (M, 1): a value for each row.
    activation
        "relu", "leaky_relu" (slope 0.01), "gelu" (exact), "gelu_tanh", "sigmoid", "tanh", "silu".

    Returns the result, as :func:`matmul` does.
    """
    operands = collect(a, b, c, bias, out)
    alpha, beta = plain_numbers(alpha, beta)
    asked = (trans_a, trans_b, activation, kernel, chosen(precision), _dtype(dtype))
    return _run(operands, asked, queue, alpha, beta, wait_for)


def _dtype(dtype: DTypeLike | None) -> np.dtype[Any] | None:
    return None if dtype is None else np.dtype(dtype)


def _run(
    operands: Operands,
    asked: tuple[Any, ...],
    queue: cl.CommandQueue | None,
    alpha: complex,
    beta: complex,
    wait_for: list[cl.Event] | None,
) -> Any:
    """The product of *operands*; *asked*: the first fields of Options."""
    queue = queue_of(operands, queue)
    try:
        plan = _plan(operands, asked, queue, alpha, beta)
        return plan.run(operands, queue, alpha, beta, wait_for)
    except DeviceLostError:
        _forget(queue.context)
        raise


def _plan(
    operands: Operands, asked: tuple[Any, ...], queue: cl.CommandQueue, alpha: complex, beta: complex
) -> Matmul:
    """The plan kept for such a call, or a new one."""
    key = (queue.context, queue.device, asked, alpha == 0, beta == 0, signature(operands))
    plan = _kept(key)
    if plan is not None:
        plan.check_scalars(alpha, beta)
        return plan
    plan = Matmul.of(operands, Options(*asked), queue, alpha, beta)
    with _lock:
        _plans[key] = plan
        while len(_plans) > _PLANS_KEPT:
            _plans.popitem(last=False)
    return plan


def _kept(key: Any) -> Matmul | None:
    try:
        with _lock:
            plan = _plans.get(key)
            if plan is not None:
                _plans.move_to_end(key)
            return plan
    except TypeError:  # not hashable: what is none of the types that Options takes
        return None


def _forget(context: cl.Context) -> None:
    """Keep nothing of a lost context, so that the next call on NumPy arrays begins a new one."""
    with _lock:
        for key in [key for key in _plans if key[0] == context]:
            del _plans[key]
    program.forget(context)
    queues.forget(context)
