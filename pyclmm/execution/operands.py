"""The arrays of a call: all NumPy arrays or all pyopencl Arrays; their signature and their queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray
from pyopencl.array import Array, to_device

from ..cuda import arrays as cuda_arrays
from ..cuda.arrays import CudaArray, XlaArray
from ..cuda.streams import Stream, context_of
from ..errors import ArgumentError, DTypeError, brief
from ..opencl import arrays, forks, host_memory
from ..opencl.devices import DeviceChoice, find_device
from ..opencl.queues import check_queue, free_queue, queue_on
from ..opencl.steps import Scales
from ..problem.axes import core_axes, last
from ..problem.canonical import Epilogue, checked_gemm
from ..problem.dtypes import type_name
from ..problem.gemm import Gemm, Layout, Layouts, Operand, dense, overlapping, reaching
from ..problem.literals import Mixed
from ..problem.ragged import SIZES, ragged_gemm
from ..raising import guarded
from .array_likes import array_of
from .kinds import common_kind, types_of, views_on_host
from .options import Options

ArrayT = TypeVar("ArrayT", NDArray[Any], Array)  # the type of a plan's operands and of its result
Operands = Mapping[str, Any]  # by argument name: "a", "b", and those given of "c", "bias", "out"
# What tells where an array begins, what it shares memory with and whether two are one view.
_MODULES: dict[type, Any] = {
    np.ndarray: host_memory,
    Array: arrays,
    CudaArray: cuda_arrays,
    XlaArray: cuda_arrays,
}


def named(a: Any, b: Any, c: Any, bias: Any, out: Any, others: Operands | None = None) -> dict[str, Any]:
    """The operands that were given, by name. *others*: further ones of EXTRAS, which may be None."""
    found = {"a": a, "b": b}
    if c is not None:
        found["c"] = c
    if bias is not None:
        found["bias"] = bias
    if others is not None:
        found.update((name, x) for name, x in others.items() if x is not None)
    if out is not None:
        found["out"] = out
    return found


def single(out: tuple[Any, ...]) -> Any:
    """The array of ``out=(x,)``, as NumPy's ufuncs take it."""
    if len(out) != 1:
        raise ArgumentError(
            f"The 'out' tuple must have exactly one entry per ufunc output: it has {len(out)}; "
            "pass (x,), or x"
        )
    return out[0]


def collect(given: Operands, mixed: Mixed = None, queue: cl.CommandQueue | None = None) -> Operands:
    """The operands *given* as arrays. What is like an array becomes one (:func:`array_of`).

    Raises DTypeError for what is no array, and for NumPy arrays beside Arrays unless *mixed* is "copy": then
    those go to the Arrays' device, by *queue* or that of the Arrays.
    """
    kinds = set(map(type, given.values()))
    if mixed is None and len(kinds) == 1 and kinds <= _MODULES.keys():
        return given
    return alike(given, mixed, queue)


@guarded("arrays")
def alike(given: Operands, mixed: Mixed, queue: cl.CommandQueue | None) -> Operands:
    """:func:`collect` for operands that are not all of exactly one type."""
    check_mixed(mixed)
    if all(isinstance(x, CudaArray) for x in given.values()):
        return given
    kind = common_kind(given)
    if kind is not None:
        read = views_on_host(kind, given)
        if read is not None:
            return read
        return {name: kind.cuda_array(name, x) for name, x in kind.together(given).items()}
    found = {name: array_of(name, x) for name, x in given.items()}
    on_device = {name: x for name, x in found.items() if isinstance(x, Array)}
    if len(on_device) in (0, len(found)):
        return found
    if mixed is None or "out" in found.keys() - on_device.keys():
        raise DTypeError(
            f"{types_of(found)}: pass all NumPy arrays or all pyopencl Arrays; mixed='copy' of matmul, "
            "gemm and pyclmm.linalg copies NumPy inputs to the device; out must be an Array"
        )
    queue = arrays.common_queue(on_device, queue)
    return {name: on_device[name] if name in on_device else sent(x, name, queue) for name, x in found.items()}


def check_mixed(mixed: Any) -> None:
    """Raise ArgumentError unless *mixed* is None or "copy"."""
    if not (mixed is None or (isinstance(mixed, str) and mixed == "copy")):
        raise ArgumentError(
            f"mixed is {brief(mixed)}; pass 'copy' to copy NumPy arrays to the device of the Arrays"
        )


def sent(x: NDArray[Any], name: str, queue: cl.CommandQueue) -> Array:
    """A copy of *x* on the device of *queue*. Raises ForkError."""
    forks.check_process()
    type_name(x.dtype, name)
    return to_device(
        queue, np.ascontiguousarray(x.astype(x.dtype.newbyteorder("="), copy=False)).reshape(x.shape)
    )


