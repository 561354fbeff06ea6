"""Marks of programs in doubt, and detours around a damaged cache."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import store
from pyclmm.errors import CacheWarning
from pyclmm.opencl import crash_marks
from pyclmm.opencl.devices import device_info
from tests.support.contexts import new_queue
from tests.support.faults import BUILD_FAILURE, INVALID_COMMAND_QUEUE, cl_error, failing
from tests.support.made_up import EPYC_POCL, H200
from tests.support.plans import executable
from tests.support.processes import nothing_checked

ROOT = Path(__file__).parents[2]

# A process that has marks, and dies or ends.
MARKING = """
import os, sys
from pyclmm.opencl import compiler, crash_marks, program
from pyclmm.opencl.devices import device_info
from tests.support.made_up import H200
for digest in sys.argv[2:]:
    crash_marks.mark(H200, digest)
print("marked", flush=True)
{"die": lambda: os._exit(1), "end": lambda: None, "wait": sys.stdin.read}[sys.argv[1]]()
"""


@pytest.fixture(autouse=True)
def folder(own_caches):
    return own_caches


def marking(*args, **kwargs):
    return subprocess.Popen(
        [sys.executable, "-c", MARKING, *args],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def marked(how, *digests):
    """A process that marked *digests* for H200 and died or ended."""
    process = marking(how, *digests)
    process.communicate(timeout=600)
    return process


def test_a_process_that_died_leaves_its_marks():
    marked("die", "one", "two")
    assert len(crash_marks.of_the_dead(H200, ["one"])) == 1
    assert len(crash_marks.of_the_dead(H200, ["one", "two", "three"])) == 2
    assert not crash_marks.of_the_dead(H200, ["three"])
    assert not crash_marks.of_the_dead(EPYC_POCL, ["one"]), "the mark is for another device"
    crash_marks.forget_the_dead(H200, ["one"])
    assert not crash_marks.of_the_dead(H200, ["one"])
    assert crash_marks.of_the_dead(H200, ["two"])


def test_a_process_that_ended_leaves_none(folder):
    marked("end", "one")
    assert not list((folder / "crash_marks").iterdir())


FORKED = """
import os, sys
from pyclmm.opencl import crash_marks
from tests.support.made_up import H200
crash_marks.mark(H200, "of the parent")
if os.fork() == 0:
    crash_marks.mark(H200, "of the child")
    print("marked", flush=True)
    {"ends": sys.exit, "lives": sys.stdin.read}[sys.argv[1]]()
if sys.argv[1] == "ends":
    os.wait()
