"""Bound calls: a plan's product of certain Arrays, enqueued again and again."""

import threading

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.opencl import steps
from tests.support.cases import small_integers
from tests.support.faults import OUT_OF_RESOURCES, refused_launch
from tests.support.plans import as_after_a_fork
from tests.support.threads import in_threads

N = 16
COMPLETE = cl.command_execution_status.COMPLETE
KINDS = {
    "in order": 0,
    "out of order": cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE,
    "profiling": cl.command_queue_properties.PROFILING_ENABLE,
}


def new(queue, rng):
    return cla.to_device(queue, small_integers(rng, (N, N), "f4"))


@pytest.fixture
def bound(queue, rng):
    """(plan, a, b, out, bound call), called once."""
    a, b, out = new(queue, rng), new(queue, rng), cla.zeros(queue, (N, N), np.float32)
    plan = pyclmm.Matmul(a, b, out=out, kernel="naive")
    plan(a, b, out=out).get()  # the first run has an event, so that its end is known
    call = plan.bind(a, b, out=out)
    assert np.array_equal(call().get(), a.get() @ b.get())
    return plan, a, b, out, call


def test_calls_set_no_argument_and_make_no_event(bound, monkeypatch, rng):
    _, a, b, out, call = bound
    assert call() is out
    with monkeypatch.context() as patch:
        patch.setattr(cl.Kernel, "set_arg", None)
        patch.setattr(steps, "_set_scalar", None)
        for name in ("enqueue_nd_range_kernel", "enqueue_marker"):
            patch.setattr(cl, name, None)
        for _ in range(3):
            assert call() is out
    a.set(small_integers(rng, (N, N), "f4"))
    out.fill(-1)
    assert np.array_equal(call().get(), a.get() @ b.get())


def test_calls_in_turn_do_not_disturb_one_another(queue, bound, rng):
    plan, a, b, out, call = bound
    others = [(new(queue, rng), new(queue, rng), new(queue, rng)) for _ in range(3)]
    calls = [plan.bind(x, y, out=z) for x, y, z in others]
    wants = [(x.get() @ y.get(), y.get() @ x.get()) for x, y, _ in [(a, b, out), *others]]
    for _ in range(3):
        for one, (x, y, z), want in zip([call, *calls], [(a, b, out), *others], wants, strict=True):
            for turned in (0, 1):
                z.fill(-1)
                for array in (x, y, z):
                    array.finish()  # events that a call must look at would make it set its arguments
                assert (plan(y, x, out=z) if turned else one()) is z
                assert np.array_equal(z.get(), want[turned])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strided", [False, True], ids=["one launch", "a launch that packs"])
def test_other_queues_and_products_of_several_launches(context, rng, kind, strided):
    if context.devices[0].queue_properties & KINDS[kind] != KINDS[kind]:
        pytest.skip("the device has no such queues")
    queue = cl.CommandQueue(context, properties=KINDS[kind])
    a = cla.to_device(queue, small_integers(rng, (N, 2 * N), "f4"))[:, ::2] if strided else new(queue, rng)
    b, out = new(queue, rng), cla.zeros(queue, (N, N), np.float32)
    call = pyclmm.Matmul(a, b, out=out, kernel="naive").bind(a, b, out=out)
    for step in range(4):
        b.fill(step)
        assert np.array_equal(call().get(), np.tile(step * whole(a).sum(1, keepdims=True), N))


