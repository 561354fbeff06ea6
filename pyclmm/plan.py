"""Matmul: a product planned once and enqueued many times, on NumPy arrays or pyopencl Arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
from numpy.typing import DTypeLike

from . import arrays, forks, host
from .binding import Binding
from .config import TileConfig
from .device import device_info
from .dtypes import dtype_of
from .errors import ArgumentError, DTypeError
from .execute import Executable
from .precision import chosen
from .problem import Epilogue, Gemm, Operand, check_writeable, checked_gemm, dense
from .queues import default_queue
from .select import KernelChoice

Operands = Mapping[str, Any]  # by argument name: "a", "b", and where given "c", "bias", "out"


@dataclass(frozen=True)
class Options:
    """What a plan depends on besides its operands; :func:`pyclmm.gemm` says what each means."""

    trans_a: str = "N"
    trans_b: str = "N"
    activation: str | None = None
    kernel: KernelChoice = "auto"
    precision: str = "highest"
    dtype: np.dtype[Any] | None = None
    workspace_limit: int | None = None
    constant_b: bool = False

    def __post_init__(self) -> None:
        for name in ("trans_a", "trans_b"):
            _check_kind(name, getattr(self, name), isinstance(getattr(self, name), str), "a string")
        named = self.activation is None or isinstance(self.activation, str)
        _check_kind("activation", self.activation, named, "a string, or None")
        if not isinstance(self.kernel, str):
            kinds = [type(part) for part in self.kernel] if isinstance(self.kernel, tuple) else []
            fits = kinds == [str, TileConfig]
            _check_kind("kernel", self.kernel, fits, "a kernel's name, or (name, TileConfig)")


def _check_kind(name: str, value: Any, fits: bool, wanted: str) -> None:
    if not fits:
        raise DTypeError(f"{name} is {value!r}; pass {wanted}")


@dataclass(frozen=True)
class Estimate:
    """The least that a product must do, and the device memory that its plan adds."""

    flops: int
    nbytes: int
    workspace_nbytes: int

    @property
    def intensity(self) -> float:
        """Operations a byte moved."""
        return self.flops / max(1, self.nbytes)


def collect(a: Any, b: Any, c: Any = None, bias: Any = None, out: Any = None) -> dict[str, Any]:
    """The operands that were given, by name. DTypeError for what is no array and for mixed kinds."""
    found = {"a": a, "b": b}
    if c is not None:
        found["c"] = c
    if bias is not None:
        found["bias"] = bias
    if out is not None:
        found["out"] = out
    kinds = {type(x) for x in found.values()}
    return found if kinds in (_DEVICE, _HOST) else _converted(found)


_DEVICE, _HOST = {cla.Array}, {np.ndarray}


def _converted(found: dict[str, Any]) -> dict[str, Any]:
    """:func:`collect` for what is not simply all of one kind."""
    for name, value in found.items():
        x = np.asarray(value) if isinstance(value, np.generic) else value
        if not isinstance(x, np.ndarray | cla.Array):
            raise DTypeError(
                f"{name} is a {type(x).__name__}; pass a NumPy array (np.asarray({name})) or a "
                "pyopencl.array.Array"
            )
        found[name] = x
    if len({isinstance(x, np.ndarray) for x in found.values()}) > 1:
        listed = ", ".join(
            f"{name} is a {type(x).__module__}.{type(x).__name__}" for name, x in found.items()
        )
        raise DTypeError(f"{listed}: pass all NumPy arrays or all pyopencl Arrays")
    return found


def on_host(operands: Operands) -> bool:
    """Whether these are NumPy arrays."""
    return isinstance(operands["a"], np.ndarray)


def queue_of(operands: Operands, queue: cl.CommandQueue | None) -> cl.CommandQueue:
    """The queue to use: the one given, else the arrays' own, else the default."""
    if queue is not None and not isinstance(queue, cl.CommandQueue):
        raise DTypeError(f"queue is a {type(queue).__name__}; pass a pyopencl.CommandQueue")
    if queue is None and not on_host(operands):
        queue = next((x.queue for x in operands.values() if x.queue is not None), None)
        if queue is None:
            raise ArgumentError("none of the Arrays has a queue; pass queue=")
    forks.check_process()
    queue = queue or default_queue()
    if not on_host(operands):
        for name, x in operands.items():
            arrays.check_context(x, queue.context, name)
    return queue


