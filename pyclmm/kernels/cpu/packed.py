"""`packed`: panels and a register tile for CPU devices, after Goto and BLIS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...problem.dtypes import ELEMENTS
from ...problem.gemm import GemmProblem
from .. import listed
from ..accepts import GENERAL, IN_ORDER, LISTS, Accepts
from ..config import TileConfig
from ..cost import together
from ..device import DeviceInfo
from ..interface import (
    Arg,
    Launch,
    Loops,
    Work,
    Workspace,
    exchanged,
    gemm_args,
    gemm_launch,
    gemm_program,
    round_up,
    vector_defines,
)
from . import packed_shape as shape
from . import packing
from .blocking import PAGE, UNROLL_K, equal_steps
from .packed_shape import Cut, Part
from .packing import INSIDE, PackedOperands
from .pieces import FRACTION, CpuKernel, stack_seconds

Args = tuple[Arg, ...]
# (steps of K, panels) that a work-group packs of an operand along K, and of one across K.
_ALONG, _ACROSS = (512, 1), (128, 32)
_LITTLE_MEMORY = 1 << 14  # bytes of a buffer, for the self-check
# Steps of K in whose time an element is stored across the order of its tile: turned in registers (Zen 5), or
# alone, one of 4 bytes (Zen 4)
_TURNED, _TURNED_ALONE = 8, 32
_AWKWARD = 1.4  # an operand in place that must_pack names, 1000 to 2000 cubed on Zen 4
# A step with vectors of B that cross cache lines, relative to one without, by the vector's share of a line:
# Zen 4, and a Xeon of family 6, model 167
_CROSSING = {1.0: 1.13, 0.5: 1.08}
# Zen 5 hides that. So where B may stay in place, packing it in each work-group must promise so much
_DOUBT = 1.06
# Seconds that a column of a transposed A in place adds to a step of K: if A exceeds half of the second level,
# and if its rows displace each other in the cache. That Xeon; on Zen 4 multiply-adds hide most of it
_FAR_COLUMN, _DISPLACED_COLUMN = 0.6e-9, 2.5e-9
# Bytes a second that a compute unit reads and writes when it packs, when it turns rows into columns too
# (Zen 4, that Xeon), and when a work-group packs what it uses, from and to its caches (Zen 5)
_PACKED, _TURNING, _INSIDE = 15e9, 10e9, 25e9
_FAR_PACKED = 1.7  # times as long take the bytes of panels that the caches do not hold


class Packed(CpuKernel):
    """See cl/cpu/packed.cl. TM x TN is the register tile, VEC the length of its vectors, BM x BN x BK the
    largest macro-tile, SPLIT_K the number of ranges of K. Options ``pack_a``, ``pack_b``: 1, the operand is
    copied into panels by a launch of its own; ``pack_b`` 2, each work-group copies the columns that it uses.
    Option ``swapped``: the kernel computes out^T = B^T A^T, so all of this is of out^T.
    """

    name = "packed"
    summary = "packed panels and a register tile, one work-item in each work-group, for CPU devices"
    accepts = Accepts(fields=GENERAL | IN_ORDER | LISTS | {"moduli", "fallback"})
    has_barriers = False
    options = ("pack_a", "pack_b", "swapped")

    def obstacle(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if problem.is_listed and packing.must_convert_a(problem):
            return "it would have to pack operands of a list"
        return None

    def candidates(self, problem: GemmProblem, device: DeviceInfo) -> Sequence[TileConfig]:
        shapes = shape.shapes_of_list if problem.is_listed else shape.all_shapes
        return [c for c in shapes(problem, device) if _local_bytes(problem, c) <= device.local_mem_size]

    def estimate(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> float:
        """Multiply-adds, those past the result's edge too, bytes moved, and packing."""
        problem = shape.seen(problem, config)
        rates, pieces = device.rates, shape.parts(problem, config, device)
        tiles = shape.cut(problem, config, device, pieces[0])
        groups = tiles.rows * tiles.columns * config.split_k * pieces[0].entries
        products = shape.padded_products(problem, config, device)
        if config.named.get("swapped"):
            products += _turned_steps(problem) * problem.m * problem.n * problem.batch
        rate = rates.multiply_adds(problem.acc_type) * FRACTION * min(1.0, groups / device.units)
        rate *= max(1.0, _bits(problem, config) / device.vector_bits)
        packed = packing.packed(problem, config)
        slower = _step_with_loads(problem, config, packed, device)
        seconds = together(products / rate * slower, rates.moved(problem.nbytes))
        sums = 2 * sum(space.nbytes for space in shape.partial_sums(problem, config, [tiles]))
        launches = (1 + packed.a) * len(pieces) + packed.b
        copied = _packing_seconds(problem, config, packed, device)
        if packed.inside:
            copied += _inside_seconds(problem, config, device, tiles.rows) / min(1.0, groups / device.units)
        seconds += stack_seconds(tiles.rows * tiles.columns * config.split_k, problem, device)
        return launches * rates.launch + rates.group + seconds + copied + rates.moved(sums)

    def repacks(self, config: TileConfig) -> bool:
        return config.named.get("pack_b") == INSIDE

    def shared_tile(self, config: TileConfig) -> tuple[int, int]:
        # BM x BN is what the caches share, after the loads
        return (config.tn, config.tm) if config.named.get("swapped") else (config.tm, config.tn)

    def violations(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> list[str]:
        reasons = shape.misfits_of_list(problem, config)
        if config.bm % config.tm or config.bn % config.tn:
            reasons.append(f"BM and BN must be multiples of TM and TN: {config}")
        if config.vec not in (2, 4, 8, 16) or config.tn * problem.sums.planes % config.vec:
            reasons.append(f"VEC must be 2, 4, 8 or 16 and divide TN reals: {config}")
        if config.bk % UNROLL_K or config.split_k < 1:
            reasons.append(f"BK must be a multiple of {UNROLL_K}, SPLIT_K at least 1: {config}")
        if config.named.get("pack_a", 0) not in (0, 1) or config.named.get("pack_b", 0) not in (0, 1, INSIDE):
            reasons.append(f"pack_a must be 0 or 1, pack_b 0, 1 or 2: {config}")
        if config.named.get("swapped", 0) not in (0, 1):
            reasons.append(f"swapped must be 0 or 1: {config}")
        elif config.named.get("swapped") and not shape.may_swap(problem):
            reasons.append("with swapped, a complex product is not summed in order")
        least, widest = 8 * shape.LANE_BYTES, shape.vector_bits(problem, device)
        if not least <= _bits(problem, config) <= widest:
            reasons.append(f"vectors of {config.vec} are under {least} bits or wider than {widest}: {config}")
        return reasons + config.violations(device, (1,), _local_bytes(problem, config))

    def checked_on(self, device: DeviceInfo) -> tuple[DeviceInfo, ...]:
        """With little memory A is packed in parts."""
        return (*super().checked_on(device), replace(device, max_mem_alloc_size=_LITTLE_MEMORY))

    def loops(self, problem: GemmProblem, config: TileConfig) -> Loops:
        """Register tiles, macro-tiles, blocks of K, and the steps that a work-group packs."""
        found = Loops((config.tm, config.bm), (config.tn, config.bn), (_ALONG[0], config.bk))
        return found.exchanged if config.named.get("swapped") else found

    def launches(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> Work:
        if problem.is_listed:
            return _PackedWork(shape.least(problem), config, device).listed(problem)
        work = _PackedWork(shape.seen(problem, config), config, device).work()
        if not config.named.get("swapped"):
            return work
        return replace(work, launches=tuple(_of_transposed(launch) for launch in work.launches))


def _bits(problem: GemmProblem, config: TileConfig) -> int:
    """Bits of a vector of the sums."""
    return config.vec * problem.sums.nbytes_of_real * 8


def _local_bytes(problem: GemmProblem, config: TileConfig) -> int:
    """Bytes of local memory of a work-group: its sums, and its panel of B."""
    sums = config.bm * config.bn * shape.sum_size(problem) * (config.split_k == 1)
    return sums + config.bk * config.tn * problem.sums.nbytes * (config.named.get("pack_b") == INSIDE)


def _of_transposed(launch: Launch) -> Launch:
    packs = {"a": "b", "b": "a"}.get(launch.packs, "")
    return replace(launch, args=exchanged(launch.args), packs=packs)


class _PackedWork:
    """The launches of one product: pack B, pack and multiply each part of A."""

    def __init__(self, problem: GemmProblem, config: TileConfig, device: DeviceInfo) -> None:
        self.problem, self.config, self.device = problem, config, device
        self.parts = shape.parts(problem, config, device)
        self.packed = packing.packed(problem, config)
        self.program = gemm_program(problem, "cpu/packed.cl", self._defines(device))
        self.workspace: list[Workspace] = []
        self.steps: list[Launch] = []

    def _defines(self, device: DeviceInfo) -> list[tuple[str, int]]:
        c = self.config
        return [
            ("MR", c.tm), ("NR", c.tn), *vector_defines(c, device, self.problem.sums.nbytes_of_real),
            ("PACK_A", int(self.packed.a)), ("PACK_B", self.packed.b + 2 * self.packed.inside),
            ("BM", c.bm), ("BN", c.bn), ("SPLIT", int(c.split_k > 1)), ("SWAPPED", c.option("swapped")),
            *([("BK", c.bk)] if self.packed.inside else []),
        ]  # fmt: skip

    def work(self) -> Work:
        p, c = self.problem, self.config
        largest = self.parts[0]
        a_panels: Args = ()
        b_panels: Args = ()
        if self.packed.b:
            b_panels = self._space("b", round_up(p.n, c.tn) * p.k, p.batch)
            self._pack("b", p.n, c.tn, p.trans_b, Part(0, p.m, 0, p.batch), b_panels)
        if self.packed.a:
            rows = round_up(largest.rows, c.tm)
            a_panels = self._space("a", rows * round_up(p.k, UNROLL_K), largest.entries)
        cuts = [shape.cut(p, c, self.device, part) for part in self.parts]
        spaces = shape.partial_sums(p, c, cuts)
        self.workspace += spaces
        partial: Args = tuple(space.symbol for space in spaces)
        for part, tiles in zip(self.parts, cuts, strict=True):
            if self.packed.a:  # over the part before it
                self._pack("a", part.rows, c.tm, not p.trans_a, part, (*a_panels, *_part_args(part)))
            self._multiply(part, tiles, partial, a_panels, b_panels)
        return Work(tuple(self.steps), tuple(self.workspace))

    def listed(self, whole: GemmProblem) -> Work:
        """The work of the list *whole*: each product is multiplied as it lies."""
        tiles = shape.cut(whole.typical, self.config, self.device)
        args = (*gemm_args(whole), *map(np.int32, (tiles.mc, tiles.nc, self.config.bk, 0)))

        def launch(groups: int) -> Launch:
            return Launch(self.program, "packed_multiply", (groups, 1), (1, 1), args)

        return listed.in_a_list(whole, self.device, tiles.mc, tiles.nc, launch, reads_ahead=True)

    def _multiply(self, part: Part, tiles: Cut, partial: Args, a_panels: Args, b_panels: Args) -> None:
        p, c = self.problem, self.config
        steps = shape.range_of_k(p, c)
        rows_first = tiles.rows_first and not shape.stores_most(p, self.device)
        args: Args = tuple(map(np.int32, (tiles.mc, tiles.nc, equal_steps(steps, c.bk), rows_first)))
        if partial:
            args += (*map(np.int32, (tiles.rows, c.split_k, steps)), *partial)
        if a_panels:
            args += (*_part_args(part), *a_panels)
        groups = (tiles.columns, tiles.rows * c.split_k)
        if rows_first:
            groups = groups[::-1]
        self._launch("packed_multiply", groups, part, (*args, *b_panels))

    def _space(self, name: str, stack: int, entries: int) -> Args:
        """Workspace for panels of *stack* elements for each of *entries* products, and the stride."""
        if not self._varies(name):
            entries = 1
        space = Workspace(f"{name}_panels", stack * entries * self.problem.sums.nbytes)
        self.workspace.append(space)
        return space.symbol, np.int64(stack if entries > 1 else 0)

    def _varies(self, name: str) -> bool:
        """Whether the products of a stack have operands of their own."""
        return any(getattr(self.problem.batch_strides, name))

    def _pack(self, name: str, length: int, tile: int, along: bool, part: Part, args: Args) -> None:
        chunk, span = _ALONG if along else _ACROSS
        groups = (-(-length // (tile * span)), max(1, -(-self.problem.k // chunk)))
        one = part if self._varies(name) else part._replace(entries=1)
        kept = name if name == "b" or len(self.parts) == 1 else ""
        self._launch(f"pack_{name}", groups, one, (np.int32(chunk), np.int32(span), *args), kept)

    def _launch(self, kernel: str, groups: tuple[int, int], part: Part, extra: Args, packs: str = "") -> None:
        given = self.problem, self.program, kernel, groups, (1, 1), extra
        made = gemm_launch(*given, entries=part.entries, packs=packs)
        self.steps.append(replace(made, first=part.first_entry))


def _part_args(part: Part) -> Args:
    """PART_ARGS of cl/cpu/packed_panels.h."""
    return (np.int32(part.first_row), np.int32(part.last_row), np.int32(part.first_entry))


def _step_with_loads(
    problem: GemmProblem, config: TileConfig, packed: PackedOperands, device: DeviceInfo
) -> float:
    """Time of a step of K in a register tile, relative to that of its multiply-adds: operands in place."""
    slower, asked = 1.0, (problem, config, device)
    reads_b = not (packed.b or packed.inside)
    if (reads_b and packing.must_pack_b(*asked)) or (not packed.a and packing.must_pack_a(*asked)):
        slower = _AWKWARD
    elif packed.inside and packing.can_read_b(problem, config) and not packing.must_pack_b(*asked):
        slower = _DOUBT
    elif reads_b and packing.crosses_lines(problem, config):
        slower = _CROSSING.get(config.vec * problem.sums.nbytes_of_real / device.caches.line, 1.0)
    if problem.trans_a and not packed.a:
        rate = device.rates.multiply_adds(problem.acc_type) * FRACTION / device.units
        slower += _column_seconds(problem, device) / (config.tm * config.tn / rate)
    return slower


def _column_seconds(problem: GemmProblem, device: DeviceInfo) -> float:
    """Seconds that loading a column of a transposed A in place adds to a step of K."""
    row = abs(problem.lda) * ELEMENTS[problem.a_type].nbytes
    if row % PAGE == 0:
        return _DISPLACED_COLUMN
    return _FAR_COLUMN if row * problem.k > device.caches.l2 // 2 else 0.0


def _turned_steps(problem: GemmProblem) -> float:
    """Steps of K in whose time an element of the transposed product is stored."""
    plain = not problem.extras and problem.activation == "none"
    vectors = plain and packing.moves_whole(problem.out_type, problem)
    return _TURNED if vectors else _TURNED_ALONE * 4 / problem.sums.nbytes_of_real


def _packing_seconds(
    problem: GemmProblem, config: TileConfig, packed: PackedOperands, device: DeviceInfo
) -> float:
    """Seconds that the launches which pack A and B take, without what each launch costs."""
    line = problem.k * problem.sums.nbytes * problem.batch  # bytes of a row or column in all
    a = line * round_up(problem.m, config.tm) * packed.a
    b = line * round_up(problem.n, config.tn) * packed.b
    outside = max(0.0, 1 - device.rates.cache_size / max(1, a + b))
    seconds = 2 * (a / _PACKED + b / (_TURNING if problem.trans_b else _PACKED)) / device.units
    return seconds * (1 + (_FAR_PACKED - 1) * outside)


def _inside_seconds(problem: GemmProblem, config: TileConfig, device: DeviceInfo, rows: int) -> float:
    """Seconds that work-groups take to pack B, each of so many *rows* of macro-tiles for itself."""
    nbytes = round_up(problem.n, config.tn) * problem.k * problem.sums.nbytes * problem.batch * rows
    return 2 * nbytes / (_INSIDE if packing.moves_whole(problem.b_type, problem) else _TURNING) / device.units
