"""Children end with their parent and at their limit, whatever they do then; they have its options."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pyclmm.checks import child, worker
from tests.support.faults import failing
from tests.support.processes import python
from tests.support.threads import few_threads

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups on this system")
ROOT = Path(__file__).parents[2]
HANG = "import ctypes; ctypes.PyDLL(None).sleep(600)"  # in C, with the interpreter's lock
DEAF_HANG = f"import signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); {HANG}"
# Other threads would hear the alarm, which this one has blocked.
DEAF_TO_ALARMS = f"import signal; signal.signal(signal.SIGALRM, signal.SIG_IGN); {DEAF_HANG}"
# Answers a request {"do": code} in a child, in place of isolation's answers.
SITE = """
import os, sys, types
fake = types.ModuleType("pyclmm.checks.isolation")
def answers(request):
    yield {"pid": os.getpid()}
    exec(request["do"])
    yield {"flags": list(sys.flags)}
fake.answers = answers
sys.modules["pyclmm.checks.isolation"] = fake
"""
PARENT = """
import sys
from pyclmm.checks import worker
said = lambda answer: print(answer["pid"], flush=True)
print(worker.ask("checks.isolation", {"do": sys.argv[1]}, 600.0, said))
"""


@pytest.fixture
def site(monkeypatch, tmp_path):
    """A function: children begin with these lines."""

    def write(lines=SITE):
        (tmp_path / "sitecustomize.py").write_text(lines)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT))))
        return tmp_path

    return write


def ends(pid, seconds):
    """Whether a process ends in that time."""
    end = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        if time.monotonic() > end:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.02)
    return True


def parent(code):
    command = [sys.executable, "-c", PARENT, code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def text_of(path):
    """The file's text, once it has one."""
    end = time.monotonic() + 60
    while not (path.exists() and path.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    return path.read_text()


on_linux = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux's /proc")


@on_linux
def test_a_child_that_hangs_and_what_it_started_do_not_outlive_a_killed_parent(site, tmp_path):
    """A compiler may be a process of its own, and a driver may block signals."""
    mark = tmp_path / "pid"
    site()
    compiler = "import subprocess; p = subprocess.Popen(['sleep', '600'])"
    compiler += f"; open({str(mark)!r}, 'w').write(str(p.pid))"
    with parent(f"{compiler}; {DEAF_HANG}") as process:
        pids = [int(process.stdout.readline()), int(text_of(mark))]
        process.kill()
    assert [ends(pid, 10) for pid in pids] == [True, True]


@on_linux
def test_a_child_that_hangs_while_it_starts_does_not_outlive_its_parent_either(site, tmp_path):
    """As in a sitecustomize, which may load a driver. The parent has the same one."""
    mark = tmp_path / "pid"
    write = f"open({str(mark)!r}, 'w').write(str(os.getpid()))"
    site(f"import os, sys, time\nif sys.flags.no_site: {write}, time.sleep(600)")
    with parent("pass") as process:
        pid = int(text_of(mark))
        process.kill()
    assert ends(pid, 10)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers on this system")
@pytest.mark.parametrize(("hang", "status"), [(HANG, -signal.SIGALRM), (DEAF_TO_ALARMS, 1)])
def test_a_child_ends_itself_at_its_limit(site, hang, status):
    """Nobody else ends it: its parent only waits, as one that is stopped does. It may hear no signal."""
    site(f"{SITE}\nfrom pyclmm.checks import child\nchild._GRACE = 0.3")
    hanging = worker.started()
    request = {"module": "checks.isolation", "request": {"do": hang}, "limit": 0.1}
    hanging._stdin.write(json.dumps(request).encode() + b"\n")
    try:
        assert hanging._process.wait(60) == status
    finally:
        hanging.end()


@on_linux
def test_a_child_that_hangs_and_hears_no_signal_ends_while_its_parent_is_stopped(site):
    """In a sitecustomize already, before it is asked anything."""
    site(f"import sys\nif sys.flags.no_site: {DEAF_TO_ALARMS}")
    start = "from pyclmm.checks import worker\nworker._TO_START = 1.0\n"
    start += "print(worker.started()._process.pid, flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGSTOP)
        try:
            assert ends(pid, 30)
        finally:
            process.kill()


def test_a_child_without_a_signal_for_a_closed_pipe_has_a_thread_for_it(site, child_begins):
    """As on macOS."""
    child_begins(child.START.replace("fcntl.F_SETSIG", "fcntl.F_NO_SUCH"))
    site()
    new = worker.started()
    assert new.ask("checks.isolation", {"do": "pass"}, 60.0, lambda _: None) is None
    assert new.is_alive()
    new._opened.close()  # as if this process had ended; standard input is closed too
    assert new._process.wait(20) in (0, -signal.SIGKILL)


def test_a_child_has_the_options_of_its_parent(site):
    """Isolated, an interpreter runs nothing of PYTHONPATH; nor does its child."""
    folder = site("import pathlib; pathlib.Path(__file__).with_name('ran').touch()")
    code = (
        f"import sys; sys.path[:] = {[str(ROOT), *sys.path]!r}\n"
        "from pyclmm.checks import worker\n"
        "print(worker.ask('checks.isolation', {}, 60.0, lambda _: None))"
    )
    done = python("-I", "-c", code, timeout=90, check=True)
    assert "KeyError" in done.stdout, "the child was asked"
    assert not (folder / "ran").exists()


def test_what_a_sitecustomize_prints_is_no_answer(site):
    """Banners of a system's, or of a .pth file's. The trial of each kernel failed by a broken pipe."""
    site(f"{SITE}\nprint('a banner', flush=True), os.write(1, b'{{}}\\n')")
    answers = []
    assert worker.ask("checks.isolation", {"do": "pass"}, 60.0, answers.append) is None
    assert [*answers[0], *answers[1]] == ["pid", "flags"]


def test_no_thread_is_needed_to_ask_a_child(site):
    """The system may refuse one."""
    site()
    with few_threads():
        assert worker.ask("checks.isolation", {"do": "pass"}, 60.0, lambda _: None) is None


def test_a_child_answers_where_no_pipe_can_be_waited_for(site, monkeypatch):
    """As on Windows. It has ended afterwards, as the request was the last one."""
    site()
    monkeypatch.delattr(select, "poll")
    answers = []
    assert worker.ask("checks.isolation", {"do": "pass"}, 60.0, answers.append) is None
    assert [*answers[0], *answers[1]] == ["pid", "flags"]


def test_a_request_that_no_child_reads_ends_at_the_limit(child_begins):
    """It is longer than a pipe holds."""
    child_begins("import time; time.sleep(600)")
    failure = worker.ask("checks.isolation", {"do": "x" * (1 << 22)}, 1.0, lambda _: None)
    assert failure.hung


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("can't fork"), OSError(24, "Too many open files")]
)
def test_a_child_that_cannot_be_started_is_a_failure_with_its_reason(error):
    with failing(subprocess, "Popen", error, library=""):
        failure = worker.ask("checks.isolation", {}, 5.0, lambda _: None)
    assert failure.reason.startswith("a child process could not be started: ")
    assert not failure.crashed
