"""Lists of products: matmul_many, and ManyMatmul, a list planned once and computed many times."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
from numpy.typing import DTypeLike
from pyopencl.array import Array

from .. import environment
from ..cuda.arrays import CudaArray
from ..errors import ArgumentError, DeviceLostError, DTypeError, amount
from ..execution import kinds
from ..execution.operands import queue_of
from ..execution.options import Options, WithOptions, events_of, options_of, plain_number
from ..opencl import queues
from ..opencl.devices import DeviceChoice
from ..opencl.single_flight import LastUsed
from ..problem.literals import Activation, Precision, Verify
from ..raising import guarded
from ..selection.explanation import Explanation
from ..selection.select import KernelChoice
from . import lists
from .cuda import CudaMany
from .device import DeviceMany
from .host import HostMany
from .lists import CallLists, given_of, lists_of
from .shapes import refuse_shapes, unwritten

_plans: LastUsed[Any, ManyMatmul] = LastUsed(16)
queues.at_release(_plans.forget)
queues.at_loss(lambda _context: _plans.forget())
# By the type of the arrays that kernels get.
_KINDS: dict[type, Any] = {np.ndarray: HostMany, Array: DeviceMany, CudaArray: CudaMany}
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
    given, asked = _asked(
        pairs, out, c=c, bias=bias, alpha=alpha, beta=beta, queue=queue, device=device, activation=activation,
        kernel=kernel, precision=precision, reproducible=reproducible, verify=verify,
    )  # fmt: skip
    try:
        return _planned(given, asked)._run(given, asked.queue, wait_for)
    except DeviceLostError:
        queues.forget(asked.queue.context)
        raise


class ManyMatmul(WithOptions):
    """A list of products, planned for operands of these shapes, dtypes and layouts.

    ``plan = ManyMatmul(pairs)`` checks each pair, groups the products into launches and builds their kernels.
    ``plan(pairs)`` then only enqueues. The arguments are those of :func:`pyclmm.matmul_many`,
    without ``wait_for``, and one more:

    dtype
        With it pairs, out, c and bias hold shapes in place of arrays, as in
        ``ManyMatmul([((m, k), (k, n)), ...], dtype=np.float32)``. All arrays of a call have this dtype.

    Arrays must have the planned strides and offsets, and lie together in buffers as the planned ones do;
    those on a CUDA device the planned strides and alignment. For NumPy arrays of other strides the plan that
    :func:`pyclmm.matmul_many` keeps for them is used. A plan of shapes is made for C-contiguous NumPy arrays,
    and takes any arrays of these shapes: of others the first call makes a plan, which is kept likewise.

    The plan keeps tables and kernel objects for each thread. :meth:`release` frees them, and
    :meth:`close`, or the end of a ``with`` block, ends the plan. Several threads may call a plan at once.

    Raises as :func:`pyclmm.matmul_many` does.
    """

    _takes_any = False  # arrays of any library, strides and place

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
        dtype: DTypeLike | None = None,
    ) -> None:
        if dtype is None:
            refuse_shapes(pairs)
        asked = _asked(
            pairs, out, c=c, bias=bias, alpha=alpha, beta=beta, queue=queue, device=device, kernel=kernel,
            activation=activation, precision=precision, reproducible=reproducible, verify=verify,
            of_shapes=dtype,
        )  # fmt: skip
        self._make(*asked)
        self._takes_any = dtype is not None

    def _make(self, given: CallLists, asked: _ListCall) -> ManyMatmul:
        environment.check()
        # What lists of JAX's need imports JAX.
        make = _KINDS.get(given.layouts.kind) or import_module(".xla", __package__).XlaMany
        self._many: Any = make(lists.in_full(given), asked.options, asked.queue, asked.scalars)
        self._layouts, self._asked, self._is_closed = given.layouts, asked, False
        self._options, self._has_same_bits = asked.options, self._many.has_same_bits
        self._executables = self._many.executables
        return self

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
        if self._is_closed:
            raise ArgumentError(_CLOSED)
        given, planned, plan = given_of(lists_of(pairs, c, bias, out)), self._layouts, self
        its_fits = lists.fits(planned, given.layouts)
        if not its_fits and (why := lists.mismatch(planned, given.layouts, self._takes_any)):
            raise ArgumentError(why)
        if queue is None and given.layouts.kind is np.ndarray:
            queue = self._asked.queue
        queue = _queue_for(given, queue, None)
        if not its_fits:
            plan = _planned(given, self._asked._replace(queue=queue))
        return plan._run(given, queue, wait_for)

    def _run(self, given: CallLists, queue: Any, wait_for: list[cl.Event] | None) -> list[Any]:
        """The results of lists that are known to fit."""
        results: list[Any] = self._many.run(given, queue, events_of(wait_for, queue))
        if given.like is not None or given.arrays is given.lists:
            return results
        return [kinds.returned(given.arrays.pair(index), one) for index, one in enumerate(results)]

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernel of each launch, that of the most operations first."""
        return tuple([x.choice.kernel.name for x in self._executables if x.choice])

    def explain(self) -> list[Explanation]:
        """Why each launch has its kernel, as :meth:`pyclmm.Matmul.explain` says it."""
        return [one.explained(self._options.kernel) for one in self._executables]

    def release(self) -> None:
        """Free every thread's tables and kernel objects. The next call makes them again."""
        self._many.release()

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
        return "\n  ".join([f"<{closed}ManyMatmul of {amount(len(lines), 'launches')}>", *lines])


