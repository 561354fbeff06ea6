"""One pair of labelled arrays, contracted as one stacked gemm; sums over axes of one array; copies."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyopencl as cl

from ..api import gemm, matmul
from ..execution.casts import cast_into, real_if_cast
from ..execution.operands import check_writeable
from ..opencl.host_memory import may_share
from ..opencl.mappings import shares_file
from ..problem.contraction import Dense, Label, View, joined, stacked
from ..problem.dtypes import ELEMENTS, drops_parts, dtype_of, type_name
from ..problem.literals import Casting
from .repeated import Computation, computed
from .views import new, one, permuted, viewed

_FEWER = 4  # times as many elements as an operand that would be copied has than partial sums that NumPy adds


@dataclass(frozen=True)
class Tensor:
    """An array with a label for each axis; ``conj``: its conjugate is meant."""

    array: Any
    labels: tuple[Label, ...]
    conj: bool = False

    def strides(self, lengths: Mapping[Label, int]) -> dict[Label, int]:
        """The stride of each label: the diagonal's for a repeated one, 0 for an axis that is broadcast."""
        found: dict[Label, int] = {}
        for label, length, stride in zip(self.labels, self.array.shape, self.array.strides, strict=True):
            found[label] = found.get(label, 0) + (stride if length == lengths[label] else 0)
        return found


@dataclass(frozen=True)
class Ways:
    """How products are computed: the lengths of the labels, the dtype, the rule for casts, the queue.
    *keywords* are gemm's besides: kernel, precision, reproducible, wait_for. *is_plain*: they ask for no
    kernel, bits or check.
    """

    lengths: Mapping[Label, int]
    dtype: np.dtype[Any]
    queue: cl.CommandQueue
    casting: Casting = "same_kind"
    keywords: Mapping[str, Any] = field(default_factory=dict)
    is_plain: bool = True

    def shape(self, labels: Sequence[Label]) -> tuple[int, ...]:
        return tuple(self.lengths[x] for x in labels)


def contracted(a: Tensor, b: Tensor, labels: tuple[Label, ...], ways: Ways, out: Any = None) -> Any:
    """The sum over all labels but *labels* of a times b, in *out* or a new array. That is C-contiguous, but
    what NumPy multiplies lies in the order of the operands.
    """
    a = summed(a, {*b.labels, *labels}, ways)
    b = summed(b, {*a.labels, *labels}, ways)
    single: list[Label] = []  # labels of sums of one term. NumPy would take long to add zeros to float16
    if ways.is_plain and _is_exact(ways):
        single = [x for x in a.labels if x in b.labels and x not in labels and ways.lengths[x] == 1]
    a, b = _without(a, single), _without(b, single)
    if isinstance(a.array, np.ndarray) and _is_elementwise(a, b, labels, ways):
        return _multiplied(a, b, labels, ways, out, is_sum=bool(single))
    if out is None:
        out = new(ways.shape(labels), ways.dtype, a.array, ways.queue)
    return _product(a, b, labels, ways, out)


def _is_elementwise(a: Tensor, b: Tensor, labels: tuple[Label, ...], ways: Ways) -> bool:
    """Whether NumPy multiplies: nothing is summed, and an axis is common or an operand is one number.

    A kernel's bits differ from NumPy's: of zeros the sign, of complex numbers the last bit, which in NumPy
    depends on the processor.
    """
    shared = set(a.labels) & set(b.labels)
    if not ways.is_plain and (ways.dtype.kind == "c" or not shared):
        return False
    return shared <= set(labels) and bool(shared or not (a.labels and b.labels))


def diagonal(x: Tensor, ways: Ways) -> Tensor:
    """*x* with each label once: a view."""
    if len(set(x.labels)) == len(x.labels):
        return x
    strides = x.strides(ways.lengths)
    shape = dict(zip(x.labels, x.array.shape, strict=True))
    labels = tuple(strides)
    view = View(tuple(shape[label] for label in labels), tuple(strides.values()))
    return replace(x, array=viewed(x.array, view), labels=labels)


def summed(x: Tensor, kept: Collection[Label], ways: Ways) -> Tensor:
    """*x* summed over the labels that are not *kept*."""
    x = diagonal(x, ways)
    left = tuple(label for label in x.labels if label in kept)
    if left == x.labels:
        return x
    return replace(x, array=total(replace(x, conj=False), left, ways), labels=left)


def total(x: Tensor, labels: tuple[Label, ...], ways: Ways, out: Any = None) -> Any:
    """The sum of *x* over all labels but *labels*, in *out* or a new array.

    NumPy sums its own arrays, in their order. Else it is a product with ones, which are one number with
    strides of 0, and a new array is C-contiguous. Labels whose strides do not follow from one another take a
    product each. Without a label to sum over it is a copy.
    """
    x = diagonal(x, ways)
    gone = [label for label in x.labels if label not in labels]
    if gone and _is_numpys(x, ways):
        return _summed_by_numpy(x, labels, ways, out)
    axes = joined(gone, ways.lengths, (x.strides(ways.lengths),)) or [()]
    axes.sort(key=lambda axis: -math.prod(ways.shape(axis)))
    for axis in axes[:-1]:  # the longest first, so that little is left for the others
        left = tuple(label for label in x.labels if label not in axis)
        x = replace(x, array=total(x, left, ways), labels=left)
    number = one(ways.dtype, x.array, ways.queue)
    ones = Tensor(viewed(number, View(ways.shape(axes[-1]), (0,) * len(axes[-1]))), axes[-1])
    if out is None:
        out = new(ways.shape(labels), ways.dtype, x.array, ways.queue)
    return _product(x, ones, labels, ways, out)


