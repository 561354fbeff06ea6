"""What the families for NVIDIA's matrix units share: element types, limits, and packed operands.

A packed operand has the layout that matrix units read best: along K, with lines that start on multiples of
16 bytes (cl/nvidia/pack.cl). Other operands are read in place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from ...problem.dtypes import ELEMENTS, ElementType
from ...problem.gemm import GemmProblem
from ..accepts import BYTES, EPILOGUE, HALVES, IN_ORDER, Accepts, Types
from ..device import DeviceInfo
from ..interface import Arg, Defines, Launch, Workspace, gemm_args, gemm_launch, gemm_program, round_up

LINE_ALIGN = 16  # bytes: the alignment of every line that copies to local memory need
# Bytes of which lines of packed operands begin on multiples, short and long ones. Copies of lines that begin
# elsewhere take 1.2 to 1.8 times as long (docs/kernels/matrix_units/journal.md).
_PACKED_ALIGN, _LONG_ALIGN = 32, 128
_LONG_LINE = 512
_PACK_TILE = 64  # lines and elements of K of a tile that is packed
_PACK_TILE_BYTES = 128  # the same if elements have one byte
_PACK_ITEMS = 256
_PACK_GROUPS = 16  # work-groups for each compute unit: twice as many as run at the same time
MAP_BYTES = 384  # for each work-group: MAP_SLOT of cl/nvidia/ptx_map.h
# Local memory of a work-group by compute capability, from the hardware's description: we have not run arrays
# of that size there. DeviceInfo has the sizes that we have run.
_LOCAL_BYTES = {(8, 0): 166_912, (8, 7): 166_912, (10, 0): 232_448, (10, 3): 232_448}
_LOCAL_BYTES_OTHERS = 101_376


FLOAT16, TF32, FLOAT64 = (ELEMENTS[name] for name in ("float16", "float32", "float64"))
# What wgmma and mma.sync multiply in one pass: TF32 in place of float32 where that is accurate enough.
ONE_PASS = Accepts((*HALVES, Types(("float32",), "float32", ("medium",)), BYTES), EPILOGUE | {"moduli"})
# mma.sync of float64 is FMAs over K in order, each rounded to nearest. No manual says it. On an H200 all bits
# were the host's (benchmarks/reproducible_units.py, 2026-11-22); the self-check asks each device.
DOUBLE = Accepts((Types(("float64",), "float64"),), EPILOGUE | IN_ORDER | {"fallback"})


def local_bytes(device: DeviceInfo) -> int:
    """Bytes of local memory that the arrays declared in one kernel may take."""
    return _LOCAL_BYTES.get(device.capability, max(device.static_local_bytes, _LOCAL_BYTES_OTHERS))


def block_of(element: ElementType) -> int:
    """Elements of K in a block of 128 bytes."""
    return 128 // element.nbytes


def _readable(line: int, ld: int, align: int, nbytes: int) -> bool:
    """Whether an operand's lines can be copied to local memory without packing."""
    return align >= LINE_ALIGN and ld >= line and ld * nbytes < 2**40


