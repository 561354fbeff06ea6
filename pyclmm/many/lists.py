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
from ..execution.kinds import KindWithAddresses, common_kind, computed_dtype
from ..execution.operands import check_writeable, collect, signature
from ..opencl import array_fields
from ..opencl.host_memory import HOST_ALIGN, location
from ..opencl.queues import PerThread, at_release
from ..problem.gemm import MAX_ALIGN, alignment, reaching
from ..raising import OF_CALLER
from .apart import Lists, Spans, check_apart, places

Addresses = Mapping[str, NDArray[np.int64]]  # by name, of each pair; any number for None
_ON_DEVICE, _MEMORY = attrgetter("shape", "strides", "dtype", "offset"), attrgetter("base_data")
_NOTHING = np.zeros((), "V1")  # in place of None: its dtype is no other array's
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
    addresses: Addresses | None = None  # but for Arrays
    like: CudaArray | None = None  # one of them without memory, if they are on a CUDA device


class Layouts(NamedTuple):
    """What a plan depends on: shapes, strides and dtypes. Of Arrays offsets too, and which of them lie in one
    buffer; of other arrays the alignment."""

    dtypes: tuple[Any, ...]
    lists: tuple[tuple[str, tuple[Any, ...]], ...]  # by name, of each pair
    firsts: tuple[tuple[int, ...], ...] = ()  # as of :func:`_firsts`, of Arrays' buffers
    # Of these buffers, if one is written: two may share an allocation. Of other arrays the pairs whose outs
    # overlap their operands, and these operands.
    places: tuple[tuple[int, Any], ...] = ()
    kind: Any = Array  # the type of the arrays that kernels get

    def __hash__(self) -> int:
        return hash(tuple([its[:8] for _, its in self.lists]))  # of all takes long

    @property
    def sharing(self) -> dict[str, tuple[int, ...]]:
        """By name: for each pair, the first with an Array in the same buffer."""
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
            if any(x is not None for x in xs):
                lists[name] = tuple(xs)
    seen = _seen.mine.held.get(_place(lists))
    again: CallLists | None = None if seen is None else seen.again(lists)
    if again is not None:
        return again
    kinds = {*map(type, chain(*[xs for name, xs in lists.items() if name not in ("a", "b")]))}
    kinds = {*map(type, a), *map(type, b)} | (kinds - {type(None)})
    if kinds == {Array}:
        return CallLists(lists, lists)
    if kinds <= {np.ndarray}:
        return CallLists(lists, lists, addresses=_addresses(lists))
    return _collected(lists)


def in_full(given: CallLists) -> CallLists:
    """*given* with CudaArrays if its arrays are on a CUDA device and were not looked at in full."""
    return given if given.like is None or given.layouts is None else _collected(given.arrays)


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
            common_kind({"a of pairs[0]": arrays["a"][0], "a": given["a"]})
            found.append(collect(given))
            dtypes.append(computed_dtype(given))
            _check_alike(found[0]["a"], found[-1])
    lists = {name: tuple([each.get(name) for each in found]) for name in arrays}
    addresses, like = None if on_device(lists) else _addresses(lists), found[0]["a"]
    like = replace(like, owner=None) if isinstance(like, CudaArray) else None
    return CallLists(lists, arrays, tuple(dtypes) if any(dtypes) else (), None, addresses, like)


def _addresses(lists: Lists) -> Addresses:
    xs = [_NOTHING if x is None else x for x in chain(*lists.values())]
    if array_fields.READABLE and all(isinstance(x, np.ndarray) for x in xs):
        return _by_name(lists, array_fields.fields_of(xs).places)
    return _by_name(lists, np.array([*map(_address, xs)], np.int64))


def _by_name(lists: Lists, places: NDArray[np.int64]) -> Addresses:
    return dict(zip(lists, places.reshape(len(lists), -1), strict=True))


