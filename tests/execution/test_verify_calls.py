"""verify=: when each kind of call tells of a wrong result, what is repaired, and what is refused."""

import gc
import threading
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.execution import verdicts
from pyclmm.kernels.verification import checked_problem
from pyclmm.problem.gemm import Gemm, ListedProduct
from tests.support import spoiled
from tests.support.cases import problem_of
from tests.support.made_up import DEVICE
from tests.support.spoiled import alarm, wrong_at

M, N, K = 19, 37, 53
RNG = np.random.default_rng(5)
A, B = (RNG.standard_normal(shape).astype("f") for shape in ((M, K), (K, N)))
RIGHT = A @ B
PLACE = 3 * N + 6


def add(spoiler, index=PLACE):
    spoiler.element(index, "f", lambda x: x + 90)


def counts():
    return pyclmm.health()


def since(before):
    return {name: counts()[name] - before[name] for name in before}


def arrays(queue):
    return cla.to_device(queue, A), cla.to_device(queue, B)


# ---- when a call tells


def test_numpy_arrays_in_the_call(spoiler):
    before = counts()
    add(spoiler)
    alarm(pyclmm.matmul, A, B, verify=True)
    assert since(before) == {"wrong": 1, "repaired": 0}


def test_arrays_in_the_next_call(queue, spoiler):
    a, b = arrays(queue)
    plan = pyclmm.Matmul(a, b, verify=True)
    plan(a, b)
    pyclmm.finish()
    before = counts()
    add(spoiler)
    plan(a, b)
    queue.finish()
    alarm(plan, a, b)
    assert since(before) == {"wrong": 1, "repaired": 0}
    assert np.allclose(plan(a, b).get(), RIGHT, atol=1e-4)


def test_arrays_in_finish(queue, spoiler):
    a, b = arrays(queue)
    pyclmm.matmul(a, b, verify=True)
    pyclmm.finish()
    add(spoiler)
    pyclmm.matmul(a, b, verify=True)
    alarm(pyclmm.finish)
    pyclmm.finish()


def test_arrays_in_a_callback_of_their_event(queue, spoiler):
    """PyOpenCL calls it in a thread of its own, where it may wait."""
    a, b = arrays(queue)
    pyclmm.finish()
    add(spoiler)
    event = pyclmm.matmul(a, b, verify=True).events[-1]
    heard, has_ended = [], threading.Event()

    def ended(_status):
        try:
            pyclmm.finish()
        except pyclmm.VerificationError as error:
            heard.append((error.rows, error.columns))
        finally:
            has_ended.set()

    event.set_callback(cl.command_execution_status.COMPLETE, ended)
    assert has_ended.wait(60)
    assert heard == [((3, 4), (6, 7))]
    pyclmm.finish()  # nobody is told twice


def test_arrays_of_a_plan_that_has_ended(queue, spoiler):
    a, b = arrays(queue)
    for is_closed in (True, False):
        plan = pyclmm.Matmul(a, b, verify=True)
        pyclmm.finish()
        add(spoiler)
        plan(a, b)
        if is_closed:
            plan.close()
        del plan
        gc.collect()
        alarm(pyclmm.finish)
        pyclmm.finish()


def test_an_out_of_order_queue(queue, spoiler):
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    if not queue.device.queue_properties & properties:
        pytest.skip("the device has no such queues")
    other = cl.CommandQueue(queue.context, properties=properties)
    a, b = arrays(other)
    for _ in range(3):
        result = pyclmm.matmul(a, b, queue=other, verify=True)
    pyclmm.finish()
    assert np.allclose(result.get(queue=other), RIGHT, atol=1e-4)
    add(spoiler)
    pyclmm.matmul(a, b, queue=other, verify=True)
    alarm(pyclmm.finish)


def test_bound_calls(queue, spoiler):
    a, b = arrays(queue)
    out = cla.zeros(queue, (M, N), np.float32)
    plan = pyclmm.Matmul(a, b, out=out, verify=True)
    call = plan.bind(a, b, out=out)
    call()
    pyclmm.finish()
    add(spoiler)
    call()
    alarm(pyclmm.finish)
    add(spoiler)
    call()
    queue.finish()
    alarm(call)


def test_two_wrong_elements_are_one_alarm_with_their_range(spoiler):
    def change(words):
        words.view("f")[[PLACE, 5 * N + 1]] += 90

    spoiler.waiting.append(change)
    with wrong_at((3, 6), (1, 7)):
        pyclmm.matmul(A, B, verify=True)


def test_columns_that_differ_too_little_are_all_those_of_the_product():
    """The sum of a row can be wrong where no element is beyond its own limit."""
    most, words = np.iinfo(np.int32).max, np.zeros(24, np.int32)
    words[12:16] = most - 3, 4, most - 1, 2  # row 3 of product 1
    sizes = [(8, 5, 6, 0, 0, 0, 6, 5, 5), (7, 9, 6, 0, 0, 0, 6, 9, 9)]
    problem = replace(problem_of(8, 9, 6, "f4"), products=tuple(ListedProduct(*x) for x in sizes))
    gemm = Gemm(problem, (103,), np.dtype("f4"))
    found = verdicts._error(gemm, DEVICE, "tiled", words, [3, 6])
    assert (found.rows, found.columns, found.stack) == ((3, 4), (0, 9), (6, 7))
    words[14:16] = most, 1
    assert verdicts._error(gemm, DEVICE, "tiled", words, [3, 6]).columns == (0, 5)