_CLASHES = "overlapping out"  # the part of a signature that belongs to no single operand


def signature(operands: Operands) -> tuple[Any, ...]:
    """What must stay the same for a plan to be used again."""
    own: list[tuple[Any, ...]]
    if on_host(operands):
        own = [(n, x.shape, x.strides, x.dtype, x.flags.aligned, _low_bits(x)) for n, x in operands.items()]
    else:
        own = [(n, x.shape, x.strides, x.dtype, x.offset & 63) for n, x in operands.items()]
    out = operands.get("out")
    if out is not None:
        overlaps = host.overlaps if on_host(operands) else arrays.overlaps
        own.append((_CLASHES, *_clashes(operands, out, overlaps)))
    return tuple(own)


def _low_bits(x: np.ndarray[Any, Any]) -> int:
    address: int = x.__array_interface__["data"][0]
    return address & (host.HOST_ALIGN - 1)


def _clashes(operands: Operands, out: Any, overlaps: Any) -> list[str]:
    """The operands that writing ``out`` would spoil. C in place is no clash: a kernel reads
    C(i, j) only where it is about to write out(i, j)."""
    clashing = []
    for name, x in operands.items():
        in_place = name == "c" and (x is out or _same_view(x, out))
        if name != "out" and not in_place and overlaps(x, out):
            clashing.append(name)
    return clashing


def _same_view(x: Any, y: Any) -> bool:
    if isinstance(x, np.ndarray):
        return bool(x.__array_interface__ == y.__array_interface__)
    mine, other = ((v.shape, v.strides, v.dtype, v.offset, v.base_data) for v in (x, y))
    return bool(mine == other)


