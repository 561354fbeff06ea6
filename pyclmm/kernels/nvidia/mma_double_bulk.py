"""`mma_double_bulk`: float64 on the matrix units of NVIDIA's sm_90, fed by the copy engine."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..config import TileConfig, slices
from ..cost import together
from ..device import DeviceInfo
from ..interface import GROUP, Defines, MatrixKernel, Work, Workspace, gemm_launch, gemm_program, tiles_of
from ..split_k import PartialSums, TileRange, with_ranges
from .matrix_units import DOUBLE, FLOAT64, LINE_ALIGN, MAP_BYTES, Operands, local_bytes, pack_launches
from .mma_ring import work_items
from .unit_cost import pack_seconds, sums_seconds

_OTHER_LOCAL_BYTES = 256 + 128 + 64 + 1024  # tensor maps, barriers, tile numbers, alignment
_REGISTERS = 65536  # of a compute unit
_REGISTERS_OF = {(32, 64): 248, (32, 32): 168}  # of a work-item, by SGM, SGN; at most 128 for others
# BM, BN, BK, SGM, SGN, STAGES, slices -> the fraction of the full rate on a compute unit that holds as many
# work-groups as fit, and on one that holds one work-group. Fitted to an H200, 2026-11-29 (docs/estimates.md).
_CONFIGS = {
    (128, 128, 32, 32, 64, 3, 1): (0.9, 0.35),
    (64, 128, 16, 32, 64, 4, 1): (0.77, 0.64),
    (64, 128, 32, 32, 32, 4, 1): (0.87, 0.76),
    (64, 64, 16, 32, 32, 4, 1): (0.84, 0.68),
    (64, 32, 32, 32, 16, 4, 1): (0.64, 0.56),
    (64, 32, 32, 32, 16, 6, 2): (0.62, 0.84),
    (32, 16, 128, 32, 16, 4, 8): (0.28, 0.18),
    (16, 32, 128, 16, 32, 4, 8): (0.32, 0.23),
    (128, 16, 16, 32, 16, 4, 1): (0.52, 0.51),
    (16, 128, 16, 16, 32, 4, 1): (0.6, 0.39),
}
_OTHER = (0.4, 0.3)
# In reads of global memory (Rates.latency):
_BLOCK = 0.99  # the least time of a block of K
_TILE = 7.0  # the end of a tile and the start of the next
_TILE_ALONE = 9.1  # the same for a work-group that has the compute unit for itself
_START = 18.0  # the copies of the first blocks


def _local_bytes_of(config: TileConfig) -> int:
    """Bytes of local memory of a work-group."""
    sums = 8 * config.bm * config.bn if slices(config) > 1 else 0
    return config.stages * (config.bm + config.bn) * config.bk * 8 + sums + _OTHER_LOCAL_BYTES


def _resident(config: TileConfig, device: DeviceInfo) -> int:
    """Work-groups that a compute unit holds at the same time."""
    registers = _REGISTERS_OF.get((config.sgm, config.sgn), 128)
    by_registers = _REGISTERS // (registers * work_items(config))
    return max(1, min(local_bytes(device) // _local_bytes_of(config), by_registers))


def _ranges(problem: GemmProblem, config: TileConfig) -> int:
    """Tiles of one product times ranges of K."""
    return tiles_of(problem, config.bm, config.bn) * config.split_k


class MmaDoubleBulk(MatrixKernel):
    """See cl/nvidia/mma_double_bulk.cl. BM x BN x BK is a work-group's tile, SGM x SGN a sub-group's. SPLIT_K
    is the number of ranges of K; cl/split_k.cl adds their partial sums. Option ``slices``: into how many
    slices a block of K is cut within the work-group.
    """

    name = "mma_double_bulk"
    summary = "float64 matrix units of sm_90 (mma.sync), tiles copied to local memory by the copy engine"
    accepts = DOUBLE
    options = ("slices",)
    unit = "wgmma"  # of its devices: they have the copy engine
    tiles_in_turn = True

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        found = (
            TileConfig(bm, bn, bk, sgm, sgn, stages=stages, options=(("slices", k_slices),))
            for bm, bn, bk, sgm, sgn, stages, k_slices in _CONFIGS
        )
        every = with_ranges(found, problem, lambda c: device.compute_units * _resident(c, device), 64)
        return [c for c in every if not self.violations(problem, c, device)]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        """Seconds of a compute unit's tiles one after another, or of moving the operands: the longer one."""
        c, rates, held = config, device.rates, _resident(config, device)
        tiles = ceil(_ranges(problem, c) * problem.batch / device.units)  # of one compute unit
        full, single = _CONFIGS.get((c.bm, c.bn, c.bk, c.sgm, c.sgn, c.stages, slices(c)), _OTHER)
        rate = rates.matrix(FLOAT64.unit) * (single if tiles < held else full) / device.units
        blocks = ceil(ceil(problem.k / c.bk) / c.split_k)
        each = blocks * max(c.bm * c.bn * c.bk / rate, _BLOCK * rates.latency) + _TILE * rates.latency
        least = ceil(tiles / min(tiles, held)) * _TILE_ALONE * rates.latency
        seconds = together(tiles * each, least, rates.moved(problem.nbytes))
        packed = Operands.of(problem).packed_elements(problem)
        seconds += rates.launch + _START * rates.latency + pack_seconds(packed, 8, device)
        padded = c.bm * c.bn * _ranges(problem, c) / c.split_k * problem.batch
        return seconds + sums_seconds(padded, c.split_k, 8, device)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        c = config
        if c.sgm % 16 or c.sgn % 16 or c.bm % c.sgm or c.bn % c.sgn or max(c.bm, c.bn) > 256:
            return [f"sgm and sgn must be multiples of 16 that divide bm, bn, at most 256: {config}"]
        if c.bk % (16 * slices(c)) or work_items(c) not in (128, 256):
            return [f"bk must be a multiple of 16 for each slice, with 4 or 8 sub-groups: {config}"]
        if not 1 <= c.split_k <= 64:
            return [f"split_k must be 1 to 64: {config}"]
        needed = _local_bytes_of(c)
        if c.stages < 2 or needed > local_bytes(device):
            return [f"{c.stages} stages take {needed} bytes of local memory: use 2 or more that fit"]
        return c.violations(device, (work_items(c),), 0)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        operands, items = Operands.of(problem), work_items(config)
        # Each computes tiles until none are left
        groups = min(_ranges(problem, config), device.compute_units * _resident(config, device))
        maps = Workspace("maps", groups * problem.batch * MAP_BYTES, zeroed=True)
        tiles = TileRange(0, tiles_of(problem, config.bm, config.bn), config.split_k)
        sums = PartialSums(problem, config.bm, config.bn, tiles)
        pairs = problem.out_align >= LINE_ALIGN and ELEMENTS[problem.out_type].nbytes in (4, 8)
        defines: Defines = (
            *config.macros("bm", "bn", "bk", "sgm", "sgn", "stages"), ("SLICES", slices(config)),
            ("GROUP", GROUP), ("CLUSTER", 1), ("SPLIT_K", int(config.split_k > 1)),
            ("OUT_VECTOR", int(pairs)), ("ELEMENT", FLOAT64.name),
        )  # fmt: skip
        source, packed = "nvidia/mma_double_bulk.cl", operands.as_packed(problem)
        program = gemm_program(packed, source, defines, ptx_target="sm_90a")
        extra = (maps.symbol, sums.partial if config.split_k > 1 else maps.symbol, np.int32(config.split_k))
        args, size = operands.gemm_args(problem), (groups * items,)
        product = gemm_launch(problem, program, "matmul_mma_double_bulk", size, (items,), extra, args)
        own, packing = sums.behind(product, device), pack_launches(problem, device, operands)
        spaces = (maps, *operands.workspace(problem), *own.workspace)
        return Work((*packing, *own.launches), spaces)