def _address(x: Any) -> int:
    return x.address if isinstance(x, CudaArray) else location(x)


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
    """What a plan for these lists depends on. Raises ArgumentError for an out that is read-only, or shares
    elements with another out or another pair's operands."""
    if given.layouts is not None:
        return given.layouts
    lists, addresses = given.lists, given.addresses
    if addresses is None:
        layouts = tuple([(name, each(_ON_DEVICE, xs)) for name, xs in lists.items()])
        return Layouts((), layouts, *_buffers(lists))
    most = HOST_ALIGN if given.like is None else MAX_ALIGN
    layouts = tuple([
        (name, tuple([
            None if x is None else (x.shape, x.strides, x.dtype, alignment(at, most))
            for x, at in zip(xs, addresses[name].tolist(), strict=True)
        ]))
        for name, xs in lists.items()
    ])  # fmt: skip
    kind = np.ndarray if given.like is None else type(given.like)
    return Layouts(given.dtypes, layouts, (), _overlaps(given) if "out" in lists else (), kind)


def _overlaps(given: CallLists) -> tuple[tuple[int, Any], ...]:
    """The pairs whose outs overlap their operands, and these."""
    lists, addresses = given.lists, given.addresses or {}
    if given.like is None:
        for pair, out in enumerate(lists["out"]):
            if out is not None:
                with naming(pair):
                    check_writeable(out)
    if _say_all(given) and Spans(lists).are_apart(addresses):
        return ()
    check_apart(lists)
    shared = [
        (pair, signature(operands_at(lists, pair)).overlapping)
        for pair, out in enumerate(lists["out"])
        if out is not None
    ]
    return tuple([one for one in shared if one[1]])


def _say_all(given: CallLists) -> bool:
    """Whether addresses tell which arrays overlap: a file may be mapped twice."""
    outs = given.lists.get("out", ())
    return given.like is not None or all(x is None or x.flags.owndata for x in outs)


def _place(lists: Lists) -> tuple[Any, ...]:
    """Where :data:`_seen` has what was seen of such lists."""
    try:
        ends = [getattr(x, "shape", None) for x in (*lists["a"][:1], *lists["b"][-1:])]
    except Exception:  # a property of somebody else's, as of a dataset whose file is closed
        ends = []
    return (*lists, len(lists["a"]), *ends)


def remember(given: CallLists, layouts: Layouts) -> None:
    """Note that a call of this thread's has these *layouts*, for :func:`given_of`."""
    if given.layouts is not None:
        return
    lists, look = given.lists, None
    if given.like is not None:
        if isinstance(given.like.kind, KindWithAddresses):
            look = _of_tensors(given.like.kind, lists)
    elif given.addresses is None:
        look = _of_arrays(lists, layouts)
    elif lists is given.arrays and array_fields.READABLE:
        look = _OfNumPy(lists)
    if look is not None:
        _seen.keep(_place(lists), _SeenLists(given, layouts, look))


# The addresses of lists, none of Arrays; None if their layouts are not those that were seen.
_Look = Callable[[Lists], Addresses | None]


class _SeenLists:
    """Lists to compare the next with."""

    def __init__(self, given: CallLists, layouts: Layouts, look: _Look) -> None:
        self._call = given._replace(lists={}, arrays={}, layouts=layouts)
        self._names, self._count, self._look = (*given.lists,), len(given.lists["a"]), look
        self._last: Addresses = given.addresses or {}
        self._has_outs = "out" in given.lists
        is_apart = self._last and self._has_outs and not layouts.places and _say_all(given)
        self._spans = Spans(given.lists) if is_apart else None

    def again(self, lists: Lists) -> CallLists | None:
        """The call, if its arrays differ from those in their addresses at most."""
        if self._names != (*lists,) or self._count != len(lists["a"]):
            return None
        addresses = self._look(lists)
        if addresses is None:
            return None
        if any((its != self._last[name]).any() for name, its in addresses.items()):
            if self._has_outs and not (self._spans is not None and self._spans.are_apart(addresses)):
                return None
            self._last = addresses
        own = None if self._call.addresses is None else self._last
        return self._call._replace(lists=lists, arrays=lists, addresses=own)


