"""`mma_double`: float64 on the matrix units of NVIDIA's data-centre devices, sm_80 and later."""

from __future__ import annotations

from collections.abc import Sequence

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import MatrixKernel, Work, gemm_args
from .matrix_units import DOUBLE, FLOAT64, compute_capability
from .mma_ring import chunk, in_ranges, too_many_stages, unfit, with_split_k, work_items
from .unit_cost import Ring

# BM, BN, BK, SGM, SGN, STAGES, and the factor by which the tile is slower on an H200 than unit_cost.py
# says
_CONFIGS = {
    (128, 128, 32, 32, 64, 3): 0.86,
    (128, 128, 16, 64, 32, 3): 0.9,
    (64, 128, 16, 32, 32, 4): 0.91,
    (64, 64, 16, 32, 32, 4): 0.93,
    (64, 32, 16, 32, 16, 4): 0.86,
    (32, 64, 16, 16, 32, 4): 0.88,
    (32, 32, 16, 16, 16, 4): 0.83,
    (32, 32, 32, 16, 16, 4): 0.87,
}


def _stage_elements(config: TileConfig) -> int:
    """Elements of a stage, A and B with their padding: the most that any layout needs."""
    padding = 4 * (max(config.bm, config.bk) + max(config.bn, config.bk))
    return (config.bm + config.bn) * config.bk + padding


class MmaDouble(MatrixKernel):
    """See cl/nvidia/mma_double.cl. BM x BN x BK is a work-group's tile, SGM x SGN a sub-group's, SPLIT_K
    the number of ranges of K. Options: ``mma_k``: K of one instruction, ``group``: rows of tiles that are
    computed together.
    """

    name = unit = "mma_double"
    summary = "float64 matrix units of sm_80 and sm_90 (mma.sync)"
    accepts = DOUBLE
    options = ("group", "mma_k")

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        mma_k = 4 if compute_capability(device) < (9, 0) else 8
        found = [
            TileConfig(bm=m, bn=n, bk=k, sgm=x, sgn=y, stages=s, options=(("group", 8), ("mma_k", mma_k)))
            for m, n, k, x, y, s in _CONFIGS
        ]
        return [c for c in with_split_k(found, problem, device) if not self.violations(problem, c, device)]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        chunks = (chunk(problem.a_align), chunk(problem.b_align))
        c = config
        slower = _CONFIGS.get((c.bm, c.bn, c.bk, c.sgm, c.sgn, c.stages), 1.0)
        return Ring(problem, config, device, FLOAT64, chunks=chunks, slower=slower).seconds()

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        mma_k = config.option("mma_k", 4)
        if reasons := unfit(config, 8):
            return reasons
        allowed = (4,) if compute_capability(device) < (9, 0) else (4, 8, 16)
        if mma_k not in allowed or config.bk % mma_k:
            return [f"mma_k is one of {allowed} and divides bk: {config}"]
        items = work_items(config)
        for lines in ((config.bk, config.bm), (config.bk, config.bn)):
            for length in lines:
                if length % 2 or items % length or (lines[0] * lines[1]) % (2 * items):
                    return [f"{items} work-items do not fill tiles of {lines}: {config}"]
        needed = 8 * config.stages * _stage_elements(config)
        return too_many_stages(config, needed, device) or config.violations(device, (items,), 0)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        chunks = (chunk(problem.a_align), chunk(problem.b_align))
        defines = (("BK", config.bk), ("MMA_K", config.option("mma_k", 4)))
        return Work(*in_ranges(problem, config, self.name, chunks, defines, gemm_args(problem)))
