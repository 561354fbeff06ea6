"""Workspace is borrowed for a call: how much is kept, who shares it and when, and what gives it back."""

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.kernels.interface import Workspace
from pyclmm.opencl import host_memory, late_events, staging, workspace
from pyclmm.opencl.devices import default_device, device_info
from tests.support.faults import (
    ALLOCATION_FAILURE,
    OUT_OF_RESOURCES,
    cl_error,
    failing,
    lent_workspace,
    noted,
    noted_launches,
    refused_launch,
    replace_driver,
)
from tests.support.processes import python
from tests.support.threads import in_threads

OUT_OF_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
COMPLETE = cl.command_execution_status.COMPLETE
N = 16
COPIES = 2 * N * N * 4  # bytes of workspace of a Pair's product


@pytest.fixture(autouse=True)
def _as_it_was(own_caches, monkeypatch):
    """No plan of before, and afterwards no limit of the test."""
    monkeypatch.delenv("PYCLMM_KEEP_WORKSPACE", raising=False)
    pyclmm.release()
    yield
    pyclmm.keep_workspace(None)


@pytest.fixture
def context():
    return cl.Context([default_device()])


@pytest.fixture(params=[0, OUT_OF_ORDER], ids=["in-order", "out-of-order"])
def queue(request, context):
    return cl.CommandQueue(context, properties=request.param)


@pytest.fixture
def in_order(context):
    return cl.CommandQueue(context)


