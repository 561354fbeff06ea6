"""Calling a plan again: operands, scalars, events and threads that differ from call to call."""

import time
from itertools import pairwise

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from tests.support.cases import small_integers
from tests.support.faults import OUT_OF_RESOURCES, noted_launches, refused_launch
from tests.support.made_up import seen_as
from tests.support.threads import in_threads

COMPLETE = cl.command_execution_status.COMPLETE
OUT_OF_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
N = 16  # N x N float32 take 1 KiB, so that every matrix of a stack is aligned alike


@pytest.fixture
def own_queue(context):
    """A queue used by this test only."""
    return cl.CommandQueue(context)


def is_waiting(queue, event):
    """Whether the command has still not ended after 0.2 s."""
    queue.flush()
    time.sleep(0.2)
    return event.command_execution_status != COMPLETE


def stack(queue, rng, count):
    """(a device array of *count* matrices of integers, the same on the host)."""
    x = small_integers(rng, (count, N, N), "f4")
    return cla.to_device(queue, x), x


# ---- the same plan, other operands -------------------------------------------------------------


def test_buffers_and_offsets_may_differ_in_each_call(queue, rng):
    """From call to call the buffer changes, or the offset, or both."""
    whole, x = stack(queue, rng, 4)
    other, y = stack(queue, rng, 4)
    out = cla.zeros(queue, (4, N, N), np.float32)
    plan = pyclmm.Matmul(whole[0], whole[1], out=out[0], kernel="naive")
    calls = [(whole, x, 0, whole, x, 1, 0), (whole, x, 2, whole, x, 1, 0), (other, y, 2, whole, x, 1, 0)]
    calls += [(other, y, 2, other, y, 3, 0), (other, y, 2, other, y, 3, 2), (whole, x, 0, whole, x, 1, 0)]
    for a, a_host, i, b, b_host, j, k in calls:
        out.fill(0)
        plan(a[i], b[j], out=out[k])
        want = np.zeros((4, N, N), np.float32)
        want[k] = a_host[i] @ b_host[j]
        assert np.array_equal(out.get(), want), (i, j, k)


def _changed(queue):
    """Arrays that differ from N x N float32 in one property."""
    return {
        "shape": cla.zeros(queue, (N, N + 1), np.float32),
        "dtype": cla.zeros(queue, (N, N), np.int32),
        "strides": cla.zeros(queue, (N, N), np.float32, order="F"),
        "gaps": cla.zeros(queue, (N, 2 * N), np.float32)[:, ::2],
        "alignment": cla.zeros(queue, (N * N + 1,), np.float32)[1:].reshape(N, N),
    }


@pytest.mark.parametrize("what", ["shape", "dtype", "strides", "gaps", "alignment"])
@pytest.mark.parametrize("name", ["b", "out"])
def test_a_plan_refuses_arrays_of_another_layout(queue, name, what):
    a, b, out = (cla.zeros(queue, (N, N), np.float32) for _ in range(3))
    plan = pyclmm.Matmul(a, b, out=out)
    plan(a, b, out=out)
    given = {"b": b, "out": out} | {name: _changed(queue)[what]}
    with pytest.raises(pyclmm.ArgumentError, match=f"{name} is not what the plan was made for"):
        plan(a, given["b"], out=given["out"])
    plan(a, b, out=out)


def _in_the_memory_of(whole, half):
    """(buffer of a, buffer of out, whether the two are disjoint)."""
    front, back = whole[0:half], whole[half : 2 * half]
    again = cl.Buffer.from_int_ptr(whole.int_ptr, retain=True)
    front_again = cl.Buffer.from_int_ptr(front.int_ptr, retain=True)
    return [
        (front, back, True), (front, front, False), (front, front_again, False), (front, whole, False),
        (whole, front, False), (whole, again, False), (whole, whole, False), (whole, back, True),
        (back, front, True),
    ]  # fmt: skip


