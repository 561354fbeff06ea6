"""Matmul: a product planned once and enqueued many times, on NumPy arrays or pyopencl Arrays."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic, overload

import pyopencl as cl
from numpy.typing import DTypeLike, NDArray
from pyopencl.array import Array

from . import repr_tables
from .errors import ArgumentError, DTypeError
from .execution import kinds
from .execution.device_path import BoundCall, DevicePath
from .execution.operands import ArrayT, Operands, collect, named, queue_of, signature, unfit, used_layouts
from .execution.options import Options, WithOptions, beta_of, computed_in, events_of, plain_numbers
from .execution.prepared import CLOSED, Prepared
from .execution.weights import as_given, format_of, unpacked
from .kernels.config import TileConfig
from .kernels.interface import Program
from .opencl.devices import DeviceChoice
from .opencl.late_events import as_list
from .problem.literals import Activation, Casting, Precision, Rounded, Trans, Verify
from .raising import guarded, raise_of_system
from .selection.explanation import Estimate, Explanation
from .selection.select import KernelChoice
from .untraced import untraced

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .execution.keywords import PlanKeywords

_LAYOUT = ("operand", "shape", "strides, bytes", "dtype", "used")


class Matmul(WithOptions, Generic[ArrayT]):
    """A product planned for operands of one shape, dtype and layout.

    ``Matmul(a, b)`` checks the operands, chooses a kernel, builds it and sees that there is workspace. After
    that ``plan(a, b)`` only enqueues. The arguments are those of :func:`pyclmm.gemm` without ``wait_for``,
    which each call takes, and two more:

    workspace_limit
        The most bytes of workspace that a call may use: a number, or a text such as "64 MiB". Kernels that
        need more are not used.
    constant_b
        True: you promise that the memory of b does not change while the plan exists. If the kernel packs
        all of b at once, the first call packs it, and later calls pack again only if another b is passed or
        the workspace was released. The plan keeps b alive and its workspace to itself, whatever
        :func:`pyclmm.keep_workspace` says. Nothing is saved where the kernel reads b as it is: as a rule on
        GPUs, and for small products.

    Raises as :func:`pyclmm.gemm` does.

    Several threads may call a plan at once. A call borrows workspace, which the plans of a thread share.
    :meth:`release` frees what the plan has, and the next call makes it again. :meth:`close`, or the end of
    ``with Matmul(a, b) as plan:``, ends the plan. A plan belongs to its process and cannot be pickled or
    copied.
    """

    @overload
    def __init__(
        self: Matmul[NDArray[Any]],
        a: NDArray[Any],
        b: NDArray[Any],
        c: NDArray[Any] | None = None,
        /,
        *,
        bias: NDArray[Any] | None = None,
        out: NDArray[Any] | None = None,
        **keywords: Unpack[PlanKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Matmul[Array],
        a: Array,
        b: Array,
        c: Array | None = None,
        /,
        *,
        bias: Array | None = None,
        out: Array | None = None,
        **keywords: Unpack[PlanKeywords],
    ) -> None: ...
    @guarded("Matmul")
    def __init__(
        self,
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
        workspace_limit: int | str | None = None,
        constant_b: bool = False,
    ) -> None:
        options = Options(
            trans_a=trans_a, trans_b=trans_b, activation=activation, kernel=kernel, precision=precision,
            reproducible=reproducible, casting=casting, verify=verify, quantize_a=quantize_a,
            b_format=format_of(b), workspace_limit=workspace_limit, constant_b=constant_b,
            dtype=dtype,
        )  # fmt: skip
        given = unpacked(named(a, b, c, bias, out), trans_a, trans_b)
        operands, own_dtype = collect(given), kinds.computed_dtype(given)
        if dtype is None and own_dtype is not None:
            options = computed_in(options, own_dtype)
        own = queue_of(operands, queue, device)
        self._product = Prepared(
            operands, signature(operands), options, own, plain_numbers(alpha, beta_of(beta, c))
        )
        self._executable, self._options = self._product.executable, options
        self._has_same_bits = self._executable.problem.has_same_bits
        self._shapes_of_weights = (b.data.shape, b.shape) if options.b_format else (None, None)

    @untraced
    def __call__(
        self,
        a: ArrayT,
        b: ArrayT,
        c: ArrayT | None = None,
        /,
        *,
        bias: ArrayT | None = None,
        out: ArrayT | None = None,
        alpha: complex | None = None,
        beta: complex | None = None,
        queue: cl.CommandQueue | None = None,
        wait_for: list[cl.Event] | None = None,
    ) -> ArrayT:
        """Compute the product of operands with the shapes, dtypes and layouts that the plan was made for.

        *alpha* and *beta* are those of the plan unless they are given. Returns ``out`` or a new array: a
        NumPy array is complete, a pyopencl Array is complete when its events are. Raises ArgumentError if the
        operands differ from the planned ones or the plan is closed, and LaunchError, DeviceMemoryError or
        DeviceLostError as :func:`pyclmm.gemm` does.
        """
        arrays = named(a, b, c, bias, out)
        given = self._unpacked(arrays)
        try:
            again: ArrayT | None = self._product.again(
                given, queue, self._product.scales_of(alpha, beta), wait_for
            )
            if again is not None:
                return again if given is arrays else as_given(arrays, again)
            operands = collect(given)
            own, scales = self._product.checked(operands, queue, alpha, beta)
            returned: ArrayT = kinds.returned(arrays, self._product.run(operands, own, scales, wait_for))
            return returned
        except MemoryError as error:
            raise_of_system(error, "a plan's product", a, b, c, bias, out)
            raise

    def enqueue(
        self,
        a: ArrayT,
        b: ArrayT,
        c: ArrayT | None = None,
        /,
        *,
        out: ArrayT,
        bias: ArrayT | None = None,
        alpha: complex | None = None,
        beta: complex | None = None,
        queue: cl.CommandQueue | None = None,
        wait_for: list[cl.Event] | None = None,
    ) -> list[cl.Event]:
        """Enqueue the product of pyopencl Arrays and return the events of its launches in order.

        On an in-order queue without profiling it is one event, of the last launch; without ``wait_for`` it is
        made when the list is first looked at. Raises DTypeError for a plan for NumPy arrays, and as
        :meth:`__call__` does.
        """
        path, given = self._on_arrays("enqueue"), self._unpacked(named(a, b, c, bias, out))
        if self._product.signature is not None and out is not None:
            again = path.again(given, queue, self._product.scales_of(alpha, beta), wait_for)
            if again is not None:
                return as_list(again[1])
        operands = collect(given)
        own, scales = self._product.checked(operands, queue, alpha, beta)
        events = events_of(wait_for, own)
        enqueue = partial(path.enqueue, operands, path.out_of(operands), own, scales, events)
        return self._executable.launched(own, enqueue)

    def bind(
        self,
        a: ArrayT,
        b: ArrayT,
        c: ArrayT | None = None,
        /,
        *,
        out: ArrayT,
        bias: ArrayT | None = None,
        alpha: complex | None = None,
        beta: complex | None = None,
        queue: cl.CommandQueue | None = None,
    ) -> BoundCall:
        """A call of the plan on these pyopencl Arrays: ``call()`` is a faster ``plan(a, b, out=out)``.

        It has kernel objects of its own: only the operands' events are looked at again. It multiplies what is
        in their present memory, keeps them alive, belongs to this thread, and does not end with the plan.
        Raises DTypeError for a plan for other arrays, and as :meth:`__call__` does.
        """
        path, operands = self._on_arrays("bind"), collect(self._unpacked(named(a, b, c, bias, out)))
        return BoundCall(path, operands, *self._product.checked(operands, queue, alpha, beta))

    def _unpacked(self, given: Operands) -> Operands:
        """The operands *given*, quantised weights as bytes. Raises ArgumentError for those of another format
        or shape than the plan's."""
        found, planned = format_of(given["b"]), self._options.b_format
        if found != planned:
            its, planned = (name or "no quantised weights" for name in (found, planned))
            raise ArgumentError(f"b is {its}, the plan is for {planned}; make a plan for it")
        if not found:
            return given
        read, (of_bytes, of_weights) = unpacked(given, self._options.trans_a), self._shapes_of_weights
        if given["b"].data.shape != of_bytes:  # the caller knows the other one
            raise ArgumentError(unfit("b", "shape", given["b"].shape, of_weights))
        return read

    def _on_arrays(self, method: str) -> DevicePath:
        path = self._product.path
        if not isinstance(path, DevicePath):
            raise DTypeError(f"{method} takes pyopencl Arrays; call a plan for other arrays: plan(a, b)")
        return path

    @property
    def kernel(self) -> str | None:
        """The kernel's name; None if the result is empty, so that nothing is enqueued."""
        choice = self._executable.choice
        return choice.kernel.name if choice else None

    @property
    def config(self) -> TileConfig | None:
        """The kernel's tile sizes and options; None if the result is empty."""
        choice = self._executable.choice
        return choice.config if choice else None

    @property
    def workspace_nbytes(self) -> int:
        """Bytes of device memory that a call uses besides operands and result."""
        return self._executable.work.workspace_nbytes

    def estimate(self) -> Estimate:
        """The operations, the fewest bytes that must be moved, and the workspace in bytes."""
        problem = self._executable.problem
        return Estimate(problem.flops, problem.nbytes, self.workspace_nbytes)

    def explain(self) -> Explanation:
        """Why this kernel was chosen, its arithmetic, and the estimates or refusals of the other kernels."""
        elsewhere = getattr(self._product.path, "elsewhere", None)
        return self._executable.explained(self._options.kernel, elsewhere)

    def release(self) -> None:
        """Free every thread's kernel objects, and unshared workspace. The next call makes them again."""
        self._executable.release()

    def close(self) -> None:
        """End the plan and free what :meth:`release` frees. Later calls raise ArgumentError."""
        self._product.close()

    def __enter__(self) -> Matmul[ArrayT]:
        if self._product.signature is None:
            raise ArgumentError(CLOSED)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        table = repr_tables.text(_LAYOUT, self._layout()).replace("\n", "\n  ")
        return f"<{self._title()}>\n  {table}"

    def _repr_html_(self) -> str:
        return repr_tables.html(_LAYOUT, self._layout(), self._title())

    def _title(self) -> str:
        executable = self._executable
        closed = "closed " if self._product.signature is None else ""
        how = f"{self.kernel} ({self.config})" if self.kernel else "nothing to compute"
        return f"{closed}Matmul {executable.problem}: {how} on {executable.device.name}"

    def _layout(self) -> list[tuple[str, ...]]:
        """A row for each operand and for the result."""
        planned = self._product.signature
        return used_layouts(self._executable.gemm, () if planned is None else planned.layouts)


def programs_of(plan: Matmul[Any]) -> frozenset[Program]:
    """The programs that the launches of *plan* run."""
    return plan._product.programs


def failures_of(plan: Matmul[Any]) -> list[str]:
    """ "kernel: reason" of each kernel that failed before the one that *plan* uses."""
    return plan._executable.failed
