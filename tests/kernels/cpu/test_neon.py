"""clang compiles `packed` for Neon, which has 32 registers of 4 float32, without spills in the inner loop."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pyclmm.kernels import kernel_named
from pyclmm.kernels.device import Target
from pyclmm.kernels.interface import Launch
from pyclmm.opencl.compiler import expanded
from pyclmm.opencl.program import build_options
from pyclmm.problem.gemm import GemmProblem
from tests.support.made_up import DEVICE

NEON = replace(
    DEVICE,
    kind="cpu",
    vendor="pocl",
    local_mem_size=1 << 19,
    unified_memory=True,
    target=Target(128, ("fma", "neon")),
)
MACHINE = ("-target", "aarch64-linux-gnu", "-mcpu=neoverse-n1", "-O3")


def multiply(problem: GemmProblem) -> Launch:
    packed = kernel_named("packed")
    work = packed.launches(problem, packed.configs(problem, NEON)[0], NEON)
    return next(launch for launch in work.launches if launch.kernel == "packed_multiply")


def assembly(launch: Launch, folder: Path) -> str:
    """The assembly text. As in PoCL, kernel entries get C's calling convention in LLVM's text."""
    clang = shutil.which("clang") or shutil.which("clang-15")
    if clang is None:
        pytest.skip("no clang")
    source, text, output = (folder / f"packed.{ending}" for ending in ("cl", "ll", "s"))
    source.write_text(expanded(launch.program.source))
    language = ("-x", "cl", "-Wall", "-Werror", "-Wno-unused-function", "-Xclang", "-cl-ext=+cl_khr_fp64")
    options = build_options(launch.program)
    compiled = [clang, *language, *MACHINE, *options, "-emit-llvm", "-S", str(source), "-o", str(text)]
    subprocess.run(compiled, check=True)
    text.write_text(re.sub(r"\bspir_(kernel|func) ", "", text.read_text()))
    subprocess.run([clang, *MACHINE, "-S", str(text), "-o", str(output)], check=True)
    return output.read_text()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_the_inner_loop_fits_neons_registers(dtype, tmp_path):
    """The loop body has 12 sums times 4 steps of K and spills no vector."""
    problem = GemmProblem(512, 512, 512, dtype, dtype, dtype, dtype, lda=512, ldb=512, ldo=512)
    blocks = re.split(r"^\.LBB\w+:|^// %bb", assembly(multiply(problem), tmp_path), flags=re.M)
    body = max(blocks, key=lambda block: len(re.findall(r"\bfmla\b", block)))
    assert "16-byte Folded" not in body
    assert len(re.findall(r"\bfmla\b", body)) == 12 * 4