@pytest.mark.parametrize("case", range(9))
def test_a_new_overlap_is_seen(queue, rng, case):
    """The layouts are those of the last call, but out lies in the memory of a."""
    half = max(queue.device.mem_base_addr_align // 8, 4 * N * N)
    whole = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 2 * half)
    a_lies, out_lies, apart = _in_the_memory_of(whole, half)[case]
    a, out = (cla.Array(queue, (N, N), np.float32, data=data) for data in (a_lies, out_lies))
    x, y = (small_integers(rng, (N, N), "f4") for _ in range(2))
    b, elsewhere = cla.to_device(queue, y), cla.empty(queue, (N, N), np.float32)
    plan = pyclmm.Matmul(a, b, out=elsewhere, kernel="naive")
    a.set(x)
    assert np.array_equal(plan(a, b, out=elsewhere).get(), x @ y)
    if apart:
        assert np.array_equal(plan(a, b, out=out).get(), x @ y)
    else:
        with pytest.raises(pyclmm.ArgumentError, match="out overlaps other operands"):
            plan(a, b, out=out)
    pyclmm.matmul(a, b, out=elsewhere, kernel="naive")
    assert np.array_equal(pyclmm.matmul(a, b, out=out, kernel="naive").get(), x @ y)


def test_a_plan_takes_one_kind_of_arrays(queue):
    x = np.ones((N, N), np.float32)
    d = cla.to_device(queue, x)
    for planned, given, kinds in (
        (x, d, "a is a pyopencl Array, .* a NumPy"),
        (d, x, "a is a NumPy array, .* a pyopencl"),
    ):
        plan = pyclmm.Matmul(planned, planned)
        with pytest.raises(pyclmm.ArgumentError, match=kinds):
            plan(given, given)
    for _ in range(2):  # a kept plan does not serve the other kind either
        assert isinstance(pyclmm.matmul(x, x), np.ndarray)
        assert isinstance(pyclmm.matmul(d, d), cla.Array)


# ---- NumPy operands in place --------------------------------------------------------------------


def transferred(monkeypatch):
    """The device has memory of its own, as a GPU has: NumPy arrays are copied there and back."""
    seen_as(monkeypatch, unified_memory=False)


@pytest.mark.parametrize("memory", ["in place", "transferred"])
@pytest.mark.parametrize("step", [1, -1])
def test_arrays_that_are_no_numbers_are_refused_by_name(monkeypatch, memory, step):
    if memory == "transferred":
        transferred(monkeypatch)
    for odd in (
        np.array([[1, "two"]], object), np.array([["1", "2"]]), np.array([[b"1", b"2"]]),
        np.array([[1, 2]], "M8[D]"), np.zeros((1, 2), [("x", "f4"), ("y", "i4")]), np.zeros((1, 2), "V0"),
    ):  # fmt: skip
        for a, b, name in ((odd[:, ::step], np.ones((2, 1)), "a"), (np.ones((1, 1)), odd[:, ::step], "b")):
            with pytest.raises(pyclmm.DTypeError, match=rf"\b{name} has dtype"):
                pyclmm.matmul(a, b)


@pytest.mark.parametrize("memory", ["in place", "transferred"])
def test_operands_may_share_memory_differently_in_each_call(monkeypatch, memory, rng):
    """One plan serves operands that are disjoint, the same array, or shifted by a few rows."""
    if memory == "transferred":
        transferred(monkeypatch)
    whole = small_integers(rng, (3 * N, N), "f4")
    a, far, near = whole[:N], whole[2 * N :], whole[4 : N + 4]
    plan = pyclmm.Matmul(a, far, kernel="naive")
    for b in (far, a, near, far):
        assert np.array_equal(plan(a, b), a @ b)
        assert np.array_equal(plan(b, a), b @ a)


def test_an_operand_may_lie_inside_another(rng):
    """Both operands are then one buffer, with an offset."""
    whole = small_integers(rng, (N + 8, N), "f4")
    inner = whole[8:, :]
    got = pyclmm.matmul(whole, inner, kernel="naive")
    assert np.array_equal(got, whole @ inner)


def test_a_plan_made_for_writeable_arrays_takes_read_only_ones(rng):
    a, b = small_integers(rng, (N, N), "f4"), small_integers(rng, (N, N), "f4")
    plan = pyclmm.Matmul(a, b)
    fixed = a.copy()
    fixed.flags.writeable = False
    assert np.array_equal(plan(fixed, b), a @ b)
    assert np.array_equal(plan(a, fixed), a @ a)


@pytest.mark.parametrize("shift", [0, 4, 8, 12, 16])
def test_arrays_may_begin_at_any_element(rng, shift):
    """Views may begin at addresses that allocators never return. Each alignment has its own plan."""
    memory = np.zeros(4 * N * N + 16, np.uint8)
    a = memory[shift : shift + 4 * N * N].view(np.float32).reshape(N, N)
    a[...] = small_integers(rng, (N, N), "f4")
    b = small_integers(rng, (N, N), "f4")
    out = np.zeros(4 * N * N + 16, np.uint8)[shift : shift + 4 * N * N].view(np.float32).reshape(N, N)
    assert pyclmm.matmul(a, b, out=out) is out
    assert np.array_equal(out, a @ b)
    plan = pyclmm.Matmul(b, b)
    if a.ctypes.data % 16:
        with pytest.raises(pyclmm.ArgumentError, match="a is not what the plan was made for"):
            plan(a, b)
    else:
        assert np.array_equal(plan(a, b), a @ b)


