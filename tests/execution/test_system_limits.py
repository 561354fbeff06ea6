"""What the system refuses, memory of the host or a thread: pyclmm's errors, and the next call is right."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import pyclmm
from pyclmm.opencl import staging
from pyclmm.streaming import lane

SIDE = 7000
COLUMN = np.broadcast_to(np.float32(3), (SIDE, 1))  # takes no memory, but their product takes 196 MB
ROW = np.broadcast_to(np.float32(5), (1, SIDE))


@contextmanager
def little_memory():
    """In this block the process gets 50 MB more than it has."""
    resource = pytest.importorskip("resource", reason="no memory limits on this system")
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("needs Linux's /proc to know what the process has")
    size = next(int(x.split()[1]) << 10 for x in status.read_text().splitlines() if x.startswith("VmSize"))
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + (50 << 20), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def calls():
    plan = pyclmm.Matmul(COLUMN, ROW)
    return {
        "matmul": lambda: pyclmm.matmul(COLUMN, ROW),
        "gemm": lambda: pyclmm.gemm(COLUMN, ROW, alpha=1.0),
        "plan": lambda: plan(COLUMN, ROW),
    }


@pytest.mark.parametrize("name", ["matmul", "gemm", "plan"])
def test_a_limit_of_memory_is_pyclmms_error_and_the_next_call_right(name):
    call = calls()[name]
    before = call()[0, 0]
    for _ in range(2):  # also as a call like the last one
        with little_memory(), pytest.raises(pyclmm.DeviceMemoryError, match="the host has no memory"):
            call()
        assert call()[-1, -1] == before == 15


def no_thread(_):
    raise RuntimeError("can't start new thread")


def test_a_product_in_tiles_without_threads_says_so_and_the_next_is_right(monkeypatch):
    lane.release()
    x = (np.arange(200 * 200, dtype=np.float32).reshape(200, 200) % 5) - 2
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(pyclmm.ThreadError, match="raise the limit of processes and threads"):
            pyclmm.matmul(x, x, memory_limit="64 KiB")
    assert np.array_equal(pyclmm.matmul(x, x, memory_limit="64 KiB"), x @ x)


@pytest.mark.parametrize("started", range(1, 6))
def test_a_product_in_tiles_that_gets_some_threads_only_ends_too(monkeypatch, started):
    lane.release()
    x = (np.arange(200 * 200, dtype=np.float32).reshape(200, 200) % 5) - 2
    left, real = [started], threading.Thread.start

    def start(thread):
        left[0] -= 1
        if left[0] < 0:
            no_thread(thread)
        real(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with suppress(pyclmm.ThreadError):
            assert np.array_equal(pyclmm.matmul(x, x, memory_limit="64 KiB"), x @ x)
    for _ in range(2):
        assert np.array_equal(pyclmm.matmul(x, x, memory_limit="64 KiB"), x @ x)


@pytest.mark.parametrize("started", [0, 1])
def test_a_transfer_needs_no_threads(monkeypatch, started):
    """One thread copies then. Nothing that a refused thread was to do is done later."""
    staging._pool.cache_clear()
    monkeypatch.setattr(staging, "_THREADS", 4)
    left, real = [started], threading.Thread.start

    def start(thread):
        left[0] -= 1
        if left[0] < 0:
            no_thread(thread)
        real(thread)

    source, target = np.arange(8 << 20, dtype=np.uint8), np.zeros(8 << 20, np.uint8)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        staging._copy(target, source)
    assert np.array_equal(target, source)
    target[:] = 7
    other = np.zeros_like(target)
    staging._copy(other, source)
    assert np.array_equal(other, source)
    assert (target == 7).all()
    staging._pool.cache_clear()
