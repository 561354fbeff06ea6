"""How commands end: JSON that stands alone, full disks, closed pipes and streams, a busy machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyclmm.tools import bench
from pyclmm.tools.report import JSON_FORMAT
from tests.support.commands import command
from tests.support.processes import ended
from tests.support.selection import slow, slow_rows

ROOT = Path(__file__).parents[2]
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")
BENCH = ("bench", "8", "8", "8", "--kernel", "naive", "--rounds", "1")
TUNE = ("tune", "--shapes", "16x16x16", "--layout", "NN", "--budget", "2s")


def process(*command, **streams):
    variables = {name: x for name, x in os.environ.items() if name != "PYTHONUNBUFFERED"}
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": variables} | streams
    return subprocess.Popen([sys.executable, "-m", "pyclmm", *command], **given)


def run(*command, **streams):
    child = process(*command, **streams)
    out, err = child.communicate(timeout=600)
    return child.returncode, out, err


# --json


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        (["info", "--json", "-"], {"platforms", "default_problem"}),
        ([*BENCH, "--json"], {"device", "products", "others_processors", "seed"}),
        *slow_rows(
            (["info", "--json"], {"platforms", "default_problem"}),
            ([*TUNE, "--json"], {"device", "products", "kept", "budget_s"}),
        ),
    ],
    ids=["info -", "bench", "info", "tune"],
)
def test_json_stands_alone_on_standard_output(command, keys, own_caches):
    status, out, _ = run(*command)
    assert status == 0
    data = json.loads(out)
    assert {"command", "interrupted", "format", "date", "host", *keys} <= set(data)
    assert (data["command"], data["interrupted"], data["format"]) == (command[0], False, JSON_FORMAT)


@pytest.mark.parametrize("option", ["--json", *slow("--report")])
def test_selftest_has_the_same_option(tmp_path, option):
    named = ("--kernel", "dpas")  # refused here: it takes a moment
    shown = command("selftest", *named, option, str(tmp_path / "s.json"))
    assert "cannot run here: dpas (--reasons says why)" in shown.stdout
    data = json.loads((tmp_path / "s.json").read_text())
    assert (data["command"], data["interrupted"], data["format"]) == ("selftest", False, JSON_FORMAT)
    alone = command("selftest", "--reasons", *named, option)
    assert json.loads(alone.stdout).keys() == data.keys()


@pytest.mark.parametrize("product", [("8", "8", "8"), ("8x8x8",)])
def test_a_number_is_no_file(product):
    shown = command("bench", "--json", *product, status=2)
    assert f"'{product[0]}' is taken for its file; write `--json -`" in shown.stderr


# streams that cannot be written


@needs_full
@pytest.mark.parametrize(
    "command", [["--help"], BENCH, *slow(["--version"], ["info"], [*BENCH, "--json"])], ids=str
)
def test_a_full_disk_is_one_line(command):
    with FULL.open("w") as full:
        status, _, err = run(*command, stdout=full)
    assert status == 2
    assert err == "Error: the output cannot be written: No space left on device\n"


@needs_full
def test_a_full_disk_for_the_file_still_shows_the_table():
    status, out, err = run(*BENCH, "--json", str(FULL))
    assert (status, err) == (2, "Error: cannot write /dev/full: No space left on device\n")
    assert "GFLOP/s" in out


@needs_full
def test_errors_that_nobody_can_read_keep_the_exit_code():
    with FULL.open("w") as full:
        assert run("becnh", stderr=full)[0] == 2
        assert run("bench", "3", "3", "3", "--device", "abacus", stderr=full)[0] == 2


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGPIPE")
@pytest.mark.parametrize("command", [["info"], *slow(BENCH, [*BENCH, "--json"])], ids=str)
def test_a_closed_pipe_is_quiet(command):
    """The reader is gone before anything is written."""
    with process(*command) as child:
        child.stdout.close()
        assert child.stderr.read() == ""
        assert child.wait(600) == 128 + signal.SIGPIPE


def test_a_closed_pipe_loses_no_measurement(tmp_path):
    with process(*BENCH, "--json", str(tmp_path / "b.json")) as child:
        child.stdout.close()
    assert json.loads((tmp_path / "b.json").read_text())["products"]


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="needs /dev/fd")
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1"])
def test_a_pipe_with_the_name_of_a_stream_gets_json(name):
    """As from a shell's `--json >(program)`."""
    status, out, err = run("warm", "8x8x8", "--json", name)
    assert (status, err) == (0, "")
    assert json.JSONDecoder().raw_decode(out)[0]["command"] == "warm"


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="needs /dev/fd")
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "link", "/dev/stderr"])
def test_a_stream_that_goes_to_a_file_gets_json_behind_what_is_there(tmp_path, name):
    """As by a shell's `--json /dev/stdout >> file`."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    path = tmp_path / "file"
    path.write_text("before\n")
    with path.open("a") as file:
        stream = {"stderr" if name == "/dev/stderr" else "stdout": file}
        assert run("warm", "8x8x8", "--json", str(tmp_path / name), **stream)[0] == 0
    before, _, rest = path.read_text().partition("\n")
    assert before == "before"
    found, end = json.JSONDecoder().raw_decode(rest)
    assert found["command"] == "warm"
    assert ("8 x 8 x 8" in rest[end:]) is (name != "/dev/stderr")


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="needs /dev/fd")
def test_a_picture_does_not_replace_the_file_that_a_stream_goes_to(tmp_path):
    (tmp_path / "link.svg").symlink_to("/dev/stdout")
    path = tmp_path / "file"
    path.write_text("before\n")
    with path.open("a") as file:
        code, _, err = run("bench", "8x8x8", "--plot", str(tmp_path / "link.svg"), stdout=file)
    assert (code, path.read_text()) == (2, "before\n")
    assert "it is there and is no picture of pyclmm" in err


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="needs /dev/fd")
def test_the_name_of_a_stream_that_is_not_open_is_refused():
    for name in ("/dev/fd/99", "/dev/fd/9999999999", "/dev/stdout"):
        command = f"'{sys.executable}' -m pyclmm info --json {name} >&-"
        done = ended("sh", "-c", command)
        assert done.returncode == 2
        assert re.fullmatch(rf"Error: .*{name}: .*\n", done.stderr)


@pytest.mark.skipif(os.name == "nt", reason="a shell's way to close a stream")
@pytest.mark.parametrize("closed", [">&-", *slow("2>&-", "<&-")])
def test_streams_may_be_closed(closed):
    command = f"'{sys.executable}' -m pyclmm info {closed}"
    done = ended("sh", "-c", command)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps a working directory")
@pytest.mark.parametrize("command", ["info --json x", "multiply a.npy b.npy c.npy"])
def test_a_deleted_working_directory_is_said(tmp_path, command):
    shell = f"mkdir gone && cd gone && rmdir ../gone && '{sys.executable}' -m pyclmm {command}"
    env = os.environ | {"PYTHONPATH": str(ROOT)}  # without an empty entry, which is the working directory
    done = ended("sh", "-c", shell, cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: the working directory was deleted, change to another one: ")


# a busy machine


needs_stat = pytest.mark.skipif(not bench.STAT.exists(), reason="the system has no /proc/stat")


@needs_stat
def test_a_busy_child_is_seen():
    """A child that computes all the time. It is one processor's work, less what others leave it."""
    before = others_for(0.8)
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        during = others_for(0.8)
    finally:
        child.kill()
        child.wait()
    assert during.processors > bench.BUSY, (before.processors, during.processors)
    assert during.warning().startswith("WARNING: the machine is busy: other processes used ")