os._exit(1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("child", ["ends", "lives"])
def test_a_forked_process_has_marks_of_its_own(child):
    """Its end removes them, and while it lives its parent's are those of a process that died."""
    command = [sys.executable, "-c", FORKED, child]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"marked\n"
    assert process.wait(600) == 1
    assert crash_marks.of_the_dead(H200, ["of the parent"])
    assert not crash_marks.of_the_dead(H200, ["of the child"])
    process.communicate(timeout=600)


def test_a_process_that_lives_is_not_taken_for_dead():
    process = marking("wait", "one")
    assert process.stdout.readline() == b"marked\n"
    assert not crash_marks.of_the_dead(H200, ["one"])
    process.kill()
    process.communicate(timeout=600)
    assert crash_marks.of_the_dead(H200, ["one"])


def test_own_marks_are_those_of_the_living():
    path = crash_marks.mark(H200, "one")
    assert path.exists()
    assert not crash_marks.of_the_dead(H200, ["one"])
    crash_marks.clear([path])
    assert not path.exists()
    crash_marks.clear([path, None])


def test_a_process_keeps_few_files_open():
    paths = [crash_marks.mark(H200, str(number)) for number in range(70)]
    kept = [path.exists() for path in paths]
    assert kept == sorted(kept), "the oldest are gone"
    assert 0 < kept.count(False) < 10
    crash_marks.clear(paths)


def test_a_folder_that_cannot_be_written_has_no_marks(folder):
    folder.write_text("a file")
    with pytest.warns(CacheWarning, match="not all can be kept"):
        assert crash_marks.mark(H200, "one") is None
    assert not crash_marks.of_the_dead(H200, ["one"])
    crash_marks.take_detour(H200, 3, keep=True)
    assert crash_marks.detour(H200) == 3, "in this process it holds all the same"


def test_a_detour_is_kept_for_its_device(monkeypatch):
    crash_marks.take_detour(H200, 2, keep=True)
    crash_marks.take_detour(EPYC_POCL, 5)
    nothing_checked(monkeypatch)
    assert crash_marks.detour(H200) == 2
    assert crash_marks.detour(EPYC_POCL) == 0
    assert crash_marks.detour(replace(H200, driver_version="another")) == 0


@pytest.mark.parametrize(
    "changes",
    [
        *({"detour": number} for number in (-1, 1 << 30, 1.0, True, "1 -I /", None, 10**400)),
        {"key": "another"},
        {"schema": True},
        {"more": 1},
    ],
    ids=lambda x: str(x)[:20],
)
def test_only_a_small_number_is_a_detour(monkeypatch, folder, changes):
    crash_marks.take_detour(H200, 2, keep=True)
    [file] = (folder / "detours").iterdir()
    store.write_json(file, json.loads(file.read_text()) | changes)
    nothing_checked(monkeypatch)
    with pytest.warns(CacheWarning, match="set aside: content"):
        assert crash_marks.detour(H200) == 0


# programs


@pytest.fixture
def own_queue(queue):
    return new_queue(queue.device)


def marks(folder):
    return list((folder / "crash_marks").glob("*"))


@pytest.fixture
def unproven(monkeypatch):
    """Programs that no self-check has run in this process, as with a verdict from disk."""
    monkeypatch.setenv("PYCLMM_SELFCHECK", "off")


A = np.ones((37, 41), np.float32)


@pytest.fixture
def on_device(own_queue):
    return cla.to_device(own_queue, A)


@pytest.mark.parametrize("self_check", ["on", "off"])
def test_a_program_is_in_doubt_until_its_first_run_has_ended(monkeypatch, own_queue, folder, self_check):
    """Which that of a self-check may be."""
    monkeypatch.setenv("PYCLMM_SELFCHECK", self_check)
    plan = pyclmm.Matmul(A, A.T, kernel="naive", queue=own_queue)
    assert len(marks(folder)) == (self_check == "off")
    plan(A, A.T)
    assert not marks(folder)


def test_a_run_on_arrays_has_ended_when_a_later_call_sees_it(unproven, own_queue, on_device, folder):
    plan = pyclmm.Matmul(on_device, on_device.T, kernel="naive")
    plan(on_device, on_device.T)
    assert len(marks(folder)) == 1
    own_queue.finish()
    plan(on_device, on_device.T)
    assert not marks(folder)


def test_a_program_that_nobody_holds_is_no_longer_in_doubt(unproven, on_device, folder):
    """Its mark kept the context of a product that no other one followed, for ever."""
    pyclmm.matmul(on_device, on_device.T, kernel="naive").get()
    assert len(marks(folder)) == 1
    pyclmm.release()
    assert not marks(folder)


class Lost:
    @property
    def command_execution_status(self):
        raise cl_error(INVALID_COMMAND_QUEUE)


def test_an_event_that_cannot_be_asked_is_no_error_of_the_call(unproven, own_queue, on_device, folder):
    plan = pyclmm.Matmul(on_device, on_device.T, kernel="naive")
    executable(plan).binding(own_queue)._first = Lost()
    assert (plan(on_device, on_device.T).get() == 41).all()
    assert len(marks(folder)) == 1


def test_a_program_that_is_built_again_leaves_no_mark_behind(unproven, own_queue, folder):
    pyclmm.Matmul(A, A.T, kernel="naive", queue=own_queue)
    device = device_info(own_queue.device)
    crash_marks.take_detour(device, crash_marks.detour(device) + 1)  # so the next plan builds it
    plan = pyclmm.Matmul(A, A.T, kernel="naive", queue=own_queue)
    assert len(marks(folder)) == 2
    plan(A, A.T)
    assert not marks(folder)


def test_a_build_that_fails_leaves_no_doubt(own_queue, folder):
    with failing("opencl", "Program", cl_error(BUILD_FAILURE), always=True), pytest.raises(pyclmm.BuildError):
        pyclmm.matmul(A, A.T, kernel="naive", queue=own_queue)
    assert not marks(folder)
    assert crash_marks.detour(device_info(own_queue.device)) == 0


def test_a_build_that_fails_on_a_damaged_cache_is_repeated_past_it(own_queue):
    warning = pytest.warns(CacheWarning, match=r"matmul_naive did not build.* compiled past the .*; delete ")
    with failing("opencl", "Program", cl_error(BUILD_FAILURE)) as fault, warning:
        c = pyclmm.matmul(A, A.T, kernel="naive", queue=own_queue)
    assert (c == 41).all()
    assert crash_marks.detour(device_info(own_queue.device)) == 1
    assert fault.calls == 2


def test_a_mark_of_the_living_is_never_one_of_the_dead(own_caches):
    """Other threads look while marks come and go."""
    end = time.monotonic() + 0.5

    def come_and_go():
        while time.monotonic() < end:
            crash_marks.clear([crash_marks.mark(H200, "one")])

    def look():
        found = []
        while time.monotonic() < end:
            found += crash_marks.of_the_dead(H200, ["one"])
        return found

    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(come_and_go) for _ in "ab"]
        assert [pool.submit(look).result(), pool.submit(look).result()] == [[], []]
        for each in work:
            each.result()
