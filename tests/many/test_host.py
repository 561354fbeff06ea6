"""Lists of NumPy arrays: a loop of NumPy's gives the same."""

import threading
from collections import OrderedDict

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from pyclmm.kernels.listed import _tiles, size_classes
from pyclmm.many import plan as plans
from pyclmm.many.plan import ManyMatmul
from pyclmm.opencl import queues
from pyclmm.opencl.host_memory import HOST_ALIGN
from pyclmm.opencl.queues import default_queue
from tests.many.drawn import Drawn, check, check_aligned, loop, pairs_of
from tests.support.cases import for_cpus, small_integers
from tests.support.faults import DEVICE_NOT_AVAILABLE, noted, refused_launch
from tests.support.made_up import seen_as
from tests.support.plans import of_list
from tests.support.threads import in_threads


@pytest.fixture
def planned(monkeypatch):
    """What plans matmul_many has made."""
    pyclmm.release()
    return noted(monkeypatch, ManyMatmul, "_make")


@pytest.mark.parametrize("number", range(8))
def test_drawn_lists_are_as_a_loop(rng, number):
    drawn = Drawn(rng, 1 + number)
    for _ in range(2):
        got = pyclmm.matmul_many(drawn.pairs, **drawn.keywords)
        check(got, drawn.want)
        for out, result in zip(drawn.keywords["out"], got, strict=True):
            assert out is None or out is result
    plan = ManyMatmul(drawn.pairs, **drawn.keywords)
    check_aligned(plan)
    check(plan(
        drawn.pairs, **{name: drawn.keywords[name] for name in ("out", "c", "bias")}
    ), drawn.want)  # fmt: skip


def test_products_of_about_one_size_are_one_launch(rng):
    plan = ManyMatmul(pairs_of(rng, rng.integers(33, 60, (50, 3))))
    assert len(plan.kernels) == 1
    (only,) = plan.explain()
    assert only.kernel == plan.kernels[0]
    assert "50 of up to" in repr(plan)


def test_on_a_cpu_small_classes_are_one():
    small, large = [(3, 3, 3), (7, 60, 9), (8, 8, 8)], [(60, 60, 60)] * 40
    assert len(set(size_classes(small, True))) == 1
    assert size_classes(large + small, True) == size_classes(large, True) + size_classes(small, True)
    joined = size_classes([(40, 20, 900), *large], True)  # the wide ones with the narrow one
    assert set(joined) == {(4, 5)}
    many = [(3, 3, 3)] * 300, [(3, 30, 3)] * 300, [(40, 40, 40)]
    assert len(set(size_classes([*many[0], *many[1], *many[2]], False))) == 3
    assert len(set(size_classes([*many[0][:9], *many[1], *many[2]], False))) == 2, "a GPU's few small ones"


@for_cpus
def test_the_largest_launch_comes_first(rng):
    plan = ManyMatmul(pairs_of(rng, [(2, 2, 2), (200, 200, 200), (2, 2, 3), (8, 60, 9)]))
    flops = [one.flops for one in plan.explain()]
    assert len(flops) > 1
    assert flops == sorted(flops, reverse=True)


@for_cpus
def test_on_a_cpu_only_long_products_leave_the_lists_order(rng):
    lengths = [4, 5, 3, 70, 6, 4]
    (only,) = ManyMatmul(pairs_of(rng, [(9, 9, k) for k in lengths]), kernel="packed")._executables
    listed = only.problem.products
    of_cpu, of_others = (_tiles(listed, 16, 16, ahead)[1:, 0].tolist() for ahead in (True, False))
    assert of_cpu == [3, 0, 1, 2, 4, 5]
    assert of_others == [3, 4, 1, 0, 5, 2]
    assert only.work.tables["tiles"].view(np.int32)[1:, 0].tolist() == of_cpu


