"""Lists of products: matmul_many, and ManyMatmul, a list planned once and computed many times."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import pyopencl as cl

from .. import environment, plan_cache
from ..cuda.arrays import XlaArray
from ..errors import ArgumentError, DeviceLostError, DTypeError
from ..execution import kinds
from ..execution.operands import queue_of
from ..execution.options import Options, events_of, options_of, plain_numbers
from ..opencl import queues
from ..opencl.devices import DeviceChoice
from ..problem.literals import Activation, Precision, Verify
from ..raising import OfProcess, guarded
from ..selection.explanation import Explanation
from ..selection.select import KernelChoice
from . import lists
from .addressed import ManyByAddress
from .cuda import CudaMany
from .device import DeviceMany
from .host import HostMany
from .lists import (
    CallLists,
    Layouts,
    check_length,
    differ_in_strides,
    fits,
    given_of,
    layouts_of,
    mismatch,
    on_device,
)

_KEPT = 16  # plans
_CLOSED = "the plan is closed: its `with` block has ended, or close() was called; make another ManyMatmul"


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
    verify: Verify | None = None,
    wait_for: list[cl.Event] | None = None,
) -> list[Any]:
    """The products of a list of pairs, each of its own shape and dtype, in a few launches.

    ``matmul_many([(a0, b0), (a1, b1)])`` gives ``[matmul(a0, b0), matmul(a1, b1)]``. One launch computes all
    products of about one size, of the same dtypes and layouts (docs/many.md).

    Parameters
    ----------
    pairs
        A list of ``(a, b)``, each pair as :func:`pyclmm.matmul` takes it: 1-D, 2-D or stacks. All are NumPy
        arrays, or what is like one, or all are pyopencl Arrays, or all are arrays of one other library in one
        place. Those on a CUDA device, and NumPy arrays on a CPU, are read where they lie; for other devices
        NumPy arrays are copied into one. Arrays that are slices of one buffer are read where they lie; those
        in buffers of their own cost a copy or a launch each, so make them slices of one Array. What must be
        converted for its layout costs a copy, on a device a launch of its own.
    out
        A list of arrays to write, or None for some. An out may overlap operands of its own pair, but share no
        element with another out or another pair's operands. If the call fails before it has launched anything
        outs are as they were.
    c, bias
        Lists of arrays, or None for some, as for :func:`pyclmm.gemm`.
    alpha, beta
        A number for all pairs, or a list or 1-D NumPy array of numbers. One beta is for the pairs that have
        a c.
    activation, queue, device, kernel, precision, reproducible, verify, wait_for
        As for :func:`pyclmm.gemm`, for all pairs. A VerificationError names the pair, whose number is in
        ``stack``.

    Returns
    -------
    The results in the order of the pairs. Those of common launches are parts of one new array of their
    dtype, so as operands of the next call they need no copy. Two vectors give a number, as
    :func:`numpy.matmul` does.

    Raises
    ------
    As :func:`pyclmm.gemm` does; the message names the pair. ArgumentError for lists of unequal lengths and
    outs that overlap. UnsupportedError for quantised weights, and for an activation with *verify*.
    """
    given, ways = given_of(pairs, c, bias, out), (activation, kernel, precision, reproducible, verify)
    call = _ListCall(given, alpha, beta, ways, queue, device)
    try:
        return _planned(call)._run(given, call.queue, wait_for)
    except DeviceLostError:
        plan_cache.forget(call.queue.context)
        raise


class ManyMatmul(OfProcess):
    """A list of products, planned for operands of these shapes, dtypes and layouts.

    ``plan = ManyMatmul(pairs)`` checks each pair, groups the products into launches and builds their kernels.
    ``plan(pairs)`` then only enqueues. The arguments are those of :func:`pyclmm.matmul_many`,
    without ``wait_for``. Arrays must have the planned strides and offsets, and lie together in buffers as the
    planned ones do; those on a CUDA device the planned strides and alignment. For NumPy arrays of other
    strides the plan that :func:`pyclmm.matmul_many` keeps for them is used.

    The plan keeps tables and kernel objects for each thread. :meth:`release` frees them, and
    :meth:`close`, or the end of a ``with`` block, ends the plan. Several threads may call a plan at once.

    Raises as :func:`pyclmm.matmul_many` does.
    """

    @guarded("ManyMatmul")
    def __init__(
        self,
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
        verify: Verify | None = None,
    ) -> None:
        given, ways = given_of(pairs, c, bias, out), (activation, kernel, precision, reproducible, verify)
        self._make(_ListCall(given, alpha, beta, ways, queue, device))

    def _make(self, call: _ListCall) -> None:
        environment.check()
        given = lists.in_full(call.given.pop())  # what is kept keeps no operands
        kind = _kind_of(given)
        self._many: Any = kind(given, call.layouts, call.options, call.queue, call.scalars)
        self._call, self._layouts, self._options, self._is_closed = call, call.layouts, call.options, False
        self._executables = self._many.executables

    @guarded("ManyMatmul")
    def __call__(
        self,
        pairs: Sequence[tuple[Any, Any]],
        out: Sequence[Any] | None = None,
        *,
        c: Sequence[Any] | None = None,
        bias: Sequence[Any] | None = None,
        queue: cl.CommandQueue | None = None,
        wait_for: list[cl.Event] | None = None,
    ) -> list[Any]:
        """Compute the products of operands like the planned ones, with the planned alpha and beta.

        Returns the results as :func:`pyclmm.matmul_many` does. Raises ArgumentError if the operands differ
        from the planned ones or the plan is closed, and as that does.
        """
        given = given_of(pairs, c, bias, out)
        found = layouts_of(given)
        plan = self if fits(self._layouts, found) else self._for_other_strides(given, found)
        if self._is_closed or plan is None:
            raise ArgumentError(_CLOSED if self._is_closed else mismatch(self._layouts, found))
        own = _queue_for(given, found, queue, None)
        # With NumPy arrays it has a queue of its own.
        is_host = isinstance(self._many, HostMany)
        return plan._run(given, None if queue is None and is_host else own, wait_for)

    def _for_other_strides(self, given: CallLists, found: Layouts) -> ManyMatmul | None:
        """matmul_many's plan for NumPy arrays of other strides, or another alignment; None for others."""
        return _planned(self._call.of(given, found)) if differ_in_strides(self._layouts, found) else None

    def _run(self, given: CallLists, queue: Any, wait_for: list[cl.Event] | None) -> list[Any]:
        """The results of lists that are known to fit."""
        lists.remember(given, self._layouts)
        events = events_of(wait_for, queue)
        results: list[Any] = self._many.run(given, queue, events)
        if given.like is not None or given.arrays is given.lists:
            return results
        return [
            kinds.returned(lists.operands_at(given.arrays, index), one) for index, one in enumerate(results)
        ]

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernel of each launch, that of the most operations first."""
        return tuple([x.choice.kernel.name for x in self._executables if x.choice])

    @property
    def verify(self) -> bool | str:
        """How its results are checked: False, True or "repair" (docs/verification.md)."""
        how: bool | str = self._options.verify
        return how

    def explain(self) -> list[Explanation]:
        """Why each launch has its kernel, as :meth:`pyclmm.Matmul.explain` says it."""
        return [one.explained(self._options.kernel) for one in self._executables]

    def release(self) -> None:
        """Free every thread's tables and kernel objects. The next call makes them again."""
        if isinstance(self._many, ManyByAddress):
            self._many.tables.clear()
        for one in self._executables:
            one.release()

    def close(self) -> None:
        """End the plan and free what :meth:`release` frees. Later calls raise ArgumentError."""
        self._is_closed = True
        self.release()

    def __enter__(self) -> ManyMatmul:
        if self._is_closed:
            raise ArgumentError(_CLOSED)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = "closed " if self._is_closed else ""
        lines = [
            f"{x.problem}: {x.choice.kernel.name} ({x.choice.config})" for x in self._executables if x.choice
        ]
        return "\n  ".join([f"<{closed}ManyMatmul of {len(lines)} launches>", *lines])


