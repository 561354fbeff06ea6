"""The whole programs of pages 14 and 15, in the form that devices with the instruction take."""

import re
from pathlib import Path

import numpy as np
import pytest

from pyclmm.opencl import compiler
from tests.kernels.nvidia.test_matrix_units import CLANG_FLAGS, PTX_BUILTINS, PTXAS, clang
from tests.simulators import interleaved
from tests.simulators.interleaved import CLANG
from tests.support.processes import ended

ROAD = Path(__file__).parents[2] / "docs/road"
PROGRAMS = {"14_matrix_units": ("HAS_MMA", "sm_80"), "15_hopper": ("HAS_WGMMA", "sm_90a")}
WGMMA = [f"wgmma.{part}" for part in ("fence", "mma_async", "commit_group", "wait_group")]


# Each instruction, and the function of the emulator for it.
EMULATED = {
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": "emu_mma(d, a, b, 1, 1);",
    "fence.proxy.async.shared::cta": "emu_bare_stores();",
    "wgmma.fence.sync.aligned": "emu_bare_fence();",
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16": "emu_bare_wgmma(d, a, b);",
    "wgmma.commit_group.sync.aligned": "emu_bare_commit();",
    "wgmma.wait_group.sync.aligned 0": "emu_bare_wait(d, 0);",
}


def source_of(page):
    [source] = re.findall(r'^SOURCE = """\n(.*?)^"""', (ROAD / f"{page}.md").read_text(), re.M | re.S)
    return source.encode().decode("unicode_escape")


def emulated(statement):
    [function] = [call for instruction, call in EMULATED.items() if instruction in statement[0]]
    return function


@clang
@pytest.mark.parametrize(
    ("page", "items", "rows", "columns"), [("14_matrix_units", 32, 16, 8), ("15_hopper", 128, 64, 64)]
)
def test_a_whole_program_is_right_with_its_instructions_emulated(page, items, rows, columns, rng, tmp_path):
    """At the page's sizes, which no tile divides, and at two smaller ones."""
    source = re.sub(r"asm volatile\(.*?\);", emulated, source_of(page), flags=re.S)
    for m, n, k in ((100, 200, 300), (1, 1, 1), (65, 9, 17)):
        a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((m, k), (k, n)))
        out = np.full((m, n), np.nan, np.float32)
        words = (m, n, k, *(x.ctypes.data for x in (a, b, out)))
        numbers = [f"(int)args[{i}]" for i in range(3)]
        call = f"multiply({', '.join(numbers + [f'(__global void *)args[{i}]' for i in (3, 4, 5)])});"
        sizes = (-(-n // columns), -(-m // rows), items)
        interleaved.run_source(source, [f"-D{PROGRAMS[page][0]}=1"], call, words, sizes, tmp_path)
        np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))


@clang
@pytest.mark.parametrize("page", PROGRAMS)
def test_the_instructions_of_a_whole_program_assemble(page, tmp_path):
    """Without ptxas: that its compiler keeps them."""
    has, target = PROGRAMS[page]
    source = PTX_BUILTINS + source_of(page)
    done = ended(CLANG, *CLANG_FLAGS, f"-D{has}=1", input=source, check=True)
    text = re.sub(r"\.version [\d.]+", ".version 8.6", done.stdout)
    if target == "sm_90a":
        text = re.sub(r"\.target sm_\d+", ".target sm_90", text)
        text = compiler.rewritten(text.encode()).decode()
    assert all(each in text for each in (["mma.sync"] if target == "sm_80" else WGMMA))
    if PTXAS is not None:
        (tmp_path / "program.ptx").write_text(text)
        ended(PTXAS, f"-arch={target}", "-o", tmp_path / "out", tmp_path / "program.ptx", check=True)