def whole(a):
    flat = cla.Array(a.queue, (N, a.strides[0] // 4), np.float32, data=a.base_data)
    return flat.get()[:, :: a.strides[1] // 4]


def test_scalars_bias_and_c(queue, rng):
    a, b, c, out = (new(queue, rng) for _ in range(4))
    bias = cla.to_device(queue, small_integers(rng, (N,), "f4"))
    plan = pyclmm.Matmul(a, b, c, bias=bias, beta=1.0, out=out, kernel="naive")
    call = plan.bind(a, b, c, bias=bias, out=out, alpha=2.0, beta=3.0)
    want = 2 * (a.get() @ b.get()) + 3 * c.get() + bias.get()
    for _ in range(3):
        out.fill(0)
        assert np.array_equal(call().get(), want)


@pytest.mark.parametrize("of", ["a", "out"])
def test_a_call_waits_for_what_another_queue_does_to_its_arrays(context, bound, of):
    _, a, b, out, call = bound
    call()
    other, gate = cl.CommandQueue(context), cl.UserEvent(context)
    x, data = (a if of == "a" else out), np.full((N, N), 2, np.float32)
    x.add_event(cl.enqueue_copy(other, x.base_data, data, wait_for=[gate], is_blocking=False))
    other.flush()
    call()
    threading.Timer(0.2, gate.set_status, [COMPLETE]).start()
    want = data @ b.get() if of == "a" else a.get() @ b.get()
    assert np.array_equal(out.get(), want)


def test_another_queue_waits_for_the_call(context, queue, bound):
    _, a, b, out, call = bound
    want = a.get() @ b.get()
    out.fill(0)
    for array in (a, b, out):
        array.finish()
    gate, other = cl.UserEvent(context), cl.CommandQueue(context)
    cl.enqueue_barrier(queue, wait_for=[gate])
    call()
    queue.flush()
    threading.Timer(0.2, gate.set_status, [COMPLETE]).start()
    assert np.array_equal(out.get(queue=other), want)


def test_each_thread_binds_its_own(queue, bound, rng):
    plan, a, b, _, call = bound
    outs = [new(queue, rng) for _ in range(4)]
    want = a.get() @ b.get()

    def work(number):
        with pytest.raises(pyclmm.ArgumentError, match="thread"):
            call()
        own = plan.bind(a, b, out=outs[number])
        for _ in range(20):
            own()
        assert np.array_equal(own().get(), want)

    in_threads(4, work)


def test_a_refused_launch_steps_down_the_ladder(queue, rng):
    a, b, out = (new(queue, rng) for _ in range(3))
    plan = pyclmm.Matmul(a, b, out=out)
    first, call = plan.kernel, plan.bind(a, b, out=out)
    call()
    a.add_event(cl.enqueue_marker(cl.CommandQueue(queue.context)))  # so that the call goes through PyOpenCL
    with refused_launch(OUT_OF_RESOURCES), pytest.warns(pyclmm.KernelWarning):
        call()
    assert plan.kernel != first
    assert np.array_equal(out.get(), a.get() @ b.get())
    assert np.array_equal(call().get(), a.get() @ b.get())


def test_a_call_that_failed_is_not_repeated(context, bound):
    """Nobody knows what its kernel object holds, or whether that is still there."""
    _, a, b, out, call = bound
    out.finish()
    call()
    binding = call._binding
    a.add_event(cl.enqueue_marker(cl.CommandQueue(context)))
    with refused_launch(OUT_OF_RESOURCES, always=True), pytest.raises(pyclmm.LaunchError):
        call()
    a.finish()
    assert binding.repeat(binding.last_call, (a, b, out), out) is None
    assert np.array_equal(call().get(), a.get() @ b.get())


def test_it_goes_on_after_release_and_close(bound):
    plan, a, b, out, call = bound
    plan.close()
    pyclmm.release()
    out.fill(0)
    assert np.array_equal(call().get(), a.get() @ b.get())


@pytest.mark.parametrize("of", ["a", "out"])
@pytest.mark.parametrize("with_event", [False, True], ids=["quiet", "an event"])
@pytest.mark.parametrize("calls", [0, 2], ids=["never called", "called"])
def test_an_array_that_gets_other_memory_is_bound_to_that_of_then(queue, bound, of, with_event, calls):
    plan, a, b, out, _ = bound
    want, other = a.get() @ b.get(), cla.zeros(queue, (N, N), np.float32)
    other.finish()
    call, x, bound_to = plan.bind(a, b, out=out), a if of == "a" else out, out.base_data
    for _ in range(calls):
        call()
    x.base_data, other.base_data = other.base_data, x.base_data
    if with_event:
        x.add_event(cl.enqueue_marker(cl.CommandQueue(queue.context)))
    cl.enqueue_fill_buffer(queue, bound_to, np.float32(-1), 0, want.nbytes)
    call()
    found = np.empty_like(want)
    cl.enqueue_copy(queue, found, bound_to)
    assert np.array_equal(found, want)


def test_a_forked_process_is_told(bound, monkeypatch):
    as_after_a_fork(monkeypatch)
    with pytest.raises(pyclmm.ForkError):
        bound[-1]()


def test_an_empty_product(queue):
    a, b = cla.Array(queue, (0, 3), np.float32), cla.to_device(queue, np.ones((3, 4), "f4"))
    out = cla.Array(queue, (0, 4), np.float32)
    call = pyclmm.Matmul(a, b, out=out).bind(a, b, out=out)
    assert call() is call() is out


def test_what_cannot_be_bound(bound, queue):
    plan, a, b, out, _ = bound
    x = np.ones((N, N), np.float32)
    with pytest.raises(pyclmm.DTypeError, match="bind takes pyopencl Arrays"):
        pyclmm.Matmul(x, x).bind(x, x, out=x)
    with pytest.raises(pyclmm.ArgumentError):
        plan.bind(a, b[: N // 2], out=out)
    without = pyclmm.Matmul(a, b)
    for method in (without.bind, without.enqueue):
        for _ in range(2):  # the second follows a call
            with pytest.raises(pyclmm.ArgumentError, match=r"out is None; .* made with out="):
                method(a, b, out=None)
            without(a, b)
    plan.close()
    with pytest.raises(pyclmm.ArgumentError, match="closed"):
        plan.bind(a, b, out=out)
