"""einsum: its arguments, and its contraction pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyopencl as cl

from ..errors import ArgumentError, ShapeError
from ..execution.operands import alike, queue_of
from ..opencl.devices import DeviceChoice
from ..problem import subscripts
from ..problem.contraction import Label, contiguous, joined
from ..problem.dtypes import check_cast, check_casting, named_dtype, result_dtype, type_name
from ..problem.order import Path, path_of
from ..problem.words import Casting, Mixed, Precision
from ..selection.select import KernelChoice
from .pairs import Tensor, Ways, contracted, diagonal, total
from .signatures import unexpected
from .views import permuted, plain


def split(arguments: Sequence[Any]) -> tuple[list[Any], Any]:
    """einsum's positional arguments as (operands, the subscripts: a string, or sublists and the result's)."""
    if len(arguments) < 2:
        raise ArgumentError('einsum got no operands; pass subscripts and operands, einsum("ij,jk->ik", a, b)')
    if isinstance(arguments[0], str):
        return list(arguments[1:]), arguments[0]
    operands = list(arguments[: len(arguments) // 2 * 2 : 2])
    out = arguments[-1] if len(arguments) % 2 else None
    return operands, (list(arguments[1 : 2 * len(operands) : 2]), out)


def contract(
    operands: Sequence[Any],
    labels_of: Callable[[Sequence[Any]], subscripts.Labelled],
    *,
    out: Any = None,
    dtype: Any = None,
    casting: Casting = "same_kind",
    optimize: Any = True,
    conj: Sequence[int] = (),
    queue: cl.CommandQueue | None = None,
    device: DeviceChoice | None = None,
    mixed: Mixed = None,
    kernel: KernelChoice = "auto",
    precision: Precision | None = None,
    reproducible: bool | None = None,
    wait_for: list[cl.Event] | None = None,
    **unknown: Any,
) -> Any:
    """The contraction of *operands*. *labels_of* gives their labels once they are arrays.

    *conj* has the numbers of the operands that are conjugated.
    """
    if unknown:
        raise unexpected(next(iter(unknown)))
    names = ["a", "b"] if len(operands) == 2 else [f"operand {i}" for i in range(len(operands))]
    found = alike(
        dict(zip(names, operands, strict=True)) | ({} if out is None else {"out": out}), mixed, queue
    )
    arrays, target = [found[name] for name in names], found.get("out")
    computed = common_dtype(arrays, names, dtype, casting)
    which = labels_of(arrays)
    queue = queue_of({**found, "a": arrays[0]}, queue, device)
    products = {"kernel": kernel, "precision": precision, "reproducible": reproducible, "wait_for": wait_for}
    ways = Ways(which.lengths, computed, queue, casting, products)
    if target is not None and tuple(target.shape) != ways.shape(which.out):
        raise ShapeError(
            f"out has shape {tuple(target.shape)}, but the result has shape {ways.shape(which.out)}; pass "
            f"an out of it"
        )
    tensors = [
        Tensor(x, labels, i in conj) for i, (x, labels) in enumerate(zip(arrays, which.operands, strict=True))
    ]
    alone = len(tensors) == 1 and target is None
    view = _view(tensors[0], which.out, dtype is not None, ways) if alone else None
    if view is not None:
        return plain(view)
    result = _along(
        tensors, path_of(which.operands, which.out, which.lengths, optimize), which.out, ways, target
    )
    return plain(result) if out is None else out


def common_dtype(arrays: Sequence[Any], names: Sequence[str], dtype: Any, casting: Casting) -> np.dtype[Any]:
    """The dtype of a product of all arrays. Raises DTypeError if *casting* does not allow one to be cast."""
    check_casting(casting)
    given = named_dtype(dtype)
    if given is not None:
        type_name(given, "dtype")
    types = [x.dtype for x in arrays]
    first = types[0]
    common = reduce(
        lambda x, y: result_dtype(x, y, None, None), types[1:], result_dtype(first, first, None, None)
    )
    computed = common if given is None else given
    for name, own in zip(names, types, strict=True):
        check_cast(own, computed, name, casting)
    return computed


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
    for step, after in zip(path, [*path[1:], ()], strict=True):
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
    """What the next product is multiplied with: the rest of this step, else of the step *after* it.

    None if that step leaves it out. The next product goes behind the other *tensors*.
    """
    here = len(tensors)
    others = [tensors[place] for place in after if place != here] if here in after else []
    return next(iter((*taken, *others)), None)


def _ordered(
    a: Tensor, b: Tensor, needed: Collection[Label], partner: Tensor | None, ways: Ways
) -> tuple[Label, ...]:
    """The *needed* labels of a and b in the order of a new array: first a's, or first b's.

    The order is that in which the labels that *partner* has too become fewer axes.
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
