"""The table of devices in the README follows from files of results, not from anyone's memory."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import support  # noqa: E402

PAGE = """
## Runs

| implementation | passed | refused | failed | seconds | trouble |
| --- | --- | --- | --- | --- | --- |
| Good 1.0 | 605 | 443 | 0 | 237 | - |
| Wrong 1.0 | 604 | 443 | 1 | 237 | - |
| Crashed 1.0 | 604 | 443 | 0 | 237 | ended |

## Compiled for devices that we do not have

| kernel | target | programs | failed | registers | spilled | local bytes |
| --- | --- | --- | --- | --- | --- | --- |
| thin: thin_walk | gfx90a | 6 | 0 | 72 | 0 | 4096 |
| mfma: matmul_unit | gfx942 | 6 | 1 | 72 | 0 | 4096 |
| thin: thin_walk | gfx942 | 6 | 0 | 72 | 0 | 4096 |
"""


def test_only_runs_without_a_failure_count():
    assert support.runs(PAGE) == ["Good 1.0"]
    assert support.targets(PAGE) == ["gfx90a"]


def test_results_decide(tmp_path):
    write = lambda name, content: (tmp_path / name).write_text(json.dumps(content))  # noqa: E731
    write("x-float32.json", {"device": "AMD Instinct MI300X", "driver": "1", "date": "2027-01-02T03:04"})
    write("y-sampled-7.json", {"device": "NVIDIA B200", "date": "2027-01-03"})
    write("cpu-a.json", {"processor": "Cortex-A720", "date": "2027-01-01", "device": {}})
    write("cpu-old.json", {"device": "no processor", "date": "2027-01-01"})
    seen = support.measured(tmp_path)
    assert seen == {
        "AMD Instinct MI300X": "2027-01-02", "Cortex-A720": "2027-01-01", "NVIDIA B200": "2027-01-03"
    }  # fmt: skip
    states = {kind.name: support.status(kind, seen, ["gfx90a", "pvc"]) for kind in support.KINDS}
    assert states["AMD GPUs"] == ("measured", "AMD Instinct MI300X (2027-01-02)")
    assert states["Arm CPUs"] == ("measured", "Cortex-A720 (2027-01-01)")
    assert states["Intel GPUs"] == ("compiled offline only", "pvc")
    assert states["Apple, Mali and Adreno GPUs"] == ("never run", "")


def test_every_device_of_the_results_and_every_target_has_a_row():
    kinds = support.KINDS
    page = support.CONFORMANCE.read_text(encoding="utf-8")
    assert support.measured()
    for name in support.measured():
        assert [k.name for k in kinds if support.status(k, {name: "2026"}, [])[0] == "measured"], name
    for target in support.targets(page):
        assert [k.name for k in kinds if support.status(k, {}, [target])[0] != "never run"], target


def test_what_was_executed_in_an_emulator_is_said():
    page = "# Executed\n\n| kernel | gfx90a | gfx942 |\n| --- | --- | --- |\n| mfma | 3 | 4 |\n"
    (kind,) = (kind for kind in support.KINDS if kind.name == "AMD GPUs")
    executed = support.emulated(page)
    assert executed == ["gfx90a", "gfx942"]
    words = "machine code executed in an emulator"
    assert support.status(kind, {}, ["gfx90a"], executed) == (words, ", ".join(executed))
    assert support.status(kind, {}, ["gfx90a"], support.emulated("")) == ("compiled offline only", "gfx90a")


def test_arm_targets_need_a_table_without_failures():
    page = support.OFFLINE.read_text(encoding="utf-8")
    assert support.arm_targets(page)
    assert not support.arm_targets(page.replace("0 of them spill or fail", "1 of them spill or fail"))
    assert not support.arm_targets("")


@pytest.mark.parametrize("kind", support.KINDS, ids=lambda kind: kind.name)
def test_a_row_says_one_of_four_things(kind):
    assert any(row[0] == kind.name and row[1] in support.STATES for row in support.rows())
