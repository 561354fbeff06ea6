"""A child that waits for further trials: when it is asked, when another one is started, when it ends."""

import os
import time

import pytest

import pyclmm
from pyclmm.checks import child, isolation, selfcheck, worker
from tests.checks.test_children import site
from tests.checks.test_isolation import asked, risky, sabotage
from tests.support.faults import Call, noted, refuse_kernels
from tests.support.processes import ended, python, runs
from tests.support.selection import slow

__all__ = ["asked", "risky", "sabotage", "site"]  # fixtures

MODULE = "checks.isolation"


@pytest.fixture(autouse=True)
def _no_child_before_or_after():
    worker.end_waiting()
    yield
    worker.end_waiting()


@pytest.fixture
def pid_of(site):
    """A function: has *code* done in a child; returns the child's process id and its failure."""
    site()

    def ask(code="pass", limit=200.0):
        answers, failure = worker.ask_waiting(MODULE, {"do": code}, limit)
        return (answers[0]["pid"] if answers else None), failure

    return ask


def waiting():
    """The processes that this one has started and that run."""
    listed = ended("ps", "-A", "-o", "pid=,ppid=,stat=,comm=", check=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    return [
        int(pid)
        for pid, parent, stat, name, *_ in rows
        if parent == str(os.getpid()) and stat[0] != "Z" and name != "ps"
    ]


def test_one_child_answers_all_requests(pid_of):
    first, failure = pid_of()
    assert failure is None
    assert pid_of() == pid_of() == (first, None)
    assert runs(first)
    worker.end_waiting()
    assert not runs(first)


def test_a_child_that_was_started_early_is_asked_first(pid_of):
    worker.start_waiting()
    [pid] = waiting()
    worker.start_waiting()
    assert waiting() == [pid], "one at most"
    assert pid_of() == (pid, None)


@pytest.mark.parametrize("end", ["os.abort()", "os._exit(0)", *slow("os._exit(3)", "raise ValueError('so')")])
def test_a_used_child_that_fails_is_no_opinion(pid_of, end):
    """What it did before may be the cause: here only the second request of a process fails."""
    code = f"import os, sys\nif hasattr(sys, 'used'): {end}\nsys.used = True"
    first, failure = pid_of(code)
    assert failure is None
    second, failure = pid_of(code)
    assert failure is None
    assert second != first
    assert not runs(first)


def test_a_new_child_that_fails_is_an_opinion(pid_of):
    assert "SIGABRT" in pid_of("import os; os.abort()")[1].reason
    pid_of()
    _, failure = pid_of("import os; os.abort()")
    assert failure.crashed, "also after another child has answered"
    assert not waiting()


def test_a_child_that_was_started_early_is_a_new_one(pid_of):
    worker.start_waiting()
    [early] = waiting()
    pid, failure = pid_of("import os; os.abort()")
    assert failure.crashed
    assert pid == early, "no other one was asked"


def test_a_child_that_ends_while_it_is_asked_is_no_opinion(pid_of):
    """It has waited as long as it may, and reads the request no more."""
    worker.start_waiting()
    [early] = waiting()
    pid, failure = pid_of(f"import os\nif os.getpid() == {early}: os._exit(0)")
    assert failure is None
    assert pid not in (early, None)


def test_a_child_that_hangs_is_ended(pid_of):
    pid, failure = pid_of("import time; time.sleep(600)", limit=2.0)
    assert failure.hung
    assert not runs(pid)


def test_a_child_of_another_environment_is_not_asked(pid_of, monkeypatch, tmp_path):
    pids = [pid_of()[0]]
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path))
    pids.append(pid_of()[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    pids.append(pid_of()[0])
    monkeypatch.chdir(tmp_path)
    pids.append(pid_of()[0])
    assert len(set(pids)) == 4
    assert [runs(pid) for pid in pids] == [False, False, False, True]


def test_a_child_that_nobody_asks_ends(pid_of, child_begins):
    child_begins(child.START.replace("child.serve", "child.IDLE = 0.2; child.serve"))
    first, _ = pid_of()
    end = time.monotonic() + 200
    while runs(first) and time.monotonic() < end:
        time.sleep(0.05)
    assert not runs(first)
    second, failure = pid_of()
    assert failure is None
    assert second != first


@pytest.mark.parametrize("said", ["5", "[]", '{"answer": 1, "more": 2}', "{", '"\\n{}'])
def test_what_a_child_must_not_say_ends_the_conversation(child_begins, said):
    """The child says it in place of its answers, and lives on."""
    source = f"import sys, time; sys.stdin.readline(); print({said!r}, flush=True); sys.stdin.read()"
    child_begins(source)
    answers, failure = worker.ask_waiting(MODULE, {}, 20.0)
    assert (answers, failure) == ([], None)
    assert isolation.result(answers).reason == "tried in a child process, it gave no answer"
    assert not waiting()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_leaves_the_child_to_its_parent(pid_of):
    pid, _ = pid_of()
    fork = os.fork()
    if not fork:  # the exit handlers run in it, as in any program
        os._exit(0 if not worker._waiting and worker.end_waiting() is None else 1)
    assert os.waitpid(fork, 0)[1] == 0
    assert runs(pid)
    assert pid_of() == (pid, None)


ENDING = """
import sys
from pyclmm.checks import worker
worker.start_waiting()
print(worker._waiting[0]._process.pid)
"""


def test_the_child_ends_with_its_parent():
    done = python("-W", "error", "-c", ENDING, check=True)
    assert done.stderr == ""
    assert not runs(int(done.stdout))


@pytest.fixture
def starts(monkeypatch):
    """The children that are started."""
    return noted(monkeypatch, worker, "started")


def test_programs_of_a_driver_are_tried_in_one_child(risky, asked, starts):
    Call(kernel="tiled").check_works()
    Call(kernel="tiled", dtype="float64").check_works()
    assert len(asked) == 2
    assert len(starts) == 1


def test_a_second_opinion_is_a_new_childs(risky, sabotage, asked, starts):
    sabotage("'DETOUR' in str(args) or os.abort()")
    with pytest.warns(pyclmm.CacheWarning):
        Call(kernel="tiled").check_works()
    assert len(asked) == len(starts) == 2


def test_a_second_opinion_on_this_process_is_a_new_childs_too(risky, asked, starts, monkeypatch):
    Call(kernel="tiled").check_works()  # whose child waits
    refuse_kernels(monkeypatch, "wrong here")
    with pytest.raises(pyclmm.UnsupportedError, match="wrong here"):
        Call(kernel="naive")()  # not risky
    assert len(asked) == len(starts) == 2


# started early


@pytest.fixture
def early(monkeypatch, risky):
    """What is called when the first queue is made; returns whether a child waits then."""
    return lambda: (selfcheck._prepare(), bool(waiting()))[1]


def test_a_child_is_started_early_where_nothing_was_checked_before(early):
    assert early()


def test_no_child_is_started_early_where_a_verdict_is_kept(early):
    Call(kernel="naive")()  # not risky
    assert not early()


@pytest.mark.parametrize("name", ["PYCLMM_TRIAL", "PYCLMM_SELFCHECK"])
def test_no_child_is_started_early_without_trials(early, monkeypatch, name):
    monkeypatch.setenv(name, "off")
    assert not early()
