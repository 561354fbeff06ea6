"""Signals, forks and exits while a process multiplies."""

import os
import signal
import subprocess
import sys
import time

import pytest

from pyclmm.opencl.devices import default_device, device_info
from tests.support.processes import python
from tests.support.selection import slow

LIMIT = 600  # seconds until a process counts as hanging

# Multiplies until it was interrupted often enough. New programs and shapes let signals arrive while it
# compiles, checks, enqueues, waits and writes its cache.
INTERRUPTED = """
import itertools, os, signal, sys
import numpy as np, pyclmm
from pyclmm import plan_cache; from pyclmm.opencl import queues; from pyclmm.checks import selfcheck

inside = False

def interrupt(*_):
    if inside:
        raise KeyboardInterrupt
    os.write(1, b"between calls\\n")  # print must not interrupt itself

signal.signal(signal.SIGINT, interrupt)

# Python itself drops what is raised in a weak reference's callback.
sys.unraisablehook = lambda dropped: (
    os.write(1, b"dropped\\n") if dropped.exc_type is KeyboardInterrupt else sys.__unraisablehook__(dropped))

rng = np.random.default_rng(1)
caught, wanted = 0, int(sys.argv[1])
os.write(1, b"ready\\n")
for number in itertools.count():
    m, n, k = rng.integers(1, 60, 3)
    a = rng.integers(-3, 4, (m, k)).astype(("f4", "f8", "i4", "c8")[number % 4])
    b = rng.integers(-3, 4, (k, n)).astype(a.dtype)
    before = a.copy(), b.copy()
    try:
        if number % 16 == 0:  # as if new: plans, verdicts and contexts
            selfcheck._verdicts.forget(lambda _: True)
            plan_cache.release(); queues._queues.clear(); queues._contexts.clear()
        inside = True
        c = pyclmm.matmul(a, b, kernel=("tiled", "naive")[number // 4 % 2])
        inside = False
    except KeyboardInterrupt:
        inside = False
        caught += 1
        assert np.array_equal(a, before[0]) and np.array_equal(b, before[1])
        c = pyclmm.matmul(a, b, kernel="naive")
        os.write(1, b"caught\\n")
    assert np.array_equal(c, a @ b)
    if caught == wanted:
        break
"""

FORKED = """
import copy, os, signal, sys
import numpy as np, pyclmm
from pyclmm import array_api
from pyclmm.opencl.devices import all_devices
a = np.ones((20, 20), np.float32)
used, how = sys.argv[1] == "used", sys.argv[2]
if used:
    pyclmm.matmul(a, a)
    before = pyclmm.Matmul(a, a)
    x, weights = array_api.asarray(a), pyclmm.quantize(np.ones((64, 64), np.float32))
    there, product = weights.to(x), pyclmm.matmul(x, x, verify=True)
child = os.fork()
if child == 0:
    signal.alarm(600)
    calls = {"matmul": lambda: pyclmm.matmul(a, a), "devices": all_devices,
             "plan": lambda: pyclmm.Matmul(a, a)(a, a), "plan made before": lambda: before(a, a),
             "array to host": lambda: repr(x),
             "array to device": lambda: array_api.asarray(a, device=x.queue),
             "weights to host": lambda: there.to(a), "weights to device": lambda: weights.to(x),
             "copy of weights": lambda: copy.deepcopy(there)}
    for one in how.split(","):
        try:
            calls[one]()
            print("worked", flush=True)
        except pyclmm.ForkError as error:
            print(error, flush=True)
    # as multiprocessing does: a forked child that gives NVIDIA's objects back ends with SIGSEGV
    os._exit(0)
status = os.waitpid(child, 0)[1]
assert status == 0, status
assert pyclmm.matmul(a, a)[0, 0] == 20
"""

FORKED_WITH_A_CHECK = """
import gc, os, signal, sys, weakref
import numpy as np, pyclmm, pyopencl as cl, pyopencl.array as cla
from pyclmm.execution import verdicts
queue = pyclmm.default_queue()
x = cla.to_device(queue, np.ones((20, 20), np.float32))
plan = pyclmm.Matmul(x, x, verify=True)
plan(x, x), pyclmm.matmul(x, x, verify=True)
pyclmm.finish()
begin = cl.UserEvent(queue.context)
result = pyclmm.matmul(x, x, verify=True, wait_for=[begin])
plan(x, x)
del plan
gc.collect()
left = weakref.ref(verdicts._left[0])
child = os.fork()
if child == 0:
    signal.alarm(60)
    gc.collect()
    assert left() is not None, "the driver was given something back"
    pyclmm.finish()
    if queue.device.type == cl.device_type.CPU:
        sys.exit()
    os._exit(0)  # a forked child that gives NVIDIA's objects back ends with SIGSEGV
status = os.waitpid(child, 0)[1]
begin.set_status(cl.command_execution_status.COMPLETE)
pyclmm.finish()
print(status, result.get()[0, 0])
"""

FORKED_BESIDE_LOCKS = """
import gc, os, signal, sys, threading
import numpy as np, pyclmm
a = np.ones((20, 20), np.float32)
pyclmm.matmul(a, a, verify=True)
kinds = type(threading.Lock()), type(threading.RLock())
owners = [x for x in gc.get_objects() if str(type(x).__module__).startswith("pyclmm.")]
owners += [module for name, module in sys.modules.items() if name.startswith("pyclmm.")]
every = [vars(owner) for owner in owners if hasattr(owner, "__dict__")]
locks = [x for names in every for x in list(names.values()) if isinstance(x, kinds)]
held, ended = threading.Event(), threading.Event()

def hold():
    found = [lock for lock in locks if lock.acquire(blocking=False)]
    held.set()
    ended.wait()
    for lock in found:
        lock.release()

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    pyclmm.finish(), pyclmm.release(), pyclmm.keep_workspace(None)
    print(pyclmm.health(), flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1], len(locks) > 9)
ended.set()
pyclmm.release()
"""