class _ListCall(NamedTuple):
    """What is asked of lists: alpha and beta, each a number for all or a tuple, are the scalars."""

    options: Options
    scalars: tuple[Any, Any]
    queue: Any


def _asked(
    pairs: Any, out: Any, *, c: Any, bias: Any, alpha: Any, beta: Any, queue: Any, device: Any,
    of_shapes: DTypeLike | None = None, **ways: Any,
) -> tuple[CallLists, _ListCall]:  # fmt: skip
    """The lists of a call, and what is asked of them, *ways* by options. *of_shapes*: the dtype of arrays
    of which only shapes are given. Raises as matmul_many does."""
    own = lists_of(pairs, c, bias, out)
    given = given_of(own if of_shapes is None else unwritten(own, of_shapes))
    count = given.lists.length
    scalars = _numbers("alpha", alpha, count), _numbers("beta", beta, count)
    return given, _ListCall(options_of(**ways), scalars, _queue_for(given, queue, device))


def _planned(given: CallLists, asked: _ListCall) -> ManyMatmul:
    """The plan that is kept for such lists, or a new one."""
    queue, scalars = asked.queue, asked.scalars
    # Equal numbers of other types need not be taken for the same results.
    types = [tuple(map(type, x)) if isinstance(x, tuple) else type(x) for x in scalars]
    key = queue.context, queue.device, type(queue), asked.options.key, scalars, *types, given.layouts
    make = ManyMatmul.__new__(ManyMatmul)._make
    return _plans.get(key, lambda: make(given, asked))


def _numbers(name: str, value: Any, count: int) -> Any:
    """alpha or beta as plain numbers: one, or a tuple of one for each of *count* pairs; None for no beta.

    Raises ArgumentError for another number of them, DTypeError for what is no number.
    """

    def number(one: Any) -> Any:
        return None if one is None and name == "beta" else plain_number(name, one)

    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if not isinstance(value, list | tuple):
        return number(value)
    lists.check_length(name, value, count)
    found: list[Any] = []
    try:
        for one in value:
            found.append(number(one))
    except DTypeError as error:
        raise DTypeError(f"pairs[{len(found)}]: {error}") from None
    return tuple(found)


def _queue_for(given: CallLists, queue: Any, device: DeviceChoice | None) -> Any:
    """The queue of a call: *queue*, that of the Arrays, or one on *device*. Raises as matmul does."""
    names, arrays = given.lists
    operands: dict[str, Any] = {"a": given.like or (arrays[0] if arrays else np.empty(0))}
    if given.layouts.kind is Array:
        own = operands["a"].queue if queue is None else queue
        for at in dict.fromkeys(given.layouts.firsts):  # one of each buffer
            if arrays[at] is not None and arrays[at].queue is not own:
                name, pair = names[at // given.lists.length], at % given.lists.length
                operands[f"{name} of pairs[{pair}]"] = arrays[at]
    return queue_of(operands, queue, device)
