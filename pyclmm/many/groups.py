"""The products of a list: each checked as a call of gemm is, and grouped into launches. No arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import pyopencl as cl

from ..errors import REFUSED
from ..execution.execute import Executable
from ..execution.operands import checked, problem_name
from ..execution.options import Options, beta_of, check_scalars, plain_numbers
from ..execution.placement import placed
from ..kernels.launches import batch_table
from ..kernels.listed import size_classes
from ..opencl.devices import device_info
from ..opencl.steps import Scales, scalars_of
from ..problem.gemm import Gemm, ListedProduct, Operand
from .lists import CallLists, naming, operands_at

T = TypeVar("T")
# The user's name of an operand, or "out", the type of its elements, and a number of the memory where it lies.
Key = tuple[str, str, int]
Starts = Mapping[tuple[str, int], int]  # by the user's name and the pair: the first element in its buffer

SCALARS = scalars_of(1.0, 0.0)  # alpha and beta of each product are in the table
# What is the same for all products of a launch, beside the keys.
_COMMON = attrgetter("acc_type", "trans_a", "trans_b", "conj_a", "conj_b", "bias")
_LARGEST = ("m", "n", "k", "lda", "ldb", "ldo")
_LEAST = ("a_align", "b_align", "out_align")  # each array begins where its rows stay as aligned as they are
_STACKED = ("a", "b", "c", "out")  # in the order of batch_strides


class ListEntry(NamedTuple):
    """A checked product: its place in the list, what is to be computed, the key of each array that kernels
    read or write, by the problem's name, alpha and beta."""

    pair: int
    gemm: Gemm
    keys: dict[str, Key]
    scales: Scales


@lru_cache(maxsize=4096)
def _checked(layouts: Any, *ways: Any) -> tuple[Gemm, dict[str, tuple[str, str]]]:
    gemm = checked(dict(layouts), *ways)
    names = [name for name in ("a", "b", "c", "bias", "out") if name not in gemm.unread]
    return gemm, {name: (problem_name(gemm, name), getattr(gemm.problem, f"{name}_type")) for name in names}


def entries_of(
    given: CallLists,
    options: Options,
    scalars: tuple[Any, Any],
    layout: Callable[[Any, str, int], Operand],
    memory: Callable[[str, int], int] = lambda _name, _pair: 0,
    overlaps: Callable[[Any], bool] = lambda _operands: False,
    host_align: int | None = None,
) -> list[ListEntry]:
    """The checked products. *layout*: that of an operand, its argument's name and pair; *memory*: the number
    of its memory, by name and pair; *overlaps*: whether a pair's out must be copied. *scalars*: alpha and
    beta, each one for all or a tuple. Raises as gemm does, naming the pair."""
    ways = [replace(options, dtype=own) for own in given.dtypes] or [options] * len(given.lists["a"])
    found = []
    for pair, own in enumerate(ways):
        with naming(pair):
            operands = operands_at(given.lists, pair)
            layouts = {name: layout(x, name, pair) for name, x in operands.items()}
            alpha, beta = (x[pair] if isinstance(x, tuple) else x for x in scalars)
            if "c" in given.lists and "c" not in layouts and not isinstance(scalars[1], tuple):
                beta = None  # one beta for all is for the pairs that have a c
            scales = plain_numbers(alpha, beta_of(beta, layouts.get("c")))
            # What is kept depends on which scalars are zero. A beta without c is refused by its value.
            zeros = float(scales[0] != 0), float(scales[1] != 0) if "c" in layouts else scales[1]
            gemm, names = _checked(tuple(layouts.items()), own, zeros, overlaps(operands), host_align)
            check_scalars(gemm, scales)
            keys = {name: (*key, memory(key[0], pair)) for name, key in names.items()}
            found.append(ListEntry(pair, gemm, keys, scales))
    return found


def naming_pairs(options: Options, pairs: Sequence[int]) -> Options:
    """The *options* of products of these *pairs*, whose errors name them."""
    return replace(options, pairs=tuple(pairs)) if options.verify else options