# ---- constant operands --------------------------------------------------------------------------


def test_a_new_b_in_the_memory_of_the_constant_one_is_packed_again(queue, rng):
    """The constant b was freed, and the new one lies at its address."""
    a, x = stack(queue, rng, 1)
    ys = [small_integers(rng, (N, 2 * N), "f4") for _ in range(6)]
    plan = None
    for y in ys:
        b = cla.to_device(queue, y)[:, ::2]
        plan = plan or pyclmm.Matmul(a[0], b, constant_b=True, kernel="naive")
        assert np.array_equal(plan(a[0], b).get(), x[0] @ y[:, ::2])
        del b


# ---- new results --------------------------------------------------------------------------------


def test_each_result_is_an_array_of_its_own(queue, rng):
    a, x = stack(queue, rng, 2)
    first, second = pyclmm.matmul(a[0], a[1]), pyclmm.matmul(a[0], a[1])
    assert first.base_data != second.base_data
    assert first.events is not second.events
    assert first.events[0] is not second.events[0]
    first.fill(0)
    assert np.array_equal(second.get(), x[0] @ x[1])
    like = cla.Array(queue, (N, N), np.float32)
    names = ("shape", "dtype", "strides", "size", "nbytes", "offset", "allocator", "context", "queue")
    for attribute in names:
        assert getattr(second, attribute) == getattr(like, attribute), attribute
    assert second.flags.c_contiguous
    assert np.array_equal((second + second).get(), 2 * (x[0] @ x[1]))


def test_results_take_the_queue_and_allocator_of_their_call(context, rng):
    queues = [cl.CommandQueue(context) for _ in range(2)]
    x = small_integers(rng, (N, N), "f4")
    pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(queues[0]))
    for queue, allocator in ((queues[0], None), (queues[1], None), (queues[0], pool), (queues[1], None)):
        a = cla.to_device(queue, x, allocator=allocator)
        c = pyclmm.matmul(a, a)
        assert c.queue is queue
        assert c.allocator is allocator
        assert np.array_equal(c.get(), x @ x)


# ---- events -------------------------------------------------------------------------------------


def test_the_events_of_out_are_bounded(own_queue, held, rng):
    """PyOpenCL waits when an Array has many events. Events of others are kept until a call waits for them."""
    a, x = stack(own_queue, rng, 1)
    out = cla.zeros(own_queue, (N, N), np.float32)
    out.add_event(held)
    plan = pyclmm.Matmul(a[0], a[0], out=out)
    for _ in range(30):  # the 13th call would block if all events were kept
        plan(a[0], a[0], out=out)
        kept = len(out.events)
        assert kept == 1
    assert is_waiting(own_queue, out.events[0])
    held.set_status(COMPLETE)
    assert np.array_equal(out.get(), x[0] @ x[0])


@pytest.mark.parametrize("properties", [0, OUT_OF_ORDER], ids=["in-order", "out-of-order"])
def test_later_calls_wait_for_the_events_of_earlier_ones(own_queue, held, properties, rng):
    queue = cl.CommandQueue(own_queue.context, properties=properties)
    a, x = stack(queue, rng, 1)
    plan = pyclmm.Matmul(a[0], a[0])
    results = [plan(a[0], a[0], wait_for=[held]) for _ in range(3)]
    assert is_waiting(queue, results[0].events[-1])
    assert all(c.events[-1].command_execution_status != COMPLETE for c in results)
    held.set_status(COMPLETE)
    assert all(np.array_equal(c.get(), x[0] @ x[0]) for c in results)


def test_an_event_of_a_call_that_failed_is_still_waited_for(own_queue, held, rng):
    a, x = stack(own_queue, rng, 1)
    plan = pyclmm.Matmul(a[0], a[0], kernel="naive")
    plan(a[0], a[0]).get()
    with refused_launch(OUT_OF_RESOURCES), pytest.raises(pyclmm.LaunchError):
        plan(a[0], a[0], wait_for=[held])
    c = plan(a[0], a[0], wait_for=[held])
    assert is_waiting(own_queue, c.events[-1])
    held.set_status(COMPLETE)
    assert np.array_equal(c.get(), x[0] @ x[0])


