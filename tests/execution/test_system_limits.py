"""What the system refuses, memory of the host or a thread: pyclmm's errors, and the next call is right."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import pyclmm
import pyclmm.linalg
from pyclmm.opencl import staging
from pyclmm.streaming import lane

SIDE = 5000
COLUMN = np.broadcast_to(np.float32(3), (SIDE, 1))  # takes no memory, but their product takes 100 MB
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


def long_list():
    return [[2.0] * 3000] * 3000  # little memory; as an array 72 MB


def in_dask():
    da = pytest.importorskip("dask.array")
    dask = pytest.importorskip("pyclmm.dask")
    x, y = (da.from_array(x, chunks=-1, asarray=False) for x in (COLUMN, ROW))
    return dask.matmul(x, y, memory_limit="1 GiB", host_limit="1 GiB").compute(scheduler="synchronous")


PLANE = np.broadcast_to(np.arange(SIDE, dtype=np.float32) % 3, (SIDE, SIDE))  # to make it flat takes a copy
OF_ARRAYS = r"of ndarray \(5000, 1\) float32, ndarray \(1, 5000\) float32"


def calls():
    plan, tiles = pyclmm.Matmul(COLUMN, ROW), pyclmm.StreamedMatmul(COLUMN, ROW, memory_limit="8 MiB")
    return {
        "matmul": (lambda: pyclmm.matmul(COLUMN, ROW), f"the product {OF_ARRAYS}"),
        "gemm": (lambda: pyclmm.gemm(COLUMN, ROW, alpha=1.0), f"the product {OF_ARRAYS}"),
        "plan": (lambda: plan(COLUMN, ROW), f"a plan's product {OF_ARRAYS}"),
        "tiles": (lambda: tiles(COLUMN, ROW), "StreamedMatmul of .*ndarray "),
        "a list": (lambda: pyclmm.matmul(long_list(), PLANE[:3000, :1]), "arrays of list, ndarray"),
        "Matmul": (
            lambda: pyclmm.Matmul(long_list(), PLANE[:3000, :1]).estimate(),
            "arrays of list, ndarray",
        ),
        "StreamedMatmul": (
            lambda: pyclmm.StreamedMatmul(long_list(), PLANE[:3000, :1]).shape,
            r"StreamedMatmul of list, ndarray \(3000, 1\) float32",
        ),
        "vdot": (
            lambda: pyclmm.linalg.vdot(PLANE, PLANE.reshape(SIDE, SIDE, 1)),
            r"linalg\.vdot of ndarray \(5000, 5000\) float32",
        ),
        "einsum": (lambda: pyclmm.linalg.einsum("ij,ij->ij", PLANE, PLANE), r"linalg\.einsum of ndarray "),
        "matrix_power": (lambda: pyclmm.linalg.matrix_power(PLANE, 0), r"linalg\.matrix_power of ndarray "),
        "dask": (in_dask, "a chunk's product"),
    }


@pytest.mark.parametrize("name", calls())
def test_a_limit_of_memory_is_pyclmms_error_and_the_next_call_right(name):
    call, asked = calls()[name]
    before = call()
    for _ in range(2):  # also as a call like the last one
        with (
            little_memory(),
            pytest.raises(pyclmm.DeviceMemoryError, match=f"{asked}.*the host has no memory"),
        ):
            call()
        assert np.array_equal(call(), before)


def test_memory_that_a_plan_does_not_get_is_said_too(monkeypatch):
    x = np.arange(4, dtype=np.float32).reshape(2, 2)

    def full(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("pyclmm.plan.HostPath", full)
        with pytest.raises(
            pyclmm.DeviceMemoryError, match=r"Matmul of ndarray \(2, 2\) float32.*\(MemoryError\)"
        ):
            pyclmm.Matmul(x, x)
    assert np.array_equal(pyclmm.Matmul(x, x)(x, x), x @ x)


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


def test_what_a_refused_thread_was_to_do_is_never_done(monkeypatch):
    lane.release()
    done = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="new thread"), lane.lane_threads() as threads:
            threads.writers.submit(done.append, "late")
    with lane.lane_threads() as threads:
        threads.writers.submit(done.append, "now").result()
    assert done == ["now"]


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
