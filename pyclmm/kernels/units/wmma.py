"""`wmma`: the matrix units of AMD's RDNA 3 (gfx11..), through the compiler's builtins."""

from __future__ import annotations

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..accepts import EPILOGUE, Accepts
from ..device import DeviceInfo
from .unit import HALVES_AND_BYTES, Instruction, UnitKernel


class Wmma(UnitKernel):
    """See cl/units/amd_wmma.h."""

    name = "wmma"
    summary = "matrix units of AMD's RDNA 3, gfx11 (WMMA); never run by us"
    accepts = Accepts(HALVES_AND_BYTES, EPILOGUE | {"moduli"})
    tiles = (
        (128, 128, 64, 32, 16),
        (128, 64, 32, 32, 16),
        (64, 64, 32, 16, 16),
        (32, 32, 16, 16, 16),
    )

    def instruction(self, problem: GemmProblem, device: DeviceInfo, rows: int) -> Instruction:
        nbytes = ELEMENTS[problem.a_type].nbytes
        return Instruction(32, 16, 16, 16, nbytes, 16 // nbytes)

    def depth(self, one: Instruction) -> int:
        """BK of two instructions: with more of 8-bit types, clang 19 spills."""
        return 2 * one.k
