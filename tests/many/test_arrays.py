"""Lists of pyopencl Arrays: where they lie, what is copied, and when they are complete."""

import threading

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.many import ManyMatmul
from pyclmm.opencl.arrays import fetched
from tests.many.drawn import Drawn, check, check_aligned, on_device
from tests.support.cases import for_cpus, small_integers
from tests.support.faults import replace_driver
from tests.support.plans import of_list
from tests.support.threads import in_threads

OUT_OF_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
PROFILING = cl.command_queue_properties.PROFILING_ENABLE
SIZES = [(3, 4, 5), (6, 7, 2), (17, 18, 3)]


def operands(rng, sizes=SIZES):
    a = [small_integers(rng, (m, k), "f4") for m, _, k in sizes]
    b = [small_integers(rng, (k, n), "f4") for _, n, k in sizes]
    return a, b, [x @ y for x, y in zip(a, b, strict=True)]


def pairs_on(queue, a, b, together):
    return list(zip(on_device(queue, a, together), on_device(queue, b, together), strict=True))


def zeros(queue, want, together):
    return on_device(queue, [np.zeros_like(x) for x in want], together)


@pytest.fixture
def copies(monkeypatch):
    """The copies that are enqueued."""
    made, own = [], cl.enqueue_copy

    def copy(queue, target, source, **keywords):
        made.append((target, source))
        return own(queue, target, source, **keywords)

    replace_driver(monkeypatch, "many", enqueue_copy=copy)
    return made


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("number", range(3))
def test_drawn_lists_are_as_a_loop(queue, rng, number, together):
    drawn = Drawn(rng, 4 + 2 * number)
    a, b = zip(*drawn.pairs, strict=True)
    pairs = pairs_on(queue, a, b, together)
    keywords = dict(drawn.keywords)
    for name in ("c", "bias", "out"):
        keywords[name] = on_device(queue, keywords[name], together)
    check_aligned(ManyMatmul(pairs, **keywords))
    for _ in range(2):
        got = pyclmm.matmul_many(pairs, **keywords)
        check([fetched(x) for x in got], drawn.want)
        for out, result in zip(keywords["out"], got, strict=True):
            assert out is None or out is result


def test_shapes_of_numpys_integers(queue, rng):
    a, b, want = operands(rng)
    pairs = [
        tuple(cla.to_device(queue, x.ravel()).reshape(*map(np.int64, x.shape)) for x in pair)
        for pair in zip(a, b, strict=True)
    ]
    assert type(pairs[0][0].shape[0]) is np.int64
    check([fetched(x) for x in pyclmm.matmul_many(pairs)], want)


@pytest.mark.parametrize(("in_one", "copied"), [(True, 0), (False, 3 * len(SIZES))])
def test_what_lies_in_one_buffer_is_not_copied_and_what_lies_in_many_is(queue, rng, copies, in_one, copied):
    a, b, want = operands(rng)
    got = pyclmm.matmul_many(pairs_on(queue, a, b, in_one), zeros(queue, want, in_one))
    assert len(copies) == copied
    check([fetched(x) for x in got], want)


def test_what_several_pairs_have_is_not_copied(queue, rng, copies):
    a, b, _ = operands(rng, [(3, 4, 5)] * 3)
    (w,) = on_device(queue, b[:1], False)
    xs = on_device(queue, a, False)
    (other,) = on_device(queue, b[1:2], False)
    plan = ManyMatmul(pairs := [(xs[0], w), (xs[1], w), (xs[2], other)])
    got = plan(pairs)
    assert len(copies) == 2
    assert len(plan.kernels) == 2
    check([fetched(x) for x in got], [a[0] @ b[0], a[1] @ b[0], a[2] @ b[1]])


def test_large_ones_in_buffers_of_their_own_are_not_copied(queue, rng, copies):
    a, b, want = operands(rng, [(9, 9, 4000), (8, 9, 4000), (3, 4, 5), (6, 7, 2)])
    plan = ManyMatmul(pairs := pairs_on(queue, a, b, False))
    got = plan(pairs)
    assert len(copies) == 4
    assert len(plan.kernels) == 3
    check([fetched(x) for x in got], want)
    plan.release()
    check([fetched(x) for x in plan(pairs)], want)


def test_results_share_a_buffer_and_are_read_from_it(queue, rng, copies):
    a, b, want = operands(rng)
    got = pyclmm.matmul_many(pairs_on(queue, a, b, True))
    assert len({id(x.base_data) for x in got}) == 1
    c = on_device(queue, want, True)
    again = pyclmm.matmul_many(
        list(zip(on_device(queue, [x.T.copy() for x in want], True), got, strict=True))
    )
    assert not copies
    check([fetched(x) for x in again], [x.T @ x for x in want])
    assert (got[0] + c[0]).get().shape == (3, 4)


