"""ragged_matmul against a loop of NumPy's products: rows that are divided, K that is, and what is refused."""

from __future__ import annotations

import contextlib
import sys

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.checks import reference
from tests.support.cases import for_cpus
from tests.support.contexts import new_queue
from tests.support.guarded import before_a_guard
from tests.support.plans import kept_plans

ROWS, K, N = 50, 33, 21
SIZES = {"all": [10, 0, 25, 15], "some": [10, 0, 25, 7], "one": [0, 0, 50, 0], "none": [0, 0, 0, 0]}
DTYPES = ("float16", "float32", "float64", "complex64", "int8", "int32", "uint64")


def loop(a, b, sizes):
    """(the product of each group, where it goes), by NumPy."""
    ends = np.cumsum(sizes)
    for group, (end, size) in enumerate(zip(ends, sizes, strict=True)):
        rows = slice(end - size, end)
        yield (rows, a[rows], b[group]) if b.ndim == 3 else (group, a[:, rows], b[rows])


def check(got, a, b, sizes):
    """That *got* is right: within the bound of its sums, zeros where no group is."""
    rest = np.ones(len(got), bool)
    for where, x, y in loop(a, b, sizes):
        assert reference.error_ratio(got[where], x, y) <= reference.limit(x.shape[1])
        rest[where] = False
    assert not got[rest].any()


