"""Small products of NumPy arrays go to a device without threads, unless the caller chose a device."""

import itertools
import json
import os
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from pyclmm.execution import placement
from pyclmm.execution.options import Options
from pyclmm.execution.placement import placed
from pyclmm.opencl import host_memory, queues
from pyclmm.opencl.devices import device_info, runs_on_callers_thread
from pyclmm.opencl.queues import FreeQueue, OwnThreadQueue, default_queue, free_queue
from pyclmm.problem.gemm import Gemm
from pyclmm.selection import select
from tests.support.cases import DEVICE, problem_of
from tests.support.faults import DEVICE_NOT_AVAILABLE, OUT_OF_RESOURCES, cl_error, failing, refused_launch
from tests.support.made_up import EPYC_INTEL, EPYC_POCL
from tests.support.plans import executable, last_product
from tests.support.processes import as_in_a_new_process, python

THREADLESS = replace(EPYC_POCL, name="basic-made-up", compute_units=1)
SMALL, LARGE = (16, 16, 16), (1024, 1024, 1024)


@pytest.fixture
def free(monkeypatch, queue):
    """A free queue whose device without threads is made up; what it stands for is the tested device."""
    as_in_a_new_process(monkeypatch)
    monkeypatch.delenv("PYOPENCL_CTX", raising=False)
    monkeypatch.delenv("PYCLMM_THREADLESS", raising=False)
    made = FreeQueue(queue.context, queue.device)
    made.threadless = cl.CommandQueue(queue.context, queue.device)
    monkeypatch.setitem(queues._queues, queues._FREE, made)

    turns = itertools.cycle((EPYC_POCL, THREADLESS))  # each placement asks for both
    monkeypatch.setattr(placement, "device_info", lambda _device: next(turns))
    return made


def gemm_of(shape):
    m, n, k = shape
    return Gemm(problem_of(m, n, k), (m, n), np.dtype(np.float32), swapped=False)


def operands(shape, rng):
    m, n, k = shape
    return rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)


def queue_used():
    """The queue of this thread's last product, whose plan was made for it."""
    path = last_product().path
    assert path.queue is path.executable.latest_binding().queue
    return path.queue


def test_the_lower_estimate_decides(free):
    small, large = (placed(free, gemm_of(shape), Options()) for shape in (SMALL, LARGE))
    assert small.queue is free.threadless
    assert large.queue is free
    assert (small.elsewhere.device, large.elsewhere.device) == (EPYC_POCL.name, THREADLESS.name)
    assert small.elsewhere.seconds > placement._WAKING + EPYC_POCL.rates.launch
    assert large.elsewhere.seconds > LARGE[0] ** 3 / THREADLESS.rates.float32


def test_a_kernel_that_cannot_run_there_keeps_the_product(free, monkeypatch):
    def none(problem, device, kernel, has_constant):
        if device is THREADLESS:
            raise pyclmm.UnsupportedError("no")
        return iter(candidates(problem, device, kernel, has_constant=has_constant))

    candidates = select.candidates
    monkeypatch.setattr(select, "candidates", none)
    assert placed(free, gemm_of(SMALL), Options()) == (free, None)


def test_the_switch(free, monkeypatch):
    monkeypatch.setenv("PYCLMM_THREADLESS", "off")
    assert placed(free, gemm_of(SMALL), Options()) == (free, None)


def test_matmul_and_gemm_of_small_arrays_go_there_and_are_right(free, rng):
    a, b = operands(SMALL, rng)
    for _ in range(3):
        np.testing.assert_allclose(pyclmm.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)
        assert queue_used() is free.threadless
    np.testing.assert_allclose(pyclmm.gemm(a, b, alpha=2.0), 2 * (a @ b), rtol=1e-4, atol=1e-4)
    assert queue_used() is free.threadless


def test_who_chooses_a_device_or_a_queue_gets_it(free, rng):
    a, b = operands(SMALL, rng)
    pyclmm.matmul(a, b)
    for chosen in ({"queue": default_queue()}, {"device": default_queue().device}):
        np.testing.assert_allclose(pyclmm.matmul(a, b, **chosen), a @ b, rtol=1e-4, atol=1e-4)
        assert queue_used() is default_queue()
        assert pyclmm.Matmul(a, b, **chosen).explain().elsewhere is None
    pyclmm.matmul(a, b)
    assert queue_used() is free.threadless


def test_a_large_product_stays(free, rng):
    a, b = operands((256, 256, 4096), rng)
    np.testing.assert_allclose(pyclmm.matmul(a, b), a @ b, rtol=1e-3, atol=1e-2)
    assert queue_used() is free


def test_a_plan_says_where_it_was_made_and_stays_there(free, rng, monkeypatch):
    a, b = operands(SMALL, rng)
    plan = pyclmm.Matmul(a, b)
    monkeypatch.setenv("PYCLMM_THREADLESS", "off")
    for _ in range(3):
        np.testing.assert_allclose(plan(a, b), a @ b, rtol=1e-4, atol=1e-4)
        assert executable(plan).latest_binding().queue is free.threadless
    found = plan.explain()
    assert found.elsewhere.device == EPYC_POCL.name
    assert f"{EPYC_POCL.name}: {found.elsewhere.seconds * 1e6:.4g} us" in str(found)
    assert pyclmm.Matmul(a, b).explain().elsewhere is None


