"""Lists of arrays on a CUDA device: where they lie, what is copied when, captures, streams, errors."""

import gc
import re
import weakref

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from pyclmm.cuda import device_array, streams
from pyclmm.cuda.binding import CudaBinding
from pyclmm.cuda.device_array import DeviceArray
from pyclmm.many import ManyMatmul
from tests.cuda.test_protocols import Interface
from tests.many.drawn import Drawn, check, check_aligned
from tests.support import fake_cuda
from tests.support.cases import small_integers
from tests.support.fake_cuda import LibArray
from tests.support.faults import noted

SIZES = [(3, 4, 5), (6, 7, 2), (17, 18, 3)]
X = np.ones((3, 3), np.float32)


def on_cuda(lib, x):
    """*x*, if there is one, on the device in its own layout."""
    return None if x is None else lib.laid_out(x)


def operands(lib, rng, sizes=SIZES, dtype="f4"):
    """Pairs on the device, and their products."""
    a = [small_integers(rng, (m, k), dtype) for m, _, k in sizes]
    b = [small_integers(rng, (k, n), dtype) for _, n, k in sizes]
    pairs = [(lib.array(x), lib.array(y)) for x, y in zip(a, b, strict=True)]
    return pairs, [x @ y for x, y in zip(a, b, strict=True)]


def outs(lib, want):
    return [lib.array(np.zeros_like(x)) for x in want]


def got(xs):
    return [x.get() for x in xs]


def copies(cuda):
    """How many copies to the device there were, and in which streams."""
    found = [arguments[3] for name, arguments in cuda.calls if name == "cuMemcpyHtoDAsync_v2"]
    cuda.calls.clear()
    return found


def tables(cuda):
    """Where on the device copies from the host went."""
    return [arguments[0] for name, arguments in cuda.calls if name == "cuMemcpyHtoDAsync_v2"]


def test_a_plan_of_shapes_takes_them(lib, rng):
    plan = ManyMatmul([((m, k), (k, n)) for m, n, k in SIZES], dtype=np.float32)
    for _ in range(2):
        pairs, want = operands(lib, rng)
        check(got(plan(pairs)), want)


@pytest.mark.parametrize("number", range(4))
def test_drawn_lists_are_as_a_loop(lib, rng, number):
    drawn = Drawn(rng, 4 + 2 * number)
    pairs = [tuple(on_cuda(lib, x) for x in pair) for pair in drawn.pairs]
    keywords = dict(drawn.keywords)
    for name in ("c", "bias", "out"):
        keywords[name] = [on_cuda(lib, x) for x in keywords[name]]
    check_aligned(ManyMatmul(pairs, **keywords))
    for _ in range(2):
        results = pyclmm.matmul_many(pairs, **keywords)
        check(got(results), drawn.want)
        for out, result in zip(keywords["out"], results, strict=True):
            assert out is None or out is result


def test_a_few_launches_read_them_where_they_lie(cuda, lib, rng):
    pairs, want = operands(lib, rng, SIZES * 4)
    plan = ManyMatmul(pairs)
    check(got(plan(pairs)), want)
    cuda.launches.clear()
    check(got(plan(pairs)), want)
    assert len(cuda.launches) == len(plan.kernels) < 4
    assert {stream for *_, stream in cuda.launches} == {0x70}


def test_results_are_parts_of_one_array(lib, rng):
    pairs, want = operands(lib, rng)
    results = pyclmm.matmul_many(pairs)
    assert len({id(x.memory) for x in results}) == 1
    again = pyclmm.matmul_many([(x.T, x) for x in results])
    check(got(again), [x.T @ x for x in want])


def test_the_table_is_copied_only_if_operands_lie_elsewhere(cuda, lib, rng):
    pairs, want = operands(lib, rng)
    plan = ManyMatmul(pairs)
    plan(pairs)
    assert 0x70 in copies(cuda)
    check(got(plan(pairs)), want)  # the result lies elsewhere
    assert not copies(cuda)
    others, theirs = operands(lib, rng)
    for given, its in ((others, theirs), (pairs, want)):
        check(got(plan(given)), its)
        assert copies(cuda) == [0x70]
    assert 0x70 not in cuda.synchronized


