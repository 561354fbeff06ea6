"""The lists of a call: as many entries in each, all of one kind of array; what a plan depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, repeat
from operator import attrgetter, is_
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
from numpy.typing import NDArray
from pyopencl.array import Array

from ..cuda.arrays import CudaArray, common_ordinal
from ..errors import ArgumentError, DTypeError, PyclmmError
from ..execution.kinds import KindWithAddresses, computed_dtype
from ..execution.operands import collect, signature
from ..opencl.queues import PerThread, at_release
from ..problem.gemm import alignment, reaching
from ..raising import OF_CALLER
from .apart import Lists, Spans, check_apart, places

_HOST, _DEVICE = attrgetter("shape", "dtype"), attrgetter("shape", "strides", "dtype", "offset")
_MEMORY = attrgetter("base_data")
# Of each thread what was seen of the last lists on a device: those of a network's layers take turns.
_seen: PerThread[Any] = PerThread(most=8)
at_release(_seen.clear)


@contextmanager
def naming(index: int) -> Iterator[None]:
    """Errors of the caller's in this block name the pair with this *index*."""
    try:
        yield
    except OF_CALLER as error:
        raise type(error)(f"pairs[{index}]: {error}") from error.__cause__


class CallLists(NamedTuple):
    """The lists of a call."""

    lists: Lists  # NumPy arrays, Arrays or CudaArrays; the caller's arrays if their layouts are known already
    arrays: Lists  # the caller's
    dtypes: tuple[Any, ...] = ()  # of each pair, if their library has another rule than NumPy
    layouts: Layouts | None = None  # if they are known already
    tensors: Tensors | None = None  # if they are on a CUDA device


class Tensors(NamedTuple):
    """Arrays on a CUDA device: one like them, without memory, and by name the address of each, 0 for None."""

    like: CudaArray
    addresses: Mapping[str, NDArray[np.int64]]


class Layouts(NamedTuple):
    """What a plan depends on. Of NumPy arrays it is shapes, dtypes and which are the same, as each call packs
    them; of Arrays strides and offsets too, and which of them lie in one buffer; of arrays on a CUDA device
    strides and alignment."""

    dtypes: tuple[Any, ...]
    lists: tuple[tuple[str, tuple[Any, ...]], ...]  # by name, of each pair
    firsts: tuple[tuple[int, ...], ...] = ()  # as of :func:`_firsts`, of arrays or buffers
    # Of these buffers, if one is written: two may share an allocation. On a CUDA device the pairs whose outs
    # overlap their operands, and these operands.
    places: tuple[tuple[int, Any], ...] = ()
    kind: Any = None  # on a CUDA device the type of these arrays, as they are launched in other ways

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
    seen = _seen.mine.held.get(_place(lists))
    again: CallLists | None = None if seen is None else seen.again(lists)
    if again is not None:
        return again
    kinds = {*map(type, a), *map(type, b)}
    for name in lists.keys() - {"a", "b"}:
        its = set(map(type, lists[name])) - {type(None)}
        kinds |= its
        if not its:
            del lists[name]
    if kinds <= {np.ndarray} or kinds == {Array}:
        return CallLists(lists, lists)
    return _collected(lists)


def in_full(given: CallLists) -> CallLists:
    """*given* with CudaArrays if its arrays are on a CUDA device and were not looked at in full."""
    return given if given.tensors is None or given.layouts is None else _collected(given.arrays)


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
            _check_alike(found[0]["a"], found[-1])
    lists = {name: tuple([each.get(name) for each in found]) for name in arrays}
    tensors, first = None, found[0]["a"]
    if isinstance(first, CudaArray):
        at = {name: [0 if x is None else x.address for x in xs] for name, xs in lists.items()}
        addresses = {name: np.array(its, np.int64) for name, its in at.items()}
        tensors = Tensors(replace(first, owner=None), addresses)
    return CallLists(lists, arrays, tuple(dtypes) if any(dtypes) else (), None, tensors)


def _check_alike(first: Any, operands: Mapping[str, Any]) -> None:
    """Raise DTypeError unless the *operands* of a pair are in the same kind of memory as the *first* a, and
    ArgumentError if they are on another CUDA device."""
    one, other = _kind_of(first), _kind_of(operands["a"])
    if one != other:
        raise DTypeError(f"{other} and {one} are in one list; pass all of one kind")
    if isinstance(first, CudaArray):
        common_ordinal({"a": first} | {f"{name} of this pair": x for name, x in operands.items()})


def _kind_of(x: Any) -> str:
    if isinstance(x, CudaArray):
        return f"arrays of {type(x.kind).__name__.strip('_')} on CUDA"
    return "pyopencl Arrays" if isinstance(x, Array) else "NumPy arrays"


def on_device(lists: Lists) -> bool:
    """Whether these are Arrays."""
    return any(isinstance(x, Array) for x in lists["a"][:1])


def layouts_of(given: CallLists) -> Layouts:
    """What a plan for these lists depends on."""
    if given.layouts is not None:
        return given.layouts
    if given.tensors is not None:
        return _layouts_of_tensors(given)
    lists, are_arrays = given.lists, on_device(given.lists)
    layouts = tuple([(name, each(_DEVICE if are_arrays else _HOST, xs)) for name, xs in lists.items()])
    if not are_arrays:
        return Layouts(given.dtypes, layouts, tuple(map(_firsts, lists.values())), ())
    return Layouts((), layouts, *_buffers(lists))