@pytest.fixture
def buffers(monkeypatch):
    """The sizes of pyclmm's buffers that are alive, workspace and tables; those of Arrays are not counted."""
    alive = {}

    class Buffer(cl.Buffer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            alive[id(self)] = self.size

        def __del__(self):
            del alive[id(self)]

    replace_driver(monkeypatch, "opencl.host_memory", Buffer=Buffer)
    return alive


class Pair:
    """Two Arrays without a unit stride, so that their product uses workspace for a copy of each."""

    def __init__(self, queue, n=N, seed=0):
        rng = np.random.default_rng(seed)
        wide = rng.integers(-3, 4, (2, 2 * n, 2 * n)).astype(np.float32)
        self.queue = queue
        self.a, self.b = (cla.to_device(queue, x)[::2, ::2] for x in wide)
        self.want = wide[0, ::2, ::2] @ wide[1, ::2, ::2]

    def plan(self, **options):
        return pyclmm.Matmul(self.a, self.b, kernel="naive", **options)

    def check(self, plan=None):
        plan = plan or self.plan()
        assert np.array_equal(plan(self.a, self.b).get(), self.want)


def kept(queue):
    """Bytes of workspace kept for a queue."""
    return sum(lender.nbytes for lender in workspace._lenders.all() if lender.queue == queue)


def hold(queue):
    """Stops the queue until the event that it returns is set."""
    event = cl.UserEvent(queue.context)
    cl.enqueue_barrier(queue, wait_for=[event])
    return event


def wait_until(condition):
    for _ in range(12_000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it did not come to pass in 2 minutes")


# ---- how much is kept --------------------------------------------------------------------------


def test_products_of_growing_size_allocate_seldom(in_order, monkeypatch):
    allocated = noted(monkeypatch, host_memory, "allocate")
    plans = [Pair(in_order, n).plan() for n in range(8, 128)]
    assert len(allocated) < 40, "two for each step of a half, from 256 bytes to 64 KiB; 240 without"
    assert len(plans) == 120


@pytest.mark.parametrize("room", [2.5, 1.5, 1])
def test_no_more_than_the_limit_is_kept(queue, context, room):
    limit = int(room * COPIES)
    pyclmm.keep_workspace(limit)
    others = [cl.CommandQueue(context, properties=queue.properties) for _ in range(3)]
    pairs = [Pair(q, seed=seed) for seed, q in enumerate((queue, *others, queue))]
    plans = [pair.plan() for pair in pairs]
    for _ in range(2):
        for pair, plan in zip(pairs, plans, strict=True):
            pair.check(plan)
            assert kept(pair.queue) >= COPIES, "of the last product"
            assert sum(kept(q) for q in (queue, *others)) <= limit


def test_a_larger_product_borrows_for_one_call(queue, buffers):
    pair = Pair(queue)
    pyclmm.keep_workspace(COPIES - 1)
    plan = pair.plan()
    assert kept(queue) == 0
    for _ in range(3):
        pair.check(plan)
    wait_until(lambda: kept(queue) == 0)
    wait_until(lambda: sum(buffers.values()) < COPIES)  # tables are left


def test_a_larger_product_of_numpy_arrays_keeps_nothing(in_order, buffers):
    if not device_info(in_order.device).is_cpu:
        pytest.skip("packed is for CPU devices")
    a = np.ones((200, 200), np.float16)
    plan = pyclmm.Matmul(a, a, kernel="packed", queue=in_order)  # it packs, because it converts
    assert plan.workspace_nbytes > 200 * 200 * 4
    assert kept(in_order) > 200 * 200 * 4
    pyclmm.keep_workspace(1000)
    for _ in range(2):
        assert (plan(a, a) == 200).all()
        assert kept(in_order) == 0
        assert sum(buffers.values()) < 1000


@pytest.mark.parametrize("has_event", [True, False])
def test_a_burst_of_larger_products_does_not_pile_up(in_order, buffers, has_event):
    """The calls return at once, though the device has done nothing yet."""
    pair, out = Pair(in_order), cla.zeros(in_order, (N, N), np.float32)
    plan = pair.plan(out=out)
    plan(pair.a, pair.b, out=out).get()
    out.fill(0)
    pyclmm.keep_workspace(0)
    gate = hold(in_order)
    for _ in range(20):
        plan.enqueue(pair.a, pair.b, out=out, wait_for=[gate] if has_event else None)
        assert sum(buffers.values()) < 2 * COPIES
    assert kept(in_order) == COPIES
    gate.set_status(COMPLETE)
    in_order.finish()
    assert np.array_equal(out.get(), pair.want)
    wait_until(lambda: kept(in_order) == 0)


EXIT = """
import numpy as np, pyopencl as cl, pyopencl.array as cla, pyclmm
from pyclmm.opencl.queues import default_queue
queue = default_queue()
x = cla.to_device(queue, np.ones((40, 40), np.float32))[::2, ::2]
plan = pyclmm.Matmul(x, x, kernel="naive")
plan(x, x).get()
pyclmm.keep_workspace(0)
never = cl.UserEvent(queue.context)
pending = plan(x, x, wait_for=[never])
import atexit
atexit.register(never.set_status, cl.command_execution_status.COMPLETE)
"""


def test_a_process_exits_while_a_larger_product_waits():
    done = python("-W", "error", "-c", EXIT)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


def test_what_is_kept_makes_room_where_the_driver_has_no_more(in_order, context, buffers):
    other = cl.CommandQueue(context)
    first, second = Pair(other), Pair(in_order)
    plan = first.plan()
    assert kept(other) == COPIES
    with failing(host_memory, "allocate", pyclmm.DeviceMemoryError("no"), library="") as fault:
        second.check()
    assert fault.calls == 3, "the first was refused, then two succeeded"
    assert kept(other) == 0
    first.check(plan)


def test_a_refusal_is_an_error_where_nothing_is_kept(in_order):
    fault = failing("opencl.host_memory", "Buffer", cl_error(ALLOCATION_FAILURE))
    with fault, pytest.raises(pyclmm.DeviceMemoryError, match="workspace:copy_"):
        workspace.shared(in_order, device_info(in_order.device)).borrow((Workspace("copy_a", 64),), 0)


def test_growth_stops_at_the_largest_buffer_of_the_device(in_order):
    device = replace(device_info(in_order.device), max_mem_alloc_size=1200)
    lender = workspace.Lender(in_order, device)
    for nbytes, size in ((1000, 1000), (1100, 1100), (10, 1100)):
        spaces = lender.borrow((Workspace("x", nbytes),), 0)
        assert spaces.sizes == (size,)
        lender.take_back(spaces, [], is_waited_for=True)
    with pytest.raises(pyclmm.DeviceMemoryError, match=r"workspace:x needs a buffer of 1201 bytes"):
        lender.borrow((Workspace("x", 1201),), 0)


# ---- the limit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "limit"),
    [("0", 0), ("1000", 1000), ("3k", 3000), ("64 MiB", 64 << 20), (" 2G ", 2 * 10**9), ("", 160 // 16)],
)
def test_the_variable_and_the_default(monkeypatch, value, limit):
    monkeypatch.setenv("PYCLMM_KEEP_WORKSPACE", value)
    device = replace(device_info(default_device()), global_mem_size=160)
    assert workspace.limit_of(device) == limit
    pyclmm.keep_workspace(7)
    assert workspace.limit_of(device) == 7
    pyclmm.keep_workspace(None)
    assert workspace.limit_of(device) == limit


def test_wrong_arguments():
    with pytest.raises(pyclmm.DTypeError, match=r"nbytes is 1\.5; set a number of bytes"):
        pyclmm.keep_workspace(1.5)
    with pytest.raises(pyclmm.ArgumentError, match=r"nbytes is -1; .+ of 0 or more"):
        pyclmm.keep_workspace(-1)


# ---- who shares it -----------------------------------------------------------------------------


def test_plans_on_an_in_order_queue_take_turns_with_the_same_buffers(in_order, monkeypatch):
    pairs = [Pair(in_order, seed=seed) for seed in range(3)]
    plans = [pair.plan() for pair in pairs]
    lent = lent_workspace(monkeypatch)
    gate = hold(in_order)
    results = [plan(pair.a, pair.b) for _ in range(3) for pair, plan in zip(pairs, plans, strict=True)]
    gate.set_status(COMPLETE)
    for number, result in enumerate(results):
        assert np.array_equal(result.get(), pairs[number % 3].want)
    assert len({spaces.number for _, spaces in lent}) == 1


def test_plans_on_an_out_of_order_queue_have_buffers_of_their_own(context, monkeypatch):
    if device_info(context.devices[0]).vendor == "nvidia":
        pytest.skip("NVIDIA's driver holds back what was enqueued after a launch that waits")
    queue = cl.CommandQueue(context, properties=OUT_OF_ORDER)
    pairs = [Pair(queue, seed=seed) for seed in range(3)]
    plans = [pair.plan() for pair in pairs]
    lent = lent_workspace(monkeypatch)
    never = cl.UserEvent(context)
    late = plans[0](pairs[0].a, pairs[0].b, wait_for=[never])
    early = [plan(pair.a, pair.b) for pair, plan in zip(pairs[1:], plans[1:], strict=True)]
    queue.flush()
    try:  # get() would wait for the whole queue on PoCL
        for result in early:
            event = result.events[-1]
            wait_until(lambda event=event: event.command_execution_status == COMPLETE)
    finally:
        never.set_status(COMPLETE)
    for result, pair in zip([late, *early], pairs, strict=True):
        assert np.array_equal(result.get(), pair.want)
    assert len({spaces.number for _, spaces in lent}) == 3


def test_two_queues_do_not_share(context, monkeypatch):
    first, second = cl.CommandQueue(context), cl.CommandQueue(context)
    pairs = [Pair(queue, seed=seed) for seed, queue in enumerate((first, second))]
    plans = [pair.plan() for pair in pairs]
    lent = lent_workspace(monkeypatch)
    gate = hold(first)
    late = plans[0](pairs[0].a, pairs[0].b)
    pairs[1].check(plans[1])
    gate.set_status(COMPLETE)
    assert np.array_equal(late.get(), pairs[0].want)
    first_buffers, second_buffers = (set(map(id, spaces.buffers)) for _, spaces in lent)
    assert not first_buffers & second_buffers


def test_threads_do_not_share(queue):
    """Each has plans of its own and one that all have, on one queue."""
    pairs = [Pair(queue, n=30 + seed, seed=seed) for seed in range(6)]
    common = Pair(queue, seed=9)
    plan = common.plan()
    queue.finish()

    def work(number):
        pair = pairs[number]
        own = pair.plan()
        for _ in range(20):
            results = [own(pair.a, pair.b), plan(common.a, common.b), own(pair.a, pair.b)]
            for result, want in zip(results, (pair.want, common.want, pair.want), strict=True):
                assert np.array_equal(result.get(), want)

    in_threads(6, work)


def test_threads_that_end_keep_nothing(queue, buffers):
    pair = Pair(queue)
    plan = pair.plan()
    gc.collect()
    before = dict(buffers)
    for _ in range(5):
        thread = threading.Thread(target=pair.check, args=(plan,))
        thread.start()
        thread.join()
    gc.collect()
    assert buffers == before


def test_a_plan_that_is_dropped_takes_its_workspace_with_it(queue, buffers):
    pair = Pair(queue)
    pair.check()
    gc.collect()
    assert not buffers


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), cl_error(OUT_OF_RESOURCES)], ids=["Ctrl-C", "a refused launch"]
)
def test_workspace_of_a_call_that_fails_is_not_lent_again(queue, monkeypatch, error):
    """Both copies were enqueued and wait. The next product, of another plan, does not wait for them."""
    first, second = Pair(queue, seed=1), Pair(queue, seed=2)
    plans = first.plan(), second.plan()
    lent = lent_workspace(monkeypatch)
    after = isinstance(error, KeyboardInterrupt)
    with refused_launch(error, at=2, after=after), pytest.raises((KeyboardInterrupt, pyclmm.LaunchError)):
        plans[0](first.a, first.b)
    for pair, plan in ((second, plans[1]), (first, plans[0])):
        pair.check(plan)
        assert lent[-1][1].number != lent[0][1].number


