"""Every example runs, prints something and gives no warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pyclmm.kernels import KERNELS

FOLDER = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
TEXTBOOK = {
    "naive", "tiled", "strip", "block", "vector", "double_buffer", "flat", "single_group", "sequential",
}  # fmt: skip


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "error", str(script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example(script):
    done = run(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_every_textbook_kernel_has_its_script():
    assert {k.name for k in KERNELS} >= TEXTBOOK
    assert {script.stem for script in SCRIPTS} >= TEXTBOOK


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_examples_assert_what_they_show(script):
    text = script.read_text(encoding="utf-8")
    assert "assert " in text
    assert text.startswith('"""')