def test_a_plan_is_for_places_in_buffers(queue, rng):
    a, b, want = operands(rng)
    pairs = pairs_on(queue, a, b, True)
    plan = ManyMatmul(pairs)
    for _ in range(3):  # other buffers are taken
        check([fetched(x) for x in plan(pairs_on(queue, a, b, True))], want)
    with pytest.raises(pyclmm.ArgumentError, match="share other arrays or buffers"):
        plan([*pairs[:-1], pairs_on(queue, a, b, True)[-1]])
    with pytest.raises(pyclmm.ArgumentError, match=r"pairs\[0\]: a is \(6, 2\) \w+, strides .*, offset \d+"):
        plan([pairs[1], pairs[0], pairs[2]])


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("properties", [0, OUT_OF_ORDER, PROFILING])
def test_a_list_waits_for_its_operands_and_others_for_it(context, rng, together, properties):
    queue, other = cl.CommandQueue(context, properties=properties), cl.CommandQueue(context)
    a, b, want = operands(rng)
    late = small_integers(rng, (3, 5), "f4")
    pairs = pairs_on(queue, a, b, together)
    outs = zeros(queue, want, together)
    pyclmm.matmul_many(pairs, outs)  # compiled
    queue.finish()
    gate = cl.UserEvent(context)
    x = pairs[0][0]
    written = cl.enqueue_copy(
        other, x.base_data, late, dst_offset=x.offset, wait_for=[gate], is_blocking=False
    )
    x.add_event(written)
    threading.Timer(0.2, lambda: gate.set_status(cl.command_execution_status.COMPLETE)).start()
    other.flush()
    new = pyclmm.matmul_many(pairs, queue=queue)
    got = pyclmm.matmul_many(pairs, outs, queue=queue)
    for results in (new, got):
        check([fetched(x.with_queue(other)) for x in results], [late @ b[0], *want[1:]])


def test_wait_for_and_the_end_of_what_is_written(queue, rng):
    a, b, want = operands(rng)
    pairs, outs = pairs_on(queue, a, b, True), zeros(queue, want, True)
    pyclmm.matmul_many(pairs, outs)
    gate = cl.UserEvent(queue.context)
    pyclmm.matmul_many(pairs, outs, wait_for=[gate])
    assert all(x.events for x in outs)
    ends = outs[0].events[-1]
    assert ends.command_execution_status != cl.command_execution_status.COMPLETE
    gate.set_status(cl.command_execution_status.COMPLETE)
    check([fetched(x) for x in outs], want)
    assert len(outs[0].events) <= 2


@for_cpus
def test_without_order_lists_do_not_share_the_memory_of_copies(context, rng):
    queue, gate = cl.CommandQueue(context, properties=OUT_OF_ORDER), cl.UserEvent(context)
    a, b, want = operands(rng)
    first, second = (pairs_on(queue, x, b, False) for x in (a, [x + 1 for x in a]))
    plan = ManyMatmul(first)
    plan(first)
    queue.finish()
    held, after = plan(first, wait_for=[gate]), plan(second)
    (end,) = after[0].events
    assert end.command_type == cl.command_type.MARKER  # of all launches
    queue.flush()
    gate.set_status(cl.command_execution_status.COMPLETE)
    check([fetched(x) for x in held], want)
    check([fetched(x) for x in after], [(x + 1) @ y for x, y in zip(a, b, strict=True)])


def test_arrays_behind_the_start_of_their_buffers(queue, rng):
    """In many buffers, so they are copied to and fro."""
    a, b, want = operands(rng)

    def behind(x):
        whole = cla.to_device(queue, np.concatenate([np.full(32, 7, x.dtype), x.ravel()]))
        return cla.Array(queue, x.shape, x.dtype, data=whole.base_data, offset=32 * x.itemsize)

    outs = [behind(np.zeros_like(x)) for x in want]
    got = pyclmm.matmul_many([(behind(x), behind(y)) for x, y in zip(a, b, strict=True)], outs)
    check([fetched(x) for x in got], want)
    for x in outs:
        before = np.empty(32, x.dtype)
        cl.enqueue_copy(queue, before, x.base_data)
        assert (before == 7).all()


