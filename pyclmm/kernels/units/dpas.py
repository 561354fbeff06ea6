"""`dpas`: the matrix units of Intel's GPUs, through cl_intel_subgroup_matrix_multiply_accumulate."""

from __future__ import annotations

from ...problem.dtypes import dtype_of
from ...problem.gemm import GemmProblem
from ..device import DeviceInfo
from .unit import Instruction, UnitKernel, one_pass

EXTENSION = "cl_intel_subgroup_matrix_multiply_accumulate"
_TYPES = ("float16", "bfloat16", "int8", "uint8")


class Dpas(UnitKernel):
    """See cl/units/intel_dpas.h."""

    name = "dpas"
    summary = f"matrix units of Intel's GPUs ({EXTENSION}); never run by us"
    tiles = (
        (128, 64, 32, 16, 8),
        (64, 64, 16, 16, 8),
        (32, 64, 16, 16, 8),
        (32, 32, 8, 16, 8),
        (16, 32, 8, 16, 8),
    )
    most_sums = 32  # of 128 registers; fragments need the others. With more, Intel's compiler spills

    def instruction(self, problem: GemmProblem, device: DeviceInfo, rows: int) -> Instruction | str:
        lanes = device.sub_group_size
        if device.vendor != "intel" or EXTENSION not in device.extensions or lanes not in (8, 16):
            return f"dpas needs an Intel device with {EXTENSION} and sub-groups of 8 or 16"
        if reason := one_pass(problem, _TYPES):
            return f"dpas: {reason}"
        nbytes = dtype_of(problem.a_type).itemsize
        return Instruction(lanes, 8, lanes, 32 // nbytes, nbytes, 4 // nbytes, (("LANES", lanes),))