# ---- the context manager and bad values


def test_verified_blocks(spoiler):
    before = counts()
    with pyclmm.verified():
        add(spoiler)
        alarm(pyclmm.matmul, A, B)
        with pyclmm.verified(False):
            pyclmm.matmul(A, B)
        add(spoiler)
        with pyclmm.verified("repair"), pytest.warns(pyclmm.VerificationWarning):
            again = pyclmm.matmul(A, B)
        assert np.allclose(again, RIGHT, atol=1e-4)
        plan = pyclmm.Matmul(A, B)
        launched = len(spoiler.kernels)
        pyclmm.matmul(A, B, verify=False)
        assert not [name for name in spoiler.kernels[launched:] if "verify" in name]
    add(spoiler)
    alarm(plan, A, B)
    launched = len(spoiler.kernels)
    pyclmm.matmul(A, B)
    assert not [name for name in spoiler.kernels[launched:] if "verify" in name]
    assert since(before) == {"wrong": 3, "repaired": 1}


@pytest.mark.parametrize("call", [pyclmm.matmul, pyclmm.gemm, pyclmm.Matmul, pyclmm.StreamedMatmul])
def test_bad_values(call):
    with pytest.raises(pyclmm.ArgumentError, match="verify is 'repairs'; pass True, False or 'repair'"):
        call(A, B, verify="repairs")
    for value in (1, 0.5, ["repair"], b"repair"):
        with pytest.raises(pyclmm.DTypeError, match="pass True, False or 'repair'"):
            call(A, B, verify=value)


def test_bad_values_of_a_block():
    with pytest.raises(pyclmm.ArgumentError, match="repair"):
        pyclmm.verified("always")
    with pytest.raises(pyclmm.DTypeError, match="verify is 3"):
        pyclmm.verified(3)


def test_numpys_bools_are_bools():
    assert np.allclose(pyclmm.matmul(A, B, verify=np.True_), RIGHT, atol=1e-4)


@pytest.mark.parametrize("how", [True, "repair"])
def test_products_of_bools_are_refused(how):
    x = np.ones((4, 4), bool)
    with pytest.raises(pyclmm.UnsupportedError, match="product of bools is no sum"):
        pyclmm.matmul(x, x, verify=how)
    assert pyclmm.matmul(x, x, verify=False).all()


def test_devices_without_float64_are_refused():
    problem = replace(problem_of(8, 8, 8, "f8"), soft_float64=True)
    with pytest.raises(pyclmm.UnsupportedError, match="cl_khr_fp64"):
        checked_problem(problem)


@pytest.mark.parametrize("order", [0, cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE])
def test_nan_of_a_call_that_was_interrupted_is_not_anothers(queue, order, spoiler):
    """Its check had marked the column."""

    def interrupt(_):
        raise KeyboardInterrupt

    own, nan = cl.CommandQueue(queue.context, properties=order), B.copy()
    nan[2, 3] = np.nan
    a, b, nan = (cla.to_device(own, x) for x in (A, B, nan))
    plan = pyclmm.Matmul(a, b, verify=True)
    plan(a, b)
    pyclmm.finish()
    spoiler.waiting.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        plan(a, nan)
    plan(a, b)
    pyclmm.finish()


# ---- repair


def repaired(spoiler, call, *args, place=PLACE, **kwargs):
    """The result of *call*, of which one element was wrong at first."""
    before, want = counts(), np.asarray(got_of(call(*args, **kwargs)))
    add(spoiler, place)
    with pytest.warns(pyclmm.VerificationWarning, match="computed again by '"):
        result = got_of(call(*args, verify="repair", **kwargs))
    assert since(before) == {"wrong": 1, "repaired": 1}
    assert np.allclose(result, want, rtol=1e-4, atol=1e-4)
    return result


def got_of(x):
    return x.get() if isinstance(x, cla.Array) else x.copy()


def test_right_products_are_not_repaired():
    before = counts()
    assert np.array_equal(pyclmm.matmul(A, B, verify="repair"), pyclmm.matmul(A, B))
    assert since(before) == {"wrong": 0, "repaired": 0}


@pytest.mark.parametrize("transposed", ["NN", "TN", "NT", "TT"])
def test_numpy_arrays_are_repaired(transposed, spoiler):
    a, b = (np.asfortranarray(x) if t == "T" else x for x, t in zip((A, B), transposed, strict=True))
    repaired(spoiler, pyclmm.matmul, a, b)