def test_a_call_inside_a_call_gets_buffers_of_its_own(in_order, monkeypatch):
    """As a signal handler makes it, between the launches of a product."""
    outer, inner = Pair(in_order, seed=1), Pair(in_order, seed=2)
    plans = outer.plan(), inner.plan()
    results = []

    def enqueue(queue, kernel, *rest):
        event = cl.enqueue_nd_range_kernel(queue, kernel, *rest)
        if not results:
            results.append(None)
            results[0] = plans[1](inner.a, inner.b)
        return event

    replace_driver(monkeypatch, "opencl", enqueue_nd_range_kernel=enqueue)
    outer.check(plans[0])
    assert np.array_equal(results[0].get(), inner.want)


def test_a_constant_b_stays_packed_beside_other_plans(in_order, monkeypatch):
    pair, other = Pair(in_order), Pair(in_order, seed=3)
    plan = pair.plan(constant_b=True)
    pair.check(plan)
    pyclmm.keep_workspace(None)
    pair.check(plan)  # packed again after that
    launched = noted_launches(monkeypatch)

    def copies():
        launched.clear()
        pair.check(plan)
        return [kernel.function_name for kernel, *_ in launched].count("copy_strided")

    other.check()
    assert copies() == 1, "a, and not b"
    pyclmm.release()
    assert copies() == 2, "b too, whose copy was released"


