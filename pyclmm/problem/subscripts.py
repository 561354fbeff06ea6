"""The subscripts of einsum: labels for the axes of each operand and of the result, as numpy.einsum reads
them.

A letter is a label, and so is each axis that an ellipsis stands for: those count from the last axis, so that
they broadcast. A label is an integer: the letter's code, the number of a sublist, or a negative one for an
ellipsis.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError, ShapeError, amount, brief
from .axes import integer
from .contraction import Label

_ELLIPSIS = "..."
Term = Sequence[Any]  # letters or numbers, and perhaps an ellipsis
_WOULD_DO = 'pass subscripts as numpy.einsum takes them, such as "ij,jk->ik"'


@dataclass(frozen=True)
class Labelled:
    """The labels of the operands' axes and of the result's, and the length of each."""

    operands: tuple[tuple[Label, ...], ...]
    out: tuple[Label, ...]
    lengths: Mapping[Label, int]


def parsed(given: str | tuple[Sequence[Any], Any], shapes: Sequence[tuple[int, ...]]) -> Labelled:
    """The labels of operands of these *shapes*. Raises ArgumentError, DTypeError and ShapeError. *given*: a
    string, or a list of numbers, and perhaps Ellipsis, for each operand, and the result's or None.
    """
    if isinstance(given, str):
        return _read(given, tuple(map(tuple, shapes)))
    lists, out = given
    return _labelled(map(_numbers, lists), None if out is None else _numbers(out), shapes)


@lru_cache(maxsize=512)
def _read(given: str, shapes: tuple[tuple[int, ...], ...]) -> Labelled:
    terms, arrow, result = given.replace(" ", "").partition("->")
    return _labelled(map(_letters, terms.split(",")), _letters(result) if arrow else None, shapes)


def _letters(term: str) -> Term:
    if not re.fullmatch(r"[A-Za-z]*(\.\.\.[A-Za-z]*)?", term):
        raise ArgumentError(f"subscripts: {brief(term)} has more than letters and one ellipsis; {_WOULD_DO}")
    before, dots, after = term.partition(_ELLIPSIS)
    return [*map(ord, before), *([_ELLIPSIS] if dots else []), *map(ord, after)]


def _numbers(sublist: Any) -> Term:
    if isinstance(sublist, np.ndarray) and sublist.ndim == 1:
        sublist = list(sublist)
    if not isinstance(sublist, list | tuple):
        raise DTypeError(
            f"a sublist is a {type(sublist).__name__}; pass a list of integers after each operand"
        )
    term: list[Any] = [_ELLIPSIS if each is Ellipsis else each for each in sublist]
    for i, each in enumerate(term):
        if isinstance(each, str) and each == _ELLIPSIS:
            continue
        try:
            term[i] = integer(each)
        except TypeError:
            raise DTypeError(
                f"subscript {brief(each)} is not an integer; pass integers from 0 to 51, or an Ellipsis"
            ) from None
        if not 0 <= term[i] < 52:
            raise ArgumentError(f"subscript {brief(each)} is not valid in a sublist; pass 0 to 51")
    if term.count(_ELLIPSIS) > 1:
        raise ArgumentError("a sublist has more than one ellipsis; pass one")
    # NumPy's letters for the numbers are A to Z, then a to z, so both are in the same order.
    return term


def _labelled(terms: Iterable[Term], out: Term | None, shapes: Sequence[tuple[int, ...]]) -> Labelled:
    inputs = list(terms)
    if len(inputs) != len(shapes):
        raise ArgumentError(
            f"the number of operands is {len(shapes)}, but the subscripts have "
            f"{amount(len(inputs), 'terms')}; pass as many"
        )
    operands = tuple(
        _placed(i, term, shape) for i, (term, shape) in enumerate(zip(inputs, shapes, strict=True))
    )
    lengths = _lengths(operands, shapes)
    broadcast = tuple(sorted({x for labels in operands for x in labels if x < 0}))
    return Labelled(operands, _result(operands, out, broadcast), lengths)


def _placed(number: int, term: Term, shape: tuple[int, ...]) -> tuple[Label, ...]:
    """The labels of operand *number*: an ellipsis becomes the labels -n to -1."""
    named = len(term) - (_ELLIPSIS in term)
    spare = len(shape) - named
    if spare < 0 or (spare > 0 and _ELLIPSIS not in term):
        raise ShapeError(
            f"operand {number} has {amount(len(shape), 'axes')}, but its subscripts name {named}; name "
            "each, or use an ellipsis"
        )
    return _expanded(term, range(-spare, 0))


def _expanded(term: Term, ellipsis: Iterable[Label]) -> tuple[Label, ...]:
    """The labels of *term*, with those of its *ellipsis*."""
    return tuple(x for each in term for x in (ellipsis if each == _ELLIPSIS else (each,)))


def _lengths(operands: Sequence[tuple[Label, ...]], shapes: Sequence[tuple[int, ...]]) -> dict[Label, int]:
    """The length of each label. It may be 1 in one operand and more in another, as NumPy broadcasts."""
    lengths: dict[Label, int] = {}
    for number, (labels, shape) in enumerate(zip(operands, shapes, strict=True)):
        own = dict(zip(labels, shape, strict=True))
        for label, length in zip(labels, shape, strict=True):
            if length != own[label]:
                raise ShapeError(
                    f"operand {number} of shape {shape}: dimensions for the repeated subscript "
                    f"{_shown(label)} do not match, {own[label]} and {length}"
                )
        for label, length in own.items():
            known = lengths.get(label, 1)
            if 1 not in (known, length) and known != length:
                raise ShapeError(
                    f"operands could not be broadcast together: {_shown(label)} has the length {length} in "
                    f"operand {number} of shape {shape}, and {known} before; pass equal lengths, or 1"
                )
            lengths[label] = length if known == 1 else known
    return lengths


def _result(
    operands: Sequence[tuple[Label, ...]], out: Term | None, broadcast: tuple[Label, ...]
) -> tuple[Label, ...]:
    """The result's labels; the implicit ones, in order, are those that stand once."""
    if out is None:
        times = Counter(x for labels in operands for x in labels)
        return (*broadcast, *sorted(x for x, count in times.items() if count == 1 and x >= 0))
    if broadcast and _ELLIPSIS not in out:
        raise ArgumentError(
            "the result has no ellipsis, but operands have axes for it; add ... to the result"
        )
    found = _expanded(out, broadcast)
    known = {x for labels in operands for x in labels}
    for label in found:
        if label not in known:
            raise ArgumentError(
                f"the result has the subscript {_shown(label)}, which no operand has; {_WOULD_DO}"
            )
        if found.count(label) > 1:
            raise ArgumentError(f"the result has the subscript {_shown(label)} more than once; {_WOULD_DO}")
    return found


def _shown(label: Label) -> str:
    return "an axis of the stack" if label < 0 else repr(chr(label)) if label >= ord("A") else str(label)