# Calls that reach a device and multiply nothing.
REACHING = "array to host,array to device,weights to host,weights to device,copy of weights"

POOLED = """
import multiprocessing
import numpy as np, pyclmm

def work(number):
    a = np.full((5, 5), number, np.float32)
    return float(pyclmm.matmul(a, a)[0, 0])

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        work(1)
        print(pool.map(work, range(4)))
"""

# Plans are alive, of threads that have ended too.
IN_FLIGHT = """
import threading
import numpy as np, pyclmm, pyopencl as cl, pyopencl.array as cla
from pyclmm.opencl.queues import default_queue
queue, x = default_queue(), np.ones((40, 40), np.float32)
threads = [threading.Thread(target=pyclmm.matmul, args=(x, x)) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
for size in (400, 1600, 6400):  # a GPU is soon done with the first
    a = cla.to_device(queue, np.ones((size, size), np.float32))
    plan = pyclmm.Matmul(a, a, kernel="naive")
    kept = [plan(a, a) for _ in range(20)]  # NVIDIA's driver waits before it frees a result
    status = kept[-1].events[-1].command_execution_status
    if status != cl.command_execution_status.COMPLETE:
        break
assert status != cl.command_execution_status.COMPLETE, "nothing is in flight"
"""


PRODUCT = """
import numpy as np, pyclmm
a = np.arange(70 * 70, dtype="f4").reshape(70, 70) % 7
assert np.array_equal(pyclmm.matmul(a, a), a @ a)
print(pyclmm.Matmul(a, a).kernel)
"""


@pytest.fixture
def environment(tmp_path):
    """A user's: with the self-check, and new caches."""
    kept = {name: value for name, value in os.environ.items() if name != "PYCLMM_SELFCHECK"}
    return kept | {"PYCLMM_CACHE_DIR": str(tmp_path / "caches")}


def run(environment, source, *args, warnings="error"):
    return python("-W", warnings, "-c", source, *args, env=environment)


def test_ctrl_c_in_earnest(environment):
    """12 interrupts at different moments. Each goes to the process group, as from a terminal."""
    wanted = 12
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(wanted)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        caught = 0
        for number in range(100 * wanted):
            time.sleep(0.013 * (number % 7))
            os.killpg(process.pid, signal.SIGINT)
            caught += process.stdout.readline() == "caught\n"
            if caught == wanted or process.poll() is not None:
                break
        _, stderr = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == 0, stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("how", ["matmul", "plan made before", REACHING, *slow("plan", "devices")])
def test_fork_after_use_is_refused_with_advice(environment, how):
    done = run(environment, FORKED, "used", how)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('multiprocessing.get_context("spawn")') == len(how.split(","))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_before_use_works(environment):
    done = run(environment, FORKED, "unused", "matmul")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "worked\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_waits_for_no_check_of_its_parents(environment):
    """Neither in finish() nor where it ends."""
    done = run(environment, FORKED_WITH_A_CHECK)
    assert (done.returncode, done.stdout) == (0, "0 20.0\n"), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_waits_for_no_lock_of_its_parents(environment):
    done = run(environment, FORKED_BESIDE_LOCKS)
    assert (done.returncode, done.stdout) == (0, "{'wrong': 0, 'repaired': 0}\n0 True\n"), done.stderr


def test_spawned_processes_work(environment, tmp_path):
    script = tmp_path / "pooled.py"
    script.write_text(POOLED)
    done = python(script, env=environment)
    assert done.stdout == "[0.0, 5.0, 20.0, 45.0]\n", done.stderr


def test_exit_with_work_in_flight_is_quiet(environment):
    done = run(environment, IN_FLIGHT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


DAMAGES = {
    "halved": lambda data: data[: len(data) // 2],
    "emptied": lambda _: b"",
    "zeroed": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("damage", ["zeroed", *slow("halved", "emptied")])
@pytest.mark.parametrize("kind", ["*.so", *slow("program.bc")])
def test_a_damaged_cache_of_the_driver_ends_one_process_at_most(environment, tmp_path, kind, damage):
    if device_info(default_device()).vendor != "pocl":
        pytest.skip("the cache of PoCL is damaged here, so the device must be PoCL's")
    folder = tmp_path / "pocl"
    folder.mkdir()
    environment |= {"POCL_CACHE_DIR": str(folder), "PYOPENCL_NO_CACHE": "1", "PYCLMM_TRIAL": "on"}
    usual = run(environment, PRODUCT)
    assert usual.returncode == 0, usual.stderr
    damaged = list(folder.rglob(kind))
    assert damaged
    for path in damaged:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    first, second, third = (run(environment, PRODUCT, warnings="default") for _ in range(3))
    assert "CacheWarning" in first.stderr + second.stderr
    assert f"delete PoCL's cache folder, {folder}" in first.stderr + second.stderr
    for later in (second, third):
        assert (later.returncode, later.stdout) == (0, usual.stdout), later.stderr
    assert not third.stderr
