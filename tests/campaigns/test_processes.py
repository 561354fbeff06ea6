"""The campaign of processes notices seeded faults, counts its outcomes and replays a seed."""

import json
import os
import random
from pathlib import Path

import pytest

from tests.campaigns import processes
from tests.campaigns.box import MARK, Failed

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="the campaign needs Linux's /proc")

# Python imports this when a process starts, and so changes pyclmm.
TRUSTS_DAMAGED_FILES = """
from pyclmm import store
read_json = store.read_json
def trust(path, fault_of):
    verdict = {"reason": None, "timed_out": None} if path.exists() else None
    return verdict if "selfcheck" in str(path) else read_json(path, fault_of)
store.read_json = trust
"""
LEAVES_FAILURES_TO_PYOPENCL = """
from pyclmm.opencl import program
program.with_pyopencl_caches = lambda call: call()
"""
REFUSES_A_KERNEL = """
from pyclmm.kernels import kernel_named
type(kernel_named("naive")).refuses = lambda *_: "seeded"
type(kernel_named(NAME)).refuses = lambda *_: "seeded"
"""
VERDICTS = processes.damage("pyclmm .json", "random")


@pytest.fixture(scope="module")
def lab():
    made = processes.Lab(dict(os.environ))
    with made.filled:
        yield made


@pytest.fixture
def seeded(lab, monkeypatch, tmp_path):
    """A function: processes of the lab start with these lines."""

    def seed(lines):
        (tmp_path / "sitecustomize.py").write_text(lines)
        path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        monkeypatch.setattr(lab, "base", lab.base | {"PYTHONPATH": path})

    return seed


def outcome(scenario, lab):
    return processes.outcome(scenario, lab, random.Random(1))


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [VERDICTS, processes.below_a_file], ids=["damage", "unwritable"])
def test_promises_that_hold_are_told(lab, scenario):
    assert outcome(scenario, lab)[0] == "passed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "scenario", "reason"),
    [
        (TRUSTS_DAMAGED_FILES, VERDICTS, "stays damaged"),
        (LEAVES_FAILURES_TO_PYOPENCL, processes.below_a_file, "a process ended with exit code 1"),
        ("import sys; sys.exit('seeded')", VERDICTS, "seeded"),
    ],
    ids=["trusts damaged files", "leaves failures to PyOpenCL", "does not start"],
)
def test_a_seeded_fault_is_noticed(lab, seeded, lines, scenario, reason):
    seeded(lines)
    how, text = outcome(scenario, lab)
    assert how == "failed"
    assert reason in text


@pytest.mark.slow
def test_another_kernel_is_noticed(lab, seeded):
    seeded(REFUSES_A_KERNEL.replace("NAME", repr(lab.healthy.kernels["float32"])))
    how, text = outcome(VERDICTS, lab)
    assert how == "failed"
    assert "other kernels" in text


@pytest.mark.slow
def test_processes_that_are_left_are_ended(lab):
    with lab.box() as box:
        process = box.start()
    assert process.wait(60) == -9
    assert not box.folder.exists()
    assert not [x for x in Path("/proc").glob("[0-9]*/environ") if _belongs(x, box)]
    process.communicate()


def _belongs(path, box):
    try:
        return f"{MARK}={box.folder}".encode() in path.read_bytes()
    except OSError:
        return False


class FakeLab:
    """A lab without processes."""

    def __init__(self, base):
        self.cold_s, self.filled, self.healthy = 0.0, self, self
        self.kernels, self.home, self.files = {}, Path(), list

    __enter__ = __exit__ = lambda *_: None
    kinds = staticmethod(lambda: {"pyclmm .json": []})


def passes(lab, r):
    return f"drew {r.random()}"


def fails(lab, r):
    raise Failed("as it should")


def skips(lab, r):
    raise processes.Skipped("no root")


@pytest.fixture
def fakes(monkeypatch):
    """A lab without processes, and a scenario for each outcome."""
    given = [("kill 0", passes), ("damage x", fails), ("kill 1", passes), ("unwritable y", skips)]
    monkeypatch.setattr(processes, "Lab", FakeLab)
    monkeypatch.setattr(processes, "scenarios", lambda lab, r: given)
    monkeypatch.setattr(processes, "header", lambda base: {"device": "none"})


def test_outcomes_are_counted_and_recorded(fakes, capsys, tmp_path):
    record = tmp_path / "record.json"
    assert processes.main(["--seed", "5", "--record", str(record)]) == 1
    said = capsys.readouterr().out
    assert "seed 5, damage x: failed: as it should" in said
    for row in ("| kill | 2 | 0 | 0 | 2 |", "| damage | 0 | 1 | 0 | 1 |", "| unwritable | 0 | 0 | 1 | 1 |"):
        assert row in said
    found = json.loads(record.read_text())
    assert found["seed"] == 5
    assert [x["outcome"] for x in found["scenarios"]] == ["passed", "failed", "passed", "skipped"]


def test_a_pattern_and_a_seed_replay_one_scenario(fakes, capsys):
    lines = []
    for arguments in (["--seed", "5"], ["--seed", "5", "--only", "kill 1$"], ["--seed", "6"]):
        processes.main(arguments)
        (line,) = [x for x in capsys.readouterr().out.splitlines() if "kill 1:" in x]
        lines.append(line.partition("drew ")[2].split()[0])
    assert lines[0] == lines[1] != lines[2]


def test_no_scenario_begins_when_the_time_is_over(fakes, capsys):
    assert processes.main(["--seconds", "-1"]) == 0
    assert "| damage | 0 | 0 | 0 | 1 |" in capsys.readouterr().out


def test_a_short_run_has_some_of_all():
    names = [name for name, _ in processes.scenarios(FakeLab({}), random.Random(1))]
    assert {name.split()[0] for name in names[:4]} == {"damage", "unwritable", "queue", "kill"}
    assert len(set(names)) == len(names)
