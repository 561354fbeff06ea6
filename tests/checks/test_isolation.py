"""Trials: a kernel is first compiled and run in a child process, so that a crash does not end this one."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pyclmm
from pyclmm import TileConfig, plan_cache
from pyclmm.checks import isolation, selfcheck, worker
from pyclmm.formats import FORMATS
from pyclmm.formats.fragments import FRAGMENTS
from pyclmm.kernels import kernel_named
from pyclmm.kernels.device import DeviceInfo
from pyclmm.opencl import crash_marks
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.opencl.queues import default_queue
from pyclmm.problem.gemm import GemmProblem
from pyclmm.selection import schema
from tests.support.cases import taken_by
from tests.support.faults import DEVICE_NOT_AVAILABLE, Call, failing, refused_launch
from tests.support.processes import as_in_a_new_process, python, runs, with_this_package
from tests.test_store import json_values

# Python imports this when a child starts. It changes what the child's driver does when it compiles.
SITE = """
import pyopencl as cl
real = cl.Program.build

def build(self, *args, **kwargs):
    import os, signal, sys, time
    {action}
    return real(self, *args, **kwargs)

cl.Program.build = build
"""
ABORT = "print('LLVM ERROR: Do not know how', file=sys.stderr, flush=True); os.abort()"
DEVICE = device_info(default_device())
PROBLEM = GemmProblem(9, 8, 7, "float32", "float32", "float32", "float32", lda=7, ldb=8, ldo=8)


@pytest.fixture
def risky(monkeypatch, known_target, two_rungs):
    """`tiled` is a risky kernel, and `naive` comes after it."""
    monkeypatch.setenv("PYCLMM_TRIAL", "on")
    monkeypatch.setattr(type(kernel_named("tiled")), "risky", True)
    return known_target


@pytest.fixture
def sabotage(monkeypatch, tmp_path):
    """A function: in children the driver does *action* when it compiles."""

    def install(action):
        (tmp_path / "sitecustomize.py").write_text(SITE.format(action=action))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return install


class Trials:
    """The ``requests`` sent to children. The next ones have the ``limits`` of seconds, if there are any.

    ``hang``: a file that is there while a request with such a limit is sent.
    """

    def __init__(self, hang):
        self.requests, self.limits, self.hang = [], [], hang

    def __len__(self):
        return len(self.requests)

    def limit(self, usual):
        if not self.limits:
            self.hang.unlink(missing_ok=True)
            return usual
        self.hang.touch()
        return self.limits.pop(0)


@pytest.fixture
def asked(monkeypatch, tmp_path):
    found, real = Trials(tmp_path / "hang"), worker.Child.ask

    def ask(self, module, request, limit, *rest, **options):
        found.requests.append(request)
        return real(self, module, request, found.limit(limit), *rest, **options)

    monkeypatch.setattr(worker.Child, "ask", ask)
    return found


def kept(folder):
    return [json.loads(path.read_text()) for path in folder.glob("selfcheck/*.json")]


def test_a_compiler_that_aborts_does_not_end_this_process(monkeypatch, risky, sabotage, asked):
    sabotage(ABORT)
    call = Call()
    with pytest.warns(pyclmm.KernelWarning, match=r"tiled: tried .*SIGABRT.*LLVM ERROR.*'naive' is used"):
        call()
    as_in_a_new_process(monkeypatch)
    with pytest.warns(pyclmm.KernelWarning, match="SIGABRT"):
        call.check_works()
    assert len(asked) == 2, "the verdict of both is kept on disk"


def test_a_driver_that_dies_of_its_cache_is_led_past_it(monkeypatch, risky, sabotage, asked):
    """The cache's files are those of programs that are compiled without a detour."""
    sabotage("'DETOUR' in str(args) or os.abort()")
    call = Call(kernel="tiled")
    with pytest.warns(pyclmm.CacheWarning, match=r"tiled: tried .*SIGABRT.* compiled past the .*; delete "):
        call.check_works()
    assert len(asked) == 2
    as_in_a_new_process(monkeypatch)
    call.check_works()
    assert len(asked) == 2
    assert crash_marks.detour(DEVICE) == 1


DYING = """
import os
import numpy as np, pyopencl as cl, pyclmm
cl.Program.build = lambda *_, **__: os.abort()
pyclmm.matmul(np.ones((33, 41), "f4"), np.ones((41, 29), "f4"), kernel="naive")
"""


def mark_of_a_dead_process(folder):
    """What a process leaves that ended as it built `naive`."""
    before = set(folder.glob("crash_marks/*"))
    assert python("-c", DYING, env=with_this_package(PYCLMM_TRIAL="off")).returncode == -signal.SIGABRT
    [dead] = set(folder.glob("crash_marks/*")) - before
    return dead


