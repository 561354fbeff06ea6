"""The lists of a call: as many entries in each, all of one kind of array; what a plan depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, product, repeat
from operator import attrgetter, is_, length_hint
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
from pyopencl.array import Array

from ..cuda.arrays import CudaArray, common_ordinal
from ..errors import ArgumentError, DTypeError, amount
from ..execution.kinds import KindWithAddresses, common_kind, computed_dtype
from ..execution.operands import check_writeable, collect, signature
from ..opencl import array_fields, arrays, mappings
from ..opencl.host_memory import HOST_ALIGN, location
from ..opencl.queues import PerThread, at_release
from ..problem.gemm import MAX_ALIGN, alignment, reaching
from ..raising import OF_CALLER
from .apart import Addresses, Lists, Spans

_ON_DEVICE, _MEMORY = attrgetter("shape", "strides", "dtype", "offset"), attrgetter("base_data")
_ADDRESS, _NONE = attrgetter("address"), type(None)
_NOTHING = np.zeros((), "V1")  # in place of None: its dtype is no other array's
# Of each thread what was seen of the last lists: those of a network's layers take turns.
_seen: PerThread[Any] = PerThread(most=8)
at_release(_seen.clear)


@contextmanager
def naming(index: int) -> Iterator[None]:
    """Errors of the caller's in this block name the pair with this *index*."""
    try:
        yield
    except OF_CALLER as error:
        raise type(error)(f"pairs[{index}]: {error}") from error.__cause__


class Layouts(NamedTuple):
    """What a plan depends on."""

    kind: Any  # the type of the arrays that kernels get
    names: tuple[str, ...]
    arrays: tuple[Any, ...]  # of each shape, strides, dtype, and the alignment, of Arrays the offset
    dtypes: tuple[Any, ...] = ()  # of each pair, if their library has another rule than NumPy
    firsts: tuple[int, ...] = ()  # of each Array the first of its name in the same buffer
    # The pairs whose outs overlap their operands, and these. If Arrays are written, where their buffers are:
    # two may share an allocation.
    shared: tuple[tuple[int, Any], ...] = ()

    def __hash__(self) -> int:
        return hash((self.names, self.arrays[:8], self.arrays[-8:]))  # of all takes long


@lru_cache(maxsize=32)
def _known(layouts: Layouts) -> Layouts:
    """Of equal ones the first: to compare an object with itself takes no time."""
    return layouts


at_release(_known.cache_clear)


class CallLists(NamedTuple):
    """The lists of a call."""

    lists: Lists  # NumPy arrays, Arrays or CudaArrays; the caller's arrays if these were seen before
    arrays: Lists  # the caller's
    layouts: Layouts
    addresses: Addresses  # none for Arrays
    like: CudaArray | None = None  # one of them without memory, if they are on a CUDA device


def lists_of(pairs: Any, c: Any, bias: Any, out: Any) -> Lists:
    """The lists of a call. Raises DTypeError and ArgumentError for what are no lists of the same length."""
    try:
        entries = iter(pairs)
    except TypeError:
        raise DTypeError(f"pairs is a {type(pairs).__name__}; pass a list of pairs, [(a, b), ...]") from None
    pairs = tuple(entries)  # an error of a generator's is the caller's own
    try:
        a, b = zip(*pairs, strict=True) if pairs else ((), ())
    except (TypeError, ValueError):
        index = next((i for i, pair in enumerate(pairs) if length_hint(pair) != 2), 0)
        what = f"pairs[{index}] is a {type(pairs[index]).__name__} that has not two entries"
        raise ArgumentError(f"{what}; pass (a, b)") from None
    names, arrays = ["a", "b"], (*a, *b)
    for name, xs in (("c", c), ("bias", bias), ("out", out)):
        if xs is not None:
            check_length(name, xs, len(a))
            if any(x is not None for x in xs):
                names, arrays = [*names, name], (*arrays, *xs)
    return Lists(tuple(names), arrays)


