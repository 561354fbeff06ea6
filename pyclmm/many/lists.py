"""The lists of a call: as many entries in each, all of one kind of array, and outs that lie apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from pyopencl.array import Array

from ..errors import ArgumentError, DTypeError, PyclmmError, UnsupportedError
from ..execution.kinds import computed_dtype
from ..execution.operands import collect
from ..raising import OF_CALLER
from .apart import Lists, places

_HOST, _DEVICE = attrgetter("shape", "dtype"), attrgetter("shape", "strides", "dtype", "offset")


@contextmanager
def naming(index: int) -> Iterator[None]:
    """Errors of the caller's in this block name the pair with this *index*."""
    try:
        yield
    except OF_CALLER as error:
        raise type(error)(f"pairs[{index}]: {error}") from error.__cause__


class CallLists(NamedTuple):
    """The lists of a call."""

    lists: Lists  # NumPy arrays or Arrays
    arrays: Lists  # the caller's
    dtypes: tuple[Any, ...] = ()  # of each pair, if their library has another rule than NumPy


def given_of(pairs: Any, c: Any, bias: Any, out: Any) -> CallLists:
    """The lists of a call, of the same length; what is like an array becomes one.

    Raises ArgumentError, and DTypeError and ShapeError as matmul does, naming the pair.
    """
    try:
        pairs = tuple(pairs)
        a, b = zip(*pairs, strict=True) if pairs else ((), ())
    except (TypeError, ValueError):
        raise _no_pairs(pairs) from None
    lists = {"a": a, "b": b}
    for name, xs in (("c", c), ("bias", bias), ("out", out)):
        if xs is not None:
            check_length(name, xs, len(pairs))
            if set(map(type, xs)) - {type(None)}:
                lists[name] = tuple(xs)
    kinds = {type(x) for name in ("c", "bias", "out") for x in lists.get(name, ())} - {type(None)}
    kinds |= {*map(type, a), *map(type, b)}
    if kinds <= {np.ndarray} or kinds == {Array}:
        return CallLists(lists, lists)
    return _collected(lists)


def check_length(name: str, given: Any, wanted: int) -> None:
    """Raise DTypeError if *given* is no list, ArgumentError if it has another length than the pairs."""
    if not isinstance(given, list | tuple):
        raise DTypeError(f"{name} is a {type(given).__name__}; pass a list with an entry for each pair")
    if len(given) != wanted:
        raise ArgumentError(f"{name} has {len(given)} entries, pairs has {wanted}; pass as many, or None")


def _no_pairs(pairs: Any) -> PyclmmError:
    if not isinstance(pairs, tuple):
        return DTypeError(f"pairs is a {type(pairs).__name__}; pass a list of pairs, [(a, b), ...]")
    for index, pair in enumerate(pairs):
        if not hasattr(pair, "__len__") or len(pair) != 2:
            return ArgumentError(
                f"pairs[{index}] is a {type(pair).__name__} that has not two entries; pass (a, b)"
            )
    return DTypeError("pairs are not two arrays each; pass [(a, b), ...]")


def operands_at(lists: Lists, index: int) -> dict[str, Any]:
    """The operands of one pair, by argument name."""
    return {name: xs[index] for name, xs in lists.items() if xs[index] is not None}


def _collected(arrays: Lists) -> CallLists:
    """The lists of what may be like arrays."""
    found: list[Mapping[str, Any]] = []
    dtypes = []
    for index in range(len(arrays["a"])):
        with naming(index):
            given = operands_at(arrays, index) | {name: arrays[name][index] for name in ("a", "b")}
            found.append(collect(given))
            dtypes.append(computed_dtype(given))
            its, first = type(found[-1]["a"]), type(found[0]["a"])
            if not issubclass(its, np.ndarray | Array):
                raise UnsupportedError("a is on a CUDA device; a list takes NumPy arrays or pyopencl Arrays")
            if issubclass(its, Array) != issubclass(first, Array):
                raise DTypeError("pyopencl Arrays and NumPy arrays are in one list; pass all of one kind")
    lists = {name: tuple([each.get(name) for each in found]) for name in arrays}
    return CallLists(lists, arrays, tuple(dtypes) if any(dtypes) else ())


def signature(given: CallLists) -> tuple[Any, ...]:
    """What a plan depends on. Of NumPy arrays it is shapes, dtypes and which are the same, as each call packs
    them; of Arrays strides and offsets too, and which of them lie in one buffer."""
    lists = given.lists
    if not lists["a"] or not isinstance(lists["a"][0], Array):
        return (
            given.dtypes,
            tuple(repeats_of(lists).items()),
            *[(name, _each(_HOST, xs)) for name, xs in lists.items()],
        )
    present = [x for xs in lists.values() for x in xs if x is not None]
    ids = [id(x.base_data) for x in present]
    held = dict(zip(ids, present, strict=True))
    numbers = {each: number for number, each in enumerate(held)}
    # Two buffers may share an allocation, which matters where one is written.
    roots = tuple(places(list(held.values()))) if "out" in lists else ()
    return (
        tuple(map(numbers.__getitem__, ids)),
        roots,
        *[(name, _each(_DEVICE, xs)) for name, xs in lists.items()],
    )


def repeats_of(lists: Lists) -> dict[str, tuple[int, ...]]:
    """Of a and b, if some pairs have the very same array: for each pair the first one that has it."""
    found: dict[str, tuple[int, ...]] = {}
    for name in ("a", "b"):
        ids = list(map(id, lists[name]))
        if len(set(ids)) < len(ids):
            firsts: dict[int, int] = {}
            found[name] = tuple([firsts.setdefault(each, pair) for pair, each in enumerate(ids)])
    return found


def _each(layout: Any, xs: Sequence[Any]) -> tuple[Any, ...]:
    try:
        return tuple(map(layout, xs))
    except AttributeError:  # of None
        return tuple([None if x is None else layout(x) for x in xs])


def mismatch(planned: tuple[Any, ...], given: tuple[Any, ...]) -> str:
    """How the operands of a call differ from those that a plan was made for."""
    wanted, found = (
        dict(its for its in layouts if its and type(its[0]) is str) for layouts in (planned, given)
    )
    if wanted.keys() != found.keys():
        return (
            f"the plan is for the lists {', '.join(wanted)}, not for {', '.join(found)}; make a plan for them"
        )
    for name, its in wanted.items():
        if len(its) != len(found[name]):
            return f"pairs has {len(found[name])} entries, the plan is for {len(its)}; make a plan for them"
        for index, (one, other) in enumerate(zip(its, found[name], strict=True)):
            if one != other:
                both = f"{name} is {_shown(other)}, the plan is for {_shown(one)}"
                return f"pairs[{index}]: {both}; make a plan for it"
    return "the pairs share other arrays or buffers than the plan's; make a plan for them"


def _shown(layout: Any) -> str:
    return "None" if layout is None else " ".join(map(str, layout))
