"""einsum: its arguments, and its contraction pair by pair."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
from pyopencl.array import Array

from ..errors import ArgumentError, ShapeError, amount, brief, in_short
from ..execution import kinds
from ..execution.operands import alike, queue_of
from ..execution.options import Options, events_of, options_of, wait_here
from ..opencl.arrays import check_buffer
from ..opencl.devices import DeviceChoice
from ..problem import subscripts
from ..problem.contraction import Label, contiguous, joined
from ..problem.dtypes import check_cast, check_casting, named_dtype, result_dtype, type_name
from ..problem.literals import Casting
from .pairs import Tensor, Ways, contracted, diagonal, total
from .views import has_views, permuted, plain

Path = list[tuple[int, ...]]  # in each step, the places of the operands that are taken out of the list


def split(arguments: Sequence[Any]) -> tuple[list[Any], Any]:
    """einsum's positional arguments as (operands, the subscripts: a string, or sublists and the result's)."""
    if len(arguments) < 2:
        raise ArgumentError('einsum got no operands; pass subscripts and operands, einsum("ij,jk->ik", a, b)')
    first = arguments[0].decode("latin-1") if isinstance(arguments[0], bytes) else arguments[0]
    if isinstance(first, str):
        return list(arguments[1:]), first
    operands = list(arguments[: len(arguments) // 2 * 2 : 2])
    out = arguments[-1] if len(arguments) % 2 else None
    return operands, (list(arguments[1 : 2 * len(operands) : 2]), out)


class Taken(NamedTuple):
    """The operands of a call by what errors call them, and ``out`` if there is one, as arrays of one kind.
    ``dtype``: what to compute in; None for NumPy's rule. ``own``: the caller's object for ``out``.
    """

    arrays: Mapping[str, Any]
    out: Any = None
    dtype: Any = None
    own: Any = None

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [x.shape for x in self.arrays.values()]


def taken(given: Mapping[str, Any], out: Any, keywords: dict[str, Any]) -> Taken:
    """The operands *given* and *out*. The dtype is that of *keywords*, or where it is None the one of the
    operands' library's own rule, if it has one. ``mixed`` and ``dtype`` are taken out of *keywords*, and
    ``wait_for``, which is waited for, where the host reads them. Raises as matmul does.
    """
    mixed, dtype = keywords.pop("mixed", None), keywords.pop("dtype", None)
    events = events_of(keywords.get("wait_for"))
    if mixed is not None:  # NumPy arrays are copied at once
        wait_here(events)
        events, keywords["wait_for"] = [], None
    found = alike({**given} if out is None else {**given, "out": out}, mixed, keywords.get("queue"))
    if events and isinstance(next(iter(found.values())), np.ndarray):
        wait_here(events)
        del keywords["wait_for"]
    for name, x in found.items():
        if name in given:
            type_name(x.dtype, name)
        if isinstance(x, Array):
            check_buffer(x, name)
    own = {kinds.computed_dtype({"a": x, "b": x}) for x in given.values()}
    dtype = own.pop() if dtype is None and len(own) == 1 else dtype
    return Taken({name: found[name] for name in given}, found.get("out"), dtype, out)


def contract(
    given: Taken,
    which: subscripts.Labelled,
    *,
    casting: Casting = "same_kind",
    optimize: Any = True,
    conj: Sequence[int] = (),
    queue: cl.CommandQueue | None = None,
    device: DeviceChoice | None = None,
    **keywords: Any,
) -> Any:
    """The contraction of what is *given*, whose labels are *which*. *conj* has the numbers of the operands
    that are conjugated. *keywords* are gemm's besides. What has an ``out`` is the caller's own object for it.
    """
    check_order(optimize)
    arrays, target = [*given.arrays.values()], given.out
    computed = common_dtype(given, casting)
    if target is not None:
        type_name(target.dtype, "out")
        check_cast(computed, target.dtype, "out", casting)
    named = {**given.arrays, "a": arrays[0]} | ({} if target is None else {"out": target})
    queue = queue_of(named, queue, device)
    options = asked_of(keywords)
    is_plain = options.kernel == "auto" and not (options.reproducible or options.verify)
    ways = Ways(which.lengths, computed, queue, casting, keywords, is_plain)
    if target is not None:
        check_out(target, ways.shape(which.out))
    tensors = [
        Tensor(x, labels, i in conj) for i, (x, labels) in enumerate(zip(arrays, which.operands, strict=True))
    ]
    alone = len(tensors) == 1 and target is None and has_views(arrays[0])
    view = _view(tensors[0], which.out, given.dtype is not None, ways) if alone else None
    if view is not None:
        return plain(view)
    path = path_of(which.operands, which.out, which.lengths, optimize)
    result = _along(tensors, path, which.out, ways, target)
    return plain(result) if target is None else given.own


def check_out(out: Any, wanted: tuple[int, ...]) -> None:
    """Raise ShapeError unless *out* has the shape *wanted*."""
    shape = tuple(out.shape)
    if shape != wanted:
        raise ShapeError(f"out has shape {shape}, but the result has shape {wanted}; pass an out of it")


def asked_of(keywords: Mapping[str, Any]) -> Options:
    """How the *keywords* of a call ask for products. Raises DTypeError and ArgumentError."""
    names = ("kernel", "precision", "reproducible", "verify")
    return options_of(**{name: keywords[name] for name in names if name in keywords})


def numbered(name: str, xs: Sequence[Any]) -> list[str]:
    """What errors call the entries *xs* of the argument *name*."""
    return [f"{name}[{i}]" for i in range(len(xs))]


def copied(x: Any, out: Any, **keywords: Any) -> Any:
    """*out*, an array of one kind with *x* and not NumPy's, with the elements of *x*."""
    labels = subscripts.parsed("...->...", [x.shape])
    return contract(Taken({"x": x}, out, own=out), labels, precision="highest", **keywords)


