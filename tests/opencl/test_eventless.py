"""Launches without events, on an in-order queue."""

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.opencl import steps
from tests.support.faults import INVALID_KERNEL_ARGS, noted, refused_launch, replace_library


@pytest.fixture
def product(queue, rng):
    """(plan, a, b, out). a has no unit stride, so a first launch packs it."""
    a = cla.to_device(queue, rng.integers(-3, 4, (17, 46)).astype(np.float32))[:, ::2]
    b = cla.to_device(queue, rng.integers(-3, 4, (23, 11)).astype(np.float32))
    out = cla.zeros(queue, (17, 11), np.float32)
    plan = pyclmm.Matmul(a, b, out=out, kernel="naive")
    plan(a, b, out=out).get()  # the first run has an event, so that its end is known
    return plan, a, b, out.fill(0)


def right(a, b):
    whole = cla.Array(a.queue, (17, 46), np.float32, data=a.base_data)
    return whole.get()[:, ::2] @ b.get()


LAUNCHES = 2  # of that product: a copy, and naive


@pytest.fixture
def eventless(monkeypatch):
    """Launches by the driver's own function, which makes no events."""
    return noted(monkeypatch, steps, "_enqueue")


@pytest.mark.parametrize("waits", [False, True])
def test_at_most_the_last_launch_of_a_product_makes_an_event(product, eventless, waits):
    plan, a, b, out = product
    eventless.clear()
    events = plan.enqueue(a, b, out=out, wait_for=[cl.enqueue_marker(a.queue)] if waits else None)
    assert len(eventless) == LAUNCHES - waits
    assert len(events) == 1
    assert np.array_equal(out.get(), right(a, b))


@pytest.mark.parametrize("kind", ["PROFILING_ENABLE", "OUT_OF_ORDER_EXEC_MODE_ENABLE"])
def test_profiling_and_order_need_an_event_of_each_launch(product, kind, eventless):
    plan, a, b, out = product
    own = cl.CommandQueue(a.context, a.queue.device, getattr(cl.command_queue_properties, kind))
    eventless.clear()
    assert len(plan.enqueue(a, b, out=out, queue=own)) == LAUNCHES
    own.finish()
    assert not eventless
    assert np.array_equal(out.get(), right(a, b))


@pytest.mark.parametrize("function", [None, lambda *_: -5], ids=["not found", "refused"])
def test_pyopencl_launches_where_the_driver_function_is_missing(product, monkeypatch, function):
    plan, a, b, out = product
    replace_library(monkeypatch, enqueue=function)
    assert len(plan.enqueue(a, b, out=out)) == 1
    assert np.array_equal(out.get(), right(a, b))


@pytest.mark.parametrize("function", [None, lambda *_: -51], ids=["not found", "refused"])
@pytest.mark.parametrize("dtype", ["f4", "i8", "c8", "c16"])
def test_pyopencl_sets_scalars_where_the_driver_function_is_missing(queue, monkeypatch, dtype, function):
    replace_library(monkeypatch, set_arg=function)
    a = cla.to_device(queue, np.arange(6).reshape(2, 3).astype(dtype))
    plan = pyclmm.Matmul(a, a.T, kernel="naive")
    for alpha in (2, 3):
        assert np.array_equal(plan(a, a.T, alpha=alpha).get(), alpha * (a.get() @ a.get().T))


def test_a_stack_ends_with_an_event_after_its_kernel_object_was_replaced(queue, rng, limits, monkeypatch):
    """The new one launches the parts behind the one that was rejected, too."""
    limits(launch=1)
    a, b = (cla.to_device(queue, rng.integers(-3, 4, (3, 5, 5)).astype(np.float32)) for _ in range(2))
    out = cla.zeros(queue, (3, 5, 5), np.float32)
    plan = pyclmm.Matmul(a, b, out=out, kernel="naive")
    plan(a, b, out=out).get()
    other = cla.to_device(queue, b.get() + 1)
    replace_library(monkeypatch, enqueue=lambda *_: -52)
    with refused_launch(INVALID_KERNEL_ARGS, times=2) as fault:
        events = plan.enqueue(a, other, out=out, wait_for=[cl.enqueue_marker(queue)])
    assert fault.calls == 5, "again, in full, and three parts by a new kernel object"
    assert [event.command_type for event in events] == [cl.command_type.NDRANGE_KERNEL]
    assert np.array_equal(out.get(), a.get() @ other.get())
