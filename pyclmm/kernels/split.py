"""`split`: float32 products on matrix units, with float32's accuracy: precision="high"."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from ..config import TileConfig
from ..device import DeviceInfo
from ..problem import GemmProblem
from .base import (
    GEMM_H,
    TYPES_H,
    Kernel,
    Launch,
    Program,
    Work,
    Workspace,
    gemm_args,
    gemm_defines,
    local_range,
    ndrange,
)
from .matrix_units import (
    FLOAT16,
    PACK_ITEMS,
    TF32,
    Operands,
    compute_capability,
    packing,
    too_long,
)
from .wgmma import CAPABILITY, maps_workspace, tile_configs, tile_violations, wgmma_launch

_TILES = ((128, 128), (64, 128), (128, 64))  # two sets of accumulators: 256 columns do not fit
_PARTS = 2
_LINES_A_GROUP = 8  # LINES_E of cl/split.cl
_HALF = Operands(FLOAT16, True, True, False, False)
_TF32 = Operands(TF32, True, True, False, False)
_EXPONENTS, _PEAKS, _DONE = "workspace:exponents", "workspace:peaks", "workspace:done"


class Split(Kernel):
    """See cl/split.h. Five launches: the exponents of rows and columns; scaled float16 parts; their
    product, if they serve; else TF32 parts and their product. The last two return at once if the
    float16 parts did.
    """

    name = "split"
    summary = 'precision="high": float32 as two float16 or two TF32 parts on the matrix units of sm_90a'
    risky = True

    def supports(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if compute_capability(device) != CAPABILITY:
            return "split needs an NVIDIA device of compute capability 9.0"
        if (problem.a_type, problem.b_type, problem.acc_type) != ("float32",) * 3:
            return "split multiplies float32 by float32"
        if problem.precision != "high":
            return f'split is for precision="high", not {problem.precision!r}'
        return too_long(problem, 2**29)

    def configs(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        return tile_configs(problem, device, FLOAT16.nbytes, _TILES, _PARTS)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        reasons = tile_violations(config, device, FLOAT16.nbytes, _PARTS)
        if config.bn > 128 or config.bm > 128:
            reasons.append(f"split has tiles of {_TILES}, not {config}")
        return reasons

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        none = (("SPLIT", 0),)
        parts = packing(
            problem, device, _HALF, ("split.h", "split.cl"), "matmul_split_parts", none, (_EXPONENTS, _PEAKS)
        )
        tf32_parts = packing(
            problem, device, _TF32, ("pack.cl",), "matmul_pack", (("PACK_T", "uint"), ("SPLIT", 2)), (_DONE,)
        )
        work = (
            self._exponents(problem),
            parts,
            wgmma_launch(problem, config, device, _HALF, 1, (_EXPONENTS, _PEAKS, _DONE)),
            tf32_parts,
            wgmma_launch(problem, config, device, _TF32, 2, (_EXPONENTS, _DONE)),
        )
        batch = problem.batch
        workspace = (
            maps_workspace(problem, config, device),
            *_TF32.workspace(problem, _PARTS),  # the float16 parts lie there first; they are smaller
            Workspace("exponents", 4 * (problem.m + problem.n) * batch),
            Workspace("peaks", 8 * problem.k * batch),
            Workspace("done", 4 * batch),
        )
        return Work(work, workspace)

    def _exponents(self, problem: GemmProblem) -> Launch:
        groups = ceil(problem.m / _LINES_A_GROUP) + ceil(problem.n / _LINES_A_GROUP)
        return Launch(
            Program((TYPES_H, GEMM_H, "split.h", "split.cl"), (*gemm_defines(problem), ("SPLIT", 0))),
            "matmul_split_exponents",
            ndrange(problem, groups * PACK_ITEMS),
            local_range(problem, PACK_ITEMS),
            (*gemm_args(problem), _EXPONENTS, _PEAKS),
        )