def counting_out(given: Taken, casting: Casting) -> Taken:
    """What is *given*, computed in a dtype that counts ``out``'s in too, as that of numpy.einsum does, unless
    one is asked for. Raises DTypeError for an ``out`` to which *casting* does not let the operands' be cast.
    """
    if given.out is None or given.dtype is not None:
        return given
    type_name(given.out.dtype, "out")
    check_cast(common_dtype(given, casting), given.out.dtype, "out", casting)
    computed = common_dtype(given._replace(arrays={**given.arrays, "out": given.out}), "unsafe")
    return given._replace(dtype=computed)


def common_dtype(given: Taken, casting: Casting) -> np.dtype[Any]:
    """The dtype of a product of all operands, to which they are promoted at once, as by numpy.einsum: two by
    two int8, uint16 and float32 would give float64. Raises DTypeError if *casting* lets one not be cast.
    """
    check_casting(casting)
    wanted = named_dtype(given.dtype)
    if wanted is not None:
        type_name(wanted, "dtype")
    types = {name: x.dtype for name, x in given.arrays.items()}
    if wanted is None:
        wanted = np.result_type(*[result_dtype(x, x, None, None) for x in types.values()])
    for name, own in types.items():
        check_cast(own, wanted, name, casting)
    return wanted


def _view(x: Tensor, out: tuple[Label, ...], typed: bool, ways: Ways) -> Any:
    """The view of one operand that is its result, if nothing is summed or converted. Unless the result is
    *typed* by the caller it keeps the operand's dtype, also one of another byte order.
    """
    if (typed and x.array.dtype != ways.dtype) or set(x.labels) != set(out):
        return None
    x = diagonal(x, ways)
    return permuted(x.array, [x.labels.index(label) for label in out])


def _along(tensors: list[Tensor], path: Path, out: tuple[Label, ...], ways: Ways, target: Any) -> Any:
    """The contraction of *tensors* in the steps of *path*; those of a step go from left to right."""
    for step, after in zip(path, [*path, ()][1:], strict=True):
        taken = [tensors[place] for place in step]
        tensors = [x for place, x in enumerate(tensors) if place not in step]
        while len(taken) > 1:
            a, b, *taken = taken
            if not (taken or tensors):
                return contracted(a, b, out, ways, target)
            partner = _partner(taken, tensors, after)
            needed = {*out, *(label for x in (*taken, *tensors) for label in x.labels)}
            labels = _ordered(a, b, needed, partner, ways)
            taken.insert(0, Tensor(contracted(a, b, labels, ways), labels))
        tensors += taken
    return total(tensors[0], out, ways, target)


def _partner(taken: Sequence[Tensor], tensors: Sequence[Tensor], after: tuple[int, ...]) -> Tensor | None:
    """What the next product is multiplied with: the rest of this step, else of the step *after* it. None if
    that step leaves it out. The next product goes behind the other *tensors*.
    """
    here = len(tensors)
    others = [tensors[place] for place in after if place != here] if here in after else []
    return next(iter((*taken, *others)), None)


