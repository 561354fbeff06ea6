"""`wgmma`: the matrix units of NVIDIA's sm_90a, fed from local memory by the copy engine."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from ...errors import UnsupportedError
from ...problem.gemm import GemmProblem
from ..config import TileConfig
from ..device import DeviceInfo
from ..interface import (
    Kernel,
    Launch,
    Program,
    Work,
    Workspace,
    gemm_args,
    gemm_defines,
    gemm_program,
    local_range,
    ndrange,
)
from .matrix_units import (
    Defines,
    Operands,
    Unit,
    compute_capability,
    out_defines,
    pack_launches,
    too_long,
    unit_for,
)
from .wgmma_tiles import (
    Division,
    feeders,
    operands_of,
    seen,
    stacked,
    tile_configs,
    tile_violations,
    work_items,
)

SOURCE = "nvidia/wgmma.cl"
_OF_OTHER = {"a": "b", "a_offset": "b_offset", "workspace:packed_a": "workspace:packed_b"}
_OF_OTHER |= {b: a for a, b in _OF_OTHER.items()}
CAPABILITY = (9, 0)  # sm_90a runs on no other
MAP_BYTES = 384  # MAP_SLOT of cl/nvidia/ptx_map.h
_SHARES_EACH = 8  # that a work-item adds in cl/nvidia/shares.cl: so many accesses are in flight


def wgmma_launch(
    problem: GemmProblem,
    config: TileConfig,
    device: DeviceInfo,
    operands: Operands,
) -> Launch:
    """The launch of cl/nvidia/wgmma.cl of a product as `seen`, over operands packed where they have to be."""
    unit = operands.unit
    defines: Defines = (
        *_unit_defines(config, operands),
        *(("STAGES", config.stages), ("FEEDERS", feeders(config)), ("MAP_TYPE", unit.map_type)),
        *(("WGMMA_TYPE", unit.code), *unit.defines),
        *(("WGMMA_ACROSS_A", int(operands.across_a)), ("WGMMA_ACROSS_B", int(operands.across_b))),
        *(("PACKED_A", int(operands.pack_a)), ("PACKED_B", int(operands.pack_b))),
        ("EXPONENTS", 0),
        *out_defines(problem),
    )
    stack = stacked(problem)
    division = Division.of(problem, config, device, stack)
    over = division.groups(device) * work_items(config)
    args = (
        *gemm_args(problem),
        "workspace:maps",
        "workspace:partial" if config.split_k > 1 else "workspace:maps",  # never written then
        *division.args,
        *operands.args(problem),
    )
    return Launch(
        Program(SOURCE, (*gemm_defines(problem), *defines), ptx_target="sm_90a"),
        "matmul_wgmma",
        (over,) if stack > 1 else ndrange(problem, over),
        (work_items(config),) if stack > 1 else local_range(problem, work_items(config)),
        tuple(_OF_OTHER.get(x, x) if isinstance(x, str) else x for x in args)
        if config.option("swapped")
        else args,
    )


def _unit_defines(config: TileConfig, operands: Operands) -> Defines:
    """The macros of cl/nvidia/units.h and cl/nvidia/fragment_rows.h."""
    return (
        *(("BM", config.bm), ("BN", config.bn), ("WGMMA_N", config.bn), ("GROUP", config.option("group", 8))),
        *(("SPLIT_K", int(config.split_k > 1)), ("ALTERNATE", config.option("alternate"))),
        *(("SWAPPED", config.option("swapped")), ("LEFT_REGISTERS", int(operands.left_registers))),
        ("ELEMENT_BYTES", operands.unit.nbytes),
    )


def _teams(shares: int) -> int:
    """Into how many parts cl/nvidia/shares.cl divides the shares that it adds: 1, 2, 4 or 8."""
    return 1 << (ceil(shares / _SHARES_EACH) - 1).bit_length()


def _adding(
    problem: GemmProblem, config: TileConfig, device: DeviceInfo, operands: Operands
) -> tuple[tuple[Launch, ...], tuple[Workspace, ...]]:
    """The launch of cl/nvidia/shares.cl, and what it reads."""
    stack = stacked(problem)
    division = Division.of(problem, config, device, stack)
    if config.split_k == 1:
        return (), ()
    sets = problem.batch // stack
    elements = config.bm * config.bn * division.cut
    partial = Workspace("partial", max(1, 4 * elements * division.shares * sets))
    teams = _teams(division.shares)
    more = (("CHUNK", 4), ("TEAMS", teams), ("EACH", _SHARES_EACH))
    items = elements // 4 * teams
    launch = Launch(
        gemm_program(problem, "nvidia/shares.cl", (*_unit_defines(config, operands), *more)),
        "matmul_shares",
        ndrange(problem, items) if sets > 1 else (items,),
        local_range(problem, 128 * teams) if sets > 1 else (128 * teams,),
        (*gemm_args(problem), partial.symbol, *division.args),
    )
    return (launch,) if division.cut else (), (partial,)


def maps_workspace(problem: GemmProblem, config: TileConfig, device: DeviceInfo, stack: int = 1) -> Workspace:
    """The tensor maps of all work-groups, one set of which goes through `stack` products."""
    sets = problem.batch // stack
    each = Division.of(problem, config, device, stack).groups(device) * MAP_BYTES * feeders(config)
    return Workspace("maps", sets * each, zeroed=True)


class Wgmma(Kernel):
    """See cl/nvidia/wgmma.cl. BM x BN is a tile, BK 128 bytes of K; SPLIT_K: into how many shares K is cut where
    tiles are too few for a wave, added by cl/nvidia/shares.cl; options ``group``: rows of tiles that are computed
    together, ``alternate``: quartets of sub-groups have tiles of their own, ``swapped``: out^T = B^T A^T is
    computed, so that BM x BN is a tile of it.
    """

    name = "wgmma"
    summary = "matrix units of sm_90a (wgmma), tiles of local memory filled by the copy engine"
    options = ("alternate", "group", "swapped")
    risky = True

    def supports(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if compute_capability(device) != CAPABILITY:
            return "wgmma needs an NVIDIA device of compute capability 9.0"
        unit = self._unit(problem)
        if isinstance(unit, str):
            return unit
        return too_long(problem) or device.missing_type(problem.types)

    def configs(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        unit = self._unit(problem)
        return [] if isinstance(unit, str) else tile_configs(problem, device, unit)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        unit = self._unit(problem)
        return [unit] if isinstance(unit, str) else tile_violations(problem, config, device, unit)

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        view = seen(problem, config)
        unit = self._unit(view)
        if isinstance(unit, str):
            raise UnsupportedError(unit)
        operands = operands_of(view, unit)
        maps = maps_workspace(view, config, device, stacked(view))
        product = wgmma_launch(view, config, device, operands)
        adding, partial = _adding(view, config, device, operands)
        packed = operands.exchanged if config.option("swapped") else operands
        return Work(
            (*pack_launches(problem, device, packed), product, *adding),
            (maps, *partial, *packed.workspace(problem)),
        )

    def _unit(self, problem: GemmProblem) -> Unit | str:
        return unit_for(problem, "WGMMA")