class LaunchGroup:
    """Products that one launch computes, with the kernel for them."""

    def __init__(self, entries: Sequence[ListEntry], gemm: Gemm, options: Options, queue: Any) -> None:
        self.pairs = [one.pair for one in entries for _ in range(one.gemm.problem.batch)]  # of each product
        self.executable = Executable(queue, gemm, naming_pairs(options, self.pairs))
        self.keys = entries[0].keys

    def enqueue(
        self,
        queue: cl.CommandQueue,
        buffers: Mapping[str, Any],
        wait_for: list[cl.Event],
        *,
        with_events: bool = True,
        is_waited_for: bool = False,
        updates_c: bool = False,
    ) -> list[cl.Event]:
        """Enqueue the products, by the next kernel if one is refused; their events, as Binding.enqueue's.

        *buffers*: by the problem's names; None for address 0. *updates_c*: whether an out is its C. It waits
        for a check if the caller would, or if what is wrong is repaired. Raises LaunchError,
        DeviceMemoryError, DeviceLostError or VerificationError.
        """
        how = (buffers, SCALARS, wait_for, None, with_events, None, is_waited_for)

        def again(other: Any, _shifts: Any) -> None:
            other.enqueue(buffers, SCALARS, [])[-1].wait()

        def launch() -> list[cl.Event]:
            binding = self.executable.binding(queue)
            events = list(binding.enqueue(*how))
            if binding.watch is not None and (is_waited_for or self.executable.repairs):
                self.executable.conclude(binding, queue, again, updates_c)
            return events

        return self.launched(queue, launch)

    def launched(self, queue: Any, launch: Callable[[], T]) -> T:
        """What *launch* gives, by the next kernel if one is refused."""
        while True:
            choice = self.executable.choice
            try:
                return launch()
            except REFUSED as error:
                self.executable.fall_back(choice, queue, error)


def groups_of(
    entries: Iterable[ListEntry], starts: Starts, options: Options, queue: Any
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
    made = [(them, _listed(them, starts)) for them in groups.values()]
    made.sort(key=lambda group: -group[1].problem.flops)
    if made:
        first = made[0][1]
        queue = placed(queue, replace(first, problem=first.problem.typical), options).queue
    return [LaunchGroup(*group, options, queue) for group in made], queue


def _listed(entries: Sequence[ListEntry], starts: Starts) -> Gemm:
    """The product of a group as kernels get it. Its shape is that of all results, one behind the other."""
    first, problems = entries[0].gemm, [one.gemm.problem for one in entries]
    fields: dict[str, Any] = {name: max(getattr(p, name) for p in problems) for name in _LARGEST}
    fields |= {name: min(getattr(p, name) for p in problems) for name in _LEAST}
    fields |= {"batch_shape": (), "batch_strides": ((),) * 4, "c_strides": (0, 0), "bias_stride": 0}
    products = tuple(product for one in entries for product in _products(one, starts))
    problem = replace(first.problem, **fields, products=products)
    return Gemm(problem, (sum(p.m * p.n * p.batch for p in problems),), first.dtype, first.swapped)


def _products(entry: ListEntry, starts: Starts) -> Iterator[ListedProduct]:
    """The products of a pair, of which a stack has many."""
    p = entry.gemm.problem
    at = {name: starts[key[0], entry.pair] for name, key in entry.keys.items()}
    bias = at.get("bias", 0), p.bias_stride
    stack = batch_table(p.batch_shape, p.batch_strides).tolist() if p.batch_shape else [(0, 0, 0, 0)]
    for places in stack:
        a, b, c, out = (start + at.get(name, 0) for start, name in zip(places, _STACKED, strict=True))
        sizes = p.m, p.n, p.k, a, b, out, p.lda, p.ldb, p.ldo
        yield ListedProduct(*sizes, c, *p.c_strides, *bias, *entry.scales)