def test_after_a_refused_launch_the_next_kernel_runs_there_too(free, rng):
    a, b = operands(SMALL, rng)
    pyclmm.matmul(a, b)
    first = last_product().executable.choice
    with refused_launch(OUT_OF_RESOURCES), pytest.warns(pyclmm.KernelWarning, match="is used instead"):
        np.testing.assert_allclose(pyclmm.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)
    assert last_product().executable.choice != first
    assert queue_used() is free.threadless


def test_a_free_queue_is_made_where_there_is_a_device_without_threads(monkeypatch, queue):
    as_in_a_new_process(monkeypatch)
    monkeypatch.delenv("PYOPENCL_CTX", raising=False)
    usual = default_queue()
    for beside in (None, usual.device):
        monkeypatch.setattr(queues, "threadless_beside", lambda device, beside=beside: beside)
        monkeypatch.setattr(queues, "runs_on_callers_thread", lambda _device: False)
        queues._queues.pop(queues._FREE, None)
        found = free_queue()
        assert found is free_queue()
        assert (found is usual) == (beside is None)
        assert (found.context, found.device) == (usual.context, usual.device)
    assert isinstance(found, FreeQueue)
    assert found.threadless is queues.queue_on(usual.device)
    monkeypatch.setattr(queues, "_LOCAL_EXEC", 0)
    monkeypatch.setattr(queues, "threadless_beside", lambda _device: None)
    monkeypatch.setattr(queues, "runs_on_callers_thread", lambda _device: True)
    queues._queues.pop(queues._FREE)
    found = free_queue()
    assert isinstance(found, FreeQueue)
    assert isinstance(found.threadless, OwnThreadQueue)
    assert default_queue() is usual
    monkeypatch.setenv("PYOPENCL_CTX", "0")
    assert free_queue() is default_queue()


def test_a_lost_device_takes_both_contexts(free, queue, monkeypatch):
    other = cl.Context([queue.device])
    free.threadless = cl.CommandQueue(other, queue.device)
    lost = []
    monkeypatch.setattr(queues, "_losing", [lost.append])
    queues.forget(other)
    assert lost == [other]
    queues.forget(queue.context)
    assert lost[1:] == [other, queue.context]


def test_a_device_that_is_lost_on_the_callers_thread(free, rng):
    a, b = operands(SMALL, rng)
    for _ in range(3):
        pyclmm.matmul(a, b)
    lost = failing("opencl.host_memory", "wait_for_events", cl_error(DEVICE_NOT_AVAILABLE), "cl")
    with lost, pytest.raises(pyclmm.DeviceLostError):
        pyclmm.matmul(a, b)


@pytest.fixture
def by_thread(monkeypatch, queue):
    """A free queue of a device with queues for the caller's thread. Another driver gives a usual one, whose
    launches are waited for."""
    as_in_a_new_process(monkeypatch)
    monkeypatch.delenv("PYOPENCL_CTX", raising=False)
    monkeypatch.delenv("PYCLMM_THREADLESS", raising=False)
    if not runs_on_callers_thread(queue.device):
        monkeypatch.setattr(queues, "_LOCAL_EXEC", 0)
        enqueue = cl.enqueue_nd_range_kernel

        def until_it_ends(*launch):
            event = enqueue(*launch)
            event.wait()
            return event

        monkeypatch.setattr(cl, "enqueue_nd_range_kernel", until_it_ends)
    made = FreeQueue(queue.context, queue.device)
    made.threadless = OwnThreadQueue(queue.context, queue.device)
    monkeypatch.setitem(queues._queues, queues._FREE, made)
    monkeypatch.setattr(placement, "device_info", lambda _device: EPYC_INTEL)
    return made