def test_results_share_an_array_and_are_new_in_each_call(rng):
    pairs = pairs_of(rng, [(3, 4, 5), (6, 7, 2), (40, 40, 3)])
    first, second = pyclmm.matmul_many(pairs), pyclmm.matmul_many(pairs)
    assert len({id(x.base) for x in first}) == 1
    assert first[0].base is not second[0].base
    check(first, loop(pairs))
    second[0][:] = 0
    check(first, loop(pairs))


def test_alpha_may_be_an_array(rng):
    pairs = pairs_of(rng, [(3, 4, 5), (6, 7, 2)])
    got = pyclmm.matmul_many(pairs, alpha=np.array([2, 3]))
    check(got, [alpha * x for alpha, x in zip((2, 3), loop(pairs), strict=True)])


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        ("i8", (1.0, 2**62 + 1)),
        ("u8", (-1, 2**64 - 1)),
        ("i1", (1.0, 2**62 + 3)),
        ("f4", (1, 2**60 + 2**36 + 1)),
    ],
)
def test_alpha_and_beta_of_each_pair_are_those_of_gemm(dtype, numbers):
    """In a list of both NumPy would round, or convert, the one to the other's type."""
    x = np.ones((1, 1), dtype)
    got = pyclmm.matmul_many([(x, x)] * 2, c=[x, x], alpha=numbers, beta=numbers)
    check(got, [pyclmm.gemm(x, x, x, alpha=one, beta=one) for one in numbers])


def test_a_second_call_does_not_plan_again(rng, planned):
    for _ in range(3):
        pairs = pairs_of(rng, [(3, 4, 5), (6, 7, 2)])
        check(pyclmm.matmul_many(pairs), loop(pairs))
    assert len(planned) == 1
    others = pairs_of(rng, [(3, 4, 5), (6, 7, 3)])
    for lists in (others, pairs, others):
        check(pyclmm.matmul_many(lists), loop(lists))
    assert len(planned) == 2
    check(pyclmm.matmul_many(pairs, alpha=2.0), [2 * x for x in loop(pairs)])
    check(pyclmm.matmul_many([(a.astype("f8"), b) for a, b in pairs]), [x.astype("f8") for x in loop(pairs)])
    assert len(planned) == 4
    negative = [(-a, b) for a, b in pairs]
    check(pyclmm.matmul_many(negative, activation="relu"), [np.maximum(x, 0) for x in loop(negative)])
    assert len(planned) == 5
    pyclmm.matmul_many(pairs)
    pyclmm.release()
    pyclmm.matmul_many(pairs)
    assert len(planned) == 6


def test_the_oldest_plan_is_dropped(rng, planned):
    for n in (*range(1, plans._plans._most + 2), 2, 1):
        pyclmm.matmul_many(pairs_of(rng, [(1, n, 2)]))
    assert len(planned) == plans._plans._most + 2, "that of 1 x 1 is made again, that of 1 x 2 is kept"


@pytest.mark.parametrize("drop", [pyclmm.release, lambda: queues.forget(None)], ids=["release", "loss"])
def test_plans_are_dropped_between_the_searches_of_other_threads(rng, monkeypatch, planned, drop):
    dropped = []

    class Watched(OrderedDict):
        def pop(self, *key):
            assert plans._plans._lock._is_owned()  # type: ignore[attr-defined]
            dropped.append(super().pop(*key))

    monkeypatch.setattr(plans._plans, "_values", Watched())
    for _ in range(2):
        pyclmm.matmul_many(pairs_of(rng, [(3, 4, 5)]))
        drop()
    assert len(planned) == len(dropped) == 2


def test_threads_share_a_plan(rng):
    lists = [pairs_of(rng, [(3, 4, 5), (17, 18, 3), (40, 3, 2)]) for _ in range(8)]
    plan = ManyMatmul(lists[0])

    def work(number):
        for _ in range(20):
            check(plan(lists[number]), loop(lists[number]))
            check(pyclmm.matmul_many(lists[number]), loop(lists[number]))

    in_threads(8, work)


