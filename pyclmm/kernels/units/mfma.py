"""`mfma`: the matrix units of AMD's gfx90a and gfx942, through the compiler's builtins."""

from __future__ import annotations

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..accepts import EPILOGUE, Accepts, Types
from ..device import DeviceInfo
from .unit import Instruction, UnitKernel

# Elements along K that a work-item passes to one instruction, by element type.
_WORD_K = {
    "gfx90a": {"float16": 4, "bfloat16": 4, "float32": 1, "float64": 1, "int8": 4},
    "gfx942": {"float16": 4, "bfloat16": 4, "float32": 1, "float64": 1, "int8": 8},
}
_LANES = 64


class Mfma(UnitKernel):
    """See cl/units/amd_mfma.h. float32 is summed by fused multiply-adds in the order of K, as
    precision="highest" requires (arXiv 2511.10909 measured both devices). With "medium", gfx942 multiplies
    in TF32.
    """

    name = "mfma"
    summary = "matrix units of AMD's gfx90a and gfx942 (MFMA); never run by us"
    accepts = Accepts(
        (
            *(Types((name,), "float32") for name in ("float16", "bfloat16", "float32")),
            Types(("float64",), "float64"),
            Types(("int8",), "uint32"),
        ),
        EPILOGUE | {"moduli", "fallback"},
    )
    tiles = (
        (128, 128, 64, 64, 32),
        (256, 128, 128, 64, 32),
        (128, 64, 64, 32, 32),
        (64, 64, 32, 32, 32),
        (128, 128, 64, 64, 16),
        (64, 128, 32, 64, 16),
        (64, 64, 32, 32, 16),
        (32, 32, 16, 16, 16),
    )

    def multiplied_as(self, problem: GemmProblem, device: DeviceInfo) -> str:
        return problem.a_type if device.gfx == "gfx90a" else super().multiplied_as(problem, device)

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if problem.a_type == "float16" and device.gfx == "gfx90a" and problem.precision != "medium":
            return "mfma on gfx90a treats float16 denormals as zero: precision='medium' allows that"
        return super().obstacle(problem, device)

    def instruction(self, problem: GemmProblem, device: DeviceInfo, rows: int) -> Instruction:
        name = problem.a_type
        tf32 = name == "float32" and device.gfx == "gfx942" and problem.precision == "medium"
        word_k = 2 if tf32 else _WORD_K[device.gfx][name]
        rows = 16 if name == "float64" or rows == 16 else 32
        defines = (("WORD_K", word_k), ("UNIT_M", rows))
        k = word_k * _LANES // rows
        return Instruction(_LANES, rows, rows, k, ELEMENTS[name].nbytes, word_k, defines)