def test_outs_may_lie_elsewhere_in_each_call(lib, rng):
    pairs, want = operands(lib, rng)
    for _ in range(3):
        mine = outs(lib, want)
        assert pyclmm.matmul_many(pairs, mine) == mine
        check(got(mine), want)


def test_libraries_hear_which_outs_were_written(lib, rng, monkeypatch):
    pairs, want = operands(lib, rng)
    mine, heard = outs(lib, want), noted(monkeypatch, lib, "written")
    mine[1] = lib.array(np.zeros(want[1].shape, "f8"))  # converted, in a launch of its own
    for _ in range(2):
        heard.clear()
        pyclmm.matmul_many(pairs, mine)
        assert {id(x) for (x,) in heard} == {id(x) for x in mine}
        check(got(mine), [want[0], want[1].astype("f8"), want[2]])


def test_some_outs_c_and_bias_are_given(lib, rng):
    pairs, want = operands(lib, rng)
    c, bias = lib.array(want[1]), lib.array(np.arange(18, dtype=np.float32))
    out = lib.array(np.zeros_like(want[2]))
    for _ in range(2):
        results = pyclmm.matmul_many(
            pairs, [None, None, out], c=[None, c, None], bias=[None, None, bias], alpha=[1, 2, 1], beta=3
        )
        assert results[2] is out
        check(got(results), [want[0], 5 * want[1], want[2] + np.arange(18, dtype=np.float32)])


def test_another_plan_for_the_same_list(lib, rng):
    pairs, want = operands(lib, rng)
    for alpha in (1, 2):
        for _ in range(2):
            check(got(pyclmm.matmul_many(pairs, alpha=alpha)), [alpha * x for x in want])
        check(got(ManyMatmul(pairs, alpha=3)(pairs)), [3 * x for x in want])


def test_lists_in_turn_are_looked_at_once(lib, rng, monkeypatch):
    """As the layers of a network are."""
    lists = [operands(lib, rng, SIZES[:count]) for count in (2, 3)]
    plans = [ManyMatmul(pairs) for pairs, _ in lists]
    for plan, (pairs, _) in zip(plans, lists, strict=True):
        plan(pairs)
    looked = noted(monkeypatch, lib, "cuda_array")
    for plan, (pairs, want) in zip(plans * 2, lists * 2, strict=True):
        check(got(plan(pairs)), want)
    assert not looked


def test_c_is_updated_in_place(lib, rng):
    pairs, want = operands(lib, rng)
    c = outs(lib, want)
    for n in (1, 2, 3):
        pyclmm.matmul_many(pairs, c, c=c, beta=1.0)
        check(got(c), [n * x for x in want])
    others = outs(lib, want)
    pyclmm.matmul_many(pairs, others, c=others, beta=1.0)
    check(got(others), want)


def test_an_out_that_overlaps_its_pair_in_a_later_call(lib, rng):
    a = [small_integers(rng, (n, n), "f4") for n in (5, 6)]
    pairs = [(lib.array(x), lib.array(x)) for x in a]
    pyclmm.matmul_many(pairs, outs(lib, a))
    pyclmm.matmul_many(pairs, [pairs[0][0], pairs[1][1]])
    check(got([pairs[0][0], pairs[1][1]]), [x @ x for x in a])


def test_what_begins_at_half_an_element_is_multiplied(lib, rng):
    pairs, want = operands(lib, rng, dtype="c16")
    x = pairs[1][0]
    moved = lib.array(np.zeros(x.size + 1, x.dtype))
    at = LibArray(lib, moved.address + 8, x.shape, x.dtype, None, moved)
    lib.cuda.view(at.address, x.shape, x.dtype)[...] = x.get()
    check(got(pyclmm.matmul_many([pairs[0], (at, pairs[1][1]), pairs[2]])), want)


def test_each_stream_and_thread_has_a_table_of_its_own(cuda, lib, rng):
    pairs, want = operands(lib, rng)
    others, theirs = operands(lib, rng)
    plan = ManyMatmul(pairs)
    for _ in range(2):
        for stream, given, its in ((0x70, pairs, want), (0x80, others, theirs)):
            lib.current = stream
            check(got(plan(given)), its)
    cuda.calls.clear()
    for stream, given in ((0x70, pairs), (0x80, others)):
        lib.current = stream
        plan(given)
    assert not copies(cuda)


