"""PlannedList: the products of a list, each checked as a call of gemm is, and grouped into launches."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..execution import kinds
from ..execution import operands as calls
from ..execution.execute import Executable
from ..execution.options import Options, beta_of, plain_numbers
from ..execution.placement import placed
from ..kernels.launches import batch_table
from ..kernels.listed import size_classes
from ..opencl.devices import device_info
from ..opencl.queues import PerThread
from ..opencl.steps import Scales, scalars_of
from ..plan_cache import plan_for
from ..problem.dtypes import check_scalars, dtype_of
from ..problem.gemm import Gemm, ListedProduct, Operand, dense_strides
from .apart import Addresses, Lists
from .lists import CallLists, naming

SCALARS = scalars_of(1.0, 0.0)  # alpha and beta of each product are in the table
# What is the same for all products of a launch, beside the keys.
_COMMON = attrgetter("acc_type", "trans_a", "trans_b", "conj_a", "conj_b", "bias")
_LARGEST = ("m", "n", "k", "lda", "ldb", "ldo")
_LEAST = ("a_align", "b_align", "out_align")  # each array begins where its rows stay as aligned as they are
_STACKED = ("a", "b", "c", "out")  # in the order of batch_strides
NEW = -1  # the number of the memory of a call's own results
_KEPT = 8  # streams or queues whose tables a thread keeps
# The first columns of the table of products (listed.h): where each begins, in elements.
_COLUMNS = ("a", "b", "c", "out", "bias")


class Key(NamedTuple):
    """What arrays of a launch have in common: the user's name, or "out", the type of the elements, and a
    number of the memory where they lie."""

    name: str
    type: str
    memory: int


class ListEntry(NamedTuple):
    """A checked product: its place in the list, what is to be computed, the key of each array that kernels
    read or write, by the problem's name, alpha and beta, and the options of a call of gemm."""

    pair: int
    gemm: Gemm
    keys: dict[str, Key]
    scales: Scales
    options: Options


Start = Callable[[Key, int], int]  # by key and pair: the first element in its memory


@lru_cache(maxsize=4096)
def _checked(layouts: Any, *ways: Any) -> tuple[Gemm, dict[str, tuple[str, str]]]:
    """The checked product of these (name, Operand), and of each array that kernels read or write, by the
    problem's name, the user's and the type of its elements. *ways*: as of :func:`checked`, which raises."""
    gemm = calls.checked(dict(layouts), *ways)
    names = [name for name in ("a", "b", "c", "bias", "out") if name not in gemm.unread]
    return gemm, {
        name: (calls.problem_name(gemm, name), getattr(gemm.problem, f"{name}_type")) for name in names
    }


class PackedRow:
    """Arrays of one element type, dense, one behind the other in one. *members*: the alignment of each one's
    rows in bytes, its pair and shape. Those aligned best come first, so that none moves another off its
    alignment."""

    def __init__(self, type_name: str, members: list[tuple[int, int, tuple[int, ...]]]) -> None:
        members.sort(key=lambda one: -one[0])
        self.dtype = dtype_of(type_name)
        _, self.pairs, self.shapes = zip(*members, strict=True)
        ends = np.cumsum([math.prod(shape) for shape in self.shapes]).tolist()
        self.size: int = ends[-1]
        self.starts = dict(zip(self.pairs, [0, *ends[:-1]], strict=True))
        self.offsets = [start * self.dtype.itemsize for start in self.starts.values()]
        self.parts = [*zip(self.shapes, map(dense_strides, self.shapes), self.starts.values(), strict=True)]


class LaunchGroup:
    """Products that one launch computes, with the kernel for them."""

    def __init__(self, entries: Sequence[ListEntry], gemm: Gemm, options: Options, queue: Any) -> None:
        self.pairs = [one.pair for one in entries for _ in range(one.gemm.problem.batch)]  # of each product
        with naming(self.pairs[0]):
            self.executable = Executable(queue, gemm, replace(options, pairs=tuple(self.pairs)))
        self.keys = entries[0].keys

    def launched(
        self, queue: Any, launch: Callable[[Any], Any], waits: bool, updates_c: Callable[[], bool]
    ) -> Any:
        """What *launch* gives for a binding, by the next kernel if one is refused.

        *updates_c* tells whether an out is its C. It waits for a check if the caller *waits*, or if what is
        wrong is repaired. Raises LaunchError, DeviceMemoryError, DeviceLostError or VerificationError.
        """

        def again(other: Any, _shifts: Any) -> None:
            launch(other)
            queue.finish()

        def once() -> Any:
            binding = self.executable.idle_binding(queue)
            found = launch(binding)
            repairs = self.executable.repairs
            if binding.watch is not None and (waits or repairs):
                self.executable.conclude(binding, queue, again, repairs and updates_c())
            return found

        return self.executable.launched(queue, once)


