"""Each script starts and prints its --help. This finds imports that have moved."""

import os
import re
from pathlib import Path

import pytest

from tests.support.processes import python
from tests.support.selection import slow

ROOT = Path(__file__).parent.parent
MODULES = ("examples.demo", "examples.mlp", "tests.conformance", "tests.campaigns.seeded_faults")
FILES = [
    str(path.relative_to(ROOT))
    for folder in ("benchmarks", "docs", "examples", "tests/campaigns")
    for path in sorted((ROOT / folder).glob("*.py"))
    if "argparse" in path.read_text(encoding="utf-8") and path.stem != "seeded_faults"
]
COMMANDS = [*(["-m", name] for name in MODULES), *([name] for name in FILES)]
# PyTorch is too large for the test environment. A stand-in that has every name stands for it.
TORCH = "import sys\nfrom unittest.mock import MagicMock\nsys.modules[__name__] = MagicMock()\n"


@pytest.mark.parametrize("command", [*COMMANDS[:3], *slow(*COMMANDS[3:])], ids=" ".join)
def test_help(command, tmp_path):
    text = (ROOT / command[-1]).read_text("utf-8") if command[0] != "-m" else ""
    for name in re.findall(r"^(?:import|from) (dask|distributed)\b", text, re.M):
        pytest.importorskip(name, reason=f"needs {name}")
    (tmp_path / "torch.py").write_text(TORCH)
    path = os.pathsep.join((str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")))
    done = python("-W", "error", *command, "--help", cwd=ROOT, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout
    assert done.stderr == ""


def test_every_script_that_can_be_started_is_here():
    starts = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "benchmarks").glob("*.py"))
        if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    ]
    assert len(starts) >= 9
    assert set(starts) <= set(FILES)
