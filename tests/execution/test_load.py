"""Many threads, many calls: right results, and memory that does not grow."""

import gc
import os
from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.opencl import queues
from tests.support.contexts import new_queue
from tests.support.selection import slow
from tests.support.threads import in_threads

CALLS = 10_000
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def operands(seed):
    rng = np.random.default_rng(seed)
    m, n, k = rng.integers(1, 50, 3)
    return tuple(rng.integers(-3, 4, s).astype(np.float32) for s in ((m, k), (k, n)))


@pytest.mark.parametrize(("threads", "share"), [(16, True), (8, False)])
@pytest.mark.usefixtures("own_caches")
def test_threads_on_one_device(threads, share):
    """From a cold start, with shared and separate plans, on NumPy arrays and Arrays, with one context or a
    context for each.
    """
    common = queues.default_queue()

    def work(number):
        own = None if share else new_queue(common.device)
        for step in range(20 if share else 8):
            a, b = operands(step if number % 2 else 100 * number + step)
            for kernel in ("tiled", "naive"):
                assert np.array_equal(pyclmm.matmul(a, b, queue=own, kernel=kernel), a @ b)
            x, y = (cla.to_device(own or common, z) for z in (a, b))
            c = pyclmm.matmul(x, y, kernel="tiled")
            assert np.array_equal(c.get(), a @ b)

    in_threads(threads, work)


@pytest.mark.usefixtures("own_caches")
def test_one_plan_in_16_threads():
    a, b = operands(3)
    plan = pyclmm.Matmul(a, b, kernel="tiled")

    def work(number):
        for step in range(1, 30):
            x = a * (number + step)
            assert np.array_equal(plan(x, b), x @ b)

    in_threads(16, work)


def resident():
    """Resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


class Counted:
    """Counts the buffers that are alive and their bytes: pyclmm's and those of Arrays."""

    def __init__(self, monkeypatch):
        self.live = self.made = self.nbytes = 0
        counted = self

        class Buffer(cl.Buffer):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                self.counted = self.size
                counted.made += 1
                counted.live += 1
                counted.nbytes += self.counted

            def __del__(self):
                counted.live -= 1
                counted.nbytes -= self.counted

        monkeypatch.setattr(cl, "Buffer", Buffer)


def calls(on_device):
    """Calls of different kinds: a kept plan, workspace, an epilogue, an overlapping out."""
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((48, 64), dtype=np.float32), rng.standard_normal((64, 48), dtype=np.float32)
    square = rng.standard_normal((32, 32), dtype=np.float32)
    if on_device:
        queue = queues.default_queue()
        a, b, square = (cla.to_device(queue, x) for x in (a, b, square))
    return [
        lambda: pyclmm.matmul(a, b, kernel="tiled"),
        lambda: pyclmm.matmul(a[::2, ::2], b[::2, ::2], kernel="tiled"),
        lambda: pyclmm.gemm(a, b, bias=a[0, :48], activation="relu", kernel="naive"),
        lambda: pyclmm.matmul(square, square, out=square, kernel="naive"),
    ]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc to read the memory from")
@pytest.mark.parametrize("on_device", [False, *slow(True)], ids=["NumPy", "Arrays"])
def test_10_000_calls_use_no_more_memory_than_a_few(monkeypatch, own_caches, on_device, rounds):
    buffers, count = Counted(monkeypatch), rounds(CALLS)
    every = calls(on_device)

    def burst(count):
        with np.errstate(all="ignore"):
            for number in range(count):
                every[number % len(every)]()
                if number % 100 == 0:
                    queues.default_queue().finish()
        queues.default_queue().finish()
        gc.collect()

    burst(CALLS // 10)
    live, nbytes, made, size = buffers.live, buffers.nbytes, buffers.made, resident()
    objects = len(gc.get_objects())
    burst(count // 2)
    assert buffers.made - made >= 3 * (count // 8), "three in four calls allocate at least a result"
    assert (buffers.live, buffers.nbytes) == (live, nbytes), "device memory"
    assert resident() - size < 4 << 20, "the operands of 5,000 calls are 100 MiB"
    assert len(gc.get_objects()) - objects < count // 20, "one object a call would be ten times as many"


def test_operands_may_be_freed_while_they_are_in_use(rounds):
    queue = queues.default_queue()
    x = np.random.default_rng(3).integers(-3, 4, (300, 300)).astype(np.float32)
    results = []
    for _ in range(rounds(24)):
        a, b = cla.to_device(queue, x), cla.to_device(queue, x)
        results.append(pyclmm.matmul(a, b, kernel="naive"))
        del a, b
        cla.to_device(queue, np.full((300, 300), np.nan, np.float32))  # is likely to get the freed memory
    for c in results:
        assert np.array_equal(c.get(), x @ x)


def test_numpy_operands_may_be_freed_and_written_after_a_call():
    x = np.random.default_rng(3).integers(-3, 4, (100, 100)).astype(np.float32)
    expected = x @ x
    for _ in range(20):
        a, b = x.copy(), x.copy()
        c = pyclmm.matmul(a, b, kernel="naive")
        a[...] = np.nan
        del a, b
        assert np.array_equal(c, expected)