@dataclass(frozen=True)
class Operands:
    """Which operands are packed for an element type of the matrix units, and which stay across K."""

    unit: ElementType
    pack_a: bool
    pack_b: bool
    across_a: bool
    across_b: bool

    @classmethod
    def of(cls, problem: GemmProblem) -> Operands:
        """Instructions accept operands across K if elements have 2 or 8 bytes, and an A of 4-byte elements,
        because A can be staged in registers, or of bytes if the result has 4 bytes. Stores of smaller results
        expect another order of rows.
        """
        unit = ELEMENTS[problem.a_type]
        across_a, across_b = problem.trans_a, not problem.trans_b
        length_a = problem.m if across_a else problem.k
        length_b = problem.n if across_b else problem.k
        across = (1, 2, 4, 8) if ELEMENTS[problem.out_type].nbytes == 4 else (2, 4, 8)
        in_place = not across_a or unit.nbytes in across, not across_b or unit.nbytes in (2, 8)
        pack_a = not (in_place[0] and _readable(length_a, problem.lda, problem.a_align, unit.nbytes))
        pack_b = not (in_place[1] and _readable(length_b, problem.ldb, problem.b_align, unit.nbytes))
        return cls(unit, pack_a, pack_b, across_a and not pack_a, across_b and not pack_b)

    def pitch(self, problem: GemmProblem) -> int:
        """Leading dimension of packed operands, in elements."""
        nbytes = self.unit.nbytes
        align = _LONG_ALIGN if problem.k * nbytes >= _LONG_LINE else _PACKED_ALIGN
        return round_up(problem.k, align // nbytes)

    @property
    def any_packed(self) -> bool:
        return self.pack_a or self.pack_b

    @property
    def a_in_registers(self) -> bool:
        """Whether A is staged in registers."""
        return self.across_a and self.unit.nbytes in (1, 4)

    @property
    def exchanged(self) -> Operands:
        """The same operands with the names they have in the transposed product."""
        return Operands(self.unit, self.pack_b, self.pack_a, self.across_b, self.across_a)

    def packed_elements(self, problem: GemmProblem) -> int:
        """Elements that are packed for all products of a stack."""
        lines = problem.m * self.pack_a + problem.n * self.pack_b
        return lines * problem.k * problem.batch

    def as_packed(self, problem: GemmProblem) -> GemmProblem:
        """*problem* with packed operands: these are along K and have leading dimensions of their own."""
        pitch = self.pitch(problem)
        if self.pack_a:
            problem = replace(problem, trans_a=False, lda=pitch, a_align=LINE_ALIGN)
        return replace(problem, trans_b=True, ldb=pitch, b_align=LINE_ALIGN) if self.pack_b else problem

    def gemm_args(self, problem: GemmProblem, a_stride: int = 0, b_stride: int = 0) -> tuple[Arg, ...]:
        """GEMM_ARGS with packed operands instead of A and B, then OPERAND_STRIDES (cl/nvidia/operands.h).
        *a_stride*, *b_stride*: from one product of a stack to the next, for operands that are not packed.
        """
        renamed: dict[Arg, Arg] = {}
        pitch = self.pitch(problem)
        if self.pack_a:
            renamed |= {"a": "workspace:packed_a", "a_offset": np.int64(0)}
            a_stride = problem.m * pitch
        if self.pack_b:
            renamed |= {"b": "workspace:packed_b", "b_offset": np.int64(0)}
            b_stride = problem.n * pitch
        args = (renamed.get(x, x) if isinstance(x, str) else x for x in gemm_args(self.as_packed(problem)))
        return (*args, np.int64(a_stride), np.int64(b_stride))

    def workspace(self, problem: GemmProblem) -> tuple[Workspace, ...]:
        line = self.pitch(problem) * self.unit.nbytes * problem.batch
        packed = (("packed_a", problem.m, self.pack_a), ("packed_b", problem.n, self.pack_b))
        return tuple(Workspace(name, lines * line) for name, lines, wanted in packed if wanted)


def pack_launches(problem: GemmProblem, device: DeviceInfo, operands: Operands) -> tuple[Launch, ...]:
    """The launch that packs operands by tiles (cl/nvidia/pack.cl), if any has to be packed."""
    if not operands.any_packed:
        return ()
    tile = _PACK_TILE_BYTES if operands.unit.nbytes == 1 else _PACK_TILE
    defines = (("PACK_T", operands.unit.word), ("LINES", tile))
    sides = (("a", problem.m, operands.pack_a), ("b", problem.n, operands.pack_b))
    panels = [f"workspace:packed_{name}" if packed else name for name, _, packed in sides]
    tiles = [ceil(lines / tile) * ceil(problem.k / tile) * packed for _, lines, packed in sides]
    groups = min(sum(tiles), _PACK_GROUPS * device.compute_units)
    extra: tuple[Arg, ...] = (*panels, np.int64(operands.pitch(problem)), *map(np.int32, tiles))
    program = gemm_program(problem, "nvidia/pack.cl", defines)
    size = (groups * _PACK_ITEMS,)
    return (gemm_launch(problem, program, "matmul_pack", size, (_PACK_ITEMS,), extra),)


# Bytes of 16-bit results from which storing them through local memory is faster than as fragments, in rows
# that begin on odd elements and on even ones. Measured on an H200 (docs/kernels/matrix_units/journal.md).
_STAGED_ODD, _STAGED_EVEN = 1 << 20, 8 << 20


def in_staged_lines(problem: GemmProblem) -> bool:
    """Whether `mma` stores through local memory (cl/nvidia/mma.cl)."""
    itemsize = ELEMENTS[problem.out_type].nbytes
    if itemsize != 2 or problem.out_align >= LINE_ALIGN:
        return False
    least = _STAGED_EVEN if problem.out_align >= 2 * itemsize else _STAGED_ODD
    return problem.m * problem.n * problem.batch * itemsize >= least


def out_defines(problem: GemmProblem) -> Defines:
    """The macros of cl/nvidia/fragment.h that depend on the product."""
    itemsize = ELEMENTS[problem.out_type].nbytes
    whole = itemsize <= 2 and problem.out_align >= LINE_ALIGN
    return (("OUT_VECTOR", 2 if whole else int(problem.out_align >= 2 * itemsize)),)
