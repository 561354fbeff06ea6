"""The lists of a call: as many entries in each, all of one kind of array; what a plan depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from operator import attrgetter, is_
from typing import Any, NamedTuple, cast
from weakref import ref

import numpy as np
from pyopencl.array import Array

from ..errors import ArgumentError, DTypeError, PyclmmError, UnsupportedError
from ..execution.kinds import computed_dtype
from ..execution.operands import collect
from ..opencl.queues import PerThread, at_release
from ..raising import OF_CALLER
from .apart import Lists, places

_HOST, _DEVICE = attrgetter("shape", "dtype"), attrgetter("shape", "strides", "dtype", "offset")
_MEMORY = attrgetter("base_data")
_latest: PerThread[Any] = PerThread()  # names, weak references and layouts of the last Arrays
at_release(_latest.clear)


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
    layouts: Layouts | None = None  # if they are known already


class Layouts(NamedTuple):
    """What a plan depends on. Of NumPy arrays it is shapes, dtypes and which are the same, as each call packs
    them; of Arrays strides and offsets too, and which of them lie in one buffer."""

    dtypes: tuple[Any, ...]
    lists: tuple[tuple[str, tuple[Any, ...]], ...]  # by name, of each pair
    firsts: tuple[tuple[int, ...], ...]  # as of :func:`_firsts`, of arrays or buffers
    places: tuple[tuple[int, int], ...]  # of these buffers, if one is written: two may share an allocation

    def __hash__(self) -> int:
        return hash(tuple([its[:8] for _, its in self.lists]))  # of all takes long

    @property
    def sharing(self) -> dict[str, tuple[int, ...]]:
        """By name: for each pair, the first with the same array, or with an Array in the same buffer."""
        both = zip(self.lists, self.firsts, strict=True)
        return {name: firsts * len(its) if len(firsts) == 1 else firsts for (name, its), firsts in both}


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
            check_length(name, xs, len(a))
            lists[name] = tuple(xs)
    again = _again(lists)
    if again is not None:
        return CallLists(lists, lists, layouts=again)
    kinds = {*map(type, a), *map(type, b)}
    for name in lists.keys() - {"a", "b"}:
        its = set(map(type, lists[name])) - {type(None)}
        kinds |= its
        if not its:
            del lists[name]
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
    wrong = (i for i, pair in enumerate(pairs) if not (isinstance(pair, list | tuple) and len(pair) == 2))
    index = next(wrong, 0)
    kind = type(pairs[index]).__name__
    return ArgumentError(f"pairs[{index}] is a {kind} that has not two entries; pass (a, b)")


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


def on_device(lists: Lists) -> bool:
    """Whether these are Arrays."""
    return any(isinstance(x, Array) for x in lists["a"][:1])


def layouts_of(given: CallLists) -> Layouts:
    """What a plan for these lists depends on."""
    if given.layouts is not None:
        return given.layouts
    lists, are_arrays = given.lists, on_device(given.lists)
    layouts = tuple([(name, each(_DEVICE if are_arrays else _HOST, xs)) for name, xs in lists.items()])
    if not are_arrays:
        return Layouts(given.dtypes, layouts, tuple(map(_firsts, lists.values())), ())
    return Layouts((), layouts, *_buffers(lists))


def remember(given: CallLists, layouts: Layouts) -> None:
    """Note that a call of this thread's on Arrays has these *layouts*, for :func:`given_of`."""
    if given.layouts is None and on_device(given.lists):
        with suppress(TypeError):  # None among them
            _latest.mine.latest = (*given.lists,), [*map(ref, chain(*given.lists.values()))], layouts


def _again(lists: Lists) -> Layouts | None:
    """The layouts of the thread's last list of Arrays, if it was of the very same ones and they still share
    buffers as then. PyOpenCL never gives an Array another layout."""
    names, refs, found = _latest.mine.latest or ((), (), ())
    if names == (*lists,) and len(refs) == len(names) * len(lists["a"]):
        with suppress(TypeError):  # None among them
            if all(map(is_, map(ref, chain(*lists.values())), refs)) and _buffers(lists) == found[2:]:
                return cast(Layouts, found)
    return None


def _buffers(lists: Lists) -> tuple[Any, Any]:
    """For each Array the first of its name in the same buffer; and, if there are outs, where each is."""
    firsts = tuple([_firsts(each(_MEMORY, xs)) for xs in lists.values()])
    if "out" not in lists:
        return firsts, ()
    ones = [xs[i] for xs, its in zip(lists.values(), firsts, strict=True) for i in dict.fromkeys(its)]
    return firsts, tuple(places(x for x in ones if x is not None))


def _firsts(xs: Sequence[Any]) -> tuple[int, ...]:
    """For each the number of the first that is the same; one number if all are."""
    if all(map(is_, xs, repeat(next(iter(xs), None)))):
        return (0,)
    ids = list(map(id, xs))
    if len(set(ids)) == len(ids):
        return tuple(range(len(ids)))
    numbers: dict[int, int] = {}
    return tuple([numbers.setdefault(one, number) for number, one in enumerate(ids)])


def each(layout: Callable[[Any], Any], xs: Sequence[Any]) -> tuple[Any, ...]:
    """The *layout* of each of *xs*; None for None."""
    try:
        return tuple(map(layout, xs))
    except AttributeError:  # of None
        return tuple([None if x is None else layout(x) for x in xs])


def packs_alike(planned: Layouts, given: Layouts) -> bool:
    """Whether a plan for *planned* NumPy arrays packs the *given* ones: those that it packs once are one."""
    found = given.sharing
    return planned._replace(firsts=given.firsts) == given and all(
        found[name][pair] == found[name][first]
        for name, firsts in planned.sharing.items()
        for pair, first in enumerate(firsts)
    )


def mismatch(planned: Layouts, given: Layouts) -> str:
    """How the operands of a call differ from those that a plan was made for."""
    planned_count, count = (len(each.lists[0][1]) for each in (planned, given))
    if count != planned_count:
        return f"pairs has {count} entries, the plan is for {planned_count}; make a plan for them"
    wanted, found = (
        {(pair, name): its for name, xs in each.lists for pair, its in enumerate(xs)}
        for each in (planned, given)
    )
    for pair, name in sorted(wanted | found):
        one, other = wanted.get((pair, name)), found.get((pair, name))
        if one != other:
            both = f"{name} is {_shown(other)}, the plan is for {_shown(one)}"
            return f"pairs[{pair}]: {both}; make a plan for it"
    return "the pairs share other arrays or buffers than the plan's; make a plan for them"


def _shown(layout: Any) -> str:
    if layout is None:
        return "none"
    shape, *strides, dtype = layout[:3]
    more = f", strides {strides[0]}, offset {layout[3]}" if strides else ""
    return f"{shape} {dtype}{more}"