def _ordered(
    a: Tensor, b: Tensor, needed: Collection[Label], partner: Tensor | None, ways: Ways
) -> tuple[Label, ...]:
    """The *needed* labels of a and b in the order of a new array: first a's, or first b's. The order is that
    in which the labels that *partner* has too become fewer axes.
    """
    orders = [
        tuple(label for label in dict.fromkeys((*x.labels, *y.labels)) if label in needed)
        for x, y in ((a, b), (b, a))
    ]
    if partner is None:
        return orders[0]
    strides = partner.strides(ways.lengths)

    def axes(order: tuple[Label, ...]) -> int:
        shared = [label for label in order if label in strides]
        return len(joined(shared, ways.lengths, (contiguous(order, ways.lengths), strides)))

    return min(orders, key=axes)


def path_of(
    operands: Sequence[tuple[Label, ...]], out: tuple[Label, ...], lengths: Mapping[Label, int], optimize: Any
) -> Path:
    """The steps by *optimize*: a word of opt_einsum's or numpy.einsum's, True, False (from left to right), or
    a path. Raises ArgumentError for another word.
    """
    if _is_path(optimize):
        return _checked([step for step in optimize if not isinstance(step, str)], len(operands))
    if len(operands) <= 2 or optimize is False:
        return [tuple(range(len(operands)))]
    import opt_einsum  # noqa: PLC0415 - it takes 16 ms, and most products have two operands

    symbol = {label: opt_einsum.get_symbol(i) for i, label in enumerate(lengths)}
    terms = ["".join(symbol[x] for x in labels) for labels in (*operands, out)]
    shapes = [tuple(lengths[x] for x in labels) for labels in operands]
    word, limit = optimize if isinstance(optimize, list | tuple) and len(optimize) == 2 else (optimize, None)
    subscripts = f"{','.join(terms[:-1])}->{terms[-1]}"
    try:
        if limit == 0:
            limit = 1  # no temporary array is so small; opt_einsum takes no 0, as NumPy does
        found, _ = opt_einsum.contract_path(
            subscripts, *shapes, shapes=True, optimize="auto" if word is True else word, memory_limit=limit
        )
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise _no_order(optimize, in_short(error)) from error
    return _checked(found, len(operands))  # of an empty set or the like opt_einsum makes no step


def check_order(optimize: Any) -> None:
    """Raise ArgumentError for what is no order, whatever the operands: no path, no word with a limit of
    memory or none, no function of opt_einsum's.
    """
    word, limit = optimize, None
    if isinstance(optimize, list | tuple) and not _is_path(optimize):
        word, *limits = optimize
        limit = limits[0] if len(limits) == 1 else limits
    is_limit = limit is None or isinstance(limit, int | float | np.number | str)
    is_word = word is None or isinstance(word, bool | str) or callable(word) or _is_path(word)
    if not (is_word and is_limit):
        raise _no_order(optimize, f"it is a {type(optimize).__name__}")


def _no_order(optimize: Any, why: str) -> ArgumentError:
    return ArgumentError(
        f"optimize is {brief(optimize)}: {why}; pass True, False, 'greedy', 'optimal', or a path of "
        "numpy.einsum_path"
    )


def _is_path(optimize: Any) -> bool:
    """Whether these are steps, perhaps behind the word that numpy.einsum_path puts before them."""
    return isinstance(optimize, list | tuple) and not any(
        isinstance(each, str) and each != "einsum_path" for each in optimize
    )


def _checked(path: Sequence[Any], operands: int) -> Path:
    if not all(isinstance(step, list | tuple) for step in path):
        raise ArgumentError(f"optimize: the path {brief(path)} is no list of steps; see numpy.einsum_path")
    left = operands
    for step in path:
        fits = all(isinstance(place, int | np.integer) and 0 <= place < left for place in step)
        if not (step and fits and len(set(step)) == len(step)):
            raise ArgumentError(
                f"optimize: the step {brief(step)} of the path does not fit {amount(left, 'operands')}; "
                "see einsum_path"
            )
        left -= len(step) - 1
    if left != 1:
        raise ArgumentError(
            f"optimize: the path leaves {amount(left, 'operands')}; each step takes some and puts one back"
        )
    return [tuple(step) for step in path]