# ---- release -----------------------------------------------------------------------------------


def test_a_plan_borrows_again_after_release(queue):
    pair, out = Pair(queue), cla.zeros(queue, (N, N), np.float32)
    plan = pair.plan(out=out)
    for release in (pyclmm.release, plan.release) * 2:
        plan(pair.a, pair.b, out=out)
        release()
        assert kept(queue) == 0
        out.fill(0)
        plan(pair.a, pair.b, out=out)  # the operands of the last call
        assert np.array_equal(out.get(), pair.want)
        assert kept(queue) == COPIES


def test_release_reaches_the_workspace_of_other_threads(queue):
    pair = Pair(queue)
    plan = pair.plan()
    ready, go_on = threading.Barrier(3), threading.Event()

    def work():
        pair.check(plan)
        ready.wait(60)
        go_on.wait(60)
        pair.check(plan)

    with ThreadPoolExecutor(2) as pool:
        threads = [pool.submit(work) for _ in range(2)]
        ready.wait(60)
        try:
            assert kept(queue) == 3 * COPIES
            pyclmm.release()
            assert kept(queue) == 0
        finally:
            go_on.set()
        for thread in threads:
            thread.result()


def test_release_while_threads_multiply(queue, rounds):
    pairs = [Pair(queue, seed=seed) for seed in range(4)]
    queue.finish()
    done = threading.Event()

    def work(number):
        plan = pairs[number].plan()
        for _ in range(rounds(100)):
            pairs[number].check(plan)

    def release():
        while not done.is_set():
            pyclmm.release()

    releasing = threading.Thread(target=release)
    releasing.start()
    try:
        in_threads(4, work)
    finally:
        done.set()
        releasing.join()


