"""The product of two labelled arrays as one stack of matrix products, by strides alone.

A label stands for an axis. It belongs to the stack if both operands and the result have it, it is summed if
only the operands have it, and it is a row or a column of the result if one operand and the result have it.
Labels whose strides follow from one another in every array that has them become one axis. One axis of the
rows, one of the columns and one of the sums become M, N and K, and the others join the stack, where the
operand that lacks them has the stride 0. Only sums that do not become one axis need a dense copy of an
operand, or are added up in two steps. Where a matrix would have gaps both ways, and be copied, rows or
columns may join the stack too: what is left are dot products, which are read with their gaps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

Label = int
Strides = Mapping[Label, int]  # of an array, in bytes
Items = tuple[tuple[Label, int], ...]  # of a mapping
Axis = tuple[Label, ...]  # labels that are one axis, the outermost first

_LEAST_BESIDE = 16  # dot products side by side: the numbers of a wide vector
# How often dot products side by side, and others, read an element, on average, at most
_MOST_AGAIN, _MOST_AGAIN_APART = 8, 2
_LEAST_NBYTES = 32  # of an operand of one, if they are apart: as many as the offsets of each product have


@dataclass(frozen=True)
class View:
    """The shape and the strides in bytes with which an array is read."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Stacked:
    """The views of a, b and out of one stack of matrix products: (..., M, K), (..., K, N) and (..., M, N)."""

    a: View
    b: View
    out: View


@dataclass(frozen=True)
class Dense:
    """What must be copied first: the operand's name, "a" or "b", and the order of the labels in the copy."""

    name: str
    labels: tuple[Label, ...]


def contiguous(labels: Axis, lengths: Mapping[Label, int]) -> Strides:
    """The strides of a C-contiguous array, in elements."""
    return {x: math.prod(lengths[y] for y in labels[i + 1 :]) for i, x in enumerate(labels)}


def joined(labels: Collection[Label], lengths: Mapping[Label, int], arrays: Sequence[Strides]) -> list[Axis]:
    """The fewest axes that *labels* become in all *arrays* at once, the largest strides first."""
    axes: list[Axis] = []
    for label in sorted(labels, key=lambda x: [-abs(strides[x]) for strides in arrays]):
        # Not only the last: labels of a sliding window have equal strides.
        fits = (
            i for i, axis in enumerate(axes) if all(x[axis[-1]] == x[label] * lengths[label] for x in arrays)
        )
        place = next(fits, None)
        if place is None:
            axes.append((label,))
        else:
            axes[place] = (*axes[place], label)
    return axes


def stacked(
    lengths: Mapping[Label, int],
    a: Strides,
    b: Strides,
    out: Strides,
    itemsizes: tuple[int, int, int],
    beside: bool = False,
) -> Stacked | Dense:
    """How a and b make out: as a stack of products, or after a copy.

    *a*, *b* and *out* have a stride for each of their labels. Every label is in at least two of them, and
    those of *out* are in an operand. *itemsizes* are those of a, b and out in bytes. *beside*: dot products
    side by side are preferred to matrices with gaps both ways.
    """
    return _stacked(*(tuple(each.items()) for each in (lengths, a, b, out)), itemsizes, beside)