def test_a_program_that_a_process_died_with_is_tried_though_its_verdict_is_kept(
    monkeypatch, risky, sabotage, asked
):
    call = Call(kernel="naive")  # not risky
    call.check_works()
    as_in_a_new_process(monkeypatch)
    call.check_works()
    assert not asked
    as_in_a_new_process(monkeypatch)
    dead = mark_of_a_dead_process(risky)
    sabotage("'DETOUR' in str(args) or os.abort()")
    with pytest.warns(pyclmm.CacheWarning, match=r"naive: tried .*SIGABRT.* compiled past the"):
        call.check_works()
    assert len(asked) == 2
    assert not dead.exists()


def test_without_trials_a_program_that_a_process_died_with_goes_past_the_cache(monkeypatch, risky, asked):
    monkeypatch.setenv("PYCLMM_TRIAL", "off")
    dead = mark_of_a_dead_process(risky)
    with pytest.warns(pyclmm.CacheWarning, match="a process ended while it built or first ran naive"):
        Call(kernel="naive").check_works()
    assert crash_marks.detour(DEVICE) == 1
    assert not dead.exists()
    assert not asked


def test_a_kernel_asked_for_by_name_raises(risky, sabotage):
    sabotage(ABORT)
    with pytest.raises(pyclmm.UnsupportedError, match="SIGABRT"):
        Call(kernel="tiled")()
    Call(kernel="naive").check_works()


@pytest.fixture
def hangs(sabotage, asked):
    """A function: in the first trials, of these *limits*, the driver hangs. Then it does *action*."""

    def install(limits, action="pass"):
        asked.limits = list(limits)
        sabotage(HANG.format(file=str(asked.hang)) + action)

    return install


# A child that hangs notes its process.
HANG = """from pathlib import Path
    if Path({file!r}).exists():
        Path({file!r}).write_text(str(os.getpid()))
        time.sleep(600)
    """


def pass_time(folder, seconds):
    """As if kept verdicts were older by that."""
    for path in folder.glob("selfcheck/*.json"):
        content = json.loads(path.read_text())
        if content["timed_out"] is not None:
            path.write_text(json.dumps(content | {"timed_out": content["timed_out"] - seconds}))


def timed_out(folder):
    """The kernels whose trial has timed out, of those with a verdict."""
    return {x["kernel"]: x["timed_out"] is not None for x in kept(folder)}


def test_a_time_out_is_tried_again_after_a_day(monkeypatch, risky, hangs, asked):
    hangs([2.0, 2.0])
    call = Call()
    with pytest.warns(pyclmm.KernelWarning, match="tiled: .*did not end within 2 seconds"):
        call.check_works()
    assert timed_out(risky) == {"tiled": True, "naive": False}
    pass_time(risky, 80_000)
    as_in_a_new_process(monkeypatch)
    with pytest.warns(pyclmm.KernelWarning, match="tiled: .*did not end within 2 seconds"):
        call.check_works()
    assert len(asked) == 2
    pass_time(risky, 6_400)
    as_in_a_new_process(monkeypatch)
    call.check_works()
    assert len(asked) == 3
    assert ("tiled", None, None) in [(x["kernel"], x["reason"], x["timed_out"]) for x in kept(risky)]


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [86_400, -6_400], ids=["a day old", "of the future"])
def test_a_process_that_lives_on_tries_again_too(monkeypatch, risky, hangs, asked, seconds):
    """As it does where the clock was wrong when the verdict was kept."""
    hangs([2.0, 2.0])
    call = Call()
    with pytest.warns(pyclmm.KernelWarning, match="did not end"):
        call()
    monkeypatch.setattr(selfcheck, "_now", lambda: time.time() + seconds)
    plan_cache.release()
    call.check_works()
    assert len(asked) == 3


@pytest.mark.slow
def test_one_time_out_alone_bans_nothing(risky, hangs, asked, recwarn):
    """The driver's caches are not suspected either: what was waited for may be somebody else's lock."""
    hangs([2.0])
    Call(kernel="tiled").check_works()
    assert len(asked) == 2
    assert [(x["kernel"], x["reason"]) for x in kept(risky)] == [("tiled", None)]
    assert crash_marks.detour(DEVICE) == 0
    assert not [w for w in recwarn if issubclass(w.category, pyclmm.CacheWarning | pyclmm.KernelWarning)]


def test_a_time_out_and_a_crash_ban_for_a_day_only(risky, hangs):
    hangs([2.0], "os.abort()")
    with pytest.warns(pyclmm.KernelWarning, match="tiled: .*SIGABRT"):
        Call().check_works()
    assert timed_out(risky) == {"tiled": True, "naive": False}