def others_for(seconds):
    others = bench.Others()
    with others.watched():
        time.sleep(seconds)
    return others


@needs_stat
def test_own_work_is_not_the_work_of_others(monkeypatch, clock):
    """This process computes for a second; the system's count has nothing else."""
    ticks = os.sysconf("SC_CLK_TCK")
    own, result = sum(os.times()[:4]), os.times_result
    counts = iter([own + 5.0, own + 6.0])
    times = iter([own, own + 1.0])
    monkeypatch.setattr(
        bench, "STAT", FakeStat(lambda: f"cpu {int(next(counts) * ticks)} 0 0 99 9 0 0 0 7 7\n")
    )
    monkeypatch.setattr(os, "times", lambda: result((next(times), 0.0, 0.0, 0.0, 0.0)))
    others = bench.Others()
    with others.watched():
        clock.now += 1.0
    assert others.processors == pytest.approx(0.0, abs=0.03)
    assert others.warning() is None


class FakeStat:
    def __init__(self, read):
        self.read_text = read


def test_a_system_without_counters_says_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "STAT", tmp_path / "none")
    others = others_for(0.6)
    assert others.processors is others.warning() is None


def test_a_short_measurement_says_nothing():
    assert bench.Others(0.1, 0.1).processors is None


def test_bench_warns_of_a_busy_machine(contests):
    contests.beside(bench.Others(1.0, 1.25))
    shown = command(*BENCH)
    assert "other processes used 1.2 of its" in shown.stdout
    alone = command(*BENCH, "--json")
    assert json.loads(alone.stdout)["others_processors"] == 1.25
    assert "WARNING: the machine is busy" in alone.stderr