def test_two_vectors_give_a_number(rng):
    x, y = (small_integers(rng, (5,), "f8") for _ in "xy")
    (got,) = pyclmm.matmul_many([(x, y)])
    assert type(got) is np.float64
    assert got == x @ y


def test_nothing_to_multiply(rng):
    assert pyclmm.matmul_many([]) == []
    assert ManyMatmul([])([]) == []
    empty = np.zeros((3, 0), np.float32)
    c, bias = small_integers(rng, (3, 2), "f4"), -np.ones(2, np.float32)
    sums = [(empty, empty.T[:, :2]), (empty.T, np.zeros((3, 4), np.float32))]
    got = pyclmm.matmul_many(sums, c=[c, None], beta=2.0, bias=[bias, None], activation="relu")
    check(got, [np.maximum(2 * c + bias, 0), np.zeros((0, 4), np.float32)])


@for_cpus
def test_odd_products_leave_the_rows_of_others_aligned(rng):
    pairs = pairs_of(rng, [(1, 1, 1), (192, 192, 192), (3, 5, 7), (192, 192, 192)])
    large = of_list(ManyMatmul(pairs)).groups[0].executable.problem
    assert min(large.a_align, large.b_align, large.out_align) >= HOST_ALIGN


def test_operands_are_read_after_what_is_waited_for(queue, rng):
    ((a, b),) = pairs_of(rng, [(3, 4, 5)])
    later, gate = a + 1, cl.UserEvent(queue.context)

    def write():
        a[:] = later
        gate.set_status(cl.command_execution_status.COMPLETE)

    threading.Timer(0.2, write).start()
    check(pyclmm.matmul_many([(a, b)], wait_for=[gate]), [later @ b])


def test_what_is_like_an_array(rng):
    a, b = pairs_of(rng, [(3, 4, 5)], "float64")[0]
    want = a @ b
    pairs = [(a.tolist(), b), (a, memoryview(b)), (a.view(type("Sub", (np.ndarray,), {})), b)]
    check(pyclmm.matmul_many(pairs), [want] * 3)


def test_tensors_give_tensors(rng):
    torch = pytest.importorskip("torch", reason="needs torch")
    x, y = (torch.from_numpy(small_integers(rng, (4, 4), "f4")) for _ in "xy")
    got = pyclmm.matmul_many([(x, y), (x.bfloat16(), y.bfloat16()), (x[:0].bfloat16(), y.bfloat16())])
    assert [one.dtype for one in got] == [torch.float32, torch.bfloat16, torch.bfloat16]
    assert all(torch.equal(one.float(), (x @ y)[: len(one)]) for one in got)


def test_activation_precision_and_reproducible(rng):
    pairs = [(a - 2, b) for a, b in pairs_of(rng, [(3, 4, 5), (9, 9, 9)])]
    want = [np.maximum(x, 0) for x in loop(pairs)]
    check(pyclmm.matmul_many(pairs, activation="relu", precision="high", reproducible=True), want)


def test_a_plan_keeps_the_precision_and_the_bits_that_it_was_made_with(rng):
    pairs = [
        (rng.standard_normal((m, 40)).astype("f4"), rng.standard_normal((40, n))) for m, n in [(3, 5), (9, 2)]
    ]
    want = [pyclmm.matmul(*pair, reproducible=True) for pair in pairs]
    shapes = [(a.shape, b.shape) for a, b in pairs]
    asked = ManyMatmul(pairs, precision="medium", reproducible=True)
    with pyclmm.default_precision("medium"), pyclmm.default_reproducible():
        of_block = ManyMatmul(pairs)
    of_shapes = ManyMatmul(shapes, dtype="f8", precision="medium", reproducible=True)
    for plan in (asked, of_block, of_shapes):
        assert (plan.precision, plan.reproducible) == ("medium", True)
        apart = [tuple(np.asfortranarray(x) for x in pair) for pair in pairs]  # by a plan that is kept
        for given in (pairs, apart) if plan is not of_shapes else ():
            for got, one in zip(plan(given), want, strict=True):
                np.testing.assert_array_equal(got, one, strict=True)
    plain = ManyMatmul(pairs)
    assert (plain.precision, plain.reproducible) == ("highest", False)
    assert ManyMatmul([(np.ones((2, 2), "i4"),) * 2]).reproducible  # integers
    assert not ManyMatmul([(np.ones((2, 2), "i4"),) * 2, *pairs]).reproducible
    for dtype in ("i4", "f4"):
        empty = np.ones((0, 3), dtype), np.ones((3, 2), dtype)
        assert ManyMatmul([empty]).reproducible == pyclmm.Matmul(*empty).reproducible