def groups_of(
    entries: Sequence[ListEntry], start: Start, options: Options, queue: Any
) -> tuple[list[LaunchGroup], Any]:
    """The groups of *entries*, that with the most operations first, and the queue for them: *queue*, or where
    a free one leaves the first of them."""
    alike: dict[Any, list[ListEntry]] = {}
    for one in entries:
        alike.setdefault((*one.keys.items(), one.gemm.swapped, *_COMMON(one.gemm.problem)), []).append(one)
    groups: dict[Any, list[ListEntry]] = {}
    for common, them in alike.items():
        sizes = [(p.m, p.n, p.k * p.batch) for p in (one.gemm.problem for one in them)]
        for one, own in zip(them, size_classes(sizes, device_info(queue.device).is_cpu), strict=True):
            groups.setdefault((common, own), []).append(one)
    made = [(them, _listed(them, start)) for them in groups.values()]
    made.sort(key=lambda group: -group[1].problem.flops)
    if made:
        first = made[0][1]
        queue = placed(queue, replace(first, problem=first.problem.typical), options).queue
    return [LaunchGroup(*group, options, queue) for group in made], queue


def _listed(entries: Sequence[ListEntry], start: Start) -> Gemm:
    """The product of a group as kernels get it. Its shape is that of all results, one behind the other."""
    first, problems = entries[0].gemm, [one.gemm.problem for one in entries]
    fields: dict[str, Any] = {name: max(getattr(p, name) for p in problems) for name in _LARGEST}
    fields |= {name: min(getattr(p, name) for p in problems) for name in _LEAST}
    fields |= {"batch_shape": (), "batch_strides": ((),) * 4, "c_strides": (0, 0), "bias_stride": 0}
    products = tuple(product for one in entries for product in _products(one, start))
    problem = replace(first.problem, **fields, products=products)
    return Gemm(problem, (sum(p.m * p.n * p.batch for p in problems),), first.dtype, first.swapped)


def _products(entry: ListEntry, start: Start) -> Iterator[ListedProduct]:
    """The products of a pair, of which a stack has many."""
    p = entry.gemm.problem
    at = {name: start(key, entry.pair) for name, key in entry.keys.items()}
    bias = at.get("bias", 0), p.bias_stride
    stack = batch_table(p.batch_shape, p.batch_strides).tolist() if p.batch_shape else [(0, 0, 0, 0)]
    for places in stack:
        a, b, c, out = (first + at.get(name, 0) for first, name in zip(places, _STACKED, strict=True))
        sizes = p.m, p.n, p.k, a, b, out, p.lda, p.ldb, p.ldo
        yield ListedProduct(*sizes, c, *p.c_strides, *bias, *entry.scales)