class Matmul:
    """A product planned for operands of one shape, dtype and layout.

    ``Matmul(a, b)`` checks, chooses a kernel, builds it and allocates workspace; ``plan(a, b)`` then
    only enqueues. Takes the arguments of :func:`pyclmm.gemm` (``wait_for`` belongs to the call), and
    ``workspace_limit``, the most bytes of device memory the plan may add to the operands. With
    ``constant_b=True`` you promise that the memory of b does not change while the plan lives: what
    has to be packed of it is packed by the first call, and again only where another b is passed.

    A plan may be called from many threads at once. ``with Matmul(a, b) as plan:`` gives the
    workspace back at the end.
    """

    def __init__(
        self,
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
        workspace_limit: int | None = None,
        constant_b: bool = False,
    ) -> None:
        options = Options(
            trans_a,
            trans_b,
            activation,
            kernel,
            chosen(precision),
            None if dtype is None else np.dtype(dtype),
            workspace_limit,
            constant_b,
        )
        operands = collect(a, b, c, bias, out)
        self._prepare(operands, options, queue_of(operands, queue), alpha, beta)

    @classmethod
    def of(
        cls,
        operands: Operands,
        options: Options,
        queue: cl.CommandQueue,
        alpha: complex,
        beta: complex,
    ) -> Matmul:
        """A plan from operands that :func:`collect` has checked."""
        plan = cls.__new__(cls)
        plan._prepare(operands, options, queue, alpha, beta)
        return plan

    def _prepare(
        self,
        operands: Operands,
        options: Options,
        queue: cl.CommandQueue,
        alpha: complex,
        beta: complex,
    ) -> None:
        check_numbers(alpha, beta)
        self._signature = signature(operands)
        self._alpha, self._beta = alpha, beta
        self._queue = queue
        self._on_host = on_host(operands)
        if self._on_host:
            self._way: _HostWay | _DeviceWay = _HostWay(operands, options, queue, alpha, beta)
        else:
            self._way = _DeviceWay(operands, options, queue, alpha, beta)
        self._executable = self._way.executable

    def __call__(
        self,
        a: Any,
        b: Any,
        c: Any = None,
        /,
        *,
        bias: Any = None,
        out: Any = None,
        alpha: complex | None = None,
        beta: complex | None = None,
        queue: cl.CommandQueue | None = None,
        wait_for: list[cl.Event] | None = None,
    ) -> Any:
        """Compute the product of operands like those planned for.

        Returns ``out``, or a new array: NumPy's is complete, a pyopencl Array's events say when it
        will be. Raises ArgumentError for operands the plan was not made for.
        """
        operands = collect(a, b, c, bias, out)
        if signature(operands) != self._signature:
            raise ArgumentError(self._mismatch(operands))
        alpha = self._alpha if alpha is None else alpha
        beta = self._beta if beta is None else beta
        self.check_scalars(alpha, beta)
        if (alpha == 0) != (self._alpha == 0) or (beta == 0) != (self._beta == 0):
            raise ArgumentError("a plan is made for zero or nonzero alpha and beta; make another plan")
        own = self._queue if self._on_host and queue is None else queue_of(operands, queue)
        return self.run(operands, own, alpha, beta, wait_for)

    def check_scalars(self, alpha: complex, beta: complex) -> None:
        """Raise DTypeError for scalars that the result's type cannot represent."""
        if type(alpha) is not float or type(beta) is not float or self._executable.gemm.dtype.kind in "biu":
            check_scalars(self._executable.gemm, alpha, beta)

    def run(
        self,
        operands: Operands,
        queue: cl.CommandQueue,
        alpha: complex,
        beta: complex,
        wait_for: list[cl.Event] | None,
    ) -> Any:
        """:meth:`__call__` on operands known to fit the plan."""
        waits = _events(wait_for)
        return self._way.run(operands, queue, {"alpha": alpha, "beta": beta}, waits)

    def enqueue(self, a: Any, b: Any, c: Any = None, /, *, out: Any, **kwargs: Any) -> list[cl.Event]:
        """Enqueue on pyopencl Arrays and return the launches' events in order, for profiling."""
        if self._on_host:
            raise DTypeError("enqueue takes pyopencl Arrays; a plan for NumPy arrays blocks")
        self(a, b, c, out=out, **kwargs)
        return self._way.events

    def _mismatch(self, operands: Operands) -> str:
        planned = {name: rest for name, *rest in self._signature}
        given = {name: rest for name, *rest in signature(operands)}
        for name in dict.fromkeys([*planned, *given]):
            if name != _CLASHES and planned.get(name) != given.get(name):
                return (
                    f"{name} is not what the plan was made for: it has (shape, strides, dtype, ...) "
                    f"{given.get(name)}, the plan {planned.get(name)}; make a plan for it"
                )
        return "out overlaps other operands than it did when the plan was made; make a plan for that"

    @property
    def kernel(self) -> str | None:
        """The kernel's name; None where the result is empty and nothing is enqueued."""
        choice = self._executable.choice
        return choice.kernel.name if choice else None

    @property
    def config(self) -> TileConfig | None:
        """The kernel's tile sizes."""
        choice = self._executable.choice
        return choice.config if choice else None

    @property
    def precision(self) -> str:
        """What the plan was made with."""
        return self._executable.gemm.problem.precision

    @property
    def workspace_nbytes(self) -> int:
        """Device memory beyond operands and result, in bytes, for each thread and queue in use."""
        return self._executable.recipe.workspace_nbytes

    def estimate(self) -> Estimate:
        """The operations, the bytes that must move at least, and the workspace."""
        problem = self._executable.problem
        return Estimate(problem.flops, problem.nbytes, self.workspace_nbytes)

    def __enter__(self) -> Matmul:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._executable.release()

    def __repr__(self) -> str:
        return f"<Matmul {self._executable.problem}: {self.kernel} {self.config}>"


def _checked(
    specs: Mapping[str, Operand], options: Options, alpha: complex, beta: complex, clash: bool
) -> Gemm:
    if beta != 0 and "c" not in specs:
        raise ArgumentError(f"beta is {beta} but there is no c to multiply it with; pass c, or beta=0")
    epilogue = Epilogue(specs.get("c") if beta != 0 else None, specs.get("bias"), options.activation)
    if "c" in specs and beta == 0:  # checked all the same, never read
        checked = Epilogue(specs["c"], specs.get("bias"), options.activation)
        _gemm(specs, options, checked, alpha, clash)
    return _gemm(specs, options, epilogue, alpha, clash)


