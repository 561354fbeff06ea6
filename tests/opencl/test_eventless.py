"""Silent launches: products enqueued without events, on an in-order queue."""

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.opencl import steps


@pytest.fixture
def product(queue, rng):
    """(plan, a, b, out). a has no unit stride, so a first launch packs it."""
    a = cla.to_device(queue, rng.integers(-3, 4, (17, 46)).astype(np.float32))[:, ::2]
    b = cla.to_device(queue, rng.integers(-3, 4, (23, 11)).astype(np.float32))
    out = cla.zeros(queue, (17, 11), np.float32)
    queue.finish()
    return pyclmm.Matmul(a, b, out=out, kernel="naive"), a, b, out


def right(a, b):
    whole = cla.Array(a.queue, (17, 46), np.float32, data=a.base_data)
    return whole.get()[:, ::2] @ b.get()


def calls_without_events(monkeypatch):
    """Counts launches by the driver's own function, which makes no events."""
    made = []
    own = steps._enqueue

    def counted(*args):
        made.append(args)
        return own(*args)

    monkeypatch.setattr(steps, "_enqueue", counted)
    return made


def test_no_events_and_the_same_product(product, monkeypatch):
    plan, a, b, out = product
    made = calls_without_events(monkeypatch)
    before = list(out.events)
    assert plan.enqueue(a, b, out=out, events=False) == []
    assert out.events == before
    assert np.array_equal(out.get(), right(a, b))
    assert len(made) == len(plan._executable.work.launches) > 1


def test_only_the_last_launch_of_a_product_makes_an_event(product, monkeypatch):
    plan, a, b, out = product
    made = calls_without_events(monkeypatch)
    assert len(plan.enqueue(a, b, out=out)) == 1
    assert len(made) == len(plan._executable.work.launches) - 1
    assert np.array_equal(out.get(), right(a, b))


@pytest.mark.parametrize("kind", ["PROFILING_ENABLE", "OUT_OF_ORDER_EXEC_MODE_ENABLE"])
def test_profiling_and_order_need_an_event_of_each_launch(product, kind, monkeypatch):
    plan, a, b, out = product
    own = cl.CommandQueue(a.context, a.queue.device, getattr(cl.command_queue_properties, kind))
    made = calls_without_events(monkeypatch)
    assert len(plan.enqueue(a, b, out=out, queue=own)) == len(plan._executable.work.launches)
    own.finish()
    assert not made
    assert np.array_equal(out.get(), right(a, b))


def test_a_launch_waits_for_the_events_it_is_given(product, queue):
    plan, a, b, out = product
    gate = cl.UserEvent(queue.context)
    plan.enqueue(a, b, out=out, events=False, wait_for=[gate])
    other = cl.CommandQueue(queue.context, queue.device)
    new = np.full((17, 46), 2, np.float32)
    cl.enqueue_copy(other, a.base_data, new).wait()
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert np.array_equal(out.get(), new[:, ::2] @ b.get())


def test_an_out_of_order_queue_is_refused(product, queue):
    plan, a, b, out = product
    mode = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    if not queue.device.queue_properties & mode:
        pytest.skip("the device has no out-of-order queues")
    with pytest.raises(pyclmm.ArgumentError, match="out of order"):
        plan.enqueue(a, b, out=out, events=False, queue=cl.CommandQueue(queue.context, queue.device, mode))


@pytest.mark.parametrize("function", [None, lambda *_: -5], ids=["not found", "refused"])
def test_pyopencl_launches_where_the_driver_function_is_missing(product, monkeypatch, function):
    plan, a, b, out = product
    monkeypatch.setattr(steps, "_enqueue", function)
    assert plan.enqueue(a, b, out=out, events=False) == []
    assert np.array_equal(out.get(), right(a, b))