@lru_cache(maxsize=512)
def _stacked(
    of_labels: Items, of_a: Items, of_b: Items, of_out: Items, itemsizes: tuple[int, int, int], beside: bool
) -> Stacked | Dense:
    lengths, a, b, out = map(dict, (of_labels, of_a, of_b, of_out))
    if any(lengths[label] == 0 for label in {*a, *b}):
        return _empty(lengths, a, b, out)
    a, b, out = ({x: s for x, s in strides.items() if lengths[x] != 1} for strides in (a, b, out))
    summed = [x for x in a if x in b and x not in out]
    sums = joined(summed, lengths, (a, b))
    if len(sums) > 1:
        return _to_copy(lengths, a, b, out, itemsizes)
    k = sums[0] if sums else ()
    stack = joined([x for x in out if x in a and x in b], lengths, (out, a, b))
    rows = joined([x for x in out if x not in b], lengths, (out, a))
    columns = joined([x for x in out if x not in a], lengths, (out, b))
    choices = list(product(rows or [()], columns or [()]))
    if beside and k:
        high, wide = (math.prod(lengths[x] for axis in axes for x in axis) for axes in (rows, columns))
        is_long = math.prod(lengths[x] for x in k) * itemsizes[0] >= _LEAST_NBYTES
        near = _lie_beside(lengths, stack, (a, b), itemsizes)
        most = _MOST_AGAIN if near else _MOST_AGAIN_APART * is_long
        choices += [((), ())] if 2 * high * wide <= most * (high + wide) else []
    m, n = max(choices, key=lambda mn: _merit(lengths, (a, b, out), (*mn, k), itemsizes))
    batch = [*stack, *(x for x in rows if x != m), *(x for x in columns if x != n)]
    by_a, by_b, by_out = (sorted(batch, key=lambda axis: -abs(x.get(axis[-1], 0))) for x in (a, b, out))
    batch = by_out
    if not (m or n):  # dot products read far more than they write
        sizes = [math.prod(lengths[x] for x in strides) for strides in (a, b)]
        batch = by_a if by_a == by_b or sizes[0] > sizes[1] else by_b if sizes[1] > sizes[0] else by_out
    return Stacked(
        _view(lengths, a, [*batch, m, k]),
        _view(lengths, b, [*batch, k, n]),
        _view(lengths, out, [*batch, m, n]),
    )


def _lie_beside(
    lengths: Mapping[Label, int], stack: Sequence[Axis], operands: Sequence[Strides], itemsizes: Sequence[int]
) -> bool:
    """Whether many neighbours along an axis of the stack lie side by side in both operands."""
    return any(
        math.prod(lengths[x] for x in axis) >= _LEAST_BESIDE
        and all(abs(x[axis[-1]]) == size for x, size in zip(operands, itemsizes, strict=False))
        for axis in stack
    )


def _empty(lengths: Mapping[Label, int], a: Strides, b: Strides, out: Strides) -> Stacked:
    """A product with an operand without elements: K is 0, and the operands' strides mean nothing."""
    labels = list(out)
    batch = [(x,) for x in labels[:-1]]
    m = (labels[-1],) if labels else ()
    view = _view(lengths, out, [*batch, m, ()])
    rows = View((*view.shape[:-1], 0), (0,) * len(view.strides))
    columns = View((*view.shape[:-2], 0, 1), (0,) * len(view.strides))
    return Stacked(rows, columns, view)


def _to_copy(
    lengths: Mapping[Label, int], a: Strides, b: Strides, out: Strides, itemsizes: tuple[int, int, int]
) -> Dense:
    """The copy after which the sums are one axis, or after which a second copy makes them one. The smaller
    operand is copied if the sums are one axis in the other.
    """
    summed = [x for x in a if x in b and x not in out]
    sizes = [math.prod(lengths[x] for x in strides) * itemsizes[i] for i, strides in enumerate((a, b))]
    other = {"a": b, "b": a}
    names = sorted("ab", key=lambda name: sizes["ab".index(name)])
    joins = [name for name in names if len(joined(summed, lengths, (other[name],))) == 1]
    name = joins[0] if joins else names[0]
    its, others = (a, b) if name == "a" else (b, a)
    order = sorted(summed, key=lambda x: -abs(others[x]))
    return Dense(name, (*(x for x in its if x not in order), *order))


def _merit(
    lengths: Mapping[Label, int],
    arrays: tuple[Strides, Strides, Strides],
    axes: tuple[Axis, Axis, Axis],
    itemsizes: tuple[int, int, int],
) -> tuple[int, int]:
    """Orders the choices of M and N: the fewest arrays without a unit stride, then the largest matrices."""
    m, n, k = axes
    fit = sum(
        not row or not column or size in (strides[row[-1]], strides[column[-1]])
        for strides, row, column, size in zip(arrays, (m, k, m), (k, n, n), itemsizes, strict=True)
    )
    return fit, math.prod(lengths[x] for x in (*m, *n))


def _view(lengths: Mapping[Label, int], strides: Strides, axes: Sequence[Axis]) -> View:
    """An array as a view with these *axes*; one that it lacks has the length of the others and the stride 0.
    A matrix's own two axes come last, and have the length 1 if they have no label.
    """
    shape = tuple(math.prod(lengths[x] for x in axis) for axis in axes)
    return View(shape, tuple(strides.get(axis[-1], 0) if axis else 0 for axis in axes))