def test_an_event_with_a_reused_id_is_waited_for(own_queue, held, rng):
    """Python gives new objects the ids of freed ones."""
    a, x = stack(own_queue, rng, 1)
    plan = pyclmm.Matmul(a[0], a[0])
    seen = set()
    for _ in range(200):
        seen |= {id(event) for event in plan(a[0], a[0]).events}
    own_queue.finish()
    elsewhere = cl.CommandQueue(own_queue.context)
    events = [cl.enqueue_marker(elsewhere, wait_for=[held]) for _ in range(300)]
    elsewhere.flush()  # as OpenCL asks for, before another queue waits
    again = [event for event in events if id(event) in seen]
    assert again, "no id came back"
    c = plan(a[0], a[0], wait_for=again)
    assert is_waiting(own_queue, c.events[-1])
    held.set_status(COMPLETE)
    assert np.array_equal(c.get(), x[0] @ x[0])


def test_launches_on_an_out_of_order_queue_wait_for_the_one_before(context, rng, monkeypatch):
    """The next call uses the same workspace, so its launches wait too."""
    queue = cl.CommandQueue(context, properties=OUT_OF_ORDER)
    whole, x = stack(queue, rng, 1)
    a = whole[0][:, ::2]
    plan = pyclmm.Matmul(a, a.T, kernel="naive")  # both operands are copied
    launches = noted_launches(monkeypatch)
    for _ in range(2):
        assert np.array_equal(plan(a, a.T).get(), x[0][:, ::2] @ x[0][:, ::2].T)
    assert len(launches) == 6
    for (*_, before), (_, waited_for, _) in pairwise(launches):
        assert before in waited_for


def test_a_product_that_failed_holds_up_no_later_one(context, rng, monkeypatch):
    """On an out-of-order queue all later calls of the plan waited for it: on PoCL forever."""
    if "Intel" in context.devices[0].platform.name:
        pytest.skip("Intel's runtime may end the process once a command of such a queue has failed")
    queue, gate = cl.CommandQueue(context, properties=OUT_OF_ORDER), cl.UserEvent(context)
    a, x = stack(queue, rng, 1)
    plan = pyclmm.Matmul(a[0], a[0], kernel="naive")
    plan(a[0], a[0]).get()
    failed = plan(a[0], a[0], wait_for=[gate]).events[-1]
    queue.flush()
    gate.set_status(OUT_OF_RESOURCES)
    with pytest.raises(cl.Error):
        failed.wait()
    launches = noted_launches(monkeypatch)
    c = plan(a[0], a[0])
    assert not any(failed in (waited_for or ()) for _, waited_for, _ in launches)
    assert np.array_equal(c.get(), x[0] @ x[0])


def test_launches_on_an_in_order_queue_wait_only_for_new_events(own_queue, rng, monkeypatch):
    a, _ = stack(own_queue, rng, 1)
    out = cla.zeros(own_queue, (N, N), np.float32)
    plan = pyclmm.Matmul(a[0], a[0], out=out)
    launches = noted_launches(monkeypatch)
    for _ in range(4):
        plan(a[0], a[0], out=out)
    assert launches[0][1], "the events that filled a and out"
    assert [waited_for for _, waited_for, _ in launches[1:]] == [None] * 3


# ---- threads ------------------------------------------------------------------------------------


def test_threads_share_a_plan_and_a_queue_with_operands_of_their_own(own_queue, rng):
    """Offsets, scalars, buffers and results differ in each call."""
    whole, x = stack(own_queue, rng, 8)
    plan = pyclmm.Matmul(whole[0], whole[1], alpha=2.0, kernel="naive")

    def work(number):
        out = cla.zeros(own_queue, (N, N), np.float32)
        mine = pyclmm.Matmul(whole[0], whole[1], out=out, kernel="naive") if number % 2 else None
        for step in range(40):
            i, j, alpha = (number + step) % 8, (3 * number + step) % 8, float(1 + step % 3)
            assert np.array_equal(plan(whole[i], whole[j], alpha=alpha).get(), alpha * (x[i] @ x[j]))
            if mine is not None:
                [event] = mine.enqueue(whole[i], whole[j], out=out)
                event.wait()
                assert np.array_equal(out.get(), x[i] @ x[j])

    in_threads(8, work)