def given_of(lists: Lists) -> CallLists:
    """What is to be known of *lists*; what is like an array becomes one.

    Raises ArgumentError for an out that is read-only, or shares elements with another out or another pair's
    operands, and DTypeError and ShapeError as matmul does, naming the pair.
    """
    count = lists.length
    place = *lists.names, count, _shapes(*lists.arrays[:1], *lists.arrays[2 * count - 1 : 2 * count])
    seen = _seen.mine.held.get(place)
    return (seen and seen.again(lists)) or _looked_at(lists, place)


def _shapes(*xs: Any) -> Any:
    """The shapes of *xs*, to keep something by; None where one cannot be told, or is no tuple."""
    try:
        shapes = tuple([getattr(x, "shape", None) for x in xs])
        hash(shapes)
    except Exception:  # a property of somebody else's, as of a dataset whose file is closed
        return None
    return shapes


def check_length(name: str, given: Any, wanted: int) -> None:
    """Raise DTypeError if *given* is no list, ArgumentError if it has another length than the pairs."""
    if not isinstance(given, list | tuple):
        raise DTypeError(f"{name} is a {type(given).__name__}; pass a list with an entry for each pair")
    if len(given) != wanted:
        raise ArgumentError(
            f"{name} has {amount(len(given), 'entries')}, pairs has {wanted}; pass one for each pair"
        )


def in_full(given: CallLists) -> CallLists:
    """*given* with CudaArrays if it has the caller's arrays on a CUDA device."""
    is_seen = given.like is not None and given.lists is given.arrays
    return given._replace(lists=_collected(given.arrays)[0]) if is_seen else given


def _collected(given: Lists) -> tuple[Lists, tuple[Any, ...], CudaArray | None]:
    """The lists of what may be like arrays, the dtypes of their Layouts, and one as of a CallLists.

    Raises DTypeError unless all are in the same kind of memory, ArgumentError if they are on several devices.
    """
    found: list[Mapping[str, Any]] = []
    dtypes = []
    for index in range(given.length):
        with naming(index):
            operands = dict.fromkeys(("a", "b")) | given.pair(index)
            common_kind({"a of pairs[0]": given.arrays[0], "a": operands["a"]})
            dtypes.append(computed_dtype(operands))
            found.append(collect(operands))
            first = found[0]["a"]
            kinds = [_kind_of(x) for x in (found[-1]["a"], first)]
            if kinds[0] != kinds[1]:
                raise DTypeError(f"{kinds[0]} and {kinds[1]} are in one list; pass all of one kind")
            if isinstance(first, CudaArray):
                common_ordinal({"a": first} | {f"{name} of this pair": x for name, x in found[-1].items()})
    lists = Lists(given.names, tuple([each.get(name) for name in given.names for each in found]))
    like = replace(first, owner=None) if isinstance(first, CudaArray) else None
    return lists, tuple(dtypes) if any(dtypes) else (), like


def _kind_of(x: Any) -> str:
    if isinstance(x, CudaArray):
        return f"arrays of {type(x.kind).__name__.strip('_')} on CUDA"
    return "pyopencl Arrays" if isinstance(x, Array) else "NumPy arrays"