def _gemm(
    specs: Mapping[str, Operand], options: Options, epilogue: Epilogue, alpha: complex, clash: bool
) -> Gemm:
    return checked_gemm(
        specs["a"],
        specs["b"],
        out=specs.get("out"),
        dtype=options.dtype,
        trans_a=options.trans_a,
        trans_b=options.trans_b,
        epilogue=epilogue,
        alpha_is_zero=alpha == 0,
        out_overlaps=clash,
        precision=options.precision,
    )


def _events(wait_for: Any) -> list[cl.Event]:
    """A list of its own of the events to wait for."""
    if wait_for is None:
        return []
    if not isinstance(wait_for, list | tuple) or not all(isinstance(e, cl.Event) for e in wait_for):
        raise DTypeError(f"wait_for is {wait_for!r}; pass a list of pyopencl.Event")
    return list(wait_for)


def check_numbers(alpha: Any, beta: Any) -> None:
    """alpha and beta must be numbers."""
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not isinstance(value, int | float | complex | np.number):
            raise DTypeError(f"{name} is a {type(value).__name__}; pass a number")


def check_scalars(gemm: Gemm, alpha: complex, beta: complex) -> None:
    """alpha and beta must be representable in the result's type."""
    check_numbers(alpha, beta)
    for name, value in (("alpha", alpha), ("beta", beta)):
        if gemm.dtype.kind != "c" and isinstance(value, complex | np.complexfloating):
            raise DTypeError(f"{name} is complex, but the result is {gemm.dtype}; pass a real number")
        if gemm.dtype.kind in "biu" and not (isinstance(value, int) or float(value.real).is_integer()):
            raise DTypeError(f"{name} is {value}, but the result is {gemm.dtype}; pass a whole number")


def _user_name(gemm: Gemm, name: str) -> str:
    """The user's name of a problem's operand: the transposed product exchanges a and b."""
    return {"a": "b", "b": "a"}.get(name, name) if gemm.swapped else name


def _slots(gemm: Gemm) -> dict[str, str]:
    """The problem's name of each of the user's operands."""
    return {_user_name(gemm, name): name for name in ("a", "b", "c", "bias", "out")}


class _DeviceWay:
    """A plan's way for pyopencl Arrays: no copies but those on the device, returns at once."""

    def __init__(
        self,
        operands: Operands,
        options: Options,
        queue: cl.CommandQueue,
        alpha: complex,
        beta: complex,
    ) -> None:
        specs = {name: arrays.operand(x) for name, x in operands.items()}
        out = operands.get("out")
        clash = out is not None and bool(_clashes(operands, out, arrays.overlaps))
        gemm = _checked(specs, options, alpha, beta, clash)
        check_scalars(gemm, alpha, beta)
        self.events: list[cl.Event] = []
        self._constant_b = options.constant_b
        self._slots = {name: (slot, f"{slot}_offset") for name, slot in _slots(gemm).items()}
        self.executable = Executable(queue, gemm, options.kernel, options.workspace_limit)

    def run(
        self,
        operands: Operands,
        queue: cl.CommandQueue,
        values: dict[str, Any],
        wait_for: list[cl.Event],
    ) -> Any:
        gemm = self.executable.gemm
        out = operands.get("out")
        if out is None:
            out = arrays.empty(queue, gemm.shape, gemm.dtype, operands["a"], self.executable.device)
            operands = {**operands, "out": out}
        if gemm.is_empty:
            return out
        binding = self.executable.binding(queue)
        for name, x in operands.items():
            buffer, offset = self._slots[name]
            wait_for += x.events
            data = x.base_data
            if data is None or not x.size:
                values[buffer], values[offset] = binding.nothing, 0
            else:
                values[buffer] = data
                values[offset] = arrays.element_offset(x, name) if x.offset else 0
        binding.fill_unused(values)
        constant = (self._slots["b"][0], arrays.location(operands["b"])) if self._constant_b else None
        events = binding.enqueue(values, wait_for, constant)
        out.add_event(events[-1])
        self.events = events
        return out


