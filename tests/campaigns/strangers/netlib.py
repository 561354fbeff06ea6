"""Netlib's test of level 3, for sgemm, dgemm, cgemm and zgemm, with the storage kinds of BLIS's test suite.

The grid is that of ``dblat3.in``: sizes, alpha, beta, and every pair of "N", "T" and "C". Each operand is
stored by rows, by columns, or with strides of its own (BLIS's letters r, c and g). All kinds of each operand
come up with each size and each pair. NumPy's arrays and Arrays take turns; no case stands twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyopencl.array as cla
import pytest
from numpy.lib.stride_tricks import as_strided

import pyclmm
from tests.campaigns.strangers.products import counted  # the plugin's own, by its whole name

SIZES, ALPHAS, BETAS = (0, 1, 2, 3, 5, 9), (0.0, 1.0, 0.7), (0.0, 1.0, 1.3)
TRANS = list(itertools.product("NTC", repeat=2))
KINDS = list(itertools.product("rcg", repeat=3))
DTYPES = {"s": "f4", "d": "f8", "c": "c8", "z": "c16"}
THRESHOLD = 16.0  # Netlib's, of the ratio of an error to eps times the gauge
gemm = counted(pyclmm.gemm)


class Stored:
    """A matrix of random numbers in [-0.5, 0.5) in a buffer of *kind*, which has a canary in its gaps."""

    CANARY = -1e10  # Netlib's "rogue" value

    def __init__(self, rng: np.random.Generator, shape: tuple[int, int], dtype: str, kind: str) -> None:
        rows, columns = shape
        steps = {"r": (columns + 1, 1), "c": (1, rows + 1), "g": (2, 2 * rows + 3)}[kind]
        self.shape, self.strides = shape, tuple(step * np.dtype(dtype).itemsize for step in steps)
        self.buffer = np.full(
            127 + sum(n * step for n, step in zip(shape, steps, strict=True)), self.CANARY, dtype
        )
        values = rng.random(shape) - 0.5
        self.of(self.buffer)[:] = values + 1j * (rng.random(shape) - 0.5) if dtype[0] == "c" else values

    def of(self, buffer: Any) -> Any:
        return as_strided(buffer, self.shape, self.strides)

    def on(self, queue: Any) -> tuple[Any, Any]:
        """A copy of the buffer, in the host's memory or on a queue, and its matrix."""
        if queue is None:
            copy = self.buffer.copy()
            return copy, self.of(copy)
        whole: Any = cla.to_device(queue, self.buffer)
        view = cla.Array(
            queue, self.shape, whole.dtype, data=whole.base_data, strides=self.strides, events=whole.events
        )
        return whole, view


def transposed(x: Any, trans: str) -> Any:
    return x if trans == "N" else x.T if trans == "T" else x.conj().T


def cases() -> Iterator[tuple[Any, ...]]:
    for number, (m, n, k) in enumerate(itertools.product(SIZES, repeat=3)):
        for place, (alpha, beta) in enumerate(itertools.product(ALPHAS, BETAS)):
            yield (m, n, k), alpha, beta, KINDS[(number * 7 + place * 4) % len(KINDS)]


@pytest.mark.parametrize("on", ["numpy", "Array"])
@pytest.mark.parametrize("trans", TRANS, ids="".join)
@pytest.mark.parametrize("letter", DTYPES)
def test_gemm(letter: str, trans: tuple[str, str], on: str) -> None:
    dtype = np.dtype(DTYPES[letter])
    wide = np.clongdouble if dtype.kind == "c" else np.longdouble
    queue = None if on == "numpy" else pyclmm.default_queue()
    rng = np.random.default_rng([*map(ord, letter + "".join(trans))])
    for (m, n, k), alpha, beta, kinds in itertools.islice(cases(), int(on == "Array"), None, 2):
        shapes = (m, k)[:: 1 if trans[0] == "N" else -1], (k, n)[:: 1 if trans[1] == "N" else -1], (m, n)
        a, b, c = (Stored(rng, shape, dtype.str[1:], kind) for shape, kind in zip(shapes, kinds, strict=True))
        x, y, z = (each.of(each.buffer.astype(dtype)).astype(wide) for each in (a, b, c))
        x, y = transposed(x, trans[0]), transposed(y, trans[1])
        expected = alpha * (x @ y) + beta * z
        gauge = abs(alpha) * (np.abs(x) @ np.abs(y)) + abs(beta) * np.abs(z)
        if beta == 0:
            c.of(c.buffer)[:] = np.nan
        (a_buffer, x), (b_buffer, y), (c_buffer, z) = (each.on(queue) for each in (a, b, c))
        gemm(x, y, z, alpha=alpha, beta=beta, trans_a=trans[0], trans_b=trans[1], out=z)
        got, unchanged_a, unchanged_b = (
            each if queue is None else each.get() for each in (c_buffer, a_buffer, b_buffer)
        )
        said = f"{letter}gemm {trans} {(m, n, k)} alpha {alpha} beta {beta} {kinds}"
        assert np.all(abs(c.of(got) - expected) <= THRESHOLD * np.finfo(dtype).eps * gauge), said
        assert np.array_equal(unchanged_a, a.buffer), said
        assert np.array_equal(unchanged_b, b.buffer), said
        c.of(got)[:] = c.of(c.buffer)  # then the rest is the gaps
        assert np.array_equal(got, c.buffer, equal_nan=True), said