def test_release_drops_programs_that_no_plan_needs(in_order):
    pair, x = Pair(in_order), np.ones((N, N), np.float32)
    mine = pair.plan()
    pyclmm.matmul(x, x, kernel="tiled", queue=in_order)
    pyclmm.release()
    gc.collect()
    with failing("opencl", "Program", None, times=0) as builds:
        pair.check(mine)
        pair.check()
        assert not builds.calls, "its programs are there"
        assert (pyclmm.matmul(x, x, kernel="tiled", queue=in_order) == N).all()
        assert builds.calls, "this one was dropped"


def test_release_drops_the_pinned_buffers_of_all_threads(in_order, limits):
    limits(chunk=4096, direct=64)
    data = np.random.default_rng(1).integers(0, 256, 2 * 4096, dtype=np.uint8)
    target = cl.Buffer(in_order.context, cl.mem_flags.READ_WRITE, data.nbytes)
    ready, go_on = threading.Barrier(2), threading.Event()

    def work():
        staging.upload(in_order, target, np.zeros_like(data))
        gate = hold(in_order)
        try:
            events = staging.upload(in_order, target, data)  # two chunks, whose transfers wait
            ready.wait(60)
            go_on.wait(60)
        finally:
            gate.set_status(COMPLETE)
        back = np.zeros_like(data)
        staging.download(in_order, back, target, events)
        return back

    def pinned():
        gc.collect()
        return sum(map(len, staging._idle.values()))

    pyclmm.release()
    with ThreadPoolExecutor(1) as pool:
        thread = pool.submit(work)
        ready.wait(60)
        try:
            assert pinned() == 1
            pyclmm.release()
            assert pinned() == 0
            for _ in range(100):
                np.full(4096, 0xFF, np.uint8)  # is likely to get memory that is freed too early
        finally:
            go_on.set()
        assert np.array_equal(thread.result(), data)


# ---- events that hold operands -----------------------------------------------------------------


def known(queue):
    """The events that are known to have ended, or to be waited for, on *queue*, and how many they are."""
    one = late_events.known_events(queue)
    return one, lambda: len(one._events)


def test_an_event_is_not_held_after_its_array_is_gone(in_order):
    """A driver keeps the buffers of a command as long as its event."""
    pair = Pair(in_order)
    plan, (one, count) = pair.plan(), known(in_order)
    for _ in range(100):
        plan(pair.a, pair.b, wait_for=[cl.enqueue_marker(in_order)])
        assert count() <= 24
    held = [cla.to_device(in_order, np.zeros(1, np.float32)) for _ in range(50)]
    one.add([], [x.events[0] for x in held if x.events])
    assert count() <= 32 + 8
    pyclmm.release()
    assert not count()
    pair.check(plan)


def test_events_that_arrays_hold_are_remembered(in_order):
    (one, count), arrays = known(in_order), []
    for number in range(60):
        event = cl.enqueue_marker(in_order)
        if number % 6 == 0:
            arrays.append(cla.Array(in_order, 1, np.float32))
            arrays[-1].add_event(event)
        one.add([], [event])
    del event
    assert one.missing(arrays) == []
    assert count() <= 2 * len(arrays)
    other = cla.Array(in_order, 1, np.float32)
    other.add_event(cl.enqueue_marker(in_order))
    assert one.missing([other]) == other.events


def test_plans_on_one_queue_know_what_others_have_waited_for(in_order):
    pair, (one, _) = Pair(in_order), known(in_order)
    assert one.missing([pair.a]) == pair.a.events != []
    result = pair.plan()(pair.a, pair.b)
    assert one.missing([pair.a, result]) == []