def _kind_of(given: CallLists) -> Any:
    if given.like is None:
        return DeviceMany if on_device(given.lists) else HostMany
    if isinstance(given.like, XlaArray):
        return import_module(".xla", __package__).XlaMany  # it needs JAX
    return CudaMany


class _ListCall:
    """A checked call, equal to another if the same plan computes both. Raises as matmul_many does."""

    def __init__(
        self, given: CallLists, alpha: Any, beta: Any, ways: tuple[Any, ...], queue: Any, device: Any
    ) -> None:
        count = len(given.lists["a"])
        self.scalars = _numbers("alpha", alpha, count), _numbers("beta", beta, count)
        self.options = _options(*ways)
        layouts = layouts_of(given)
        self.queue = _queue_for(given, layouts, queue, device)
        self._take(given, layouts)

    def _take(self, given: CallLists, layouts: Layouts) -> None:
        self.given, self.layouts = [given], layouts  # the lists until the plan is made
        # Equal numbers of other types need not be taken for the same results.
        types = [tuple(map(type, x)) if isinstance(x, tuple) else type(x) for x in self.scalars]
        where = self.queue.context, self.queue.device, type(self.queue)
        self.key = *where, self.options.key, self.scalars, *types, self.layouts

    def of(self, given: CallLists, layouts: Layouts) -> _ListCall:
        """The same call of other lists."""
        other = copy(self)
        other._take(given, layouts)
        return other

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ListCall) and self.key == other.key


