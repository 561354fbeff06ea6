"""A call inside a call, as a signal handler or a finalizer makes it: both results are right."""

import sys
import threading
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.opencl import late_events, queues
from pyclmm.opencl.late_events import KnownEvents
from pyclmm.opencl.queues import PerThread, default_queue
from pyclmm.opencl.single_flight import LastUsed
from pyclmm.opencl.steps import Step
from tests.support.cases import DEVICE
from tests.support.processes import python, with_this_package

M, N, K = 5, 7, 6


def close(got, a, b):
    got, a, b = (x.get() if isinstance(x, cla.Array) else x for x in (got, a, b))
    np.testing.assert_allclose(got, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


@pytest.fixture
def behind(monkeypatch):
    """Have a call made behind the next call of a method."""

    def have(method, call):
        owner, name = method
        original, waiting = getattr(owner, name), [call]

        def followed(*args, **keywords):
            result = original(*args, **keywords)
            if waiting:
                waiting.pop()()
            return result

        monkeypatch.setattr(owner, name, followed)
        return waiting

    return have


def drawn(rng):
    return rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32)


SET_ADDRESSES, SET_ARGS = (Step, "set_addresses"), (Step, "set_args")


@pytest.mark.parametrize("method", [SET_ADDRESSES, SET_ARGS], ids=lambda method: method[1])
def test_of_numpy_arrays(rng, behind, method):
    if method is SET_ADDRESSES and not DEVICE.in_place:
        pytest.skip("the device does not use host arrays in place")
    asked = {} if method is SET_ADDRESSES else {"wait_for": []}
    outer, inner, results = drawn(rng), drawn(rng), []
    for _ in range(3):
        pyclmm.matmul(*outer)
    outer = drawn(rng)  # the memory of earlier results, which a new one may get, has other numbers
    waiting = behind(method, lambda: results.append(pyclmm.matmul(*inner)))
    close(pyclmm.matmul(*outer, **asked), *outer)
    assert not waiting
    close(*results, *inner)
    close(pyclmm.matmul(*outer), *outer)


BEFORE_A_REPETITION, BEFORE_OTHER_BUFFERS = (KnownEvents, "are_quiet"), (KnownEvents, "missing")


@pytest.mark.parametrize(
    "method", [SET_ARGS, BEFORE_A_REPETITION, BEFORE_OTHER_BUFFERS], ids=lambda method: method[1]
)
def test_of_arrays(rng, behind, method):
    queue = default_queue()
    outer, inner = ([cla.to_device(queue, x) for x in drawn(rng)] for _ in range(2))
    outs = [cla.zeros(queue, (M, N), np.float32) for _ in range(2)]
    for _ in range(3):
        pyclmm.matmul(*outer, out=outs[0])
    if method is BEFORE_A_REPETITION:  # of other numbers
        cl.enqueue_copy(queue, outer[0].base_data, drawn(rng)[0])
    else:  # one buffer differs from those of the last call
        outer[0] = cla.to_device(queue, drawn(rng)[0])
    waiting = behind(method, lambda: pyclmm.matmul(*inner, out=outs[1]))
    pyclmm.matmul(*outer, out=outs[0])
    assert not waiting
    close(outs[0], *outer)
    close(outs[1], *inner)


def test_of_bound_calls(rng, behind):
    """The inner one borrows other workspace."""
    queue = default_queue()
    wide = rng.standard_normal((2, 2 * M, 2 * M), np.float32)
    a, b = (cla.to_device(queue, x)[::2, ::2] for x in wide)  # without a unit stride, so they are copied
    out = cla.zeros(queue, (M, M), np.float32)
    plan = pyclmm.Matmul(a, b, out=out, kernel="naive")
    call = plan.bind(a, b, out=out)
    waiting = behind(SET_ARGS, call)
    close(call(), *wide[:, ::2, ::2])
    assert not waiting
    out.fill(0)
    close(call(), *wide[:, ::2, ::2])


def test_events_that_a_call_adds_while_others_are_dropped(monkeypatch):
    events = {number: object() for number in range(3)}

    def references(_event):
        events[len(events)] = object()
        return 9

    monkeypatch.setattr(late_events, "sys", SimpleNamespace(getrefcount=references))
    assert list(late_events._held_elsewhere(events, 2)) == [0, 1, 2]