def _layouts_of_tensors(given: CallLists) -> Layouts:
    """Raises ArgumentError for outs that share elements with one another, or with other pairs' operands."""
    layouts = tuple([(name, each(_of_tensor, xs)) for name, xs in given.lists.items()])
    kind = type(given.lists["a"][0])
    if "out" not in given.lists:
        return Layouts(given.dtypes, layouts, kind=kind)
    check_apart(given.lists)
    shared = [
        (pair, signature(operands_at(given.lists, pair)).overlapping) for pair in range(len(layouts[0][1]))
    ]
    return Layouts(given.dtypes, layouts, (), tuple([one for one in shared if one[1]]), kind)


def _of_tensor(x: CudaArray) -> tuple[Any, ...]:
    return x.shape, x.strides, x.dtype, alignment(x.address)


def _place(lists: Lists) -> tuple[Any, ...]:
    """Where :data:`_seen` has what was seen of such lists."""
    ends = [getattr(x, "shape", None) for x in (*lists["a"][:1], *lists["b"][-1:])]
    return (*lists, len(lists["a"]), *ends)


def remember(given: CallLists, layouts: Layouts) -> None:
    """Note that a call of this thread's has these *layouts*, for :func:`given_of`."""
    if given.layouts is not None:
        return
    if given.tensors is not None:
        if isinstance(given.tensors.like.kind, KindWithAddresses):
            _seen.keep(_place(given.lists), _SeenTensors(given, layouts))
    elif on_device(given.lists):
        with suppress(TypeError):  # None among them
            _seen.keep(_place(given.lists), _SeenArrays(given.lists, layouts))


class _SeenArrays:
    """A list of Arrays, to compare the next with. PyOpenCL never gives an Array another layout."""

    def __init__(self, lists: Lists, layouts: Layouts) -> None:
        self._names, self._layouts = (*lists,), layouts
        self._refs = [*map(ref, chain(*lists.values()))]

    def again(self, lists: Lists) -> CallLists | None:
        """The call, if it has the very same Arrays, and they still share buffers as then."""
        if self._names == (*lists,) and len(self._refs) == len(lists) * len(lists["a"]):
            with suppress(TypeError):  # None among them
                same = all(map(is_, map(ref, chain(*lists.values())), self._refs))
                if same and _buffers(lists) == self._layouts[2:4]:
                    return CallLists(lists, lists, layouts=self._layouts)
        return None


class _SeenTensors:
    """A list of arrays on a CUDA device, to compare the next with."""

    def __init__(self, given: CallLists, layouts: Layouts) -> None:
        self._call = given._replace(lists={}, arrays={}, layouts=layouts)
        last: Any = given.tensors
        self._last: Tensors = last
        has_apart = "out" in given.lists and not layouts.places
        self._spans = Spans(given.lists) if has_apart else None
        seen = last.like.kind.seen
        self._seen = {name: [x and seen(x) for x in xs] for name, xs in given.lists.items()}

    def again(self, lists: Lists) -> CallLists | None:
        """The call, if its arrays differ from those in their addresses at most."""
        if (*lists,) != (*self._seen,) or len(lists["a"]) != len(self._seen["a"]):
            return None
        address_of = self._last.like.kind.address_of
        addresses = {}
        for name, xs in lists.items():
            found = [
                (0 if x is None else None) if seen is None else address_of(x, seen)
                for x, seen in zip(xs, self._seen[name], strict=True)
            ]
            if None in found:
                return None
            addresses[name] = np.array(found, np.int64)
        if "out" in lists and not self._fits(addresses):
            return None
        self._last = tensors = self._last._replace(addresses=addresses)
        return self._call._replace(lists=lists, arrays=lists, tensors=tensors)

    def _fits(self, addresses: Mapping[str, NDArray[np.int64]]) -> bool:
        """Whether outs overlap nothing, or what they did in the call before."""
        before = self._last.addresses
        if all(np.array_equal(its, before[name]) for name, its in addresses.items()):
            return True
        return self._spans is not None and self._spans.are_apart(addresses)


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


def fits(planned: Layouts, given: Layouts, packs: bool) -> bool:
    """Whether a plan for lists of the one layouts multiplies the other. It may be one that *packs* arrays."""
    if given == planned:
        return True
    return _packed_alike(planned, given) if packs else _reaching(given) == _reaching(planned)


def _packed_alike(planned: Layouts, given: Layouts) -> bool:
    """Whether those that a plan packs once are one."""
    found = given.sharing
    return planned._replace(firsts=given.firsts) == given and all(
        found[name][pair] == found[name][first]
        for name, firsts in planned.sharing.items()
        for pair, first in enumerate(firsts)
    )


def _reaching(layouts: Layouts) -> Layouts:
    """Without the strides of axes of one element."""

    def of(its: Any) -> Any:
        if its is None or len(its) == 2:  # of a NumPy array, which has no strides here
            return its
        return its[0], reaching(*its[:2]), *its[2:]

    return layouts._replace(lists=tuple([(name, tuple(map(of, xs))) for name, xs in layouts.lists]))


def mismatch(planned: Layouts, given: Layouts) -> str:
    """How the operands of a call differ from those that a plan was made for."""
    if planned.kind is not given.kind:
        return "the plan is for arrays of another library, or in other memory; make a plan for these"
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
            last = "offset" if planned.kind is None else "alignment"
            both = f"{name} is {_shown(other, last)}, the plan is for {_shown(one, last)}"
            return f"pairs[{pair}]: {both}; make a plan for it"
    return "the pairs share other arrays or buffers than the plan's; make a plan for them"


def _shown(layout: Any, last: str) -> str:
    if layout is None:
        return "none"
    shape, *strides, dtype = layout[:3]
    more = f", strides {strides[0]}, {last} {layout[3]}" if strides else ""
    return f"{shape} {dtype}{more}"