def _looked_at(given: Lists, place: Any) -> CallLists:
    """The lists of a call, which become those that were seen at this *place*."""
    lists, dtypes, like, spans = given, (), None, None
    operands = {*map(type, given.arrays[: 2 * given.length])}
    if {*map(type, given.arrays)} - {_NONE} != operands or operands not in ({Array}, {np.ndarray}, set()):
        lists, dtypes, like = _collected(given)
    look: _Look | None = None
    if any(isinstance(x, Array) for x in lists.arrays[:1]):
        for number, x in enumerate(lists.arrays):
            if x is not None:
                pair = f"pairs[{number % lists.length}]: "
                arrays.check_buffer(x, lists.names[number // lists.length], pair)
        layouts = Layouts(Array, lists.names, each(_ON_DEVICE, lists.arrays), dtypes, *_buffers(lists))
        call = CallLists(lists, given, _known(layouts), np.empty(0, np.int64))
        look = _of_arrays(lists, call.layouts)
    else:
        nothing, where = (location(_NOTHING), location) if like is None else (0, _ADDRESS)
        addresses = np.array([nothing if x is None else where(x) for x in lists.arrays], np.int64)
        shared, spans = _checked_outs(lists, addresses, like)
        most, kind = (HOST_ALIGN, np.ndarray) if like is None else (MAX_ALIGN, type(like))
        both = zip(lists.arrays, addresses.tolist(), strict=True)
        its = [None if x is None else (x.shape, x.strides, x.dtype, alignment(at, most)) for x, at in both]
        layouts = Layouts(kind, lists.names, tuple(its), dtypes, (), shared)
        call = CallLists(lists, given, _known(layouts), addresses, like)
        if like is not None:
            look = _of_tensors(like.kind, lists) if isinstance(like.kind, KindWithAddresses) else None
        elif lists is given and operands and array_fields.READABLE:
            look = _of_numpy(lists)
    if look is not None:
        _seen.keep(place, _SeenLists(call, look, spans))
    return call


def _checked_outs(lists: Lists, addresses: Addresses, like: Any) -> tuple[tuple[Any, ...], Spans | None]:
    """The pairs whose outs overlap their operands, and these; Spans if none does, and addresses tell that."""
    outs = {pair: out for pair, out in enumerate(lists.named("out")) if out is not None}
    if not outs:
        return (), None
    if like is None:
        for pair, out in outs.items():
            with naming(pair):
                check_writeable(out)
    spans = Spans(lists)
    # A file may be mapped twice.
    if (like is not None or all(x.flags.owndata for x in outs.values())) and spans.are_apart(addresses):
        return (), spans
    spans.check(lists, addresses)
    if like is None:
        spans.check(lists, mappings.in_files(lists.arrays, addresses, lists.number("out")))
    shared = [(pair, signature(lists.pair(pair)).overlapping) for pair in outs]
    return tuple([one for one in shared if one[1]]), None


# The addresses of lists, none of Arrays; None if their layouts are not those that were seen.
_Look = Callable[[tuple[Any, ...]], Addresses | None]


class _SeenLists:
    """Lists to compare the next of as many pairs with."""

    def __init__(self, call: CallLists, look: _Look, spans: Spans | None) -> None:
        nothing = Lists((), ())
        self._call, self._look, self._spans = call._replace(lists=nothing, arrays=nothing), look, spans

    def again(self, lists: Lists) -> CallLists | None:
        """The call, if its arrays differ from those in their addresses at most."""
        addresses = self._look(lists.arrays)
        if addresses is None:
            return None
        if not np.array_equal(addresses, self._call.addresses):
            if "out" in lists.names and not (self._spans is not None and self._spans.are_apart(addresses)):
                return None
            self._call = self._call._replace(addresses=addresses)
        return self._call._replace(lists=lists, arrays=lists)


def _of_arrays(lists: Lists, layouts: Layouts) -> _Look | None:
    """Of the very same Arrays: PyOpenCL never gives an Array another layout. Their buffers may be others."""

    def look(xs: tuple[Any, ...]) -> Addresses | None:
        with suppress(TypeError):  # None among them
            if all(map(is_, map(ref, xs), refs)) and are_within(xs):
                return nothing if _buffers(Lists(names, xs)) == layouts[-2:] else None
        return None

    def are_within(xs: tuple[Any, ...]) -> bool:
        for first, end in ends.items():
            base = xs[first].base_data
            size = 0 if base is None else getattr(base, "size", None)  # some shared virtual memory has None
            if not (size is None or size >= end) or (first >= outs and not arrays.is_writeable(base)):
                return False
        return True

    names, nothing = lists.names, np.empty(0, np.int64)
    try:
        refs = [*map(ref, lists.arrays)]
    except TypeError:  # None among them
        return None
    ends: dict[int, int] = {}  # the bytes of a buffer that are needed, by the first Array in it
    for first, x in zip(layouts.firsts, lists.arrays, strict=True):
        ends[first] = max(ends.get(first, 0), arrays.end_of(x))
    outs = names.index("out") * lists.length if "out" in names else len(lists.arrays)  # which are last
    return look


def _of_tensors(kind: KindWithAddresses, lists: Lists) -> _Look:
    """What arrays of one library on a CUDA device say of themselves."""
    addresses_of = kind.follower(lists.arrays)

    def look(xs: tuple[Any, ...]) -> Addresses | None:
        found = addresses_of(xs)
        return None if found is None else np.array(found, np.int64)

    return look


def _of_numpy(lists: Lists) -> _Look:
    """What the fields of NumPy arrays say."""

    def fields(xs: tuple[Any, ...]) -> array_fields.ArrayFields | None:
        types = {*map(type, xs)}
        if types == {np.ndarray, _NONE}:
            xs = tuple([_NOTHING if x is None else x for x in xs])
        return array_fields.fields_of(xs) if types - {_NONE} == {np.ndarray} else None

    def look(xs: tuple[Any, ...], _dtypes: Any) -> Addresses | None:
        found = fields(xs)
        return found.places if found is not None and np.array_equal(found.layouts, layouts) else None

    (_, layouts) = fields(lists.arrays) or ((), ())
    # Among them are the addresses of dtypes, which no other object may get.
    return partial(look, _dtypes={id(x.dtype): x.dtype for x in lists.arrays if x is not None})


def _buffers(lists: Lists) -> tuple[Any, Any]:
    """For each Array the first of its name in the same buffer; and, if there are outs, where each is."""
    buffers, length = each(_MEMORY, lists.arrays), lists.length
    begins = range(0, len(buffers), length)
    firsts = (*chain(*[_firsts(buffers[at : at + length], at) for at in begins]),)
    if "out" not in lists.names:
        return firsts, ()
    ones = [lists.arrays[at] for at in dict.fromkeys(firsts)]
    return firsts, tuple(places(x for x in ones if x is not None))


def places(given: Any) -> list[tuple[int, int]]:
    """(the number of its allocation among those that occur, offset in bytes) of each Array."""
    numbers: dict[int, int] = {}
    located = [arrays.location(x) for x in given]
    return [(numbers.setdefault(root, len(numbers)), at) for root, at in located]


def _firsts(xs: Sequence[Any], begin: int) -> tuple[int, ...]:
    """For each the number of the first that is the same, counted from *begin*."""
    if all(map(is_, xs, repeat(xs[0]))):
        return (begin,) * len(xs)
    numbers: dict[int, int] = {}
    return tuple([numbers.setdefault(id(one), number) for number, one in enumerate(xs, begin)])


def each(layout: Callable[[Any], Any], xs: Sequence[Any]) -> tuple[Any, ...]:
    """The *layout* of each of *xs*; None for None."""
    try:
        return tuple(map(layout, xs))
    except AttributeError:  # of None
        return tuple([None if x is None else layout(x) for x in xs])


def fits(planned: Layouts, given: Layouts) -> bool:
    """Whether a plan for lists of the one layouts multiplies the other."""

    def reached(its: Layouts) -> Any:
        return its._replace(arrays=tuple([x and (x[0], reaching(*x[:2]), *x[2:]) for x in its.arrays]))

    return given == planned or reached(given) == reached(planned)


def mismatch(planned: Layouts, given: Layouts, takes_any: bool) -> str:
    """How the operands of a call differ from those that a plan was made for; "" for NumPy arrays of the same
    shapes and dtypes, and for other arrays if the plan *takes_any*."""
    planned_count, count = (len(each.arrays) // len(each.names) for each in (planned, given))
    if count != planned_count:
        return f"pairs has {amount(count, 'entries')}, the plan is for {planned_count}; make a plan for them"
    if planned.kind is not given.kind and not takes_any:
        return "the plan is for arrays of another library, or in other memory; make a plan for these"
    last = {np.ndarray: "", Array: "offset"}.get(planned.kind, "alignment")
    for pair, name in product(range(count), sorted({*planned.names, *given.names})):
        one, its = (Lists(*layouts[1:3]).pair(pair).get(name) for layouts in (given, planned))
        # Of NumPy arrays shapes and dtypes count.
        if one != its and (last or not (one and its) or (one[0], one[2]) != (its[0], its[2])):
            shown = [x and f"{x[0]} {x[2]}, strides {x[1]}, {last or 'alignment'} {x[3]}" for x in (one, its)]
            what = f"{name} is {shown[0] or 'none'}, the plan is for {shown[1] or 'none'}"
            return f"pairs[{pair}]: {what}; make a plan for it"
    return last and "the pairs share other arrays or buffers than the plan's; make a plan for them"
