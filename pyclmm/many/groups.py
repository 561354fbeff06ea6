"""The products of a list: each checked as a call of gemm is, and grouped into launches. No arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ..execution.execute import Executable
from ..execution.operands import checked, problem_name
from ..execution.options import Options
from ..execution.placement import placed
from ..kernels.launches import batch_table
from ..kernels.listed import size_classes
from ..opencl.devices import device_info
from ..opencl.steps import Scales, scalars_of
from ..problem.dtypes import dtype_of
from ..problem.gemm import Gemm, ListedProduct

SCALARS = scalars_of(1.0, 0.0)  # alpha and beta of each product are in the table
# What is the same for all products of a launch, beside the keys.
_COMMON = attrgetter("acc_type", "trans_a", "trans_b", "conj_a", "conj_b", "bias")
_LARGEST = ("m", "n", "k", "lda", "ldb", "ldo")
_LEAST = ("a_align", "b_align", "out_align")  # each array begins where its rows stay as aligned as they are
_STACKED = ("a", "b", "c", "out")  # in the order of batch_strides


class Key(NamedTuple):
    """What arrays of a launch have in common: the user's name, or "out", the type of the elements, and a
    number of the memory where they lie."""

    name: str
    type: str
    memory: int


class ListEntry(NamedTuple):
    """A checked product: its place in the list, what is to be computed, the key of each array that kernels
    read or write, by the problem's name, alpha and beta."""

    pair: int
    gemm: Gemm
    keys: dict[str, Key]
    scales: Scales


Start = Callable[[Key, int], int]  # by key and pair: the first element in its memory


@lru_cache(maxsize=4096)
def checked_and_named(layouts: Any, *ways: Any) -> tuple[Gemm, dict[str, tuple[str, str]]]:
    """The checked product of these (name, Operand), and of each array that kernels read or write, by the
    problem's name, the user's and the type of its elements. *ways*: as of :func:`checked`, which raises."""
    gemm = checked(dict(layouts), *ways)
    names = [name for name in ("a", "b", "c", "bias", "out") if name not in gemm.unread]
    return gemm, {name: (problem_name(gemm, name), getattr(gemm.problem, f"{name}_type")) for name in names}


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


class LaunchGroup:
    """Products that one launch computes, with the kernel for them."""

    def __init__(self, entries: Sequence[ListEntry], gemm: Gemm, options: Options, queue: Any) -> None:
        self.pairs = [one.pair for one in entries for _ in range(one.gemm.problem.batch)]  # of each product
        self.executable = Executable(queue, gemm, replace(options, pairs=tuple(self.pairs)))
        self.keys = entries[0].keys

    def launched(self, queue: Any, launch: Callable[[Any], Any], waits: bool, updates_c: bool) -> Any:
        """What *launch* gives for a binding, by the next kernel if one is refused.

        *updates_c*: whether an out is its C. It waits for a check if the caller *waits*, or if what is wrong
        is repaired. Raises LaunchError, DeviceMemoryError, DeviceLostError or VerificationError.
        """

        def again(other: Any, _shifts: Any) -> None:
            launch(other)
            queue.finish()

        def once() -> Any:
            binding = self.executable.idle_binding(queue)
            found = launch(binding)
            if binding.watch is not None and (waits or self.executable.repairs):
                self.executable.conclude(binding, queue, again, updates_c)
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