def _is_exact(ways: Ways) -> bool:
    """Whether sums are not rounded to a narrower type."""
    sums = dtype_of(ELEMENTS[type_name(ways.dtype, "a")].accumulator)
    return ways.dtype.kind in "biu" or sums.itemsize == ways.dtype.itemsize


def _is_numpys(x: Tensor, ways: Ways) -> bool:
    """Whether NumPy sums *x*: no kernel, bits or check is asked for, and nothing is converted."""
    mine = isinstance(x.array, np.ndarray) and x.array.dtype == ways.dtype and not x.conj
    return ways.is_plain and mine


def _summed_by_numpy(x: Tensor, labels: tuple[Label, ...], ways: Ways, out: Any) -> Any:
    """:func:`total` of an array in the host's memory; floats are summed in the type that products take."""
    strides = x.strides(ways.lengths)
    view = View(ways.shape(x.labels), tuple(strides[label] for label in x.labels))
    number = {label: i for i, label in enumerate(x.labels)}
    integers = ways.dtype.kind in "biu"
    sums = ways.dtype if integers else dtype_of(ELEMENTS[type_name(ways.dtype, "x")].accumulator)
    kept = [number[label] for label in labels]
    summand = viewed(x.array, view)
    in_order = _in_their_order(ways.shape(labels), ways.dtype, [permuted(summand, kept)])
    if out is None:
        out = in_order
    how = {
        "axes": list(number.values()), "kept": kept,
        "sums": sums, "dtype": ways.dtype, "casting": ways.casting,
        "is_direct": out.dtype == sums == ways.dtype and out.strides == in_order.strides,
    }  # fmt: skip
    computed(Computation(_sum_by_numpy, (summand,), out, how))
    return out


def _sum_by_numpy(
    x: Any,
    out: Any,
    axes: list[int],
    kept: list[int],
    sums: Any,
    dtype: Any,
    casting: Casting,
    is_direct: bool,
) -> None:
    """*out* = the sums of *x* over those of *axes* that are not *kept*, in the type *sums*, then *dtype*.
    *is_direct*: *out* has this type, and the order of *x*, in which x is read fast.
    """
    check_writeable(out)
    into = out if is_direct and not may_share(x, out) else None
    with np.errstate(all="ignore"):
        made = np.einsum(x, axes, kept, out=into, dtype=sums, casting="unsafe")
        if into is None:
            made = np.asarray(made, dtype)
    if into is None:
        cast_into(out, made, casting)


def _without(x: Tensor, labels: Collection[Label]) -> Tensor:
    """*x* at the first place of its axes *labels*, along which it is the same everywhere."""
    if not labels:
        return x
    kept = [i for i, label in enumerate(x.labels) if label not in labels]
    return replace(x, array=permuted(x.array, kept), labels=tuple(x.labels[i] for i in kept))


def _dense(x: Tensor, labels: tuple[Label, ...], ways: Ways) -> Tensor:
    """A C-contiguous copy of *x* with its labels in another order, made where *x* lies."""
    if isinstance(x.array, np.ndarray):
        strides = x.strides(ways.lengths)
        view = View(ways.shape(labels), tuple(strides[label] for label in labels))
        return replace(x, array=np.ascontiguousarray(viewed(x.array, view)), labels=labels)
    return replace(x, array=total(replace(x, conj=False), labels, ways), labels=labels)


def _product(a: Tensor, b: Tensor, labels: tuple[Label, ...], ways: Ways, out: Any) -> Any:
    """a times b by one stacked gemm, after copies where strides do not say it."""
    target = Tensor(out, labels).strides(ways.lengths)
    # An axis that one operand broadcasts is the other's alone.
    given = [x.strides(ways.lengths) for x in (a, b)]
    shared = given[0].keys() & given[1].keys() & target.keys()
    repeated = {label for label in shared if given[0][label] == 0}
    a = _without(a, repeated)
    b = _without(b, {label for label in shared - repeated if given[1][label] == 0})
    mine, other = a.strides(ways.lengths), b.strides(ways.lengths)
    itemsizes = (a.array.dtype.itemsize, b.array.dtype.itemsize, out.dtype.itemsize)
    found = stacked(ways.lengths, mine, other, target, itemsizes, isinstance(out, np.ndarray))
    if isinstance(found, Dense):
        apart = _summed_apart(a, b, labels, ways, found.name)
        if apart:
            wider = (*labels, *apart)
            partial = _product(a, b, wider, ways, new(ways.shape(wider), ways.dtype, a.array, ways.queue))
            return total(Tensor(partial, wider), labels, ways, out)
        copy = {
            name: _dense(x, found.labels, ways) if found.name == name else x
            for name, x in (("a", a), ("b", b))
        }
        return _product(copy["a"], copy["b"], labels, ways, out)
    x, trans_a = _conjugated(viewed(a.array, found.a), a.conj)
    y, trans_b = _conjugated(viewed(b.array, found.b), b.conj)
    product: Any = gemm
    keywords = {"trans_a": trans_a, "trans_b": trans_b, "dtype": ways.dtype, "casting": ways.casting}
    if trans_a == trans_b == "N" and x.dtype == y.dtype == out.dtype == ways.dtype:
        product, keywords = matmul, {}  # the same product, and without options a call is repeated sooner
    step = Computation(product, (x, y), viewed(out, found.out), keywords)
    computed(step, {"queue": ways.queue, **ways.keywords})
    return out