def test_gaps_of_outs_in_many_buffers_stay(queue, rng):
    a, b, want = operands(rng)
    whole = [np.full((m, 3 * n), 7, np.float32) for m, n, _ in SIZES]
    outs = on_device(queue, [x[:, : x.shape[1] // 3] for x in whole], False)
    got = pyclmm.matmul_many(pairs_on(queue, a, b, True), outs)
    check([fetched(x) for x in got], want)
    for x, its, product in zip(got, whole, want, strict=True):
        its[:, : product.shape[1]] = product
        between = its.reshape(-1)[: its.size - 2 * product.shape[1]]  # up to the last element of the out
        raw = np.empty(between.shape, np.float32)
        cl.enqueue_copy(queue, raw, x.base_data)
        assert np.array_equal(raw, between)


@for_cpus
def test_copies_stay_aligned(queue, rng):
    a, b, _ = operands(rng, [(3, 5, 7), *[(96, 96, 96)] * 10])
    large = of_list(ManyMatmul(pairs_on(queue, a, b, False))).groups[0].executable.problem
    assert large.m == 96
    assert large.a_align == large.b_align == large.out_align == 64


def test_threads_share_a_plan(queue, rng):
    a, b, want = operands(rng)
    lists = [pairs_on(queue, a, b, number % 2 == 0) for number in range(4)]
    plans = [ManyMatmul(pairs) for pairs in lists[:2]]

    def work(number):
        for _ in range(10):
            check([fetched(x) for x in plans[number % 2](lists[number])], want)

    in_threads(4, work)


def test_conversions_have_launches_of_their_own(queue, rng):
    a, b, want = operands(rng)
    bytes_, gaps = a[1].astype(np.int8), np.repeat(np.repeat(a[0], 2, axis=0), 3, axis=1)[::2, ::3]
    pairs = pairs_on(queue, [a[0], bytes_, a[2], gaps], [*b, b[0]], True)
    plan = ManyMatmul(pairs)
    check([fetched(x) for x in plan(pairs)], [*want, want[0]])
    assert len(of_list(plan)._alone) == 2


def test_an_out_over_its_own_operand(queue, rng):
    x, y = (small_integers(rng, (96, 96), "f4") for _ in "xy")
    a, b, c, d = on_device(queue, [x, y, y, x], True)
    got = pyclmm.matmul_many([(a, b), (c, d)], [b, c])
    assert got == [b, c]
    check([fetched(one) for one in got], [x @ y, y @ x])


def test_row_major_beside_column_major(queue, rng):
    a, b, want = operands(rng, [(9, 9, 9)] * 2)
    outs = [np.zeros_like(want[0]), np.zeros_like(want[1], order="F")]
    a[1], b[1] = map(np.asfortranarray, (a[1], b[1]))
    got = pyclmm.matmul_many(pairs_on(queue, a, b, True), on_device(queue, outs, True))
    check([fetched(x) for x in got], want)


def test_c_in_place(queue, rng):
    a, b, want = operands(rng)
    c = [small_integers(rng, x.shape, "f4") for x in want]
    for together in (True, False):
        outs = on_device(queue, c, together)
        pyclmm.matmul_many(pairs_on(queue, a, b, together), outs, c=outs, beta=2.0)
        check([fetched(x) for x in outs], [x + 2 * y for x, y in zip(want, c, strict=True)])


def test_outs_in_one_allocation_that_overlap(queue, rng):
    a, b, want = operands(rng, [(3, 4, 5)] * 2)
    pairs = pairs_on(queue, a, b, True)
    whole = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 8192)

    def at(first, second):
        starts = [whole.get_sub_region(first, 1024), whole.get_sub_region(second, 1024)]
        return [cla.Array(queue, (3, 4), np.float32, data=start) for start in starts]

    check([fetched(x) for x in pyclmm.matmul_many(pairs, at(0, 4096))], want)
    with pytest.raises(pyclmm.ArgumentError, match=r"out\[1\] overlaps out\[0\]"):
        pyclmm.matmul_many(pairs, at(0, 0))
    columns = cla.zeros(queue, (3, 8), np.float32)
    pyclmm.matmul_many(pairs, [columns[:, :4], columns[:, 4:]])
    assert np.array_equal(columns.get(), np.hstack(want))
    with pytest.raises(pyclmm.ArgumentError, match=r"out\[1\] overlaps out\[0\]"):
        pyclmm.matmul_many(pairs, [columns[:, :4], columns[:, 3:7]])


def test_a_call_that_fails_writes_nothing(queue, rng):
    a, b, want = operands(rng)
    pairs, outs = pairs_on(queue, a, b, True), zeros(queue, want, True)
    x = cla.zeros(queue, (3, 3), np.float32)
    with pytest.raises(pyclmm.ShapeError, match=r"pairs\[3\]"):
        pyclmm.matmul_many([*pairs, (x, pairs[0][0])], [*outs, x])
    with pytest.raises(pyclmm.UnsupportedError):
        pyclmm.matmul_many(pairs, outs, kernel="naive")
    assert not any(fetched(x).any() for x in outs)


def test_arrays_without_a_queue_and_of_another_context(queue, rng):
    a, b, want = operands(rng)
    bare = [tuple(x.with_queue(None) for x in pair) for pair in pairs_on(queue, a, b, True)]
    with pytest.raises(pyclmm.ArgumentError, match="none of the Arrays has a queue"):
        pyclmm.matmul_many(bare)
    check([fetched(x) for x in pyclmm.matmul_many(bare, queue=queue)], want)
    strange = cl.CommandQueue(cl.Context([queue.device]))
    pairs = [*pairs_on(queue, a, b, True), tuple(cla.zeros(strange, (2, 2), np.float32) for _ in "ab")]
    with pytest.raises(pyclmm.ArgumentError, match=r"a of pairs\[3\] is in another OpenCL context"):
        pyclmm.matmul_many(pairs)