def _numbers(name: str, value: Any, count: int) -> Any:
    """alpha or beta as plain numbers: one, or a tuple of one for each of *count* pairs; None for no beta.

    Raises ArgumentError for another number of them, DTypeError for what is no number.
    """
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if not isinstance(value, list | tuple):
        return _number(name, value)
    check_length(name, value, count)
    found: list[Any] = []
    try:
        for one in value:
            found.append(_number(name, one))
    except DTypeError as error:
        raise DTypeError(f"pairs[{len(found)}]: {error}") from None
    return tuple(found)


def _number(name: str, value: Any) -> Any:
    if value is None and name == "beta":
        return None
    return plain_numbers(value, 0.0)[0] if name == "alpha" else plain_numbers(0.0, value)[1]


def _options(activation: Any, kernel: Any, precision: Any, reproducible: Any, verify: Any) -> Options:
    """The options of a list. Raises as gemm does."""
    ways: dict[str, Any] = {"precision": precision, "reproducible": reproducible, "verify": verify}
    return options_of(activation=activation, kernel=kernel, **ways)


def _queue_for(given: CallLists, layouts: Layouts, queue: Any, device: DeviceChoice | None) -> Any:
    """The queue of a call: *queue*, that of the Arrays, or one on *device*. Raises as matmul does."""
    if given.like is not None:
        return queue_of({"a": given.like}, queue, device)
    arrays = given.lists
    operands: dict[str, Any] = {"a": arrays["a"][0] if arrays["a"] else np.empty(0)}
    if on_device(arrays):
        own = operands["a"].queue if queue is None else queue
        for (name, xs), firsts in zip(arrays.items(), layouts.firsts, strict=True):  # one of each buffer
            found = [pair for pair in dict.fromkeys(firsts) if xs[pair] is not None]
            operands |= {f"{name} of pairs[{pair}]": xs[pair] for pair in found if xs[pair].queue is not own}
    return queue_of(operands, queue, device)


@lru_cache(_KEPT)
def _planned(call: _ListCall) -> ManyMatmul:
    plan = ManyMatmul.__new__(ManyMatmul)
    plan._make(call)
    return plan


queues.at_release(_planned.cache_clear)


@queues.at_loss
def _forget(_context: Any) -> None:
    _planned.cache_clear()