@pytest.mark.parametrize(
    ("sizes", "turned"), [([(4, 7, 33)], ""), ([(4, 7, 33)], "a"), ([(8, 16, 16), (16, 24, 32)], "a")]
)
def test_reproducible_lists_have_kernels_of_whole_vectors(own_caches, rng, sizes, turned):
    """Their programs are of lists without an odd length, which the self-check had none of."""
    pairs = [(rng.standard_normal((m, k)), rng.standard_normal((k, n))) for m, k, n in sizes]
    orders = ["F" if name == turned else "C" for name in "ab"]
    pairs = [tuple(x.astype("f4", order) for x, order in zip(pair, orders, strict=True)) for pair in pairs]
    plan = ManyMatmul(pairs, reproducible=True)
    for got, pair in zip(plan(pairs), pairs, strict=True):
        np.testing.assert_array_equal(got, pyclmm.reference.chain(*pair))


def test_an_out_may_be_a_stack_of_the_product(rng):
    a, _ = pairs_of(rng, [(4, 4, 4)])[0]
    stack = np.zeros((3, 4, 4), np.float32)
    pyclmm.matmul_many([(a, a)], [stack])
    assert np.array_equal(stack, [a @ a] * 3)


def test_columns_of_one_array_are_outs(rng):
    pairs = pairs_of(rng, [(4, 2, 3)] * 5)
    whole = np.zeros((4, 10), np.float32)
    pyclmm.matmul_many(pairs, [whole[:, i : i + 2] for i in range(0, 10, 2)])
    assert np.array_equal(whole, np.hstack(loop(pairs)))


def test_a_plan_after_release_and_close(rng):
    pairs = pairs_of(rng, [(3, 4, 5)])
    with ManyMatmul(pairs) as plan:
        plan.release()
        check(plan(pairs), loop(pairs))
    assert repr(plan).startswith("<closed ManyMatmul")
    with pytest.raises(pyclmm.ArgumentError, match="the plan is closed"):
        plan(pairs)
    with pytest.raises(pyclmm.ArgumentError, match="the plan is closed"):
        plan.__enter__()


def test_on_a_device_with_memory_of_its_own(rng, monkeypatch):
    seen_as(monkeypatch, unified_memory=False)
    pairs = pairs_of(rng, [(3, 4, 5), (17, 18, 3)], "float64")
    out = np.zeros((3, 4))
    with ManyMatmul(pairs, [out, None]) as plan:
        for _ in range(2):
            check(plan(pairs, [out, None]), loop(pairs))


def test_plans_of_a_lost_context_are_dropped(rng, planned):
    context = cl.Context([default_queue().device])
    queue = cl.CommandQueue(context)
    pairs = pairs_of(rng, [(3, 4, 5)])
    with refused_launch(DEVICE_NOT_AVAILABLE, always=True), pytest.raises(pyclmm.DeviceLostError):
        pyclmm.matmul_many(pairs, queue=queue)
    check(pyclmm.matmul_many(pairs, queue=queue), loop(pairs))
    assert len(planned) == 2
