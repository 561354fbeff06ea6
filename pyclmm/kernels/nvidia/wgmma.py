"""`wgmma`: the matrix units of NVIDIA's sm_90a, fed from local memory by the copy engine."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import (
    Defines,
    Kernel,
    Launch,
    Program,
    Work,
    Workspace,
    exchanged,
    gemm_defines,
    local_range,
    ndrange,
    too_long,
)
from ..matrix_unit import unit_named
from ..split_k import PartialSums
from .matrix_units import (
    MAP_BYTES,
    ONE_PASS,
    Operands,
    out_defines,
    pack_launches,
)
from .wgmma_tiles import (
    WorkPieces,
    estimated_seconds,
    feeders,
    operands_of,
    seen,
    stack_strides,
    stacked,
    tile_configs,
    tile_violations,
    work_items,
)

SOURCE = "nvidia/wgmma.cl"
_LOADS = 8  # that a work-item that adds partial sums has in flight
_TEAM_ITEMS = 128  # work-items that add the partial sums of a quartet
_CHUNK = 4  # sums that each of them adds


def wgmma_launch(
    problem: GemmProblem,
    config: TileConfig,
    device: DeviceInfo,
    operands: Operands,
) -> Launch:
    """The launch of cl/nvidia/wgmma.cl for a product as :func:`seen`. Some operands may be packed."""
    stack = stacked(problem)
    pieces = WorkPieces.of(problem, config, device, stack)
    over = pieces.groups(device) * work_items(config)
    strides = stack_strides(problem) if stack > 1 else (0, 0)
    args = (
        *operands.gemm_args(problem, *strides),
        "workspace:maps",
        # without split-K, any pointer: never used
        "workspace:partial" if config.split_k > 1 else "workspace:maps",
        *pieces.args,
    )
    defines: Defines = (
        *_tile_defines(problem, config),
        *(("BM", config.bm), ("BN", config.bn), ("STAGES", config.stages), ("BLOCKS", 1)),
        *(("ACROSS_A", int(operands.across_a)), ("ACROSS_B", int(operands.across_b))),
        *(("SPLIT_K", int(config.split_k > 1)), ("ALTERNATE", config.option("alternate"))),
        ("DRAIN", config.option("drain")),
        *out_defines(problem),
    )
    return Launch(
        Program(SOURCE, (*gemm_defines(operands.as_packed(problem)), *defines), ptx_target="sm_90a"),
        "matmul_wgmma",
        (over,) if stack > 1 else ndrange(problem, over),
        (work_items(config),) if stack > 1 else local_range(problem, work_items(config)),
        exchanged(args) if config.option("swapped") else args,
    )


def _tile_defines(problem: GemmProblem, config: TileConfig) -> Defines:
    """The macros, besides BM and BN, that the kernel and the addition of partial sums share."""
    group, swapped = config.option("group", 8), config.option("swapped")
    return (("ELEMENT", problem.a_type), ("GROUP", group), ("SWAPPED", swapped))


def _teams(split_k: int) -> int:
    """Teams that divide the ranges of K whose partial sums they add: 1, 2, 4 or 8."""
    return 1 << (ceil(split_k / _LOADS) - 1).bit_length()


def _adding(
    problem: GemmProblem, config: TileConfig, device: DeviceInfo, operands: Operands
) -> tuple[tuple[Launch, ...], tuple[Workspace, ...]]:
    """The launch that adds partial sums, and the workspace that it reads."""
    if config.split_k == 1:
        return (), ()
    stack = stacked(problem)
    tile_range = WorkPieces.of(problem, config, device, stack).tile_range
    sums = PartialSums(operands.as_packed(problem), config.bm, config.bn, tile_range, stack)
    order = (*_tile_defines(problem, config), ("FRAGMENTS", 1))
    launch = sums.launch(_TEAM_ITEMS, _teams(config.split_k), _CHUNK, _LOADS, order)
    return (launch,) if tile_range.tiles else (), (sums.workspace,)


def maps_workspace(problem: GemmProblem, config: TileConfig, device: DeviceInfo, stack: int = 1) -> Workspace:
    """The tensor maps of all work-groups. One set of work-groups computes *stack* products."""
    sets = problem.batch // stack
    each = WorkPieces.of(problem, config, device, stack).groups(device) * MAP_BYTES * feeders(config)
    return Workspace("maps", sets * each, zeroed=True)


class Wgmma(Kernel):
    """See cl/nvidia/wgmma.cl. BM x BN is a tile, BK is 128 bytes of K. SPLIT_K is the number of ranges of K
    for the tiles of the last wave.

    Options: ``group``: rows of tiles that are computed together. ``alternate``: each quartet has tiles of its
    own. ``drain``: results leave through local memory while the next tile is multiplied (wgmma_drain.h).
    ``swapped``: the kernel computes out^T = B^T A^T, so BM x BN is a tile of out^T.
    """

    name = "wgmma"
    summary = "matrix units of sm_90a (wgmma), tiles copied to local memory by the copy engine"
    accepts = ONE_PASS
    options = ("alternate", "drain", "group", "swapped")
    matrix_units = True
    tiles_in_turn = True

    def unsuited(self, device: DeviceInfo) -> str | None:
        return unit_named(self.name).lacking(self.name, device.vendor, device.marks)

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        return too_long(problem)

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        return tile_configs(problem, device)

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        return estimated_seconds(problem, config, device)

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        return (config.bn, config.bm) if config.option("swapped") else (config.bm, config.bn)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        return tile_violations(problem, config, device)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        view = seen(problem, config)
        operands = operands_of(view)
        maps = maps_workspace(view, config, device, stacked(view))
        product = wgmma_launch(view, config, device, operands)
        adding, partial = _adding(view, config, device, operands)
        packed = operands.exchanged if config.option("swapped") else operands
        return Work(
            (*pack_launches(problem, device, packed), product, *adding),
            (maps, *partial, *packed.workspace(problem)),
        )