def test_a_child_that_somebody_ended_is_no_verdict_for_good(risky, sabotage):
    sabotage("os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.warns(pyclmm.KernelWarning, match=r"SIGKILL.*PYCLMM_TRIAL=off"):
        Call().check_works()
    assert [x["kernel"] for x in kept(risky)] == ["naive"]


@pytest.mark.parametrize(
    "action",
    ["pass", "os.write(1, b'{\"reason\": 5}\\n' * 9999)", "print('remarks', file=sys.stderr)"],
    ids=["quiet", "stdout", "stderr"],
)
def test_a_good_trial_admits_the_kernel(monkeypatch, risky, sabotage, asked, action):
    sabotage(action)
    call = Call()
    call.check_works()
    as_in_a_new_process(monkeypatch)
    call.check_works()
    assert len(asked) == 1
    assert [(x["kernel"], x["reason"]) for x in kept(risky)] == [("tiled", None)]


def test_a_trial_without_a_folder_for_temporary_files(risky, sabotage):
    """As in a container whose root is read-only. The child's last words are not known then."""
    no_folder = FileNotFoundError("No usable temporary directory found")
    with failing(tempfile, "TemporaryFile", no_folder, library="", always=True):
        Call().check_works()
        sabotage(ABORT)
        with pytest.warns(pyclmm.KernelWarning, match=r"tiled: tried .*SIGABRT; 'naive' is used"):
            Call(shape=(3, 3, 3), seed=2, dtype=np.float64)()


def test_a_build_failure_in_the_trial_is_left_to_this_process(risky, sabotage):
    """The trial only finds crashes. This process builds again and so has the compiler's log."""
    sabotage("raise cl.RuntimeError(cl._cl._ErrorRecord('clBuildProgram', -11, 'injected'))")
    Call(kernel="tiled").check_works()


def test_trials_can_be_turned_off(monkeypatch, risky, sabotage, asked):
    sabotage(ABORT)
    monkeypatch.setenv("PYCLMM_TRIAL", "off")
    Call(kernel="tiled").check_works()
    assert not asked


def test_a_program_without_a_python_says_what_to_do(monkeypatch, risky):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.warns(pyclmm.KernelWarning, match="no Python interpreter .*PYCLMM_TRIAL=off"):
        Call().check_works()
    assert [x["kernel"] for x in kept(risky)] == ["naive"]


def test_nothing_is_imported_from_the_working_directory(monkeypatch, risky, tmp_path):
    for name in ("json", "pyclmm", "numpy", "os"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    Call(kernel="tiled").check_works()


def test_ctrl_c_ends_the_child_and_keeps_no_verdict(risky, hangs, asked, sabotage):
    hangs([600.0])
    pid = asked.hang

    def press():
        while not (pid.exists() and pid.read_text()):
            time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=press)
    thread.start()
    call = Call(kernel="tiled")
    with pytest.raises(KeyboardInterrupt):
        call()
    thread.join()
    signal.signal(signal.SIGINT, handler)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert not kept(risky)
    sabotage("pass")
    call.check_works()


def test_a_device_that_the_child_lacks_refuses_the_kernel(monkeypatch, risky):
    absent = {"name": "none", "platform": "none", "driver_version": "none"}
    monkeypatch.setattr(DeviceInfo, "identity", absent)
    with pytest.warns(pyclmm.KernelWarning, match="child process does not find the device"):
        Call().check_works()


def test_a_sub_device_is_tried_on_the_whole_device(two_devices):
    whole, part = pyclmm.default_queue().device, two_devices[0]
    assert device_info(part).identity != device_info(whole).identity
    assert isolation.device_of(device_info(part).identity) == whole
    for wrong in (None, {}, {"name": 3, "platform": "", "driver_version": ""}, "units"):
        with pytest.raises(pyclmm.NoDeviceError):
            isolation.device_of(wrong)


def test_only_the_wanted_driver_is_asked_for_its_devices(monkeypatch):
    """With two of PoCL's, the child built a program by the other one first, and ended if that could not."""
    own = pyclmm.default_queue().device
    other = SimpleNamespace(platform=SimpleNamespace(name=own.platform.name), driver_version="another")
    monkeypatch.setattr("pyclmm.opencl.devices.all_devices", lambda: [other, own])
    assert isolation.device_of(DEVICE.identity) == own


# -- requests and answers


@pytest.mark.parametrize("kernel", pyclmm.KERNELS, ids=lambda k: k.name)
def test_problems_and_configurations_survive_json(kernel):
    stack = replace(PROBLEM, batch_shape=(2, 3), batch_strides=((1, 0),) * 4, n=1, has_c=True)
    for problem in (taken_by(kernel, PROBLEM), taken_by(kernel, stack)):
        again = json.loads(json.dumps(schema.problem_json(problem)))
        assert schema.problem_from(again) == problem
        for config in [] if kernel.unsuited(DEVICE) else kernel.configs(problem, DEVICE):
            again = json.loads(json.dumps(schema.config_json(config)))
            assert schema.config_from(again) == config


def test_problems_of_weights_survive_json():
    for form in (*FORMATS, *FRAGMENTS):
        problem = replace(PROBLEM, b_format=form.name)
        assert schema.problem_from(json.loads(json.dumps(schema.problem_json(problem)))) == problem


def _check_refused_or_same(name, content, read, write):
    """*content* is taken unchanged, or refused with a printable reason that names the value."""
    reason = None
    try:
        taken = read(content)
    except pyclmm.ArgumentError as error:
        reason = str(error)
    if reason is None:
        assert write(taken) == content
    else:
        assert name in reason
        assert reason.isascii()


@given(st.sampled_from(sorted(schema.problem_json(PROBLEM))), json_values)
@example("m", 2**31)
@example("m", True)
@example("lda", 2**63)
@example("a_type", "float32 -DX=1")
@example("acc_type", "int32")
@example("batch_strides", [[], [], []])
@example("batch_shape", [2])
@example("activation", "relu;system()")
def test_a_hostile_problem_is_refused_with_a_reason(name, value):
    content = schema.problem_json(PROBLEM) | {name: value}
    _check_refused_or_same(name, content, schema.problem_from, schema.problem_json)


def test_strides_for_another_number_of_axes_are_refused():
    content = schema.problem_json(PROBLEM) | {"batch_shape": [2]}
    with pytest.raises(pyclmm.ArgumentError, match="batch_strides and batch_shape"):
        schema.problem_from(content)


@given(st.sampled_from(sorted(schema.config_json(TileConfig()))), json_values)
@example("bm", -1)
@example("bm", 1 << 40)
@example("bm", 1.5)
@example("options", [["x -DY", 1]])
@example("options", [["b", 1], ["a", 1]])
@example("options", [["a", "1"]])
def test_a_hostile_configuration_is_refused_with_a_reason(name, value):
    content = schema.config_json(TileConfig()) | {name: value}
    _check_refused_or_same(name, content, schema.config_from, schema.config_json)


@given(st.lists(json_values | st.fixed_dictionaries({"reason": json_values}), max_size=2))
@example([{"reason": None}, {"reason": None}])
@example([{"reason": None, "more": 1}])
@example([{"reason": False}])
def test_a_child_must_answer_once_and_in_the_right_form(answers):
    result = isolation.result(answers)
    if result.reason is None:
        assert answers == [{"reason": None}]
    else:
        assert not result.lasting or [{"reason": result.reason}] == answers


def request_for_tiled():
    return {
        "device": DEVICE.identity,
        "kernel": "tiled",
        "problem": schema.problem_json(PROBLEM),
        "config": schema.config_json(TileConfig.square(4)),
        "detour": 0,
        "way": "opencl",
    }


def test_a_child_refuses_a_hostile_request():
    good = request_for_tiled()
    assert list(isolation.answers(good)) == [{"reason": None}]
    [unfit] = isolation.answers(good | {"config": schema.config_json(TileConfig(bm=3))})
    assert "one tile width" in unfit["reason"]
    hostile = (
        {"kernel": "textbook/tiled.cl"}, {"problem": {}}, {"config": []}, {"detour": "0 -I /"}, {"way": "x"},
    )  # fmt: skip
    for change in hostile:
        with pytest.raises(pyclmm.ArgumentError):
            list(isolation.answers(good | change))


def test_a_device_lost_in_the_child_refuses_the_kernel():
    config = kernel_named("naive").configs(PROBLEM, DEVICE)[0]
    request = {"kernel": "naive", "config": schema.config_json(config)}
    with refused_launch(DEVICE_NOT_AVAILABLE):
        [answer] = isolation.answers(request_for_tiled() | request)
    assert "stopped before" in answer["reason"]


def test_children_end_with_all_that_they_started(monkeypatch, tmp_path):
    """The child may have started the hanging compiler as a process of its own."""
    mark = tmp_path / "sitecustomize.py"
    pids = tmp_path / "pids"
    mark.write_text(
        "import subprocess, sys, time, pathlib\n"
        "p = subprocess.Popen(['sleep', '600'])\n"
        f"pathlib.Path({str(pids)!r}).write_text(str(p.pid))\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for limit in (1.5, 15, 150):  # until the child has begun, on a busy machine too
        failure = worker.ask("checks.isolation", {}, limit, lambda _: None)
        assert failure.hung
        if pids.exists() and pids.read_text():
            break
    assert np.array_equal(pyclmm.matmul(np.eye(2), np.eye(2), queue=default_queue()), np.eye(2))
    assert not runs(pids.read_text()), "the grandchild still runs"
