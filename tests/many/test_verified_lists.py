"""verify= of lists: right products raise no alarm; a wrong element is named by its pair, row and column."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.opencl.array_fields import reads_host
from pyclmm.problem.dtypes import dtype_of
from tests.many.drawn import Drawn, check
from tests.support.cases import laid_out, numbers

SIZES = [(19, 37, 53), (17, 33, 20), (30, 18, 9), (18, 40, 70)]  # of one launch
PAIR, ROW, COLUMN = 2, 21, 6


def pairs_of(rng, layout="NN", dtype="float32"):
    return [
        tuple(
            laid_out(numbers(rng, shape, dtype_of(dtype)), letter)
            for shape, letter in zip(((m, k), (k, n)), layout, strict=True)
        )
        for m, n, k in SIZES
    ]


def spoil(spoiler, value):
    """Make the element with this *value* wrong before it is checked, once."""
    left, size = [value], value.itemsize

    def change(words):
        elements = words[: len(words) // size * size].view(value.dtype)
        place = np.flatnonzero(elements == left[0]) if left else []
        if len(place):
            elements[place[0]] += 90
            left.clear()

    spoiler.always = change


def alarm(call, *args, **kwargs):
    named = rf"pairs\[{PAIR}\], row {ROW}, column {COLUMN} of"
    with pytest.raises(pyclmm.VerificationError, match=named) as caught:
        call(*args, **kwargs)
    error = caught.value
    assert (error.rows, error.columns) == ((ROW, ROW + 1), (COLUMN, COLUMN + 1))
    assert error.stack == (PAIR, PAIR + 1)


@pytest.mark.parametrize("number", range(3))
def test_right_lists_of_all_kinds_raise_no_alarm(rng, number):
    drawn = Drawn(rng, 6 + 6 * number)
    if drawn.keywords.get("activation"):
        drawn.keywords["activation"] = None
    check(pyclmm.matmul_many(drawn.pairs, **drawn.keywords, verify=True), drawn.want)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_right_products_keep_their_bits(rng, layout, form):
    for dtype in ("float32", "float16", "int8"):
        pairs = pairs_of(rng, layout, dtype)
        rows = [numbers(rng, (1, y.shape[1]), dtype_of(dtype)) for _, y in pairs]
        c = [numbers(rng, (len(x), y.shape[1]), dtype_of(dtype)) for x, y in pairs]
        for more in ({}, {"c": c, "beta": 2, "alpha": [1, 2, 3, 2]}, {"bias": rows}):
            got, want = (pyclmm.matmul_many(pairs, **more, verify=how) for how in (True, False))
            assert [x.tobytes() for x in got] == [x.tobytes() for x in want]


@pytest.mark.parametrize("layout", ["NN", "TT"])
@pytest.mark.parametrize("more", ["nothing", "c", "bias"])
def test_a_wrong_element_is_named(rng, layout, more, spoiler, form):
    pairs = pairs_of(rng, layout)
    like = [np.ones((len(x), y.shape[1]), np.float32) for x, y in pairs]
    extra: dict = {"c": {"c": like}, "bias": {"bias": [x[:1] for x in like]}}.get(more, {})
    beta = {"beta": 2.0} if more == "c" else {}
    want = pyclmm.matmul_many(pairs, **extra, **beta)
    spoil(spoiler, want[PAIR][ROW, COLUMN])
    alarm(pyclmm.matmul_many, pairs, **extra, **beta, verify=True)
    plan = pyclmm.ManyMatmul(pairs, **extra, **beta, verify=True)
    spoil(spoiler, want[PAIR][ROW, COLUMN])
    alarm(plan, pairs, **extra)


@pytest.mark.parametrize("verify", [True, "repair", False])
def test_a_plan_tells_how_it_checks_and_what_that_takes(rng, verify):
    pairs = pairs_of(rng)
    plan = pyclmm.ManyMatmul(pairs, verify=verify)
    assert plan.verify == verify
    (found,) = plan.explain()
    assert (found.check_seconds > 0) == ("to check the result" in str(found)) == bool(verify)


def test_a_stack_of_a_list_and_outs(rng, spoiler):
    pairs = pairs_of(rng)
    pairs[0] = tuple(np.stack([x, x, x]) for x in pairs[0])
    want = pyclmm.matmul_many(pairs)
    outs = [np.full_like(x, 7) for x in want]
    spoiler.host = outs
    spoil(spoiler, want[PAIR][ROW, COLUMN])
    with pyclmm.verified():
        alarm(pyclmm.matmul_many, pairs, outs)
        pyclmm.matmul_many(pairs, outs)
    assert all(np.array_equal(x, y) for x, y in zip(outs, want, strict=True))


@pytest.mark.parametrize("more", ["nothing", "c", "bias"])
def test_nan_of_one_product_is_not_anothers(rng, more, spoiler, form):
    pairs = pairs_of(rng)
    like = [np.ones((len(x), y.shape[1]), np.float32) for x, y in pairs]
    extra: dict = {"c": {"c": like, "beta": 2.0}, "bias": {"bias": [x[:1] for x in like]}}.get(more, {})
    pairs[0][0][3, 4] = pairs[1][1][5, 6] = np.nan
    want = pyclmm.matmul_many(pairs, **extra, verify=True)
    spoil(spoiler, want[PAIR][ROW, COLUMN])
    alarm(pyclmm.matmul_many, pairs, **extra, verify=True)


def on_device(queue, xs):
    """*xs* as slices of one Array."""
    whole = cla.to_device(queue, np.concatenate([x.ravel() for x in xs]))
    ends = np.cumsum([x.size for x in xs])
    return [whole[end - x.size : end].reshape(x.shape) for x, end in zip(xs, ends, strict=True)]


def test_arrays_tell_in_the_next_call_or_in_finish(rng, queue, spoiler):
    a, b = zip(*pairs_of(rng), strict=True)
    want = pyclmm.matmul_many(list(zip(a, b, strict=True)))
    pairs = list(zip(on_device(queue, a), on_device(queue, b), strict=True))
    plan = pyclmm.ManyMatmul(pairs, verify=True)
    plan(pairs)
    pyclmm.finish()
    for tell in (lambda: plan(pairs), pyclmm.finish):
        spoil(spoiler, want[PAIR][ROW, COLUMN])
        plan(pairs)
        queue.finish()
        alarm(tell)
    for x, y in zip(plan(pairs), want, strict=True):
        assert np.array_equal(x.get(), y)


def test_a_pair_with_a_launch_of_its_own_is_named_too(rng, queue, spoiler):
    """What must be converted has one."""
    a, b = zip(*pairs_of(rng), strict=True)
    a, b = (on_device(queue, x) for x in (a, b))
    whole = np.arange(19 * 53).reshape(19, 53) % 7
    for x, pair in ((whole, 1), (np.stack([whole, whole + 1]), 2)):
        converted = cla.to_device(queue, x.astype("i2"))
        pairs = list(zip(a, b, strict=True))
        pairs.insert(pair, (converted, b[0]))
        want = pyclmm.matmul_many(pairs)
        spoil(spoiler, want[pair].get()[..., 3, 6].ravel()[-1])
        pyclmm.matmul_many(pairs, verify=True)
        with pytest.raises(pyclmm.VerificationError, match=rf"pairs\[{pair}\], row 3, column 6 of") as caught:
            pyclmm.finish()
        assert caught.value.stack == (pair, pair + 1)


@pytest.mark.parametrize("where", ["host", "device"])
def test_lists_are_repaired(rng, queue, where, spoiler):
    a, b = zip(*pairs_of(rng), strict=True)
    want = pyclmm.matmul_many(list(zip(a, b, strict=True)))
    before = pyclmm.health()["repaired"]
    spoil(spoiler, want[PAIR][ROW, COLUMN])
    if where == "device":
        a, b = on_device(queue, a), on_device(queue, b)
    named = rf"pairs\[{PAIR}\], row {ROW}, .* computed again by"
    with pytest.warns(pyclmm.VerificationWarning, match=named):
        got = pyclmm.matmul_many(list(zip(a, b, strict=True)), verify="repair")
    assert pyclmm.health()["repaired"] == before + 1
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x if where == "host" else x.get(), y, rtol=1e-4, atol=1e-4)


def test_a_list_for_which_there_is_one_kernel_is_repaired_by_it(rng, spoiler):
    pairs = pairs_of(rng, dtype="float16")
    want = pyclmm.matmul_many(pairs)
    spoil(spoiler, want[PAIR][ROW, COLUMN])
    with pytest.warns(pyclmm.VerificationWarning, match="computed again by 'register'"):
        got = pyclmm.matmul_many(pairs, verify="repair")
    for x, y in zip(got, want, strict=True):  # which a matrix unit may have summed
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("stack", [(), (3,)])
def test_arrays_that_have_launches_of_their_own_are_repaired(rng, queue, stack, spoiler):
    """As large ones in buffers of their own do."""
    pairs = [
        tuple(cla.to_device(queue, numbers(rng, (*stack, 130, 130), np.dtype("f4"))) for _ in "ab")
        for _ in range(PAIR + 1)
    ]
    want = [x.get() for x in pyclmm.matmul_many(pairs)]
    spoil(spoiler, want[PAIR][..., ROW, COLUMN].ravel()[0])
    named = rf"pairs\[{PAIR}\], row {ROW}, column {COLUMN} .* computed again by"
    with pytest.warns(pyclmm.VerificationWarning, match=named):
        got = pyclmm.matmul_many(pairs, verify="repair")
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x.get(), y, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("is_c", [True, False])
def test_a_result_in_the_memory_of_c_is_not_repaired(rng, queue, spoiler, is_c):
    a, b = zip(*pairs_of(rng), strict=True)
    zeros = [np.zeros((len(x), y.shape[1]), np.float32) for x, y in zip(a, b, strict=True)]
    want = pyclmm.matmul_many(list(zip(a, b, strict=True)))
    both = on_device(queue, [*zeros, *zeros])
    c, out = both[: len(a)], both[0 if is_c else len(a) :][: len(a)]
    pairs = list(zip(on_device(queue, a), on_device(queue, b), strict=True))
    spoil(spoiler, want[PAIR][ROW, COLUMN])
    with pytest.raises(pyclmm.VerificationError) if is_c else pytest.warns(pyclmm.VerificationWarning):
        pyclmm.matmul_many(pairs, out, c=c, beta=1.0, verify="repair")


@pytest.mark.parametrize("is_c", [True, False])
def test_outs_where_they_lie_are_repaired_unless_they_were_c(rng, queue, spoiler, is_c):
    if not reads_host(queue.device):
        pytest.skip("this device computes lists of NumPy arrays in memory of its own")
    pairs = pairs_of(rng)
    c = [np.ones((len(x), y.shape[1]), np.float32) for x, y in pairs]
    want = pyclmm.matmul_many(pairs, c=c, beta=1.0)
    spoiler.host = outs = c if is_c else [np.empty_like(x) for x in c]
    spoil(spoiler, want[PAIR][ROW, COLUMN])
    x, y = np.eye(2), np.eye(2)  # of another launch, whose out is its C
    outs, c = ([*xs, None, y] for xs in (outs, c))  # of one pair there is neither
    call = partial(pyclmm.matmul_many, [*pairs, pairs[0], (x, x)], outs, c=c, beta=1.0, verify="repair")
    if is_c:
        with pytest.raises(pyclmm.VerificationError, match=rf"pairs\[{PAIR}\], row {ROW}"):
            call()
        return
    with pytest.warns(pyclmm.VerificationWarning):
        call()
    for x, y in zip(outs[:-2], want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)
