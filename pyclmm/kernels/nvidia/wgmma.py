"""`wgmma`: the matrix units of NVIDIA's sm_90a, fed from local memory by the copy engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...problem.gemm import GemmProblem, Ragged
from .. import listed
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import Defines, Launch, MatrixKernel, Work, Workspace, exchanged, gemm_launch, gemm_program
from ..split_k import PartialSums
from . import wgmma_tiles
from .matrix_units import LINE_ALIGN, MAP_BYTES, ONE_PASS, Operands, out_defines, pack_launches
from .wgmma_tiles import seen, work_items
from .work_pieces import WorkPieces, members

_TEAM_ITEMS = 128  # work-items that add the partial sums of a quartet
_CHUNK = 4  # sums that each of them adds
_MOST_RAGGED_ROWS = 128


class Wgmma(MatrixKernel):
    """See cl/nvidia/wgmma.cl. BM x BN is a tile, BK is 128 bytes of K. SPLIT_K is the number of ranges of K
    for the tiles of the last wave.

    Options: ``group``: rows of tiles that are computed together. ``alternate``: each quartet has tiles of its
    own. ``cluster``: so many work-groups copy a tile of B together (ptx_map.h). ``drain``: results leave
    through local memory while the next tile is multiplied (wgmma_drain.cl). ``lines``: through local memory
    before (wgmma_lines.h). ``swapped``: the kernel computes out^T = B^T A^T, so BM x BN is a tile of out^T.
    """

    name = unit = "wgmma"
    summary = "matrix units of sm_90a (wgmma), tiles copied to local memory by the copy engine"
    accepts = ONE_PASS.with_fields(frozenset({"ragged"}))
    options = ("alternate", "cluster", "drain", "group", "lines", "swapped")
    tiles_in_turn = True

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        found = wgmma_tiles.tile_configs(problem.typical, device)
        if problem.ragged is None:
            return found
        # What the typical product does not show: each group's rows end within a tile, and where groups have
        # different K, quartets that alternate wait for each other.
        if problem.ragged.axis == "m":
            return [c for c in found if c.bm <= _MOST_RAGGED_ROWS]
        return [c for c in found if not c.option("alternate")]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        return wgmma_tiles.estimated_seconds(problem, config, device)

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if problem.ragged is not None:
            operands = Operands.of(problem)
            across = operands.across_a and operands.across_b
            if problem.ragged.axis == "k" and not across:
                return "it divides K only of operands that are stored across K"
            if operands.any_packed or operands.a_in_registers or problem.ragged.stride % LINE_ALIGN:
                return "it would have to pack operands that are divided"
        return super().obstacle(problem, device)

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        rows = members(config) * config.bm
        return (config.bn, rows) if config.option("swapped") else (rows, config.bn)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        return wgmma_tiles.tile_violations(problem, config, device)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        if problem.ragged is not None:
            return _ragged(problem, problem.ragged, config, device)
        view = seen(problem, config)
        operands, stack = Operands.of(view), wgmma_tiles.stacked(view)
        pieces = WorkPieces.of(view, config, device, stack)
        tiles, groups = pieces.tile_range, pieces.groups(device)
        # One set of work-groups computes `stack` products
        maps_bytes = view.batch // stack * groups * MAP_BYTES * wgmma_tiles.feeders(config)
        maps = Workspace("maps", maps_bytes, zeroed=True)
        sums = PartialSums(operands.as_packed(view), config.bm, config.bn, tiles, stack)
        packed = operands.exchanged if config.option("swapped") else operands
        strides = wgmma_tiles.stack_strides(view) if stack > 1 else (0, 0)
        product = _product(view, config, operands, pieces, groups, strides)
        launches = (*pack_launches(problem, device, packed), product)
        workspace = packed.workspace(problem)
        if config.split_k == 1:
            return Work(launches, (maps, *workspace))
        if tiles.tiles:
            order = (*_tile_defines(view, config), ("FRAGMENTS", 1))
            launches += (sums.in_teams(_TEAM_ITEMS, _CHUNK, order),)
        return Work(launches, (maps, sums.workspace, *workspace))


def _ragged(problem: GemmProblem, ragged: Ragged, config: TileConfig, device: DeviceInfo) -> Work:
    """The work where rows of A are divided, and the products are layers of B's map, or where K is."""
    stack, apart = (ragged.groups, ragged.stride) if ragged.axis == "m" else (1, 0)
    maps = Workspace("maps", device.compute_units * MAP_BYTES * wgmma_tiles.feeders(config), zeroed=True)

    def product(tiles: int) -> Launch:
        pieces = WorkPieces(tiles, tiles, 1, stack)
        groups = pieces.groups(device)
        return _product(problem, config, Operands.of(problem), pieces, groups, (0, apart))

    work = listed.in_a_list(problem, device, config.bm, config.bn, product)
    return replace(work, workspace=(*work.workspace, maps))


def _product(
    problem: GemmProblem,
    config: TileConfig,
    operands: Operands,
    pieces: WorkPieces,
    groups: int,
    strides: tuple[int, int],
) -> Launch:
    """The launch of cl/nvidia/wgmma.cl, or of wgmma_drain.cl, for a product as :func:`seen`.
    Some operands may be packed. *strides*: from one A, and one B, of the stack to the next."""
    together = pieces.stack > 1  # one set of work-groups for the whole stack
    # without split-K, any pointer: never used
    partial = "workspace:partial" if config.split_k > 1 else "workspace:maps"
    args = (*operands.gemm_args(problem, *strides), "workspace:maps", partial, *pieces.args)
    defines: Defines = (
        *_tile_defines(problem, config), *config.macros("bm", "bn", "stages"), ("CLUSTER", members(config)),
        ("ACROSS_A", int(operands.across_a)), ("ACROSS_B", int(operands.across_b)),
        ("SPLIT_K", int(config.split_k > 1)),
        ("ALTERNATE", config.option("alternate")), ("LINES", config.option("lines")),
        *out_defines(problem),
    )  # fmt: skip
    items = work_items(config)
    source = "nvidia/wgmma_drain.cl" if config.option("drain") else "nvidia/wgmma.cl"
    program = gemm_program(operands.as_packed(problem), source, defines, ptx_target="sm_90a")
    args = exchanged(args) if config.option("swapped") else args
    size = (groups * items,)
    made = gemm_launch(problem, program, "matmul_wgmma", size, (items,), args=args, together=together)
    return replace(made, cluster=members(config))


def _tile_defines(problem: GemmProblem, config: TileConfig) -> Defines:
    """The macros, besides BM and BN, that the kernel and the addition of partial sums share."""
    group, swapped = config.option("group", 8), config.option("swapped")
    return (("ELEMENT", problem.a_type), ("GROUP", group), ("SWAPPED", swapped))
