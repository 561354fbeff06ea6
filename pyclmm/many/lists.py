"""The lists of a call: as many entries in each, all of one kind of array, and outs that lie apart."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from pyopencl.array import Array

from ..errors import ArgumentError, DTypeError, PyclmmError, UnsupportedError
from ..execution.kinds import computed_dtype
from ..execution.operands import collect
from ..opencl import arrays, mappings
from ..raising import OF_CALLER

Lists = Mapping[str, Sequence[Any]]  # by argument name: "a", "b", and those given of "c", "bias", "out"
_HARD = 100_000  # the most steps to find out whether strided arrays share an element
_HOST, _DEVICE = attrgetter("shape", "dtype"), attrgetter("shape", "strides", "dtype", "offset")


@contextmanager
def naming(index: int) -> Iterator[None]:
    """Errors of the caller's in this block name the pair with this *index*."""
    try:
        yield
    except OF_CALLER as error:
        raise type(error)(f"pairs[{index}]: {error}") from error.__cause__


class Given(NamedTuple):
    """The lists of a call."""

    lists: Lists  # NumPy arrays or Arrays
    arrays: Lists  # the caller's
    dtypes: tuple[Any, ...] = ()  # of each pair, if their library has another rule than NumPy

    def arrays_at(self, index: int) -> dict[str, Any]:
        """The caller's own operands of one pair, by argument name."""
        return operands_at(self.arrays, index)


def given_of(pairs: Any, c: Any, bias: Any, out: Any) -> Given:
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
    kinds = {kind for xs in lists.values() for kind in set(map(type, xs))} - {type(None)}
    if kinds <= {np.ndarray} or kinds == {Array}:
        return Given(lists, lists)
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


def _collected(arrays: Lists) -> Given:
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
    return Given(lists, arrays, tuple(dtypes) if any(dtypes) else ())


def signature(given: Given) -> tuple[Any, ...]:
    """What a plan depends on. Of NumPy arrays it is shapes and dtypes, as each call packs them; of Arrays
    strides and offsets too, and which of them lie in one buffer."""
    lists = given.lists
    if not lists["a"] or not isinstance(lists["a"][0], Array):
        return given.dtypes, *[(name, _each(_HOST, xs)) for name, xs in lists.items()]
    places: dict[int, int] = {}
    held = {}
    numbers = []
    for x in chain.from_iterable(lists.values()):
        if x is not None:
            numbers.append(places.setdefault(id(x.base_data), len(places)))
            held[numbers[-1]] = x
    # Two buffers may share an allocation, which matters where one is written.
    roots = tuple(_places(list(held.values()))) if "out" in lists else ()
    return tuple(numbers), roots, *[(name, _each(_DEVICE, xs)) for name, xs in lists.items()]


def _each(layout: Any, xs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([None if x is None else layout(x) for x in xs])


class _Span(NamedTuple):
    """The addresses from the first byte of an operand to the one behind its last."""

    low: int
    high: int
    pair: int
    view: Any


def check_apart(lists: Lists) -> None:
    """Raise ArgumentError if an element of an out is one of another out, or of another pair's operand.

    The spans of n outs are sorted, and those that meet compared element by element: O(n log n) where none do.
    """
    outs = [x for x in lists["out"] if x is not None]
    if isinstance(outs[0], Array):
        lists = _stand_ins(lists)
    elif _are_apart(outs, [x for name, xs in lists.items() if name != "out" for x in xs]):
        return
    spans = sorted(_spans(lists["out"]), key=lambda span: span.low)
    lows, tops = [span.low for span in spans], [*accumulate([span.high for span in spans], max)]
    for name, xs in lists.items():
        for mine in _spans(xs):
            at = bisect_left(lows, mine.high)
            while at and tops[at - 1] > mine.low:
                at -= 1
                its = spans[at]
                if its.high > mine.low and its.pair != mine.pair and _share(its.view, mine.view):
                    raise ArgumentError(
                        f"out[{its.pair}] overlaps {name} of pairs[{mine.pair}]; pass outs that share no "
                        "element with another out or with another pair's operands"
                    )


def _are_apart(outs: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether it is plain to see: each has memory of its own."""
    ids = set(map(id, outs))
    return (
        len(ids) == len(outs)
        and all(x.flags.owndata for x in outs)
        and all(x is None or (x.flags.owndata and id(x) not in ids) for x in others)
    )


def _spans(xs: Sequence[Any]) -> list[_Span]:
    return [_Span(*mappings.bounds(x), i, x) for i, x in enumerate(xs) if x is not None and x.size]


def _share(x: Any, y: Any) -> bool:
    most: Any = _HARD
    try:
        return np.shares_memory(x, y, max_work=most)
    except np.exceptions.TooHardError:
        return True


def _stand_ins(lists: Lists) -> Lists:
    """NumPy arrays that lie as the Arrays do, without memory, and allocations far apart."""
    given = [x for xs in lists.values() for x in xs if x is not None]
    found = {
        id(x): _at((8 + root << 44) + at, x) for x, (root, at) in zip(given, _places(given), strict=True)
    }
    return {name: [found.get(id(x)) for x in xs] for name, xs in lists.items()}


def _places(given: Sequence[Array]) -> list[tuple[int, int]]:
    """(the number of its allocation among those that occur, offset in bytes) of each Array."""
    numbers: dict[int, int] = {}
    located = [arrays.location(x) for x in given]
    return [(numbers.setdefault(root, len(numbers)), at) for root, at in located]


def _at(address: int, x: Array) -> Any:
    """A NumPy array of the layout of *x* at an address that nobody may read."""
    layout = {"shape": x.shape, "strides": x.strides, "typestr": f"|V{x.dtype.itemsize}", "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__={**layout, "data": (address, True)}))


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
    return "the operands lie in other buffers together than the plan's; make a plan for them"


def _shown(layout: Any) -> str:
    return "None" if layout is None else " ".join(map(str, layout))