@pytest.mark.parametrize("shape", [(40, 70, 30), (3, 40, 600), (40, 30, 70)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_callers_thread_gives_the_same_bits(by_thread, rng, shape, dtype):
    """Intel's runtime, two compute units: one alone would take another kernel for the second of float64."""
    a, b = (x.astype(dtype) for x in operands(shape, rng))
    b = b.T.copy().T if shape == (40, 30, 70) else b
    right = pyclmm.matmul(a, b, queue=default_queue())
    for _ in range(3):
        assert (pyclmm.matmul(a, b) == right).all()
        assert queue_used() is by_thread.threadless


def test_what_the_callers_thread_has_enqueued_has_ended(by_thread, rng, monkeypatch):
    a, b = operands(SMALL, rng)
    for _ in range(3):
        pyclmm.matmul(a, b)
    monkeypatch.setattr(host_memory, "wait", lambda *_given: pytest.fail("it was waited for"))
    np.testing.assert_allclose(pyclmm.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)
    assert queue_used() is by_thread.threadless


def test_the_lowest_estimate_is_the_lowest_of_those_told(by_thread, rng):
    """On Intel's runtime with two compute units, one alone would take another kernel."""
    found = pyclmm.Matmul(*operands((16, 5, 1100), rng)).explain()
    others = [x for x in found.others if x.config and x.reason is None]
    assert others
    assert all(found.seconds <= x.seconds for x in others)


# What takes as long as its memory is read: sums of rows and of columns, one of each, and an outer product.
FROM_MEMORY = [(1, 4096, 4096), (4096, 1, 4096), (1, 1, 1 << 22), (4096, 4096, 1)]


@pytest.mark.parametrize("shape", FROM_MEMORY)
@pytest.mark.parametrize("kind", ["free", "by_thread"])
def test_what_no_cache_holds_stays(request, kind, shape):
    whole = request.getfixturevalue(kind)
    assert placed(whole, gemm_of(shape), Options()).queue is whole


def test_where_threads_pay_they_compute(by_thread, monkeypatch):
    small, large = (placed(by_thread, gemm_of(shape), Options()) for shape in (SMALL, LARGE))
    assert small.queue is by_thread.threadless
    assert large.queue is by_thread
    assert small.elsewhere.device == f"{EPYC_INTEL.name}, by its own threads"
    assert large.elsewhere.device == f"{EPYC_INTEL.name}, by the caller's thread"
    assert EPYC_INTEL.alone.rates.launch < small.elsewhere.seconds < large.elsewhere.seconds
    assert large.elsewhere.seconds > LARGE[0] ** 3 / EPYC_INTEL.rates.float32
    monkeypatch.setenv("PYCLMM_THREADLESS", "off")
    assert placed(by_thread, gemm_of(SMALL), Options()) == (by_thread, None)


def test_what_a_device_has_for_the_callers_thread():
    whole, alone = EPYC_INTEL, EPYC_INTEL.alone
    assert (alone.compute_units, alone.name) == (1, whole.name)
    assert alone.rates.float32 * whole.compute_units == whole.rates.float32
    assert alone.rates.memory * whole.compute_units == whole.rates.memory
    assert alone.rates.launch < whole.rates.launch


REAL = """
import json, signal
import numpy as np
import pyopencl as cl
import pyclmm
from pyclmm import calls
from pyclmm.opencl import binding

masked, ran = [], []
enqueue, here = cl.enqueue_nd_range_kernel, binding.Binding.run_at

def watched(queue, *rest):
    masked.append((queue.device.name, signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    return enqueue(queue, *rest)

def counted(self, *given):
    ran.append(here(self, *given))
    return ran[-1]

cl.enqueue_nd_range_kernel, binding.Binding.run_at = watched, counted
x = np.arange(256, dtype=np.float32).reshape(16, 16) % 7
right = [bool((pyclmm.matmul(x, y) == x @ y).all()) for y in (x, x.copy(), x + 1, x + 2)]
device = calls._last.mine.latest.product().executable.device
before = cl.enqueue_marker(pyclmm.default_queue())
right.append(bool((pyclmm.matmul(x, x, wait_for=[before]) == x @ x).all()))
plan = pyclmm.Matmul(x, x)
for alpha in (1.0, 1.0, 1.0, 3.0, 1.0):
    right.append(bool((plan(x, x, alpha=alpha) == alpha * (x @ x)).all()))
print(json.dumps({
    "default": pyclmm.default_queue().device.name, "device": device.name, "threadless": device.threadless,
    "launch": device.rates.launch, "right": right, "ran": ran, "masked": masked[:1],
    "text": str(pyclmm.Matmul(x, x).explain()),
}))
"""


@pytest.mark.skipif(DEVICE.vendor != "pocl", reason="the driver has no device without threads")
@pytest.mark.parametrize("switch", ["", "off"])
def test_pocls_own_device_without_threads(switch):
    shown = {"POCL_DEVICES": "pthread basic", "PYCLMM_THREADLESS": switch, "PYOPENCL_CTX": ""}
    if "PoCL 3" not in DEVICE.platform_version:
        shown["POCL_DEVICES"] = "cpu cpu-minimal"
    found = json.loads(python("-c", REAL, env=os.environ | shown, check=True).stdout)
    assert found["right"] == [True] * 10
    assert not found["default"].startswith(("basic", "cpu-minimal"))
    assert found["threadless"] == (switch == "") == (found["device"] != found["default"])
    assert found["ran"][:3] == [True] * 3
    assert (found["default"] in found["text"].partition("because")[2]) == (switch == "")
    assert (found["launch"] < EPYC_POCL.rates.launch) == (switch == "")
    assert found["masked"] == [[found["device"], switch == ""]], "Ctrl-C would end the linker, and it PoCL"


def test_only_pocls_devices_are_without_threads():
    named = {"basic-x": True, "cpu-minimal-x": True, "cpu-x": False, "pthread-x": False}
    assert {name: replace(EPYC_POCL, name=name).threadless for name in named} == named
    assert not replace(THREADLESS, vendor="intel").threadless
    assert not replace(THREADLESS, kind="gpu").threadless
    assert not device_info(default_queue().device).threadless