def test_a_call_within_a_call(cuda, lib, rng):
    sizes = [*SIZES, *[(130, 130, 9)] * 300, *SIZES]  # several launches
    pairs, want = operands(lib, rng, sizes)
    others, theirs = operands(lib, rng, sizes)
    plan, inner = ManyMatmul(pairs), []
    assert len(plan.kernels) > 1
    plan(pairs)

    def call():
        cuda.after_launch = lambda: None
        inner.append(plan(others))

    cuda.after_launch = call
    check(got(plan(pairs)), want)
    check(got(inner[0]), theirs)
    check(got(plan(pairs)), want)


def test_a_call_before_a_launch(lib, rng, monkeypatch):
    """When the parameters of the launch are set."""
    pairs, want = operands(lib, rng)
    others, theirs = operands(lib, rng)
    plan, inner, own = ManyMatmul(pairs), [], CudaBinding._set_arguments

    def call(binding, *arguments):
        own(binding, *arguments)
        monkeypatch.setattr(CudaBinding, "_set_arguments", own)
        inner.append(plan(others))

    monkeypatch.setattr(CudaBinding, "_set_arguments", call)
    check(got(plan(pairs)), want)
    check(got(inner[0]), theirs)


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_graph_computes_what_was_captured(cuda, lib, rng, is_warm):
    pairs, want = operands(lib, rng)
    others, theirs = operands(lib, rng)
    mine, plan = outs(lib, want), ManyMatmul(pairs, outs(lib, want))
    if is_warm:
        plan(others, outs(lib, want))
    before, waits = tables(cuda), len(cuda.synchronized)
    with cuda.capture(0x70) as graph:
        plan(pairs, mine)
    assert 0x70 not in cuda.synchronized[waits:] != []  # its table is there, and the stream waits for nothing
    assert tables(cuda)[len(before)] not in before  # which work in the stream may still read
    assert not any(x.get().any() for x in mine)
    plan(others, yours := outs(lib, theirs))
    plan.release()
    del plan
    pyclmm.release()
    gc.collect()
    for _ in range(2):
        cuda.replay(graph)
        check(got(mine), want)
    check(got(yours), theirs)


def test_a_copy_whose_memory_is_still_read_gets_another(cuda, lib, rng, monkeypatch):
    """The host's memory is written again once its copy has ended."""
    plan = ManyMatmul(operands(lib, rng)[0])

    def allocated():
        plan(operands(lib, rng)[0])
        found = [name for name, _ in cuda.calls if name == "cuMemHostAlloc"]
        cuda.calls.clear()
        return len(found)

    assert allocated() == 1
    assert allocated() == 0
    cuda.fail["cuEventQuery"] = 600  # they have not ended
    assert allocated() == 1


def test_arrays_of_the_protocols(cuda, rng, monkeypatch):
    a = [small_integers(rng, (n, n), "f4") for n in (3, 4, 5)]
    pairs = [(Interface(cuda, x), Interface(cuda, x)) for x in a]
    held = weakref.ref(pairs[0][0])
    for _ in range(2):
        results = pyclmm.matmul_many(pairs)
        assert all(type(x) is DeviceArray for x in results)
        check([cuda.view(x.address, x.shape, x.dtype) for x in results], [x @ x for x in a])
        last = results[-1]
        del results
        gc.collect()
        dropped = device_array._dropped[streams.context_of(0)]
        assert not dropped  # one holds the memory of all
        check([cuda.view(last.address, last.shape, last.dtype)], [a[-1] @ a[-1]])
        del last
        gc.collect()
        assert [x.nbytes for x in dropped] == [sum(x.nbytes for x in a)]
        pyclmm.release()
    cuda.fail["cuEventQuery"] = 600  # the product has not ended
    pyclmm.matmul_many(pairs)
    del pairs
    gc.collect()
    assert held() is not None  # its library knows nothing of the launch
    cuda.fail.clear()
    pyclmm.release()
    assert held() is None