def check_writeable(out: NDArray[Any]) -> None:
    """Raise ArgumentError unless *out* is writeable. Warns where numpy.matmul does.

    To read ``flags.writeable`` of a result of np.broadcast_arrays warns. Such a result does not own its
    memory, and ``__array_interface__``, which takes a microsecond, says that it is read-only.
    """
    if out.flags.writeable if out.flags.owndata else not out.__array_interface__["data"][1]:
        return
    try:
        np.copyto(out, False, where=False)  # writes nothing; NumPy warns, once for each array, or refuses
    except ValueError:
        raise ArgumentError("out is read-only; pass a writeable array, or none to get a new one") from None


def on_host(operands: Operands) -> bool:
    """Whether these are NumPy arrays."""
    return isinstance(operands["a"], np.ndarray)


class Signature(NamedTuple):
    """What a plan depends on: the type of the arrays, their layouts, and the operands that out overlaps."""

    kind: type
    layouts: Layouts
    overlapping: tuple[str, ...]


def signature(operands: Operands) -> Signature:
    """The signature of *operands*, which are all of one kind."""
    kind = type(operands["a"])
    if kind not in _MODULES:
        kind = Array  # of a subclass
    its = _MODULES[kind]
    layouts = [
        Layout(name, x.shape, x.strides, x.dtype, x.dtype.char, its.phase(x)) for name, x in operands.items()
    ]
    return Signature(kind, tuple(layouts), overlapping(operands, its.may_share, its.same_view))


def fits(planned: Signature, given: Signature) -> bool:
    """Whether a plan for operands of the one signature multiplies those of the other."""
    return given == planned or _reaching(given) == _reaching(planned)


def _reaching(its: Signature) -> Signature:
    layouts = tuple([one._replace(strides=reaching(one.shape, one.strides)) for one in its.layouts])
    return its._replace(layouts=layouts)


_KINDS = {
    np.ndarray: "a NumPy array",
    Array: "a pyopencl Array",
    CudaArray: "an array on a CUDA device",
    XlaArray: "an array of JAX's on a CUDA device",
}
# Of a Layout: a field and what it is, what a caller looks at first first.
_FIELDS = {
    "shape": "shape",
    "dtype": "dtype",
    "strides": "stride in bytes",
    "letter": "dtype's letter",
    "phase": "place between aligned addresses",
}


def mismatch(planned: Signature, given: Signature) -> str:
    """How the operands of a call differ from those that a plan was made for."""
    if given.kind is not planned.kind:
        return f"a is {_KINDS[given.kind]}, the plan is for {_KINDS[planned.kind]}; make a plan for it"
    wanted, found = ({layout.name: layout for layout in its.layouts} for its in (planned, given))
    for name in dict.fromkeys([*wanted, *found]):
        if name not in wanted:
            return (
                f"{name} is given, but the plan was made without; leave it out, or make a plan with {name}="
            )
        if name not in found:
            return f"{name} is missing: the plan was made with it; pass it, or make a plan without"
        for field, what in _FIELDS.items():
            its, planned_its = getattr(found[name], field), getattr(wanted[name], field)
            if its != planned_its:
                return unfit(name, what, its, planned_its)
    return "out overlaps other operands than it did when the plan was made; make a plan for that"


def unfit(name: str, what: str, its: Any, planned: Any) -> str:
    """The message for the operand *name* of a call, of which *what* is another one than that of the plan."""
    return (
        f"{name} is not what the plan was made for: its {what} is {its}, the plan's {planned}; make a plan "
        "for it"
    )


def queue_of(operands: Operands, queue: cl.CommandQueue | None, device: DeviceChoice | None = None) -> Any:
    """The queue to use: *queue*, else one on *device*, else that of the Arrays, else a free one.

    For arrays on a CUDA device it is the stream in which their library works now.
    Raises ArgumentError if *device* contradicts *queue* or the Arrays, DTypeError if *queue* is not a queue.
    """
    if device is not None:
        return _queue_on(operands, queue, device)
    forks.check_process()
    if isinstance(operands["a"], CudaArray):
        return _stream_of(operands, queue)
    if queue is not None:
        check_queue(queue)
    if isinstance(operands["a"], Array):
        return arrays.common_queue(operands, queue)
    return queue or free_queue()