def _of_arrays(lists: Lists, layouts: Layouts) -> _Look | None:
    """Of the very same Arrays, in the same buffers: PyOpenCL never gives an Array another layout."""

    def look(lists: Lists) -> Addresses | None:
        with suppress(TypeError):  # None among them
            if all(map(is_, map(ref, chain(*lists.values())), refs)) and _buffers(lists) == layouts[2:4]:
                return {}
        return None

    try:
        refs = [*map(ref, chain(*lists.values()))]
    except TypeError:  # None among them
        return None
    return look


def _of_tensors(kind: KindWithAddresses, lists: Lists) -> _Look:
    """What arrays of one library on a CUDA device say of themselves."""
    every = {name: [x and kind.seen(x) for x in xs] for name, xs in lists.items()}

    def look(lists: Lists) -> Addresses | None:
        addresses = {}
        for name, xs in lists.items():
            found = [
                (0 if x is None else None) if seen is None else kind.address_of(x, seen)
                for x, seen in zip(xs, every[name], strict=True)
            ]
            if None in found:
                return None
            addresses[name] = np.array(found, np.int64)
        return addresses

    return look


class _OfNumPy:
    """What the fields of NumPy arrays say."""

    def __init__(self, lists: Lists) -> None:
        # Among layouts are the addresses of dtypes, which no other object may get.
        self._dtypes = {id(x.dtype): x.dtype for x in chain(*lists.values()) if x is not None}
        self._layouts: Any = None
        self(lists)

    def __call__(self, lists: Lists) -> Addresses | None:
        xs = sum(map(tuple, lists.values()), ())
        types = {*map(type, xs)}
        if types == {np.ndarray, type(None)}:
            xs = tuple([_NOTHING if x is None else x for x in xs])
        elif types != {np.ndarray}:
            return None
        places, layouts = array_fields.fields_of(xs)
        if self._layouts is None:
            self._layouts = layouts
        elif layouts.shape != self._layouts.shape or (layouts != self._layouts).any():
            return None
        return _by_name(lists, places)


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


def fits(planned: Layouts, given: Layouts) -> bool:
    """Whether a plan for lists of the one layouts multiplies the other."""
    return given == planned or _reaching(given) == _reaching(planned)


def differ_in_strides(planned: Layouts, given: Layouts) -> bool:
    """Whether both are of NumPy arrays of the same shapes and dtypes."""
    plain = [
        [(name, [its and (its[0], its[2]) for its in xs]) for name, xs in one.lists]
        for one in (planned, given)
    ]
    return planned.kind is given.kind is np.ndarray and plain[0] == plain[1]


def _reaching(layouts: Layouts) -> Layouts:
    """Without the strides of axes of one element."""

    def of(its: Any) -> Any:
        return None if its is None else (its[0], reaching(*its[:2]), *its[2:])

    return layouts._replace(lists=tuple([(name, tuple(map(of, xs))) for name, xs in layouts.lists]))


def mismatch(planned: Layouts, given: Layouts) -> str:
    """How the operands of a call differ from those that a plan was made for."""
    planned_count, count = (len(each.lists[0][1]) for each in (planned, given))
    if count != planned_count:
        return f"pairs has {count} entries, the plan is for {planned_count}; make a plan for them"
    if planned.kind is not given.kind:
        return "the plan is for arrays of another library, or in other memory; make a plan for these"
    wanted, found = (
        {(pair, name): its for name, xs in each.lists for pair, its in enumerate(xs)}
        for each in (planned, given)
    )
    for pair, name in sorted(wanted | found):
        one, other = wanted.get((pair, name)), found.get((pair, name))
        if one != other:
            last = "offset" if planned.kind is Array else "alignment"
            both = f"{name} is {_shown(other, last)}, the plan is for {_shown(one, last)}"
            return f"pairs[{pair}]: {both}; make a plan for it"
    return "the pairs share other arrays or buffers than the plan's; make a plan for them"


def _shown(layout: Any, last: str) -> str:
    if layout is None:
        return "none"
    shape, strides, dtype, its = layout
    return f"{shape} {dtype}, strides {strides}, {last} {its}"
