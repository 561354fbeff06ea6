"""What `mma`, `mma_double` and `mma_split` share: one work-group for each tile, cl/nvidia/mma_ring.h."""

from __future__ import annotations

from math import ceil

import numpy as np

from ...problem.gemm import GemmProblem
from ..config import TileConfig, slices
from ..device import DeviceInfo
from ..interface import Arg, Defines, Launch, Workspace, gemm_launch, gemm_program, round_up, tiles_of
from ..split_k import PartialSums, TileRange
from .matrix_units import local_bytes, out_defines

_TEAM_ITEMS = 64  # work-items that add a part of a tile


def work_items(config: TileConfig) -> int:
    """A work-group's size: 32 work-items for each sub-group, and each slice."""
    return 32 * (config.bm // config.sgm) * (config.bn // config.sgn) * slices(config)


def unfit(config: TileConfig, columns: int) -> list[str]:
    """Why the ring has no such tile, of fragments of 16 x *columns*. Empty if it has."""
    if config.sgm % 16 or config.sgn % columns or config.bm % config.sgm or config.bn % config.sgn:
        return [f"sgm must be a multiple of 16, sgn of {columns}, and divide bm, bn: {config}"]
    if config.stages < 2 or config.split_k < 1:
        return [f"stages must be 2 or more, split_k 1 or more: {config}"]
    return []


def too_many_stages(config: TileConfig, needed: int, device: DeviceInfo) -> list[str]:
    """Why *needed* bytes of local memory are too many for the device. Empty if they are not."""
    if needed > local_bytes(device):
        return [f"{config.stages} stages take {needed} bytes of local memory"]
    return []


def product(
    problem: GemmProblem,
    config: TileConfig,
    name: str,
    groups: int,
    chunks: tuple[int, int],
    defines: Defines,
    args: tuple[Arg, ...],
) -> Launch:
    """The launch of cl/nvidia/<name>.cl, with *groups* work-groups for each range of K."""
    ring = (
        *(("BM", config.bm), ("BN", config.bn), ("SGM", config.sgm), ("SGN", config.sgn)),
        *(("STAGES", config.stages), ("GROUP", config.option("group", 8))),
        *(("CHUNK_A", chunks[0]), ("CHUNK_B", chunks[1])),
    )
    items, split = work_items(config), config.split_k > 1
    program = gemm_program(problem, f"nvidia/{name}.cl", (*ring, *defines, *out_defines(problem)))
    size, local = (groups * items, *(config.split_k,) * split), (items, *(1,) * split)
    return gemm_launch(problem, program, f"matmul_{name}", size, local, args=args)


def in_ranges(
    problem: GemmProblem,
    config: TileConfig,
    name: str,
    chunks: tuple[int, int],
    defines: Defines,
    args: tuple[Arg, ...],
    more: tuple[Arg, ...] = (),
) -> tuple[tuple[Launch, ...], tuple[Workspace, ...]]:
    """The launch of cl/nvidia/<name>.cl; with split-K also that of the addition, and their workspace. *args*
    stand before the arguments of split-K, *more* behind them.
    """
    groups, split_k = tiles_of(problem, config.bm, config.bn), config.split_k
    sums = PartialSums(problem, config.bm, config.bn, TileRange(0, groups, split_k))
    # without split-K, any pointer: never used
    partial = sums.workspace.symbol if split_k > 1 else "batch_offsets"
    k_range = round_up(ceil(problem.k / split_k), config.bk)
    defines = (*defines, ("SPLIT_K", int(split_k > 1)))
    launch = product(
        problem, config, name, groups, chunks, defines, (*args, partial, np.int32(k_range), *more)
    )
    if split_k == 1:
        return (launch,), ()
    order = (("GROUP", config.option("group", 8)), ("FRAGMENTS", 0))
    return (launch, sums.in_teams(_TEAM_ITEMS, 1, order)), (sums.workspace,)