def test_each_thread_gets_the_events_of_its_own_launches(own_queue, rng):
    a, _ = stack(own_queue, rng, 1)
    outs = [cla.zeros(own_queue, (N, N), np.float32) for _ in range(8)]
    plan = pyclmm.Matmul(a[0], a[0], out=outs[0])

    def work(number):
        for _ in range(50):
            events = plan.enqueue(a[0], a[0], out=outs[number])
            assert outs[number].events[-1] is events[-1]

    in_threads(8, work)


# ---- what is not read ---------------------------------------------------------------------------


def test_operands_that_are_not_read_are_not_copied(queue, rng):
    """With alpha 0 neither a nor b is read."""
    whole, x = stack(queue, rng, 1)
    a, c = whole[0][:, ::2][::2], cla.to_device(queue, x[0][: N // 2, : N // 2].copy())
    out = cla.zeros(queue, (N // 2, N // 2), np.float32)
    plan = pyclmm.Matmul(a, a, c, alpha=0.0, beta=2.0, out=out, kernel="naive")
    assert len(plan.enqueue(a, a, c, out=out)) == 1
    assert np.array_equal(out.get(), 2 * x[0][: N // 2, : N // 2])


# ---- scalars ------------------------------------------------------------------------------------


def test_scalars_that_only_compare_equal_are_told_apart(queue, rng):
    """NumPy says np.float32(0.1) == 0.1, but the numbers differ."""
    whole, x = stack(queue, rng, 2)
    a, b = whole[0].astype(np.float64), whole[1].astype(np.float64)
    plan = pyclmm.Matmul(a, b, alpha=0.1)
    results = [plan(a, b, alpha=alpha).get() for alpha in (0.1, np.float32(0.1), 0.1)]
    for alpha, got in zip((0.1, float(np.float32(0.1)), 0.1), results, strict=True):
        assert np.allclose(got, alpha * (x[0] @ x[1]).astype("f8"), rtol=1e-12, atol=0)


THIN = [(5, 44, 1), (1, 44, 7), (5, 1, 7), (1, 1, 7), (1, 9, 1), (1, 1, 1)]


def other_strides(x):
    """The same elements with another stride along axes of one element, which nothing reaches."""
    return x.T.copy().T  # np.ascontiguousarray would keep the strides


@pytest.mark.parametrize("sizes", THIN)
@pytest.mark.parametrize("turned", ["planned", "called"])
@pytest.mark.parametrize("where", ["host", "device"])
def test_strides_of_axes_of_one_element_are_no_part_of_a_plan(queue, rng, sizes, turned, where):
    m, k, n = sizes
    x, y = small_integers(rng, (m, k), "f4"), small_integers(rng, (k, n), "f4")
    want = x @ y
    out = np.zeros_like(want)
    first, second = [], []
    for its in (x, y, out):
        other = other_strides(its) if 1 in its.shape else its
        assert other.strides != its.strides or 1 not in its.shape or its.size == 1
        planned, called = (other, its) if turned == "planned" else (its, other)
        for kept, one in ((first, planned), (second, called)):
            kept.append(on_queue(queue, one) if where == "device" else one)
    plan = pyclmm.Matmul(*first[:2], out=first[2])
    plan(*second[:2], out=second[2])
    got = second[2].get() if where == "device" else second[2]
    np.testing.assert_array_equal(got, want)
    many = pyclmm.ManyMatmul([tuple(first[:2])] * 2)
    for got in many([tuple(second[:2])] * 2):
        np.testing.assert_array_equal(got.get() if where == "device" else got, want)


def on_queue(queue, x):
    """An Array of the strides of *x*."""
    if x.flags.c_contiguous and x.strides == np.empty(x.shape, x.dtype).strides:
        return cla.to_device(queue, x)
    return cla.to_device(queue, x.T.copy()).T


def test_strides_of_longer_axes_are_part_of_a_plan(queue, rng):
    x, y = small_integers(rng, (5, 44), "f4"), small_integers(rng, (44, 2), "f4")
    with pytest.raises(pyclmm.ArgumentError, match="its stride in bytes is"):
        pyclmm.Matmul(x, y)(x, other_strides(y))
    pairs = [[tuple(on_queue(queue, one) for one in (x, its))] * 2 for its in (y, other_strides(y))]
    with pytest.raises(pyclmm.ArgumentError, match=r"pairs\[0\]: b is"):
        pyclmm.ManyMatmul(pairs[0])(pairs[1])
