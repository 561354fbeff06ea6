"""Staging through pinned memory returns the same bytes for every size."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from pyclmm.opencl import staging
from pyclmm.opencl.queues import default_queue
from tests.support.made_up import seen_as


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("chunks", [0, 1, 2, 5])
def test_bytes_come_back_unchanged(limits, chunks, extra):
    limits(chunk=4096, direct=16, part=512, threads=3)
    queue = cl.CommandQueue(default_queue().context)
    size = 4096 * chunks + extra
    if size <= 0:
        size = 1
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, size)
    events = staging.upload(queue, buffer, data)
    back = np.zeros_like(data)
    staging.download(queue, back, buffer, events)
    assert np.array_equal(back, data)


def test_a_transfer_does_not_wait_for_one_of_another_thread(monkeypatch, limits):
    """That one's queue may be held up by what this thread does later."""
    limits(chunk=4096, direct=16)
    context = cl.Context([default_queue().device])
    held, own = cl.CommandQueue(context), cl.CommandQueue(context)
    data = np.arange(3 * 4096, dtype=np.uint8)
    first, second = (cl.Buffer(context, cl.mem_flags.READ_WRITE, data.nbytes) for _ in range(2))
    staging.upload(held, first, data)
    gate = cl.UserEvent(context)
    cl.enqueue_barrier(held, wait_for=[gate])
    with ThreadPoolExecutor(1) as pool:
        try:
            staging.upload(held, first, data[:8192])
            pool.submit(staging.upload, own, second, data).result(timeout=30)
        finally:
            gate.set_status(cl.command_execution_status.COMPLETE)
    back = np.zeros_like(data)
    staging.download(own, back, second, [])
    assert np.array_equal(back, data)


def test_a_copy_holds_no_lock_that_a_signals_handler_may_need(limits, monkeypatch):
    """Of all pools: a product in tiles, which the handler makes, has others."""
    limits(part=512, threads=3)
    data, copied, here = np.arange(4096, dtype=np.uint8), np.zeros(4096, np.uint8), threading.get_ident()
    starts, starting = ThreadPoolExecutor._adjust_thread_count, []

    def start(pool):
        starting.append(threading.get_ident())
        starts(pool)

    monkeypatch.setattr(ThreadPoolExecutor, "_adjust_thread_count", start)
    staging._copy(copied, data)
    assert starting
    assert here not in starting
    assert (copied == data).all()


@pytest.fixture
def discrete(monkeypatch, limits):
    """The default device is taken for one that does not share the host's memory."""
    seen_as(monkeypatch, unified_memory=False)
    limits(chunk=4096, direct=64)
    context = cl.Context([default_queue().device])  # Intel's runtime frees a context that only a queue holds
    yield cl.CommandQueue(context)  # noqa: PT022 - so that the frame holds it


def test_a_product_through_staging_equals_one_in_place(discrete):
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((61, 97), dtype=np.float32), rng.standard_normal((97, 53), dtype=np.float32)
    staged = pyclmm.matmul(a[::-1], b[:, ::2], queue=discrete)
    assert np.array_equal(staged, pyclmm.matmul(a[::-1].copy(), b[:, ::2].copy()))


def test_gaps_of_a_strided_out_come_back_unchanged(discrete):
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((40, 30), dtype=np.float32), rng.standard_normal((30, 50), dtype=np.float32)
    wide = np.full((40, 64), 7, np.float32)
    pyclmm.matmul(a, b, out=wide[:, :50], queue=discrete)
    assert np.array_equal(wide[:, :50], pyclmm.matmul(a, b))
    assert (wide[:, 50:] == 7).all()
