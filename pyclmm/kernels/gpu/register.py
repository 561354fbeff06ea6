"""`register`: tiles at three levels: local memory, sub-groups, registers. The general kernel for GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from ...problem.dtypes import COMPLEX, ELEMENTS
from ...problem.gemm import GemmProblem
from .. import listed
from ..accepts import GENERAL, IN_ORDER, LISTS, Accepts
from ..config import TileConfig, slices
from ..device import DeviceInfo
from ..interface import GROUP, UNUSED, Defines, Kernel, Launch, Work, Workspace, gemm_launch, gemm_program
from ..split_k import PartialSums
from .tile import (
    by_rows,
    in_vectors,
    is_held,
    local_bytes,
    misfits,
    side_by_side,
    sides,
    stored_as_summed,
    work_items,
)
from .waves import Tiling, resident

# (bm, bn, bk, sgm, sgn, tm, tn, stages, slices, fetch_b) with asynchronous copies, for accumulators of
# 4 and of 8 bytes, and the factor by which each is slower on an H200 than waves.py says. A negative fetch_b
# stands for vec = 1: work-items side by side store neighbouring columns, which is best for small K.
_ASYNC = {
    4: {
        (128, 256, 8, 32, 128, 8, 16, 3, 1, 2): 1.11,
        (128, 256, 8, 32, 128, 8, 16, 3, 1, 1): 1.1,
        (128, 128, 8, 32, 128, 8, 16, 3, 1, 1): 1.0,
        (128, 128, 8, 32, 128, 8, 16, 3, 1, 2): 0.97,
        (128, 128, 16, 32, 128, 8, 16, 3, 2, 1): 1.0,
        (64, 128, 32, 32, 128, 8, 16, 3, 4, 2): 0.96,
        (64, 128, 16, 32, 128, 8, 16, 3, 2, 2): 1.04,
        (32, 64, 32, 32, 64, 8, 8, 3, 4, 2): 0.94,
        (16, 128, 32, 16, 128, 8, 8, 3, 4, 1): 1.03,
        (64, 64, 16, 64, 32, 8, 8, 3, 2, 1): 0.97,
        (128, 32, 16, 64, 32, 8, 8, 3, 2, 1): 1.0,
        (64, 32, 32, 64, 32, 8, 8, 3, 4, 1): 0.97,
        (128, 16, 16, 128, 16, 8, 8, 3, 2, 1): 1.0,
        (64, 16, 32, 64, 16, 8, 8, 3, 4, 1): 1.0,
        (64, 128, 8, 16, 128, 8, 8, 2, 1, -1): 0.89,
    },
    8: {
        (128, 128, 8, 32, 64, 8, 8, 3, 1, 1): 1.0,
        (64, 128, 8, 32, 64, 8, 8, 3, 1, 1): 1.0,
        (64, 64, 16, 32, 64, 8, 8, 3, 2, 1): 0.96,
        (32, 64, 16, 32, 32, 4, 8, 3, 2, 1): 1.0,
        (16, 64, 16, 16, 64, 4, 8, 3, 4, 1): 1.05,
    },
}
# The same with tiles staged in registers: (bm, bn, bk, sgm, sgn, tm, tn, slices, vec or 0 for the widest).
_HELD = {
    4: {
        (128, 128, 8, 32, 128, 8, 16, 1, 0): 0.95,
        (128, 128, 8, 32, 64, 8, 8, 1, 0): 1.0,
        (64, 128, 16, 32, 128, 8, 16, 2, 0): 1.0,
        (64, 64, 16, 32, 64, 8, 8, 1, 0): 1.07,
        (64, 64, 16, 32, 32, 4, 8, 1, 0): 1.25,
        (32, 32, 16, 16, 32, 4, 4, 1, 0): 1.03,
        (16, 128, 32, 16, 128, 8, 8, 4, 0): 1.06,
        (128, 16, 32, 128, 16, 8, 8, 4, 0): 1.03,
        (128, 128, 8, 16, 128, 8, 8, 1, 1): 0.95,
        (16, 16, 8, 16, 16, 4, 4, 1, 0): 1.0,
        (4, 4, 4, 4, 4, 4, 4, 1, 0): 1.0,
    },
    8: {
        (64, 128, 8, 32, 64, 8, 8, 1, 0): 1.0,
        (64, 64, 8, 32, 32, 4, 8, 1, 0): 1.0,
        (32, 32, 16, 16, 32, 4, 4, 1, 0): 1.0,
        (16, 16, 8, 16, 16, 4, 4, 1, 0): 1.0,
        (4, 4, 4, 4, 4, 4, 4, 1, 0): 1.0,
    },
    16: {
        (64, 64, 8, 16, 32, 4, 4, 1, 0): 1.0,
        (32, 32, 8, 16, 32, 4, 4, 1, 0): 1.0,
        (16, 16, 8, 16, 16, 4, 4, 1, 0): 1.0,
        (2, 2, 2, 2, 2, 2, 2, 1, 0): 1.0,
    },
}

# For CPUs those of tiles up to 32 x 32: a barrier's cost grows with the work-items. And where the compiler
# makes vectors of work-items, one with 16 side by side, which have neighbouring columns.
_LARGEST_ON_CPU = 32
_IN_VECTORS = (64, 64, 16, 4, 64, 4, 4, 1)

# Small products with asynchronous copies (register_rows.cl):
# (bm, bn, bk, sgm, sgn, tm, tn, stages, slices), for accumulators of 4 and of 8 bytes.
_ROWS = {
    4: {
        (32, 64, 32, 32, 64, 8, 8, 3, 4): 1.22,
        (32, 32, 32, 16, 32, 4, 4, 3, 4): 1.31,
        (32, 32, 64, 32, 32, 8, 8, 3, 8): 1.38,
        (16, 32, 64, 16, 32, 4, 4, 3, 8): 1.29,
        (16, 16, 64, 16, 16, 4, 4, 3, 8): 1.11,
    },
    8: {
        (32, 32, 32, 16, 32, 4, 4, 3, 4): 1.46,
        (16, 32, 32, 16, 32, 4, 4, 3, 8): 1.29,
        (16, 16, 32, 16, 16, 4, 4, 3, 8): 1.07,
    },
}
# For sums in order, which slices and split-K do not give: small tiles without slices, so that small products
# fill the device. Not measured; what waves.py says of them.
_IN_ORDER = {
    4: {
        (64, 64, 16, 32, 32, 4, 8, 4, 1, 1): 1.0,
        (32, 64, 16, 16, 32, 4, 4, 4, 1, 1): 1.0,
        (32, 32, 32, 16, 32, 4, 4, 4, 1, 1): 1.0,
    },
    8: {(32, 64, 16, 32, 32, 4, 8, 4, 1, 1): 1.0, (32, 32, 16, 16, 32, 4, 4, 4, 1, 1): 1.0},
}
_SMALL = 1 << 28  # multiply-adds: 10 us of an H200. Larger products do not get these configurations
_MOST_ROWS = 65535  # work-groups in dimension 1, where they are counted in tiles of BM rows: NVIDIA's limit

# Staged in registers on AMD: tiles for which clang 19 spills on gfx1030 (bm, bn, bk, tm, tn).
_CROWDED = ((64, 64, 16, 8, 8), (64, 128, 16, 8, 16))


@lru_cache(maxsize=16)
def _listed(acc_type: str, in_order: bool) -> dict[TileConfig, float]:
    """Every configuration of the family for accumulators of this type, and its factor. *in_order*: for
    reproducible sums. Those with slices are there too, and are left out later with a reason.
    """
    itemsize = ELEMENTS[acc_type].nbytes
    widest = 1 if acc_type in COMPLEX else 16 // itemsize
    split_k = 1 if in_order else 0  # 0: waves.py chooses
    found: dict[TileConfig, float] = {}
    asynchronous = _ASYNC.get(itemsize, {}) | (_IN_ORDER.get(itemsize, {}) if in_order else {})
    for (bm, bn, bk, sgm, sgn, tm, tn, stages, k_slices, fetch_b), slower in asynchronous.items():
        options = {"fetch_b": abs(fetch_b), "held": 0, "slices": k_slices}
        vec = 1 if fetch_b < 0 else widest
        found[TileConfig(bm, bn, bk, sgm, sgn, tm, tn, vec, stages, split_k, options)] = slower
    for (bm, bn, bk, sgm, sgn, tm, tn, stages, k_slices), slower in _ROWS.get(itemsize, {}).items():
        options = {"fetch_b": 1, "held": 0, "rows": 1, "slices": k_slices}
        found[TileConfig(bm, bn, bk, sgm, sgn, tm, tn, widest, stages, 1, options)] = slower
    for (bm, bn, bk, sgm, sgn, tm, tn, k_slices, vec), slower in _HELD[itemsize].items():
        options = {"fetch_b": 0, "held": 1, "slices": k_slices}
        found[TileConfig(bm, bn, bk, sgm, sgn, tm, tn, vec or widest, 2, split_k, options)] = slower
    on_cpu = {"fetch_b": 0, "held": 1, "slices": 1, "vectors": 1}
    small = [c for c in found if is_held(c) and max(c.bm, c.bn) <= _LARGEST_ON_CPU]
    cpu = [*(replace(c, options=on_cpu) for c in small), TileConfig(*_IN_VECTORS, 2, split_k, on_cpu)]
    return found | dict.fromkeys(cpu, 1.0)


def _candidates(problem: GemmProblem, device: DeviceInfo) -> Iterator[TileConfig]:
    small = problem.batch * problem.m * problem.n * problem.k <= _SMALL
    listed = _listed(problem.acc_type, problem.reproducible)
    loops = device.is_cpu and not device.vector_items
    made = (c for c in listed if in_vectors(c) == device.is_cpu and not (loops and side_by_side(c) >= 16))
    return (c for c in made if small or not by_rows(c))


class Register(Kernel):
    """See cl/gpu/register.cl. With ``split_k`` 0, :mod:`.waves` chooses the number of ranges of K."""

    name = "register"
    summary = "tiles in local memory, sub-groups and registers; split-K where there are few tiles"
    made_for = "gpu"
    accepts = Accepts(fields=GENERAL | IN_ORDER | LISTS | {"moduli", "dot_bytes", "fallback"})
    options = ("fetch_b", "held", "rows", "slices", "vectors")

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        problem, itemsize = problem.typical, problem.sums.nbytes
        fitting = [c for c in _candidates(problem, device) if not self.violations(problem, c, device)]
        without_spills = [
            c for c in fitting if resident(c, itemsize, device) and not _spills(problem, c, device)
        ]
        return without_spills or fitting

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        tiling, launch = Tiling(problem, config, device), device.rates.launch
        slower = _listed(problem.acc_type, problem.reproducible).get(config, 1.0)
        return launch + slower * (tiling.seconds(tiling.tile_ranges()) - launch)

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        return config.bm, config.bn

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        reasons = list(misfits(config, problem.acc_type))
        if reasons:
            return reasons
        if by_rows(config) and problem.m > _MOST_ROWS * config.bm:
            reasons.append(f"rows=1 takes {_MOST_ROWS} tiles of {config.bm} rows at the most")
        if by_rows(config) and problem.is_listed:
            reasons.append("rows=1 computes no lists")
        reasons += listed.misfits(problem, config)
        if not is_held(config):
            reasons += _not_asynchronous(problem, device)
        nbytes = local_bytes(config, problem.sums.nbytes)
        reasons += config.violations(device, _group(config), nbytes, device.static_local_bytes)
        # Mesa unrolls no loop over FMAs that are made of integers.
        steps = problem.k * config.tm * config.tn if problem.soft_fma else problem.k // config.bk
        too_many = device.too_many_steps(steps)
        return [*reasons, too_many] if too_many else reasons

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        if by_rows(config):
            return Work((_rows_launch(problem, config),))
        if problem.is_listed:
            return listed.in_a_list(
                problem, device, config.bm, config.bn, lambda tiles: _launch(problem, config, tiles)
            )
        tiling = Tiling(problem, config, device)
        launches: list[Launch] = []
        spaces: list[Workspace] = []
        for one in tiling.tile_ranges():
            sums = PartialSums(problem, config.bm, config.bn, one)
            where = one.first, tiling.k_range(one.split_k), sums.partial
            work = sums.behind(_launch(problem, config, one.tiles, one.split_k, *where), device)
            launches += work.launches
            spaces += work.workspace
        return Work(tuple(launches), tuple(spaces))


def _spills(problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> bool:
    """Whether clang or Intel's compiler spills registers; ptxas does not (`make offline`).

    Converting elements while loading, or multiplying integers, takes the registers that 8 x 16 sums leave
    free. Some tiles spill in any case.
    """
    if config.tm * config.tn * problem.sums.nbytes > 4 * device.unit.most_sums:
        return True
    if not device.unit.clang_spills:
        return False
    if device.unit.crowded and (config.bm, config.bn, config.bk, config.tm, config.tn) in _CROWDED:
        return True
    converted = not all(stored_as_summed(problem, t) for t in (problem.a_type, problem.b_type))
    return (converted or problem.acc_type == "uint32") and config.tm * config.tn > 64


def _not_asynchronous(problem: GemmProblem, device: DeviceInfo) -> Iterator[str]:
    """Why tiles cannot be copied to local memory asynchronously."""
    if device.capability < (8, 0):
        yield "asynchronous copies need an NVIDIA device of compute capability 8.0 or more"
    for name, stored, conj in (("a", problem.a_type, problem.conj_a), ("b", problem.b_type, problem.conj_b)):
        if conj or not stored_as_summed(problem, stored):
            yield f"asynchronous copies cannot convert {name} from {stored}" + " conjugated" * conj
    if problem.sums.nbytes > 8:
        yield f"asynchronous copies of single elements are 4 or 8 bytes, not {problem.acc_type}"


def _group(config: TileConfig) -> tuple[int, int]:
    """The work-items of a work-group in each dimension."""
    items = work_items(config)
    wide = side_by_side(config) if in_vectors(config) else items
    return wide, items // wide


def _rows_launch(problem: GemmProblem, config: TileConfig) -> Launch:
    items = work_items(config)
    size = (-(-problem.n // config.bn) * items, -(-problem.m // config.bm))
    program = gemm_program(problem, "gpu/register_rows.cl", _defines(problem, config))
    return gemm_launch(problem, program, "matmul_register_rows", size, (items, 1))


def _launch(
    problem: GemmProblem,
    config: TileConfig,
    tiles: int,
    split_k: int = 1,
    first: int = 0,
    k_range: int = 0,
    partial: str = UNUSED,
) -> Launch:
    """The launch of cl/gpu/register.cl for *tiles* tiles from the *first* on."""
    items, lines = _group(config)
    defines = (*_defines(problem, config), ("GROUP", GROUP), ("SPLIT", int(split_k > 1)))
    program = gemm_program(problem, "gpu/register.cl", defines)
    size, extra = (tiles * items, split_k * lines), (np.int32(first), np.int32(k_range), partial)
    return gemm_launch(problem, program, "matmul_register", size, (items, lines), extra)


def _defines(problem: GemmProblem, config: TileConfig) -> list[tuple[str, int | str]]:
    a, b = sides(problem, config)
    ahead: Defines = (("ASYNC_COPIES", 0),)
    if not is_held(config):
        ahead = (("ASYNC_COPIES", 1), *config.macros("stages"), ("FETCH_B", config.option("fetch_b", 1)))
    return [
        *config.macros("bm", "bn", "bk", "sgm", "sgn", "tm", "tn"),
        ("CHUNK", config.vec), ("KS", slices(config)), *ahead,
        ("VEC_A", a.vec), ("VEC_B", b.vec), ("ALONG_A", int(a.along)), ("ALONG_B", int(b.along)),
        ("VECTORS", int(in_vectors(config))),
    ]  # fmt: skip