def _summed_apart(
    a: Tensor, b: Tensor, labels: tuple[Label, ...], ways: Ways, copied: str
) -> tuple[Label, ...]:
    """The labels that NumPy sums over after the product, so that the others are one axis and no operand is
    copied: the operand *copied*. None if what it sums is not much smaller than that, or would be rounded to a
    narrower type; integers wrap the same way.
    """
    strides = [x.strides(ways.lengths) for x in (a, b)]
    gone = [label for label in a.labels if label in b.labels and label not in labels]
    axes = joined(gone, ways.lengths, strides)
    if not (axes and _is_exact(ways) and _is_numpys(replace(a, conj=False), ways)):
        return ()
    nearest = min(axes, key=lambda axis: max(abs(its[axis[-1]]) for its in strides))
    longest = max(axes, key=lambda axis: math.prod(ways.shape(axis)))
    most = math.prod(ways.shape({"a": a, "b": b}[copied].labels)) // _FEWER
    for kept in (nearest, longest):  # memory is read in its order, if that leaves few
        apart = tuple(label for axis in axes if axis is not kept for label in axis)
        if math.prod(ways.shape((*labels, *apart))) <= most:
            return apart
    return ()


def _conjugated(x: Any, conj: bool) -> tuple[Any, Any]:
    """A stack of matrices and the word with which gemm reads it as it is, or conjugated."""
    if not conj or x.dtype.kind != "c":
        return x, "N"
    return permuted(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]), "C"


def _multiplied(
    a: Tensor, b: Tensor, labels: tuple[Label, ...], ways: Ways, out: Any, *, is_sum: bool
) -> Any:
    """a times b where nothing is summed and an axis is common: element by element, by NumPy. Of Arrays this
    is a stack of products of 1 x 1 or of a column with a row. *is_sum*: each is a sum of one term.
    """
    factors = []
    for x in (a, b):
        strides = x.strides(ways.lengths)
        view = View(ways.shape(labels), tuple(strides.get(label, 0) for label in labels))
        is_other = x.conj and x.array.dtype.kind == "c"  # of bools np.conj makes int8
        factors.append(np.conj(viewed(x.array, view)) if is_other else viewed(x.array, view))
    if out is None:
        out = _in_their_order(ways.shape(labels), ways.dtype, factors)
    how = {"dtype": ways.dtype, "casting": ways.casting, "is_sum": is_sum and ways.dtype.kind not in "biu"}
    computed(Computation(_multiply_by_numpy, tuple(factors), out, how))
    return out


def _in_their_order(shape: tuple[int, ...], dtype: np.dtype[Any], factors: Sequence[Any]) -> Any:
    """A new array whose elements lie as those of *factors*: in another order each would be in another line of
    the caches. Where the factors differ it is C-contiguous, as NumPy's.
    """
    order: list[int] = []
    for axis in range(len(shape)):
        place = len(order)
        while place and _is_nearer(order[place - 1], axis, factors):
            place -= 1
        order.insert(place, axis)
    made = np.empty([shape[axis] for axis in order], dtype)
    return made if order == sorted(order) else made.transpose(np.argsort(order))


def _is_nearer(first: int, second: int, factors: Sequence[Any]) -> bool:
    """Whether neighbours along the axis *first* are nearer to each other than along the other one."""
    steps = [(abs(x.strides[first]), abs(x.strides[second])) for x in factors]
    steps = [each for each in steps if all(each)]
    return bool(steps) and all(mine < other for mine, other in steps)


def _multiply_by_numpy(x: Any, y: Any, out: Any, dtype: Any, casting: Casting, is_sum: bool) -> None:
    check_writeable(out)
    x, y = (each.copy() if shares_file(each, out) else each for each in (x, y))  # NumPy sees shared memory
    x, y = (real_if_cast(each, dtype) for each in (x, y))
    made = np.empty(out.shape, dtype) if drops_parts(dtype, out.dtype) else out
    with np.errstate(all="ignore"):
        np.multiply(x, y, out=made, dtype=dtype, casting=casting)
        if is_sum:  # a sum of zeros is +0.0
            np.add(made, made.dtype.type(0), out=made)
    if made is not out:
        cast_into(out, made, casting)
