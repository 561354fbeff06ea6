"""The products of a list: each checked as a call of gemm is, and grouped into launches. No arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from ..execution.operands import checked, problem_name
from ..execution.options import Options, beta_of, check_scalars, plain_numbers
from ..kernels.launches import batch_table
from ..kernels.listed import size_classes
from ..opencl.steps import Scales
from ..problem.gemm import Gemm, ListedProduct, Operand
from .apart import Lists

Key = tuple[str, str]  # the user's name of an operand, or "out", and the type of its elements
Starts = Mapping[str, Mapping[int, int]]  # by the user's name and the pair: its first element in its buffer

# What is the same for all products of a launch.
_COMMON = attrgetter(
    *("a_type", "b_type", "out_type", "acc_type", "trans_a", "trans_b", "conj_a", "conj_b"),
    *("has_c", "c_type", "bias", "bias_type"),
)
_LARGEST = ("m", "n", "k", "lda", "ldb", "ldo")
_STACKED = ("a", "b", "c", "out")  # in the order of batch_strides


class ListEntry(NamedTuple):
    """A checked product: its place in the list, what is to be computed, the key of each array that kernels
    read or write, by the problem's name, alpha and beta."""

    pair: int
    gemm: Gemm
    keys: Mapping[str, Key]
    scales: Scales


@lru_cache(maxsize=4096)
def _checked(layouts: Any, *ways: Any) -> tuple[Gemm, Mapping[str, Key]]:
    gemm = checked(dict(layouts), *ways)
    names = [name for name in ("a", "b", "c", "bias", "out") if name not in gemm.unread]
    return gemm, {name: (problem_name(gemm, name), getattr(gemm.problem, f"{name}_type")) for name in names}


def scales_at(pair: int, alpha: Any, beta: Any, lists: Lists) -> Scales:
    """alpha and beta of a pair. One beta for all is for the pairs that have a c. Raises as gemm does."""
    c = lists["c"][pair] if "c" in lists else None
    if isinstance(beta, tuple):
        beta = beta[pair]
    elif c is None and "c" in lists:
        beta = None
    return plain_numbers(alpha[pair] if isinstance(alpha, tuple) else alpha, beta_of(beta, c))


def entry_of(
    pair: int,
    layouts: Mapping[str, Operand],
    options: Options,
    scales: Scales,
    out_is_copied: bool = False,
    host_align: int | None = None,
) -> ListEntry:
    """The checked product of a pair. Arguments and errors as those of checked_gemm, and of check_scalars."""
    # What is kept depends on which scalars are zero. A beta without c is refused by its value.
    zeros = float(scales[0] != 0), float(scales[1] != 0) if "c" in layouts else scales[1]
    gemm, keys = _checked(tuple(layouts.items()), options, zeros, out_is_copied, host_align)
    check_scalars(gemm, scales)
    return ListEntry(pair, gemm, keys, scales)


def grouped(entries: Iterable[ListEntry], is_cpu: bool) -> list[list[ListEntry]]:
    """The entries that one launch computes: of one class of sizes, of the same types and layouts."""
    alike: dict[Any, list[ListEntry]] = {}
    for one in entries:
        alike.setdefault((one.gemm.swapped, *_COMMON(one.gemm.problem)), []).append(one)
    groups: dict[Any, list[ListEntry]] = {}
    for common, them in alike.items():
        problems = [one.gemm.problem for one in them]
        classes = size_classes([(p.m, p.n, p.k * p.batch) for p in problems], is_cpu)
        for one, each in zip(them, classes, strict=True):
            groups.setdefault((common, each), []).append(one)
    return list(groups.values())


def listed(entries: Sequence[ListEntry], starts: Starts) -> Gemm:
    """The product of a group as kernels get it. Its shape is that of all results, one behind the other."""
    first, problems = entries[0].gemm, [one.gemm.problem for one in entries]
    products = tuple(product for one in entries for product in _products(one, starts))
    fields: dict[str, Any] = {name: max(getattr(p, name) for p in problems) for name in _LARGEST}
    # Each begins in its buffer where its rows stay as aligned as they are.
    for name in ("a_align", "b_align", "out_align"):
        fields[name] = min(getattr(p, name) for p in problems)
    fields |= {"batch_shape": (), "batch_strides": ((),) * 4, "c_strides": (0, 0), "bias_stride": 0}
    problem = replace(first.problem, **fields, products=products)
    return Gemm(problem, (sum(p.m * p.n * p.batch for p in problems),), first.dtype, first.swapped)


def _products(entry: ListEntry, starts: Starts) -> Iterator[ListedProduct]:
    """The products of a pair, of which a stack has many."""
    p, (alpha, beta) = entry.gemm.problem, entry.scales
    at = {name: starts[key[0]][entry.pair] for name, key in entry.keys.items()}
    bias = at.get("bias", 0), p.bias_stride
    stack = batch_table(p.batch_shape, p.batch_strides).tolist() if p.batch_shape else [(0, 0, 0, 0)]
    for places in stack:
        a, b, c, out = (start + at.get(name, 0) for start, name in zip(places, _STACKED, strict=True))
        yield ListedProduct(
            p.m, p.n, p.k, a, b, out, p.lda, p.ldb, p.ldo, c, *p.c_strides, *bias, alpha, beta
        )
