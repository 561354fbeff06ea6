"""ragged_matmul with quantised weights: rows of group g times ``q[g].dequantize(x.dtype).T``."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.checks import reference
from pyclmm.problem.dtypes import dtype_of

ROWS, K, N = 50, 192, 21
SIZES = [10, 0, 25, 7]
MODES = ({"bits": 4}, {"bits": 3, "group_size": 32}, {"mode": "mxfp4"}, {"mode": "q8_0"})


def quantised(rng, n=N, **how):
    return pyclmm.quantize(rng.standard_normal((4, n, K), np.float32), **how)


def drawn(rng, dtype="float32"):
    return rng.standard_normal((ROWS, K), np.float32).astype(dtype_of(dtype))


def check(got, x, q, sizes=SIZES):
    """That *got* is right: within the bound of float32 sums, zeros where no group is."""
    end = 0
    for g, size in enumerate(sizes):
        rows, end = slice(end, end + size), end + size
        weights = q[g].dequantize(x.dtype).T
        assert reference.error_ratio(got[rows], x[rows], weights) <= reference.limit(K)
    assert got.shape == (len(x), q.shape[1])
    assert not got[end:].any()


@pytest.mark.parametrize("how", MODES, ids=lambda how: "-".join(map(str, how.values())))
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_it_is_a_loop_of_products(rng, how, dtype):
    x, q = drawn(rng, dtype), quantised(rng, **how)
    got = pyclmm.ragged_matmul(x, q.mT, SIZES)
    assert got.dtype == x.dtype
    check(got, x, q)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_arrays_with_sizes_on_the_device(rng, queue, dtype):
    x, q = drawn(rng), quantised(rng)
    there, weights = cla.to_device(queue, x), q.to(queue)
    for sizes in (SIZES, [0, 0, 50, 0]):
        on_device = cla.to_device(queue, np.array(sizes, dtype))
        check(pyclmm.ragged_matmul(there, weights.mT, on_device).get(), x, q, sizes)
    check(pyclmm.ragged_matmul(there, weights.mT, SIZES).get(), x, q)


def test_a_part_of_a_stack_lies_where_it_lies(rng, queue):
    x, q = drawn(rng), quantised(rng)
    for part in (q[1:], q[::2], q[1:2]):
        sizes = SIZES[: len(part)]
        check(pyclmm.ragged_matmul(x, part.mT, sizes), x, part, sizes)
        got = pyclmm.ragged_matmul(cla.to_device(queue, x), part.to(queue).mT, sizes)
        check(got.get(), x, part, sizes)
    got = pyclmm.ragged_matmul(cla.to_device(queue, x), q.to(queue)[::2].mT, SIZES[::2])
    check(got.get(), x, q[::2], SIZES[::2])


@pytest.mark.parametrize("n", [1, 2])
def test_few_columns(rng, n):
    x, q = drawn(rng), quantised(rng, n)
    check(pyclmm.ragged_matmul(x, q.mT, SIZES), x, q)


def test_operands_and_out_of_any_layout(rng):
    q = quantised(rng)
    x = np.asfortranarray(drawn(rng))
    for out in (np.empty((N, ROWS), "f4").T, np.empty((ROWS, 2 * N), "f4")[:, ::2]):
        assert pyclmm.ragged_matmul(x, q.mT, SIZES, out) is out
        check(out, x, q)


def test_the_same_bits_everywhere(rng):
    x, q = drawn(rng), quantised(rng)
    got = pyclmm.ragged_matmul(x, q.mT, SIZES, reproducible=True)
    np.testing.assert_array_equal(got[:10], reference.chain(x[:10], q[0].dequantize().T))
    np.testing.assert_array_equal(got[10:35], reference.chain(x[10:35], q[2].dequantize().T))


def test_what_is_empty_gives_zeros(rng):
    q = quantised(rng)
    assert not pyclmm.ragged_matmul(drawn(rng), q[:0].mT, []).any()
    assert pyclmm.ragged_matmul(drawn(rng)[:0], q.mT, [0] * 4).shape == (0, N)


REFUSED = [
    (lambda x, q: pyclmm.ragged_matmul(x, q, SIZES), pyclmm.ShapeError, r"pass q\.mT"),
    (lambda x, q: pyclmm.ragged_matmul(x, q[0].T, SIZES), pyclmm.UnsupportedError, r"a stack, q\.mT"),
    (lambda x, q: pyclmm.ragged_matmul(x, q[:3].mT, SIZES), pyclmm.ShapeError, "b has 3 matrices"),
    (lambda x, q: pyclmm.ragged_matmul(x[:, 1:], q.mT, SIZES), pyclmm.ShapeError, "K is 192 in b"),
    (lambda x, q: pyclmm.ragged_matmul(x, q.mT, [99] * 4), pyclmm.ArgumentError, "add up to 396"),
    (lambda x, q: pyclmm.ragged_matmul(x.astype("f8"), q.mT, SIZES), pyclmm.DTypeError, "astype"),
    (
        lambda x, q: pyclmm.ragged_matmul(x, q.mT, SIZES, kernel="quantized"),
        pyclmm.UnsupportedError,
        "quantized does not divide rows among products",
    ),
    (lambda x, q: pyclmm.matmul(x, q.mT), pyclmm.UnsupportedError, r"matmul takes a matrix .*q\[g\]\.T"),
    (lambda x, q: pyclmm.Matmul(x, q.mT), pyclmm.UnsupportedError, "matmul takes a matrix of weights"),
    (
        lambda x, q: pyclmm.linalg.einsum("mk,gnk->gmn", x, q),
        pyclmm.UnsupportedError,
        r"weights of shape \(4, 21, 192\)",
    ),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED, ids=[words for *_, words in REFUSED])
def test_what_is_not_offered_is_refused_by_name(rng, call, error, words):
    with pytest.raises(error, match=words):
        call(drawn(rng), quantised(rng))
