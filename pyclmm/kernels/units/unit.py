"""The families for AMD's and Intel's matrix units: cl/units/unit.cl behind the header of an instruction.

``UNIT_KERNELS`` lists them. A new one is a class here, a file of cl/units/ and a record in matrix_unit.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from ..accepts import BYTES, EPILOGUE, HALVES, Accepts, Types
from ..config import TileConfig
from ..cost import launched
from ..device import DeviceInfo
from ..interface import GROUP, Defines, MatrixKernel, Work, gemm_launch, gemm_program, round_up, tiles_of
from ..matrix_unit import DPAS_EXTENSION, MATRIX_UNITS
from ..split_k import PartialSums, TileRange, with_ranges

_MOST_SPLIT_K = 16
# Slowdown where a compute unit holds one work-group: nothing else runs while it waits at a barrier
_ALONE = 1.25
# The rest is taken from NVIDIA's kernels of the same form, and lower: fraction of the units' rate; then, in
# reads of global memory, the wait of a step, a work-group's start and end, each sum of a work-item, adding
# partial sums
_FRACTION = 0.4
_WAIT, _ENDS, _END_SUM, _SUMS = 1.55, 9.3, 0.093, 9.3


_HALVES_AND_BYTES = Accepts((*HALVES, BYTES), EPILOGUE | {"moduli"})  # what most of these units multiply
# Elements along K that a work-item passes to one instruction of MFMA, by element type.
_MFMA_WORD_K = {
    "gfx90a": {"float16": 4, "bfloat16": 4, "float32": 1, "float64": 1, "int8": 4},
    "gfx942": {"float16": 4, "bfloat16": 4, "float32": 1, "float64": 1, "int8": 8},
}


@dataclass(frozen=True)
class Instruction:
    """A matrix instruction: what its header in cl/ draws, for the host.

    The ``lanes`` work-items of a sub-group multiply ``m`` x ``k`` by ``k`` x ``n`` elements of ``nbytes``.
    A word is ``word_k`` elements along K, which a work-item loads and passes on as one.
    """

    lanes: int
    m: int
    n: int
    k: int
    nbytes: int
    word_k: int
    defines: Defines = ()


def _side_by_side(one: Instruction) -> int:
    """Elements of one access to an operand that is stored across K."""
    return max(1, 4 // one.nbytes)


def _wide(one: Instruction, across: bool, length: int, align: int) -> bool:
    """Whether an operand whose contiguous axis has *length* elements is read several elements at a time."""
    elements = _side_by_side(one) if across else one.word_k
    return elements > 1 and length % elements == 0 and align % (elements * one.nbytes) == 0


def _fills(width: int, words: int, cell: int, items: int) -> bool:
    """Whether *items* work-items fill a tile of *width* rows of *words* words evenly, *cell* rows at a time.

    They may need several passes, or fewer than all of them may be enough. Holds for operands along and across
    K.
    """
    cells = width // cell * words
    return max(words, width // cell) <= items and (cells % items == 0 or items % cells == 0)


class UnitKernel(MatrixKernel):
    """See cl/units/unit.cl, and the header that has the family's name. BM x BN x BK is a work-group's tile,
    SGM x SGN a sub-group's. SPLIT_K is the number of ranges of K; cl/split_k.cl adds their partial sums.
    Option ``unit``: rows of an instruction.
    """

    options = ("unit",)
    tiles: tuple[tuple[int, int, int, int, int], ...]  # BM, BN, SGM, SGN, rows of an instruction
    most_sums = 128  # 32-bit registers of a work-item's sums: with more, clang 19 spills

    @abstractmethod
    def instruction(self, problem: GemmProblem, device: DeviceInfo, rows: int) -> Instruction:
        """The instruction of *rows* rows that multiplies these operands on *device*."""

    def depth(self, one: Instruction) -> int:
        """BK of its configurations: 64 bytes of K."""
        return max(one.k, 64 // one.nbytes)

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        found = []
        for bm, bn, sgm, sgn, rows in self.tiles:
            one = self.instruction(problem, device, rows)
            found.append(TileConfig(bm, bn, self.depth(one), sgm, sgn, options=(("unit", one.m),)))
        every = with_ranges(dict.fromkeys(found), problem, lambda _: device.compute_units, _MOST_SPLIT_K)
        return [c for c in every if not self.violations(problem, c, device)]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        """Higher for small tiles, which read more. Never measured: we had no such device."""
        c, rates, units = config, device.rates, device.units
        one = self.instruction(problem, device, c.option("unit"))
        groups = tiles_of(problem, c.bm, c.bn) * c.split_k * problem.batch
        steps = ceil(ceil(problem.k / c.bk) / c.split_k)
        held = max(1, device.local_mem_size // local_bytes(c, one))
        reads = 1 + 32 / c.bm + 32 / c.bn
        rate = rates.matrix(ELEMENTS[problem.a_type].unit) * _FRACTION
        step = c.bm * c.bn * c.bk * units / rate * reads * (_ALONE if held == 1 else 1)
        items = work_items(c, one)
        ends = (_ENDS + _END_SUM * c.bm * c.bn / items) * rates.latency
        alone = steps * max(step, _WAIT * rates.latency) + ends
        busy = steps * step + ends / 2
        seconds = launched(device, groups, items, held, alone, busy, problem.nbytes)
        if c.split_k == 1:
            return seconds
        partial = 8.0 * c.bm * c.bn * groups
        return seconds + rates.launch + _SUMS * rates.latency + rates.moved(partial)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        one = self.instruction(problem, device, config.option("unit"))
        c = config
        pairs = (("bm", c.bm, c.sgm), ("bn", c.bn, c.sgn), ("sgm", c.sgm, one.m), ("sgn", c.sgn, one.n))
        reasons = [f"{name} {size} is no multiple of {of}" for name, size, of in pairs if not of or size % of]
        if reasons or c.bm % 16 or c.bn % 16 or c.bk % one.k or not 1 <= c.split_k <= 64:
            return [*reasons, f"bm, bn must be multiples of 16, bk of {one.k}, split_k 1 to 64: {config}"]
        items = work_items(config, one)
        sums = c.sgm * c.sgn * problem.sums.nbytes // 4 // one.lanes
        if sums > self.most_sums:
            return [f"a work-item's sums take {sums} registers; more than {self.most_sums} spill"]
        tiles = [(width, cell) for width in (c.bm, c.bn) for cell in (1, _side_by_side(one))]
        if items & (items - 1) or not all(_fills(w, c.bk // one.word_k, cell, items) for w, cell in tiles):
            return [f"{items} work-items do not fill these tiles evenly: {config}"]
        return config.violations(device, (items,), local_bytes(config, one))

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        one = self.instruction(problem, device, config.option("unit"))
        tiles = tiles_of(problem, config.bm, config.bn)
        k_range = round_up(ceil(problem.k / config.split_k), config.bk)
        tile_range = TileRange(0, tiles, ceil(problem.k / k_range))
        items, sums = work_items(config, one), PartialSums(problem, config.bm, config.bn, tile_range)
        defines = _defines(problem, config, one, int(tile_range.split_k > 1))
        program = gemm_program(problem, f"units/{self.name}.h units/unit.cl", defines)
        size, extra = (tiles * items, tile_range.split_k), (np.int32(k_range), sums.partial)
        return sums.behind(gemm_launch(problem, program, "matmul_unit", size, (items, 1), extra), device)


def work_items(config: TileConfig, one: Instruction) -> int:
    """A work-group's size."""
    return one.lanes * (config.bm // config.sgm) * (config.bn // config.sgn)


def local_bytes(config: TileConfig, one: Instruction) -> int:
    """Local memory of a work-group: two stages of both tiles."""
    return 2 * config.bk * (config.bm + config.bn) * one.nbytes


def _defines(problem: GemmProblem, config: TileConfig, one: Instruction, split: int) -> Defines:
    p = problem
    wide_a = _wide(one, p.trans_a, p.m if p.trans_a else p.k, p.a_align)
    wide_b = _wide(one, not p.trans_b, p.k if p.trans_b else p.n, p.b_align)
    return (
        *config.macros("bm", "bn", "bk", "sgm", "sgn"), ("GROUP", GROUP), ("SPLIT", split),
        ("WIDE_A", int(wide_a)), ("WIDE_B", int(wide_b)), ("LANES", one.lanes), ("WORD_K", one.word_k),
        *one.defines,
    )  # fmt: skip


class Mfma(UnitKernel):
    """See cl/units/mfma.h. float32 is summed by fused multiply-adds in the order of K, as precision="highest"
    requires (arXiv 2511.10909 measured both devices). With "medium", gfx942 multiplies in TF32.
    """

    name = unit = "mfma"
    summary = "matrix units of AMD's gfx90a and gfx942 (MFMA); never run by us"
    accepts = Accepts(
        (*HALVES, *(Types((x,), x) for x in ("float32", "float64")), Types(("int8",), "uint32")),
        EPILOGUE | {"moduli", "fallback"},
    )
    tiles = (
        (128, 128, 64, 64, 32),
        (256, 128, 128, 64, 32),
        (128, 64, 64, 32, 32),
        (64, 64, 32, 32, 32),
        (128, 128, 64, 64, 16),
        (64, 128, 32, 64, 16),
        (64, 64, 32, 32, 16),
        (32, 32, 16, 16, 16),
    )

    def multiplied_as(self, problem: GemmProblem, device: DeviceInfo) -> str:
        return problem.a_type if device.gfx == "gfx90a" else super().multiplied_as(problem, device)

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if problem.a_type == "float16" and device.gfx == "gfx90a" and problem.precision != "medium":
            return "mfma on gfx90a treats float16 denormals as zero: precision='medium' allows that"
        return super().obstacle(problem, device)

    def instruction(self, problem: GemmProblem, device: DeviceInfo, rows: int) -> Instruction:
        name = problem.a_type
        tf32 = name == "float32" and device.gfx == "gfx942" and problem.precision == "medium"
        word_k = 2 if tf32 else _MFMA_WORD_K[device.gfx][name]
        rows = 16 if name == "float64" or rows == 16 else 32
        defines = (("UNIT_M", rows),)
        k = word_k * 64 // rows
        return Instruction(64, rows, rows, k, ELEMENTS[name].nbytes, word_k, defines)


class Wmma(UnitKernel):
    """See cl/units/wmma.h."""

    name = unit = "wmma"
    summary = "matrix units of AMD's RDNA 3 and 4, gfx11 and gfx12 (WMMA); never run by us"
    accepts = _HALVES_AND_BYTES
    tiles = ((128, 128, 64, 32, 16), (128, 64, 32, 32, 16), (64, 64, 32, 16, 16), (32, 32, 16, 16, 16))

    def instruction(self, problem: GemmProblem, device: DeviceInfo, rows: int) -> Instruction:
        nbytes = ELEMENTS[problem.a_type].nbytes
        rdna = 4 if device.gfx.startswith("gfx12") else 3
        return Instruction(32, 16, 16, 16, nbytes, 8 if rdna == 4 else 16 // nbytes, (("RDNA", rdna),))

    def depth(self, one: Instruction) -> int:
        """BK of two instructions: with more of 8-bit types, clang 19 spills."""
        return 2 * one.k


class Dpas(UnitKernel):
    """See cl/units/dpas.h."""

    name = unit = "dpas"
    summary = f"matrix units of Intel's GPUs ({DPAS_EXTENSION}); never run by us"
    accepts = _HALVES_AND_BYTES
    tiles = (
        (128, 64, 32, 16, 8),
        (64, 64, 16, 16, 8),
        (32, 64, 16, 16, 8),
        (32, 32, 8, 16, 8),
        (16, 32, 8, 16, 8),
    )
    most_sums = 32  # of 128 registers; fragments need the others. With more, Intel's compiler spills

    def unsuited(self, device: DeviceInfo) -> str | None:
        known = device.sub_group_size in (8, 16)
        return super().unsuited(device) if known else MATRIX_UNITS[self.unit].lacking(self.name)

    def instruction(self, problem: GemmProblem, device: DeviceInfo, rows: int) -> Instruction:
        lanes, nbytes = device.sub_group_size, ELEMENTS[problem.a_type].nbytes
        return Instruction(lanes, 8, lanes, 32 // nbytes, nbytes, 4 // nbytes)


UNIT_KERNELS = (Mfma(), Wmma(), Dpas())
