"""`dpas`: the matrix units of Intel's GPUs, through cl_intel_subgroup_matrix_multiply_accumulate."""

from __future__ import annotations

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..accepts import EPILOGUE, Accepts
from ..device import DeviceInfo
from ..matrix_unit import DPAS_EXTENSION, unit_named
from .unit import HALVES_AND_BYTES, Instruction, UnitKernel


class Dpas(UnitKernel):
    """See cl/units/intel_dpas.h."""

    name = "dpas"
    summary = f"matrix units of Intel's GPUs ({DPAS_EXTENSION}); never run by us"
    accepts = Accepts(HALVES_AND_BYTES, EPILOGUE | {"moduli"})
    tiles = (
        (128, 64, 32, 16, 8),
        (64, 64, 16, 16, 8),
        (32, 64, 16, 16, 8),
        (32, 32, 8, 16, 8),
        (16, 32, 8, 16, 8),
    )
    most_sums = 32  # of 128 registers; fragments need the others. With more, Intel's compiler spills

    def unsuited(self, device: DeviceInfo) -> str | None:
        known = device.sub_group_size in (8, 16)
        return unit_named(self.name).lacking(self.name, device.vendor, device.marks if known else ())

    def instruction(self, problem: GemmProblem, device: DeviceInfo, rows: int) -> Instruction:
        lanes, nbytes = device.sub_group_size, ELEMENTS[problem.a_type].nbytes
        return Instruction(lanes, 8, lanes, 32 // nbytes, nbytes, 4 // nbytes, (("LANES", lanes),))
