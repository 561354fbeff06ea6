"""What the system refuses, memory of the host or a thread: pyclmm's errors, and the next call is right."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import pyclmm
from pyclmm.execution.prepared import PATHS
from pyclmm.opencl import staging
from pyclmm.streaming import lanes
from tests.support import selection
from tests.support.faults import Failing
from tests.support.processes import python
from tests.support.threads import few_threads

CALLS = ["matmul", "gemm", "plan", "tiles", "vdot", "einsum", "Arrays", "empty", "matrix_power", "dask"]
OF_LISTS = ["a list", "Matmul", "StreamedMatmul"]  # it takes seconds to make arrays of these


@pytest.fixture(scope="module")
def with_little_memory() -> dict[str, str]:
    """What calls gave in a process of their own that has little memory, by name."""
    pytest.importorskip("resource", reason="no memory limits on this system")
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux's /proc to know what a process has")
    names = CALLS if selection.fast else CALLS + OF_LISTS
    done = python("-m", "tests.support.little_memory", *names)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", [*CALLS, *selection.slow(*OF_LISTS)])
def test_a_limit_of_memory_is_pyclmms_error_and_the_next_call_right(with_little_memory, name):
    found = with_little_memory[name]
    if found.startswith("needs "):
        pytest.skip(found)
    assert found == "right"


def test_memory_that_a_plan_does_not_get_is_said_too(monkeypatch):
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    with monkeypatch.context() as patch:
        patch.setitem(PATHS, np.ndarray, Failing(int, MemoryError()))
        words = r"Matmul of ndarray \(2, 2\) float32.*\(MemoryError\)"
        with pytest.raises(pyclmm.DeviceMemoryError, match=words):
            pyclmm.Matmul(x, x)
    assert np.array_equal(pyclmm.Matmul(x, x)(x, x), x @ x)


def test_a_product_in_tiles_without_threads_says_so_and_the_next_is_right():
    lanes.release()
    x = (np.arange(200 * 200, dtype=np.float32).reshape(200, 200) % 5) - 2
    with few_threads(), pytest.raises(pyclmm.ThreadError, match="raise the limit of processes and threads"):
        pyclmm.matmul(x, x, memory_limit="64 KiB")
    assert np.array_equal(pyclmm.matmul(x, x, memory_limit="64 KiB"), x @ x)


AT_EXIT = """
import atexit
import numpy as np, pyclmm
x = np.eye(200, dtype="f4")

@atexit.register
def late():
    try:
        pyclmm.matmul(x, x, memory_limit="64 KiB")
    except pyclmm.ThreadError as error:
        print(error)
    print(np.array_equal(pyclmm.matmul(x, x), x))
"""


def test_a_product_in_tiles_when_the_interpreter_ends_says_so_and_others_are_right():
    done = python("-c", AT_EXIT)
    said, right = done.stdout.splitlines()
    assert (right, done.stderr) == ("True", "")
    assert said.endswith("multiply before the interpreter ends, or multiply without tiles")


@pytest.mark.parametrize("started", range(1, 6))
def test_a_product_in_tiles_that_gets_some_threads_only_ends_too(started):
    lanes.release()
    x = (np.arange(200 * 200, dtype=np.float32).reshape(200, 200) % 5) - 2
    with few_threads(started), suppress(pyclmm.ThreadError):
        assert np.array_equal(pyclmm.matmul(x, x, memory_limit="64 KiB"), x @ x)
    for _ in range(2):
        assert np.array_equal(pyclmm.matmul(x, x, memory_limit="64 KiB"), x @ x)


def test_what_a_refused_thread_was_to_do_is_never_done():
    lanes.release()
    done = []
    refused = pytest.raises(RuntimeError, match="new thread")
    with few_threads(), refused, lanes.lane_threads() as threads:
        threads.writers.submit(done.append, "late")
    with lanes.lane_threads() as threads:
        threads.writers.submit(done.append, "now").result()
    assert done == ["now"]


@pytest.mark.parametrize("started", [0, 1])
def test_a_transfer_needs_no_threads(limits, started):
    """One thread copies then. Nothing that a refused thread was to do is done later."""
    staging._pool.cache_clear()
    limits(threads=4)
    source, target = np.arange(8 << 20, dtype=np.uint8), np.zeros(8 << 20, np.uint8)
    with few_threads(started):
        staging._copy(target, source)
    assert np.array_equal(target, source)
    target[:] = 7
    other = np.zeros_like(target)
    staging._copy(other, source)
    assert np.array_equal(other, source)
    assert (target == 7).all()
    staging._pool.cache_clear()
