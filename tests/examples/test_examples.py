"""Every example runs, prints something and gives no warning."""

import ast
import re
from pathlib import Path

import pytest

from pyclmm.kernels import KERNELS
from tests.support.processes import python

FOLDER = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
TEXTBOOK = {
    "naive", "tiled", "strip", "block", "vector", "double_buffer", "flat", "single_group", "sequential",
}  # fmt: skip


def run(script, *arguments):
    return python("-W", "error", script, *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example(script):
    for name in re.findall(
        r"^ *(?:import|from) (dask|gguf|matplotlib|sklearn|torch)\b", script.read_text("utf-8"), re.M
    ):
        pytest.importorskip(name, reason=f"needs {name}")
    done = run(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_every_textbook_kernel_has_its_script():
    assert {k.name for k in KERNELS} >= TEXTBOOK
    assert {script.stem for script in SCRIPTS} >= TEXTBOOK


def test_every_kernel_is_called_by_name_in_a_script():
    words = {
        node.value
        for script in SCRIPTS
        for node in ast.walk(ast.parse(script.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
    }
    missing = [kernel.name for kernel in KERNELS if kernel.name not in words]
    assert not missing, f"no script in examples/ names {missing}: add one, or a line to matrix_units.py"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_examples_assert_what_they_show(script):
    text = script.read_text(encoding="utf-8")
    assert "assert " in text
    assert text.startswith('"""')