class _HostWay:
    """A plan's way for NumPy arrays: converts what kernels cannot read, wraps the rest in place."""

    def __init__(
        self,
        operands: Operands,
        options: Options,
        queue: cl.CommandQueue,
        alpha: complex,
        beta: complex,
    ) -> None:
        self.events: list[cl.Event] = []
        out = operands.get("out")
        if out is not None:
            check_writeable(out.flags.writeable)
        self._convert: dict[str, np.dtype[Any]] = {}
        self._constant_b = options.constant_b
        self._device = device_info(queue.device)
        gemm = _checked(self._specs(operands), options, alpha, beta, clash=False)
        check_scalars(gemm, alpha, beta)
        self._convert = {_user_name(gemm, n): dtype_of(copy.target_type) for n, copy in gemm.copies}
        clash = out is not None and bool(_clashes(operands, out, host.overlaps))
        self._in_place = out is not None and not clash and gemm.out_copy is None and host.is_addressable(out)
        kept = {n: x for n, x in operands.items() if n != "out" or self._in_place}
        specs = self._specs(kept)
        if not self._in_place:
            specs["out"] = replace(dense(gemm.shape, gemm.dtype), align=host.HOST_ALIGN)
        gemm = _checked(specs, options, alpha, beta, clash=False)
        self.executable = Executable(queue, gemm, options.kernel, options.workspace_limit)

    def _specs(self, operands: Operands) -> dict[str, Operand]:
        return {name: host.operand(self._ready(name, x), self._device) for name, x in operands.items()}

    def _ready(self, name: str, x: Any) -> Any:
        """*x* as a kernel reads it; the array itself where that is possible."""
        if name == "out":  # one that kernels cannot address is filled from a dense result
            return x if host.is_addressable(x) else np.empty(x.shape, x.dtype.newbyteorder("="))
        if name in self._convert:
            return np.array(x, dtype=self._convert[name], order="C", copy=True)
        return host.compact(host.addressable(x), self._device)

    def run(
        self,
        operands: Operands,
        queue: cl.CommandQueue,
        values: dict[str, Any],
        wait_for: list[cl.Event],
    ) -> Any:
        gemm = self.executable.gemm
        out = operands.get("out")
        if out is not None:
            check_writeable(out.flags.writeable)
        target: Any = out if self._in_place else np.empty(gemm.shape, gemm.dtype)
        if not gemm.is_empty:
            self._compute(operands, target, queue, values, wait_for)
        if out is None:
            return target if target.ndim else target[()]  # 1-D @ 1-D is a scalar, as NumPy's
        if target is not out:
            np.copyto(out, target, casting="same_kind")
        return out

    def _compute(
        self,
        operands: Operands,
        target: Any,
        queue: cl.CommandQueue,
        values: dict[str, Any],
        wait_for: list[cl.Event],
    ) -> None:
        binding = self.executable.binding(queue)
        buffers = host.HostBuffers(queue, self._device)
        try:
            self._multiply(operands, target, binding, buffers, values, wait_for)
        except BaseException:  # Ctrl-C too: the caller may free its arrays, or write to them
            buffers.settle()
            raise

    def _multiply(
        self,
        operands: Operands,
        target: Any,
        binding: Binding,
        buffers: host.HostBuffers,
        values: dict[str, Any],
        wait_for: list[cl.Event],
    ) -> None:
        gemm = self.executable.gemm
        for name in (n for n in operands if n != "out"):
            slot = _user_name(gemm, name)
            x = self._ready(name, operands[name])
            buffer, offset = buffers.read(x, name) if x.size else (binding.nothing, 0)
            values[slot], values[f"{slot}_offset"] = buffer, offset
        values["out"], start, span = buffers.write(target)
        values["out_offset"] = start
        binding.fill_unused(values)
        b = operands["b"]
        constant = (_user_name(gemm, "b"), host.location(b)) if self._constant_b else None
        events = binding.enqueue(values, wait_for + buffers.uploads, constant)
        buffers.bring_back(values["out"], span, events[-1:])