def _stream_of(operands: Operands, queue: Any) -> Stream:
    """The stream in which the library of arrays on a CUDA device works now."""
    if isinstance(queue, Stream):  # it was asked before
        return queue
    if queue is not None:
        raise ArgumentError(
            f"queue is a {type(queue).__name__}, but the arrays are on a CUDA device, and the stream in "
            "which their library works is used: leave queue out"
        )
    ordinal = cuda_arrays.common_ordinal(operands)
    return Stream(context_of(ordinal), operands["a"].kind.stream(ordinal))


def _queue_on(operands: Operands, queue: cl.CommandQueue | None, device: DeviceChoice) -> cl.CommandQueue:
    """A queue on *device*. Raises ArgumentError if a queue is given too, or the Arrays are elsewhere."""
    if queue is not None:
        check_queue(queue, device)
    if on_host(operands):
        return queue_on(device)
    if isinstance(operands["a"], CudaArray):
        raise ArgumentError(
            "device is given, but the product is computed where the arrays are, on CUDA; leave it out"
        )
    own, wanted = arrays.common_queue(operands, None), find_device(device)
    if own.device != wanted:
        raise ArgumentError(
            f"device is {wanted.name.strip()!r}, but the Arrays are on {own.device.name.strip()!r}; "
            "leave device out, or copy the Arrays there"
        )
    return own


def checked(
    layouts: Mapping[str, Operand],
    options: Options,
    scales: Scales,
    out_is_copied: bool,
    host_align: int | None = None,
    in_tiles: bool = False,
) -> Gemm:
    """The checked product of operands with these layouts. Arguments and errors as :func:`checked_gemm`;
    ArgumentError too for a beta without c."""
    alpha, beta = scales
    if beta != 0 and "c" not in layouts:
        raise ArgumentError(f"beta is {brief(beta)} but there is no c to multiply it with; pass c, or beta=0")
    common = ("dtype", "casting", "precision", "reproducible", "b_format")
    ways = {"host_align": host_align} | {name: getattr(options, name) for name in common}
    if SIZES in layouts:
        return ragged_gemm(layouts, out_is_copied, **ways)
    return checked_gemm(
        layouts["a"], layouts["b"], out=layouts.get("out"), trans_a=options.trans_a, trans_b=options.trans_b,
        epilogue=Epilogue(layouts, options.activation, reads_c=beta != 0), alpha_is_zero=alpha == 0,
        out_is_copied=out_is_copied, in_tiles=in_tiles, quantize_a=options.quantize_a or "", **ways,
    )  # fmt: skip


def problem_name(gemm: Gemm, name: str) -> str:
    """The problem's name of the user's operand *name*, and the reverse: "a" and "b" are exchanged in a
    transposed product."""
    return {"a": "b", "b": "a"}.get(name, name) if gemm.swapped else name


def read_operands(gemm: Gemm, operands: Iterable[str]) -> list[tuple[str, str]]:
    """(the user's name, the problem's name) of the arrays that a kernel reads."""
    pairs = [(name, problem_name(gemm, name)) for name in operands if name != "out"]
    return [(name, problem_name) for name, problem_name in pairs if problem_name not in gemm.unread]


def used_layouts(gemm: Gemm, layouts: Layouts) -> list[tuple[str, ...]]:
    """(name, shape, strides, dtype, how a call uses it) of each operand of *layouts*, and of the result."""
    found: dict[str, Layout | Operand] = {its.name: its for its in layouts}
    found.setdefault("out", dense(gemm.shape, gemm.dtype))
    rows: list[tuple[str, ...]] = []
    for name, its in found.items():
        own = str(np.dtype(its.dtype))
        rows.append((name, str(tuple(its.shape)), str(tuple(its.strides)), own, _use(gemm, name, own)))
    return rows


def _use(gemm: Gemm, name: str, dtype: str) -> str:
    """How a call uses the operand called *name* in the user's call, whose elements are of *dtype*."""
    inner = problem_name(gemm, name)
    copied = gemm.out_copy is not None if name == "out" else inner in dict(gemm.copies)
    needed = getattr(gemm.problem, f"{inner}_type")
    if needed != dtype:
        return f"converted from {needed}" if name == "out" else f"converted to {needed}"
    return "copied" if copied else "in place"


def with_core_axes_last(operands: Operands, axes: Any) -> tuple[Operands, tuple[int, ...]]:
    """Views of *operands* with the core axes that *axes* names last, and the core axes of the result."""
    if "out" in operands and on_host(operands):
        check_writeable(operands["out"])  # the first that NumPy looks at
    cores = core_axes({name: x.ndim for name, x in operands.items()}, axes)
    views = {name: x.transpose(last(x.ndim, cores[name])) for name, x in operands.items()}
    return views, cores["out"]
