"""Products drawn at random, for benchmarks that must not be fitted to a list.

Sides are log-uniform from 32 to 12,288 (to 4,096 for a CPU), and one in four products is a stack. Lengths are
multiples of 1, 2, 4, 8, 16 or 64, so rows have any alignment. Kinds take turns. The same seed gives the same
products.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyclmm.problem.canonical import checked_gemm
from pyclmm.problem.gemm import GemmProblem, dense
from pyclmm.problem.literals import Precision

KINDS = ("float16", "bfloat16", "highest", "medium", "high", "float64")
_PRECISIONS: dict[str, Precision] = {"highest": "highest", "high": "high", "medium": "medium"}
_SHORTEST = 32
_STEPS = (1, 2, 4, 8, 16, 64)  # lengths are multiples of one of these
_LAYOUTS = ("NN", "NT", "TN", "TT")
_MOST_PRODUCTS = 256  # of a stack
NUMBERS = 2**24 - 3  # that are drawn for operands


@dataclass(frozen=True)
class Largest:
    """Bounds of what is drawn: a side, the bytes and the operations of a product."""

    side: int
    nbytes: float
    flops: float


FOR_GPU = Largest(12288, 2**31, 4e12)
FOR_CPU = Largest(4096, 2**28, 2e10)


@dataclass(frozen=True)
class Product:
    """One product: ``kind`` is an element type, or the precision of a float32 product."""

    kind: str
    shape: tuple[int, ...]  # M, N, K; for a stack, the number of products before them
    layout: str

    @property
    def dtype(self) -> np.dtype[Any]:
        if self.kind == "bfloat16":
            import ml_dtypes  # noqa: PLC0415  an extra

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype("float32" if self.kind in _PRECISIONS else self.kind)

    @property
    def precision(self) -> Precision:
        return _PRECISIONS.get(self.kind, "highest")

    @property
    def stored(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of A and B as they are stored."""
        *stack, m, n, k = self.shape
        a = (k, m) if self.layout[0] == "T" else (m, k)
        b = (n, k) if self.layout[1] == "T" else (k, n)
        return (*stack, *a), (*stack, *b)

    @property
    def problem(self) -> GemmProblem:
        """The product of dense matrices as kernels see it, with a result of the operands' type."""
        *stack, m, n, _ = self.shape
        a, b, out = (dense(shape, self.dtype) for shape in (*self.stored, (*stack, m, n)))
        trans_a, trans_b = self.layout
        asked = checked_gemm(a, b, out=out, trans_a=trans_a, trans_b=trans_b, precision=self.precision)
        return asked.problem

    @property
    def flops(self) -> float:
        """2 M N K, times the stack."""
        return 2.0 * math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the operands and the result."""
        *stack, m, n, k = self.shape
        return math.prod(stack) * (m * k + k * n + m * n) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.kind} {'x'.join(map(str, self.shape))} {self.layout}"


class Random:
    """Random numbers of one element type. Large operands repeat them, which changes no time."""

    def __init__(self) -> None:
        self._numbers = np.random.default_rng(0).standard_normal(NUMBERS, dtype=np.float32)
        self._of: dict[np.dtype[Any], np.ndarray[Any, Any]] = {}

    def operand(self, shape: tuple[int, ...], dtype: np.dtype[Any], start: int) -> np.ndarray[Any, Any]:
        numbers = self._of.setdefault(dtype, self._numbers.astype(dtype))
        count = math.prod(shape)
        flat = numbers[start:] if count <= len(numbers) - start else np.resize(numbers[start:], count)
        return flat[:count].reshape(shape)


def drawn(
    seed: int, count: int, kinds: Sequence[str] = KINDS, *, thin: bool = False, largest: Largest = FOR_GPU
) -> Iterator[Product]:
    """The first *count* products of *seed*. The kinds take turns. *thin*: M or N is under 32."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        yield _drawn(rng, kinds[number % len(kinds)], thin, largest)


def _drawn(rng: np.random.Generator, kind: str, thin: bool, largest: Largest) -> Product:
    while True:
        step = int(rng.choice(_STEPS))
        sides = [_length(rng, _SHORTEST, largest.side, step) for _ in range(3)]
        if thin:
            sides[int(rng.integers(2))] = _length(rng, 1, _SHORTEST - 1, 1)
        stack = (_length(rng, 2, _MOST_PRODUCTS, 1),) if rng.random() < 0.25 else ()
        product = Product(kind, (*stack, *sides), str(rng.choice(_LAYOUTS)))
        if product.nbytes <= largest.nbytes and product.flops <= largest.flops:
            return product


def _length(rng: np.random.Generator, least: int, most: int, step: int) -> int:
    length = math.exp(rng.uniform(math.log(least), math.log(most + 1)))
    return max(step, int(length) // step * step)
