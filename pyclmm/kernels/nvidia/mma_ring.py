"""What `mma`, `mma_double` and `mma_split` share: one work-group for each tile, cl/nvidia/mma_ring.h."""

from __future__ import annotations

from math import ceil

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Arg, Defines, Launch, Program, gemm_defines, local_range, ndrange
from .matrix_units import local_bytes, out_defines


def work_items(config: TileConfig) -> int:
    """A work-group's size: 32 work-items for each sub-group."""
    return 32 * (config.bm // config.sgm) * (config.bn // config.sgn)


def tiles(problem: GemmProblem, config: TileConfig) -> int:
    """Tiles of one product, which is the number of its work-groups."""
    return ceil(problem.m / config.bm) * ceil(problem.n / config.bn)


def unfit(config: TileConfig, columns: int) -> list[str]:
    """Why the tile cannot be divided among sub-groups in fragments of 16 x *columns*. Empty if it can."""
    if config.sgm % 16 or config.sgn % columns or config.bm % config.sgm or config.bn % config.sgn:
        return [f"sgm must be a multiple of 16, sgn of {columns}, and divide bm, bn: {config}"]
    return []


def too_many_stages(config: TileConfig, needed: int, device: DeviceInfo) -> list[str]:
    """Why *needed* bytes of local memory are too many for the device. Empty if they are not."""
    if needed > local_bytes(device):
        return [f"{config.stages} stages take {needed} bytes of local memory"]
    return []


def product(
    problem: GemmProblem, config: TileConfig, name: str, groups: int, defines: Defines, args: tuple[Arg, ...]
) -> Launch:
    """The launch of cl/nvidia/<name>.cl, with a work-group for each tile."""
    ring = (
        *(("BM", config.bm), ("BN", config.bn), ("SGM", config.sgm), ("SGN", config.sgn)),
        *(("STAGES", config.stages), ("GROUP", config.option("group", 8))),
    )
    return Launch(
        Program(f"nvidia/{name}.cl", (*gemm_defines(problem), *ring, *defines, *out_defines(problem))),
        f"matmul_{name}",
        ndrange(problem, groups * work_items(config)),
        local_range(problem, work_items(config)),
        args,
    )