def test_a_list_of_torchs_rule_for_bfloat16(lib, rng):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    pairs, want = operands(lib, rng, dtype=ml_dtypes.bfloat16)
    (a, b), gaps = pairs[0], small_integers(rng, (3, 10), ml_dtypes.bfloat16)[:, ::2]
    pairs += [(lib.laid_out(gaps), b), (lib.array(a.get()[:0]), b)]  # each has a launch of its own, or none
    want += [gaps @ b.get(), want[0][:0]]
    results = pyclmm.matmul_many(pairs)
    assert {x.dtype for x in results} == {np.dtype(ml_dtypes.bfloat16)}
    check(got(results), [x.astype(ml_dtypes.bfloat16) for x in want])


def test_refused(lib):
    x, y = (lib.array(X) for _ in range(2))
    elsewhere = lib.array(X)
    elsewhere.ordinal = 1
    whole = lib.array(np.zeros((3, 5), np.float32))
    halves = [LibArray(lib, whole.address + at, (3, 3), X.dtype, (20, 4), whole) for at in (0, 8)]
    for given, keywords, error, text in (
        (([(x, x), (X, X)],), {}, pyclmm.DTypeError, "pairs[1]: a of pairs[0] is a "),
        (([(x, x), (x, X)],), {}, pyclmm.DTypeError, "pairs[1]: a is a "),
        (
            ([(x, x), (x, elsewhere)],),
            {},
            pyclmm.ArgumentError,
            "pairs[1]: b of this pair is on CUDA device 1",
        ),
        (([(x, x), (x, lib.array(X[:2]))],), {}, pyclmm.ShapeError, "pairs[1]: b has a mismatch"),
        (([(x, x)] * 2, [y, y]), {}, pyclmm.ArgumentError, "] overlaps out["),
        (([(x, x)] * 2, halves), {}, pyclmm.ArgumentError, "out[1] overlaps out[0]"),
        (([(x, x), (y, y)], [y, None]), {}, pyclmm.ArgumentError, "out[0] overlaps a of pairs[1]"),
        (([(x, x)],), {"queue": 3}, pyclmm.ArgumentError, "queue is a int, but the arrays are on a CUDA"),
        (([(x, x)],), {"device": 0}, pyclmm.ArgumentError, "device is given, but"),
    ):
        with pytest.raises(error, match=re.escape(text)):
            pyclmm.matmul_many(*given, **keywords)


def test_outs_that_overlap_in_a_later_call_are_refused(lib, rng):
    pairs, want = operands(lib, rng, [(3, 3, 3)] * 3)
    plan = ManyMatmul(pairs, outs(lib, want))
    for _ in range(2):
        mine = outs(lib, want)
        plan(pairs, mine)
    for wrong, text in (
        ([mine[0], mine[1], mine[0]], "] overlaps out["),
        ([pairs[1][1], *mine[1:]], "b of pairs[1]"),
    ):
        with pytest.raises(pyclmm.ArgumentError, match=re.escape(text)):
            plan(pairs, wrong)


@pytest.mark.parametrize("function", ["cuLaunchKernelEx", "cuCtxPushCurrent_v2"])
def test_a_lost_context_is_forgotten(cuda, lib, rng, function):
    pairs, want = operands(lib, rng)
    plan, context = ManyMatmul(pairs), streams.context_of(0)
    cuda.fail[function] = fake_cuda.ILLEGAL_ADDRESS
    with pytest.raises(pyclmm.DeviceLostError):
        plan(pairs)
    assert not context.is_known
    cuda.fail.clear()
    check(got(plan(pairs)), want)


def test_another_list_than_the_plans(cuda, lib, rng):
    pairs, _ = operands(lib, rng)
    plan = ManyMatmul(pairs)
    plan(pairs)
    others, _ = operands(lib, rng, [*SIZES[:2], (17, 18, 4)])
    with pytest.raises(pyclmm.ArgumentError, match=r"pairs\[2\]: a is \(17, 4\)"):
        plan(others)
    moved = LibArray(lib, pairs[0][0].address + 4, (3, 5), np.float32, None, pairs[0][0])
    with pytest.raises(pyclmm.ArgumentError, match=r"pairs\[0\]: a is \(3, 5\)"):
        plan([(moved, pairs[0][1]), *pairs[1:]])
    with pytest.raises(pyclmm.ArgumentError, match="wait_for has events of OpenCL"):
        plan(pairs, wait_for=[cl.enqueue_marker(cuda.queue)])