def operands(rng, dtype, divides):
    """Integers: their products are exact in every type."""
    shapes = ((ROWS, K), (4, K, N)) if divides == "rows" else ((K, ROWS), (ROWS, N))
    low = 0 if dtype.startswith("u") else -3
    return [rng.integers(low, 4, shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("divides", ["rows", "K"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_it_is_a_loop_of_products(rng, dtype, divides, sizes):
    a, b = operands(rng, dtype, divides)
    got = pyclmm.ragged_matmul(a, b, sizes)
    assert got.dtype == np.matmul(a[:1, :1], b[..., :1, :1]).dtype
    assert got.shape == ((ROWS, N) if divides == "rows" else (4, K, N))
    check(got, a, b, sizes)


@pytest.mark.parametrize("kernel", [pytest.param("packed", marks=for_cpus), "register"])
@pytest.mark.parametrize("divides", ["rows", "K"])
@pytest.mark.parametrize("turned", ["a", "b", "ab"])
def test_operands_of_any_layout(rng, kernel, divides, turned):
    a, b = operands(rng, "float32", divides)
    a = np.asfortranarray(a) if "a" in turned else a
    b = np.swapaxes(np.swapaxes(b, -1, -2).copy(), -1, -2) if "b" in turned else b
    got = pyclmm.ragged_matmul(a, b, SIZES["some"], kernel=kernel)
    check(got, a, b, SIZES["some"])


@pytest.mark.skipif(sys.platform == "win32", reason="memory is guarded by mprotect")
@pytest.mark.parametrize("kernel", [pytest.param("packed", marks=for_cpus), "auto"])
@pytest.mark.parametrize("order", "CF")
def test_a_last_group_of_few_rows_is_read_within_a(rng, kernel, order):
    a, b = operands(rng, "float32", "rows")
    a = before_a_guard(a) if order == "C" else before_a_guard(a.T.copy()).T
    for sizes in ([26, 4, 19, 1], [10, 8, 30, 2], [47, 0, 0, 3]):
        check(pyclmm.ragged_matmul(a, b, sizes, kernel=kernel), a, b, sizes)


@pytest.mark.parametrize("divides", ["rows", "K"])
@pytest.mark.parametrize("layout", ["padded", "columns", "other type"])
def test_out_of_any_layout(rng, divides, layout):
    a, b = operands(rng, "float32", divides)
    shape = (ROWS, N) if divides == "rows" else (4, K, N)
    whole = np.full((*shape[:-2], shape[-2] + 3, shape[-1] + 5), 7, "f8" if layout == "other type" else "f4")
    if layout == "columns":
        whole = np.swapaxes(np.swapaxes(whole, -1, -2).copy(), -1, -2)
    out = whole[..., 1:-2, 2:-3]
    assert pyclmm.ragged_matmul(a, b, SIZES["some"], (out,)) is out
    check(out.astype("f4"), a, b, SIZES["some"])
    out[...] = 7
    assert (whole == 7).all()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("divides", ["rows", "K"])
def test_arrays_with_sizes_on_the_device(rng, dtype, divides):
    queue, (a, b) = new_queue(), operands(rng, "float32", divides)
    sizes = cla.to_device(queue, np.array([99, *SIZES["some"], 99], dtype))[1:-1]
    got = pyclmm.ragged_matmul(cla.to_device(queue, a), cla.to_device(queue, b), sizes)
    check(got.get(), a, b, SIZES["some"])
    again = pyclmm.ragged_matmul(cla.to_device(queue, a), cla.to_device(queue, b), SIZES["one"])
    check(again.get(), a, b, SIZES["one"])


def test_other_sizes_need_no_other_plan(rng):
    """One plan serves all sizes: no program is built for them."""
    a, b = operands(rng, "float32", "rows")
    pyclmm.release()
    for _ in range(5):
        sizes = rng.multinomial(ROWS, [0.25] * 4)
        check(pyclmm.ragged_matmul(a, b, sizes), a, b, sizes)
    assert len(kept_plans()) == 1


def test_many_groups(rng):
    a, b = rng.integers(-3, 4, (300, 5)).astype("f4"), rng.integers(-3, 4, (2047, 5, 3)).astype("f4")
    sizes = rng.multinomial(280, [1 / 2047] * 2047)
    check(pyclmm.ragged_matmul(a, b, sizes), a, b, sizes)
    with pytest.raises(pyclmm.UnsupportedError, match="2048 groups; at most 2047"):
        pyclmm.ragged_matmul(a, np.zeros((2048, 5, 3), "f4"), np.zeros(2048, int))


def test_the_same_bits_everywhere(rng):
    a, b = (rng.standard_normal(shape).astype("f4") for shape in ((ROWS, K), (4, K, N)))
    got = pyclmm.ragged_matmul(a, b, SIZES["all"], reproducible=True)
    for where, x, y in loop(a, b, SIZES["all"]):
        np.testing.assert_array_equal(got[where], reference.chain(x, y))


EMPTY = [
    ((0, 3), (2, 3, 4), [0, 0]),
    ((5, 0), (2, 0, 4), [2, 3]),
    ((5, 3), (0, 3, 4), []),
    ((3, 0), (0, 4), [0, 0]),
]


@pytest.mark.parametrize(("a", "b", "sizes"), EMPTY, ids=str)
def test_what_is_empty_gives_zeros(a, b, sizes):
    got = pyclmm.ragged_matmul(np.ones(a, "f4"), np.ones(b, "f4"), sizes)
    assert got.shape == ((a[0], b[2]) if len(b) == 3 else (2, a[0], b[1]))
    assert not got.any()


def test_nan_stays_in_its_group(rng):
    a, b = operands(rng, "float32", "rows")
    a[:10] = np.nan
    got = pyclmm.ragged_matmul(a, b, SIZES["some"])
    assert np.isnan(got[:10]).all()
    check(got[10:], a[10:], b[1:], SIZES["some"][1:])


@pytest.mark.usefixtures("own_caches")
@pytest.mark.parametrize("reproducible", [False, True])
def test_dot_products_of_columns_with_gaps(rng, reproducible):
    """The self-check took them for dot products that lie side by side in a stack."""
    x, y = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((1, 34), (17, 2)))
    x, y, sizes = x[:, ::2], y[:, ::2], [2, 0, 15]
    check(pyclmm.ragged_matmul(x, y, sizes, reproducible=reproducible), x, y, sizes)


def refused(match, *args, error=pyclmm.ArgumentError, **keywords):
    with pytest.raises(error, match=match):
        pyclmm.ragged_matmul(*args, **keywords)


def test_sizes_that_do_not_fit_are_refused(rng):
    a, b = operands(rng, "float32", "rows")
    refused(r"group_sizes\[1\] is -1; pass 0", a, b, [10, -1, 3, 4])
    refused("add up to 60, but there are 50 rows", a, b, [10, 10, 10, 30])
    refused("add up to 60, but there are 50 rows", a.T, a, [10, 10, 10, 30])
    refused("K is 33 in a and 50 in b", a, a, [10, 10, 10, 20], error=pyclmm.ShapeError)  # a.T is meant
    refused("dtype float64; pass whole numbers", a, b, [1.0, 2, 3, 4], error=pyclmm.DTypeError)
    refused("4 matrices and group_sizes 3", a, b, [1, 2, 3], error=pyclmm.ShapeError)
    refused("pass a 1-D array", a, b, np.zeros((2, 2), int), error=pyclmm.ShapeError)
    refused(
        r"group_sizes is a list: .*; pass rows of one length", a, b, [[1], [2, 3]], error=pyclmm.ShapeError
    )
    refused("group_sizes is None", a, b, None, error=pyclmm.DTypeError)
    refused("group_sizes is a masked array", a, b, np.ma.ones(4, int), error=pyclmm.DTypeError)
    refused("add up to 9223372036854775808,", a, b, np.array([2**63, 0, 0, 0], "u8"))


@pytest.mark.parametrize("dtype", ["int32", "int64", ">i8", "uint8"])
@pytest.mark.parametrize("divides", ["rows", "K"])
def test_sizes_on_the_host_may_have_gaps(rng, dtype, divides):
    a, b = operands(rng, "float32", divides)
    gaps = np.full(8, 9, dtype)
    gaps[::2] = SIZES["all"]
    same = np.lib.stride_tricks.as_strided(gaps, (4,), (0,))
    for sizes in (gaps[::2], gaps[::2][::-1], same):
        check(pyclmm.ragged_matmul(a, b, sizes), a, b, sizes)


def test_sizes_beside_arrays_that_do_not_fit_are_refused(rng):
    queue = new_queue()
    a, b, small, gaps = (
        cla.to_device(queue, x)
        for x in (*operands(rng, "float32", "rows"), np.zeros(4, "u2"), np.zeros(8, "i4"))
    )
    refused("pass whole numbers, of int32", a, b, small, error=pyclmm.DTypeError)
    refused(r"group_sizes has strides \(8,\) on a device; pass a contiguous copy", a, b, gaps[::2])
    refused(r"group_sizes\[1\] is -1; pass 0", a, b, [10, -1, 3, 4])
    refused("add up to 60, but there are 50 rows", a, b, [10, 10, 10, 30])
    refused("queue is a int", a, b, SIZES["all"], error=pyclmm.DTypeError, queue=3)
    got = pyclmm.ragged_matmul(a.with_queue(None), b, SIZES["all"])
    check(got.get(queue), a.get(), b.get(), SIZES["all"])


def test_operands_that_do_not_fit_are_refused(rng):
    a, b = operands(rng, "float32", "rows")
    refused("a has shape .* and b", a[0], b, [1, 1, 1, 1], error=pyclmm.ShapeError)
    for wrong in (b[None], b[0, 0]):
        refused("a has shape .* and b", a, wrong, [90], error=pyclmm.ShapeError)
    refused("b is None", a, None, [90], error=pyclmm.DTypeError)
    refused("core dimension|mismatch", a[:, 1:], b, [1, 1, 1, 1], error=pyclmm.ShapeError)
    refused(r"out has shape \(3, 3\)", a, b, [1, 1, 1, 1], np.zeros((3, 3), "f4"), error=pyclmm.ShapeError)


@pytest.fixture
def heard():
    """What products on a device have to say is heard here, whatever becomes of the test."""
    yield
    with contextlib.suppress(pyclmm.ArgumentError):
        pyclmm.finish()


@pytest.mark.usefixtures("heard")
def test_sizes_on_the_device_are_cut_and_the_next_call_says_so(rng):
    queue, (a, b) = new_queue(), operands(rng, "float32", "rows")
    on_device = [cla.to_device(queue, x) for x in (a, b)]
    right = cla.to_device(queue, np.array(SIZES["all"], np.int32))
    for wrong, cut in (([10, 10, 10, 99], [10, 10, 10, 20]), ([10, -5, 10, 9], [10, 0, 10, 9])):
        sizes = cla.to_device(queue, np.array(wrong, np.int32))
        check(pyclmm.ragged_matmul(*on_device, sizes).get(), a, b, cut)
        queue.finish()
        refused("an earlier call, 4 sizes on the device", *on_device, right)
        check(pyclmm.ragged_matmul(*on_device, right).get(), a, b, SIZES["all"])
    pyclmm.finish()  # it was said once


@pytest.mark.usefixtures("heard")
def test_sums_of_sizes_do_not_wrap(rng):
    """Sizes whose sum in 32 bits would be small again."""
    queue, (a, b) = new_queue(), operands(rng, "float32", "rows")
    sizes = cla.to_device(queue, np.array([10, 2**31 - 1, 2**31 - 1, 5], np.int32))
    got = pyclmm.ragged_matmul(*(cla.to_device(queue, x) for x in (a, b)), sizes)
    check(got.get(), a, b, [10, 40, 0, 0])
    with pytest.raises(pyclmm.ArgumentError, match="an earlier call"):
        pyclmm.finish()
    pyclmm.finish()
