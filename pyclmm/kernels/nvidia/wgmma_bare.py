"""`wgmma_bare`: one wgmma instruction of NVIDIA's sm_90a and nothing around it, for learning."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from ...problem.gemm import GemmProblem
from ..accepts import EPILOGUE, HALVES, Accepts
from ..config import TileConfig
from ..cost import launched
from ..device import DeviceInfo
from ..interface import MatrixKernel, Work, gemm_launch, gemm_program, tiles_of

# Those of cl/nvidia/wgmma_bare.cl
_TILE = TileConfig(bm=64, bn=64, bk=64)
_WORK_ITEMS = 128
_ELEMENT_BYTES = 2
_LOCAL_BYTES = (_TILE.bm + _TILE.bn) * _TILE.bk * _ELEMENT_BYTES
# Cycles of a compute unit for a step, measured on an H200: 2,700 at 2048 cubed, 3,300 at 4096 (float16, NN).
# ptxas 13.0 makes 1,606 instructions of it, most of them of integers, which issue at half the rate.
# Work-groups that its registers let run on a compute unit: 5 with 13.0, more with 12.9. In reads of global
# memory: the waits of a step; the start and the end of a work-group.
_CYCLES, _RESIDENT = 3000, 5
_WAITS, _ENDS = 5.0, 10.0


class WgmmaBare(MatrixKernel):
    """See cl/nvidia/wgmma_bare.cl. Its tile is always 64 x 64, with 64 of K."""

    name = "wgmma_bare"
    summary = "one instruction of sm_90a's matrix units (wgmma) and nothing around it"
    accepts = Accepts(HALVES, EPILOGUE)
    automatic = False
    unit = "wgmma"

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        return [] if self.violations(problem, _TILE, device) else [_TILE]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        latency, steps = device.rates.latency, ceil(problem.k / config.bk)
        groups = tiles_of(problem, config.bm, config.bn) * problem.batch
        cycles = device.rates.float32 / (device.units * device.unit.fma)  # a second
        issued = _CYCLES / cycles  # one sub-group on each of four schedulers
        alone = steps * (issued + _WAITS * latency) + _ENDS * latency
        return launched(device, groups, _WORK_ITEMS, _RESIDENT, alone, steps * issued, problem.nbytes)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        if config != _TILE:
            return [f"its only tile is {_TILE}, not {config}"]
        return config.violations(device, (_WORK_ITEMS,), _LOCAL_BYTES)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        size = (ceil(problem.n / config.bn) * _WORK_ITEMS, ceil(problem.m / config.bm))
        program = gemm_program(problem, "nvidia/wgmma_bare.cl", ptx_target="sm_90a")
        return Work((gemm_launch(problem, program, "matmul_wgmma_bare", size, (_WORK_ITEMS, 1)),))
