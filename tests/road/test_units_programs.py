"""The whole programs of pages 14 and 15, in the form that devices with the instruction take."""

import re
import subprocess
from pathlib import Path

import pytest

from pyclmm.opencl import compiler
from tests.kernels.nvidia.test_matrix_units import CLANG, CLANG_FLAGS, PTX_BUILTINS, PTXAS, clang

ROAD = Path(__file__).parents[2] / "docs/road"
PROGRAMS = {"14_matrix_units": ("HAS_MMA", "sm_80"), "15_hopper": ("HAS_WGMMA", "sm_90a")}
WGMMA = [f"wgmma.{part}" for part in ("fence", "mma_async", "commit_group", "wait_group")]


@clang
@pytest.mark.parametrize("page", PROGRAMS)
def test_the_instructions_of_a_whole_program_assemble(page, tmp_path):
    """Without ptxas: that its compiler keeps them."""
    [source] = re.findall(r'^SOURCE = """\n(.*?)^"""', (ROAD / f"{page}.md").read_text(), re.M | re.S)
    has, target = PROGRAMS[page]
    source = PTX_BUILTINS + source.encode().decode("unicode_escape")
    done = subprocess.run(
        [CLANG, *CLANG_FLAGS, f"-D{has}=1"], input=source, capture_output=True, text=True, check=True
    )
    text = re.sub(r"\.version [\d.]+", ".version 8.6", done.stdout)
    if target == "sm_90a":
        text = re.sub(r"\.target sm_\d+", ".target sm_90", text)
        text = compiler.rewritten(text.encode()).decode()
    assert all(each in text for each in (["mma.sync"] if target == "sm_80" else WGMMA))
    if PTXAS is not None:
        (tmp_path / "program.ptx").write_text(text)
        command = [PTXAS, f"-arch={target}", "-o", tmp_path / "out", tmp_path / "program.ptx"]
        assert subprocess.run(command, check=False).returncode == 0
