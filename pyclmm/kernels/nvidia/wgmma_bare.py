"""`wgmma_bare`: one wgmma instruction of NVIDIA's sm_90a and nothing around it, for learning."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from ...problem.gemm import GemmProblem
from ..accepts import EPILOGUE, Accepts, Types
from ..config import TileConfig
from ..cost import launched
from ..device import DeviceInfo
from ..interface import (
    Kernel,
    Launch,
    Program,
    Work,
    gemm_args,
    gemm_defines,
    local_range,
    ndrange,
    round_up,
    too_long,
)
from ..matrix_unit import unit_named

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


class WgmmaBare(Kernel):
    """See cl/nvidia/wgmma_bare.cl. Its tile is always 64 x 64, with 64 of K."""

    name = "wgmma_bare"
    summary = "one instruction of sm_90a's matrix units (wgmma) and nothing around it"
    accepts = Accepts((Types(("float16",), "float32"), Types(("bfloat16",), "float32")), EPILOGUE)
    automatic = False
    matrix_units = True

    def unsuited(self, device: DeviceInfo) -> str | None:
        return unit_named("wgmma").lacking(self.name, device.vendor, device.marks)

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        return too_long(problem)

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        return [] if self.violations(problem, _TILE, device) else [_TILE]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        latency, steps = device.rates.latency, ceil(problem.k / config.bk)
        groups = ceil(problem.m / config.bm) * ceil(problem.n / config.bn) * problem.batch
        cycles = device.rates.float32 / (device.units * device.unit.fma)  # a second
        issued = _CYCLES / cycles  # one sub-group on each of four schedulers
        alone = steps * (issued + _WAITS * latency) + _ENDS * latency
        return launched(device, groups, _WORK_ITEMS, _RESIDENT, alone, steps * issued, problem.nbytes)

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        return config.bm, config.bn

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        if config != _TILE:
            return [f"its only tile is {_TILE}, not {config}"]
        return config.violations(device, (_WORK_ITEMS,), _LOCAL_BYTES)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        columns = round_up(problem.n, config.bn) // config.bn * _WORK_ITEMS
        rows = round_up(problem.m, config.bm) // config.bm
        launch = Launch(
            Program("nvidia/wgmma_bare.cl", gemm_defines(problem), ptx_target="sm_90a"),
            "matmul_wgmma_bare",
            ndrange(problem, columns, rows),
            local_range(problem, _WORK_ITEMS, 1),
            gemm_args(problem),
        )
        return Work((launch,))
