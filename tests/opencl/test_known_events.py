"""What is kept of events that later calls need not wait for: no host memory of transfers that have ended."""

import gc
import weakref

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import linalg

N = 60


def uploaded(queue, x, how):
    """An Array with the elements of *x*, and the events that a call has to wait for."""
    if how != "wait_for":
        return cla.to_device(queue, x, async_=how == "not waited for"), []
    made = cla.empty(queue, x.shape, x.dtype)
    return made, [cl.enqueue_copy(queue, made.base_data, x, is_blocking=False)]


@pytest.mark.parametrize("how", ["waited for", "not waited for", "wait_for", "a plan", "einsum", "mixed"])
def test_host_arrays_are_freed_with_the_arrays_made_of_them(queue, how):
    b = cla.to_device(queue, np.ones((8, 8), np.float32))
    hosts, arrays = [], []
    for i in range(N):
        x = np.full((8, 8), i, np.float32)
        hosts.append(weakref.ref(x))
        if how == "mixed":
            arrays.append(pyclmm.matmul(x, b, mixed="copy", kernel="naive"))
            continue
        array, events = uploaded(queue, x, how)
        if how == "einsum":
            y = linalg.einsum("ab,bc->ca", array, b, kernel="naive")
        elif how == "a plan":
            y = pyclmm.Matmul(array, b, kernel="naive")(array, b)
        else:
            y = pyclmm.matmul(array, b, kernel="naive", wait_for=events)
        arrays += [array, y]
        queue.finish()
    assert np.array_equal(arrays[-1].get(), np.full((8, 8), 8 * (N - 1)))
    pyclmm.matmul(b, b, kernel="naive")
    del x
    array = y = None
    arrays.clear()
    gc.collect()
    assert sum(host() is not None for host in hosts) == 0


def test_the_memory_of_a_transfer_that_goes_on_is_kept(queue):
    """Although its Array and its event are gone. The driver reads it later."""
    b = cla.to_device(queue, np.ones((8, 8), np.float32))
    pyclmm.matmul(b, b, kernel="naive")
    x = np.ones((8, 8), np.float32)
    host, gate = weakref.ref(x), cl.UserEvent(queue.context)
    array = cla.empty(queue, x.shape, x.dtype)
    array.add_event(cl.enqueue_copy(queue, array.base_data, x, is_blocking=False, wait_for=[gate]))
    y = pyclmm.matmul(array, b, kernel="naive")
    del x, array
    gc.collect()
    try:
        assert host() is not None
    finally:
        gate.set_status(cl.command_execution_status.COMPLETE)
    assert np.array_equal(y.get(), np.full((8, 8), 8))
    pyclmm.matmul(b, b, kernel="naive")
    gc.collect()
    assert host() is None