def test_while_kept_plans_are_looked_at():
    """In a thread, because a lock that its holder cannot take again would end nothing."""
    plans: LastUsed = LastUsed(9)
    waiting = [lambda: plans.get("inner", lambda: "inside")]

    class Key:
        def __hash__(self):
            if waiting:
                waiting.pop()()
            return 1

    look = threading.Thread(target=plans.get, args=(Key(), lambda: "outside"), daemon=True)
    look.start()
    look.join(10)
    assert not look.is_alive()
    assert [plan for _, plan in plans.items()] == ["inside", "outside"]


@pytest.mark.parametrize("number", [1, 2])
def test_while_what_a_thread_holds_is_begun(number):
    """At a line of that."""
    objects: PerThread = PerThread(2)
    lines, held = [], []

    def at_a_line(frame, event, _):
        lines.append(event)
        if lines.count("line") == number:
            sys.settrace(None)
            objects.get("inner", threading.Event)
        return at_a_line

    def begins(frame, *_):
        code = frame.f_code
        return at_a_line if code.co_filename == queues.__file__ and code.co_name == "held" else None

    def look():
        sys.settrace(begins)
        held.append(objects.mine.held)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert [list(one) for one in held] == [["inner"]]


IN_A_FUNCTION = """
import faulthandler, sys

import numpy as np
import pyclmm

faulthandler.dump_traceback_later(120, exit=True)
a, b = np.ones((5, 6), np.float32), np.ones((6, 7), np.float32)
waiting = [sys.argv[1]]


def behind(frame, event, _):
    if event == "call" and "pyclmm" in frame.f_code.co_filename and frame.f_code.co_name in waiting:
        waiting.clear()
        assert (pyclmm.matmul(a, b) == 6).all()


sys.setprofile(behind)
assert (pyclmm.matmul(a, b) == 6).all()
assert not waiting
"""


@pytest.mark.parametrize("name", ["_prepare", "new_queue", "put"])
def test_within_the_first_call_of_a_process(name, tmp_path):
    """The lock under which a queue or a program is made keeps no call inside from going on."""
    ended = python("-c", IN_A_FUNCTION, name, env=with_this_package(PYCLMM_CACHE_DIR=str(tmp_path)))
    assert (ended.returncode, ended.stderr) == (0, "")


IN_TILES = """
import faulthandler, sys
from concurrent.futures import thread

import h5py
import numpy as np
import pyclmm
from pyclmm.opencl import staging
from pyclmm.streaming import fingerprints, run, storage

faulthandler.dump_traceback_later(120, exit=True)
fingerprints._PIECE = 1 << 12
files = {module.__file__ for module in (thread, staging, fingerprints, run, storage)}
names = {"run", "start", "submit", "_adjust_thread_count", "aside", "_digest", "_using"}
a, b = np.ones((64, 600), np.float32), np.ones((600, 70), np.float32)
file = h5py.File(sys.argv[1], "w")
file["a"], seen, refused = a, set(), []


def product(x, **asked):
    assert (pyclmm.matmul(x, b, memory_limit=200_000, **asked)[:] == 600).all()


def at_each_line(frame, event, _):
    place = frame.f_code.co_filename, frame.f_lineno
    if event == "line" and place not in seen:
        seen.add(place)
        product(a)
        try:
            product(file["a"])
        except pyclmm.ArgumentError as error:
            refused.append(frame.f_code.co_name)
            assert "is interrupted by it" in str(error)
    return at_each_line


def begins(frame, *_):
    code = frame.f_code
    return at_each_line if code.co_filename in files and code.co_name in names else None


sys.settrace(begins)
product(file["a"], checkpoint=sys.argv[2], out=file.create_dataset("out", (64, 70), "f4"))
sys.settrace(None)
assert set(refused) == {"_using"}, refused
assert len(seen) > 30
"""


def test_in_tiles_at_any_line_that_locks(tmp_path):
    """A product in tiles within one: the threads of the inner one wait for no lock that this thread has."""
    pytest.importorskip("h5py")
    ended = python("-c", IN_TILES, tmp_path / "x.h5", tmp_path / "kept", env=with_this_package())
    assert (ended.returncode, ended.stderr) == (0, "")