class PlannedList(ABC):
    """A planned list."""

    align: int | None = None  # of the copies that the host makes of operands
    new = NEW  # the number of the memory of results that are made
    packed: tuple[int, ...] = (NEW,)  # the numbers of memory that a call makes

    def __init__(self, given: CallLists, options: Options, queue: Any, scalars: tuple[Any, Any]) -> None:
        lists, self.rows = given.lists, dict[Key, PackedRow]()
        self.tables: PerThread[Any] = PerThread(_KEPT)  # of products, where calls write them
        entries = list(self._entries(given, options, scalars))
        alike = Counter(tuple(one.keys.items()) for one in entries if not one.gemm.is_empty)
        alone, listed = list[ListEntry](), list[ListEntry]()
        for one in entries:
            is_alone = one.gemm.is_empty or self.is_alone(one, alike[tuple(one.keys.items())])
            (alone if is_alone else listed).append(one)
        self.place(listed, lists, queue)
        self.groups, self.queue = groups_of(listed, partial(self.start_of, lists), options, queue)
        self._alone = []  # what has a launch of its own, or none as it is empty
        for one in alone:
            operands = lists.pair(one.pair)
            products = one.gemm.problem.batch if options.verify else 0
            named = replace(one.options, pairs=(one.pair,) * products)
            with naming(one.pair):
                product = plan_for(operands, calls.signature(operands), named, queue, one.scales)
            self._alone.append((one.pair, product, one.scales))
        owners: list[Any] = [*self.groups, *[product for _, product, _ in self._alone]]
        every = [one.executable for one in owners]
        self.has_same_bits = all(one.gemm.problem.has_same_bits for one in every)
        self.executables = [one for one in every if not one.gemm.is_empty]

    def _entries(self, given: CallLists, options: Options, scalars: tuple[Any, Any]) -> Iterator[ListEntry]:
        """The checked products. *scalars*: alpha and beta, each one for all or a tuple. Raises as gemm does,
        naming the pair."""
        lists, dtypes = given.lists, given.layouts.dtypes
        for pair in range(lists.length):
            how = replace(options, dtype=dtypes[pair]) if dtypes else options
            with naming(pair):
                operands = lists.pair(pair)
                layouts = {name: self.layout(x, name) for name, x in operands.items()}
                alpha, beta = (x[pair] if isinstance(x, tuple) else x for x in scalars)
                if "c" in lists.names and "c" not in layouts and not isinstance(scalars[1], tuple):
                    beta = None  # one beta for all is for the pairs that have a c
                scales = plain_numbers(alpha, beta_of(beta, layouts.get("c")))
                # What is kept depends on which scalars are zero. A beta without c is refused by its value.
                zeros = float(scales[0] != 0), float(scales[1] != 0) if "c" in layouts else scales[1]
                ways = how, zeros, self.overlaps(operands), self.align
                gemm, names = _checked(tuple(layouts.items()), *ways)
                check_scalars(gemm.dtype, scales)
            keys = {}
            for name, (own, its_type) in names.items():
                is_new = name == "out" and (gemm.out_copy is not None or "out" not in operands)
                memory = self.new if is_new else self.memory_of(operands[own], lists.number(own, pair))
                keys[name] = Key(own, its_type, memory)
            yield ListEntry(pair, gemm, keys, scales, how)

    @abstractmethod
    def layout(self, x: Any, argument: str) -> Operand:
        """That of an operand."""

    def memory_of(self, x: Any, at: int) -> int:
        """The number of an operand's memory, *at* its number in the lists. A launch has one for each name."""
        return 0

    def overlaps(self, operands: calls.Operands) -> bool:
        """Whether the out of a pair must be copied."""
        return bool(calls.signature(operands).overlapping)

    def is_alone(self, entry: ListEntry, alike: int) -> bool:
        """Whether it has a launch of its own: what must be converted or copied on the device, and what has
        a buffer that no other product of the list has in its place, of *alike* ones."""
        return bool(entry.gemm.copies or entry.gemm.out_copy or alike == 1)

    def place(self, entries: Sequence[ListEntry], lists: Lists, queue: Any) -> None:
        """Find out where in rows what a call makes for *entries* lies."""
        found = defaultdict[Key, list[Any]](list)
        for one in entries:
            for name, key in one.keys.items():
                if key.memory in self.packed:
                    x = one.gemm if name == "out" else lists.arrays[lists.number(key.name, one.pair)]
                    found[key].append((getattr(one.gemm.problem, f"{name}_align", 1), one.pair, x.shape))
        self.rows = {key: PackedRow(key.type, its) for key, its in found.items()}

    def start_of(self, lists: Lists, key: Key, pair: int) -> int:
        """The first element of an array in its memory."""
        return self.rows[key].starts[pair] if key in self.rows else 0

    def run(self, given: CallLists, queue: Any, wait_for: list[Any]) -> list[Any]:
        """The results: complete on the host, else when their events, or the work before in the stream, are.

        Raises ArgumentError, LaunchError, DeviceMemoryError or DeviceLostError.
        """
        own = given.lists if given.like is None else given.arrays
        results = list(own.named("out"))
        if self.groups:
            for pair, part in self.multiply(given, queue, wait_for):
                results[pair] = part
        for pair, product, scales in self._alone:
            operands = own.pair(pair)
            made = product.multiply(calls.collect(operands), queue, scales, wait_for)
            results[pair] = kinds.returned(operands, made)
        return results

    def release(self) -> None:
        """Free every thread's tables and kernel objects."""
        self.tables.clear()
        for one in self.executables:
            one.release()

    @abstractmethod
    def multiply(self, given: CallLists, queue: Any, wait_for: list[Any]) -> Iterable[tuple[int, Any]]:
        """Launch all groups. The new results, each behind its pair."""


class ManyByAddress(PlannedList):
    """A planned list of arrays in one address space, of a CUDA device or of the process.

    To kernels every operand's memory begins at address 0: the table of products says where each lies, and is
    written when a call has others than the one before. New results lie in one array, which may move.
    """

    def __init__(self, given: CallLists, *planned: Any) -> None:
        super().__init__(given, *planned)
        tables = [group.executable.work.tables["products"] for group in self.groups]
        self.template = np.concatenate(tables) if tables else np.empty((0, len(_COLUMNS)), np.int64)
        # What is added to rows of a column: the addresses of these numbers, in units of so many bytes.
        self._begins: list[tuple[slice, int, NDArray[np.int64], int]] = []
        lists, row = given.lists, 0
        self._updated = lists.number("c"), lists.number("out")
        for group in self.groups:
            rows = slice(row, row := row + len(group.pairs))
            for name, key in group.keys.items():
                if key.memory != NEW:
                    at = lists.number(key.name) + np.array(group.pairs)
                    self._begins.append((rows, _COLUMNS.index(name), at, dtype_of(key.type).itemsize))

    def columns(self, addresses: Addresses) -> NDArray[np.int64]:
        """The first columns of the table for arrays at these *addresses*."""
        begins: NDArray[np.int64] = self.template[:, : len(_COLUMNS)].copy()
        for rows, column, at, size in self._begins:
            begins[rows, column] += addresses[at] // size
        return begins

    def updates_c(self, addresses: Addresses, group: LaunchGroup) -> bool:
        """Whether an out of *group* is the C of its pair."""
        if "c" not in group.keys or group.keys["out"].memory == NEW:
            return False
        c, out = (addresses[first + np.array(group.pairs)] for first in self._updated)
        return bool(np.any(c == out))
