"""ManyMatmul: a list of products planned once and computed many times."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import pyopencl as cl

from .. import environment
from ..errors import ArgumentError, UnsupportedError
from ..execution import kinds
from ..execution.operands import queue_of
from ..execution.options import Options, events_of, options_of, plain_numbers
from ..opencl.arrays import Array
from ..opencl.devices import DeviceChoice
from ..problem.literals import Activation, Precision
from ..problem.settings import chosen, is_reproducible, is_verified
from ..raising import guarded
from ..selection.explanation import Explanation, explain
from ..selection.select import KernelChoice
from .apart import Lists
from .device import DeviceMany
from .host import HostMany
from .lists import CallLists, check_length, given_of, mismatch, operands_at, signature

_CLOSED = "the plan is closed: its `with` block has ended, or close() was called; make another ManyMatmul"


class ManyMatmul:
    """A list of products, planned for operands of these shapes, dtypes and layouts.

    ``plan = ManyMatmul(pairs)`` checks each pair, groups the products into launches and builds their kernels.
    ``plan(pairs)`` then only packs and enqueues. The arguments are those of :func:`pyclmm.matmul_many`,
    without ``wait_for``. NumPy arrays may have other strides in each call. Arrays must have the planned
    strides and offsets, and lie together in buffers as the planned ones do.

    The plan keeps the memory into which operands are packed, for each thread. :meth:`release` frees it, and
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
    ) -> None:
        given = given_of(pairs, c, bias, out)
        count = len(given.lists["a"])
        scalars = numbers_of("alpha", alpha, count), numbers_of("beta", beta, count)
        options = checked_options(activation, kernel, precision, reproducible)
        self._prepare(given, options, queue_for(given.lists, queue, device), scalars)

    def _prepare(self, given: CallLists, options: Options, queue: Any, scalars: tuple[Any, Any]) -> None:
        environment.check()
        self._signature: Any = signature(given)  # None: it is closed
        self._options = options
        self._many: HostMany | DeviceMany | None = None  # of an empty list
        if given.lists["a"]:
            kind = DeviceMany if isinstance(given.lists["a"][0], Array) else HostMany
            self._many = kind(given, options, queue, scalars)

    @classmethod
    def of(cls, given: CallLists, options: Options, queue: Any, scalars: tuple[Any, Any]) -> ManyMatmul:
        """A plan for what is checked already."""
        made = cls.__new__(cls)
        made._prepare(given, options, queue, scalars)
        return made

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
        found = signature(given)
        if found != self._signature:
            raise ArgumentError(_CLOSED if self._signature is None else mismatch(self._signature, found))
        own = queue_for(given.lists, queue, None)
        is_free = queue is None and isinstance(self._many, HostMany)  # it has a queue of its own
        return self.run(given, None if is_free else own, wait_for)

    def run(self, given: CallLists, queue: Any, wait_for: list[cl.Event] | None) -> list[Any]:
        """The same for lists that are known to fit."""
        if self._many is None:
            return []
        results = self._many.run(given.lists, queue, events_of(wait_for))
        if given.arrays is given.lists:
            return results
        return [kinds.returned(operands_at(given.arrays, index), one) for index, one in enumerate(results)]

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernel of each launch, that of the most operations first."""
        return tuple([x.choice.kernel.name for x in self._executables if x.choice])

    def explain(self) -> list[Explanation]:
        """Why each launch has its kernel, as :meth:`pyclmm.Matmul.explain` says it."""
        return [
            explain(
                x.problem,
                x.device,
                x.choice,
                requested=self._options.kernel,
                launches=[launch.kernel for launch in x.work.launches],
                workspace_nbytes=x.work.workspace_nbytes,
                failed=x.failed,
            )
            for x in self._executables
        ]

    @property
    def _executables(self) -> list[Any]:
        return [] if self._many is None else [group.executable for group in self._many.groups]

    def release(self) -> None:
        """Free every thread's packed operands and kernel objects. The next call makes them again."""
        if self._many is not None:
            self._many.release()

    def close(self) -> None:
        """End the plan and free what :meth:`release` frees. Later calls raise ArgumentError."""
        self._signature = None
        self.release()

    def __enter__(self) -> ManyMatmul:
        if self._signature is None:
            raise ArgumentError(_CLOSED)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = "closed " if self._signature is None else ""
        lines = [
            f"{x.problem}: {x.choice.kernel.name} ({x.choice.config})" for x in self._executables if x.choice
        ]
        return "\n  ".join([f"<{closed}ManyMatmul of {len(lines)} launches>", *lines])


def numbers_of(name: str, value: Any, count: int) -> Any:
    """alpha or beta as plain numbers: one, or a tuple of one for each of *count* pairs; None for no beta.

    Raises ArgumentError for another number of them, DTypeError for what is no number.
    """
    if isinstance(value, list | tuple):
        check_length(name, value, count)
        return tuple([numbers_of(name, x, count) for x in value])
    if value is None and name == "beta":
        return None
    return plain_numbers(value, 0.0)[0] if name == "alpha" else plain_numbers(0.0, value)[1]


def checked_options(activation: Any, kernel: Any, precision: Any, reproducible: Any) -> Options:
    """The options of a list. Raises as gemm does, and UnsupportedError within pyclmm.verified()."""
    if is_verified(None):
        raise UnsupportedError(
            "lists of products are not verified; multiply them outside pyclmm.verified(), or one by one"
        )
    ways = {"precision": chosen(precision), "reproducible": is_reproducible(reproducible), "verify": False}
    return options_of({"activation": activation, "kernel": kernel, **ways})


def queue_for(lists: Lists, queue: Any, device: DeviceChoice | None) -> Any:
    """The queue of a call: *queue*, that of the Arrays, or one on *device*. Raises as matmul does."""
    if not lists["a"]:
        return None
    first = lists["a"][0]
    operands = {"a": first}
    if isinstance(first, Array):
        own = first.queue if queue is None else queue
        for name, xs in lists.items():
            others = [index for index, x in enumerate(xs) if x is not None and x.queue is not own]
            operands |= {f"{name} of pairs[{index}]": xs[index] for index in others}
    return queue_of(operands, queue, device)