def test_only_the_wrong_part_is_computed_again(spoiler):
    """Except for its place, the result has the bits of the first kernel."""
    want = pyclmm.matmul(A, B)
    got = repaired(spoiler, pyclmm.matmul, A, B)
    others = np.arange(M * N) != PLACE
    assert np.array_equal(got.ravel()[others], want.ravel()[others])
    assert spoiler.kernels.count("verify_out") == 2


@pytest.mark.parametrize(
    "extra",
    [
        {"c": np.ones((M, N), "f"), "beta": 2.0, "alpha": 0.5},
        {"c": np.ones((M, N), "f"), "beta": 2.0, "bias": np.arange(N, dtype="f")},
        {"bias": np.arange(N, dtype="f")},
        {"bias": np.arange(M, dtype="f")[:, None]},
        {"activation": "gelu"},
    ],
    ids=["c", "c and row", "row", "column", "activation"],
)
def test_gemm_is_repaired(extra, spoiler):
    extra = dict(extra)
    repaired(spoiler, pyclmm.gemm, A, B, extra.pop("c", None), **extra)


def test_only_the_wrong_part_of_a_column_major_result_is_computed_again(spoiler):
    out = np.empty((N, M), "f").T
    want = pyclmm.matmul(A, B, out=np.empty_like(out))
    got = repaired(spoiler, pyclmm.matmul, A, B, out=out, place=6 * M + 3)
    others = np.arange(M * N).reshape(M, N) != PLACE
    assert np.array_equal(got[others], want[others])


def test_one_product_of_a_stack_is_repaired(spoiler):
    stack = np.stack([A, A + 1, A - 1])
    repaired(spoiler, pyclmm.matmul, stack, B, place=(2 * M + 3) * N + 6)
    stacks = np.stack([B, 2 * B, 3 * B])
    repaired(spoiler, pyclmm.matmul, stack, stacks, place=(M + 3) * N + 6)


def test_views_and_results_of_the_callers(spoiler):
    wide = np.zeros((M + 2, 2 * K), "f")
    view = wide[1:-1, ::2]
    view[...] = A
    out = np.zeros((M, N), "f")
    assert np.allclose(repaired(spoiler, pyclmm.matmul, view, B, out=out), RIGHT, atol=1e-4)
    assert np.allclose(out, RIGHT, atol=1e-4)


def test_arrays_are_repaired_in_the_call(queue, spoiler):
    repaired(spoiler, pyclmm.matmul, *arrays(queue))


def test_views_of_arrays_are_repaired(queue, spoiler):
    a, b = (cla.to_device(queue, np.concatenate([x, x, x])) for x in (A, B))
    repaired(spoiler, pyclmm.matmul, a[M : 2 * M], b[K : 2 * K])


def test_plans_repair_each_call(queue, spoiler):
    a, b = arrays(queue)
    for x, y in ((A, B), (a, b)):
        plan = pyclmm.Matmul(x, y, verify="repair")
        for _ in range(2):
            add(spoiler)
            with pytest.warns(pyclmm.VerificationWarning):
                result = got_of(plan(x, y))
            assert np.allclose(result, RIGHT, atol=1e-4)
            assert np.allclose(got_of(plan(x, y)), RIGHT, atol=1e-4)


def test_a_result_in_the_memory_of_c_is_not_repaired(queue, spoiler):
    """The operand is gone, so nobody can compute it again."""
    before = counts()
    c = np.ones((M, N), "f")
    add(spoiler)
    with pytest.raises(pyclmm.VerificationError):
        pyclmm.gemm(A, B, c, beta=1.0, out=c, verify="repair")
    a, b = arrays(queue)
    on_device = cla.to_device(queue, np.ones((M, N), "f"))
    add(spoiler)
    with pytest.raises(pyclmm.VerificationError):
        pyclmm.gemm(a, b, on_device, beta=1.0, out=on_device, verify="repair")
    assert since(before) == {"wrong": 2, "repaired": 0}
    whole = cla.to_device(queue, np.ones((2 * M, N), "f"))
    repaired(spoiler, pyclmm.gemm, a, b, whole[:M], beta=1.0, out=whole[M:], place=PLACE + M * N)


def test_a_result_in_the_memory_of_a_is_not_repaired_wrongly(spoiler):
    x = RNG.standard_normal((8, 8)).astype("f")
    want = x @ x
    add(spoiler, 5)
    with pytest.warns(pyclmm.VerificationWarning):
        pyclmm.matmul(x, x, out=x, verify="repair")
    assert np.allclose(x, want, atol=1e-4)


def test_a_device_that_is_always_wrong_raises(spoiler):
    before = counts()
    spoiler.always = spoiled.at(PLACE, "f", lambda x: x + 90)
    with pytest.raises(pyclmm.VerificationError):
        pyclmm.matmul(A, B, verify="repair")
    assert since(before) == {"wrong": 1, "repaired": 0}


def test_a_product_that_is_repaired_by_the_third_kernel_counts_once(spoiler):
    add(spoiler)
    repaired(spoiler, pyclmm.matmul, A, B)
