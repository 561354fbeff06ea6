"""Matrix instructions: the manuals' pseudocode says only that D = A B + C.

How elements lie in registers comes from AMD's matrix instruction calculator, as formulas, whose every element
was compared (github.com/ROCm/amd_matrix_instruction_calculator, architectures cdna2, cdna3, rdna3 and rdna4).
Operand A: (row, k) of element e in lane l; B is the same with columns. D: (row, column).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from .functions import fma
from .memory import Fault
from .operands import Operand, operand
from .program import Line
from .steps import flags
from .waves import Array, Waves

MATRIX = re.compile(r"v_(mfma|wmma)_([fi]\d+)_(\d+)x(\d+)x(\d+)_?(f16|bf16|f32|f64|i8|iu8|xf32)(?:_1k)?$")
_TYPES: dict[str, Any] = {
    "f16": np.float16,
    "f32": np.float32,
    "xf32": np.float32,
    "f64": np.float64,
    "i8": np.int8,
}


def step(at: Line) -> Callable[[Waves], None]:
    match = MATRIX.match(at.name)
    if match is None or set(at.modifiers) - {"neg_lo"}:
        raise NotImplementedError(at.text)
    family, of_sums, *sizes, of_elements = match.groups()
    m, n, k = map(int, sizes)
    to, a, b, c = (operand(text) for text in at.operands)
    signs = flags(at, "neg_lo", 0)
    if family == "wmma":
        place_a, place_d = _wmma_operand(k, of_elements, a.count), _wmma_result(a.count, of_elements)
    else:
        place_a, place_d = _mfma_operand(m, k), _mfma_result(m, of_sums)

    def run(g: Waves) -> None:
        if not g.whole:
            raise Fault("a matrix instruction in a wavefront some of whose lanes are not active")
        left = _matrix(g, a, of_elements, place_a, (m, k), signed=signs & 1)
        right = _matrix(g, b, of_elements, place_a, (n, k), signed=signs >> 1 & 1)
        sums = _sums(g, c, of_sums, place_d, (m, n))
        _store(g, to, _product(left, right, sums, of_elements), place_d)

    return run


# ---- layouts: arrays of rows and columns, indexed [element, lane] ----------------------------


def _grid(elements: int, lanes: int) -> tuple[Array, Array]:
    found = np.mgrid[:elements, :lanes]
    return found[0], found[1]


def _mfma_operand(rows: int, k: int) -> tuple[Array, Array]:
    each = k * rows // 64
    e, lane = _grid(each, 64)
    return lane % rows, lane // rows * each + e


def _mfma_result(rows: int, of_sums: str) -> tuple[Array, Array]:
    e, lane = _grid(rows * rows // 64, 64)
    if of_sums == "f64":
        return 4 * e + lane // rows, lane % rows
    return 256 // rows * (e // 4) + 4 * (lane // rows) + e % 4, lane % rows


def _once(of_elements: str, registers: int) -> int:
    """Elements of RDNA 4 in 8 bytes, where a wavefront holds the operand once; 0 for RDNA 3, twice."""
    each = 8 if of_elements == "iu8" else 4
    return each if registers * each // 2 == 8 else 0


def _wmma_operand(k: int, of_elements: str, registers: int) -> tuple[Array, Array]:
    """RDNA 3: both halves of the wavefront hold the whole operand. RDNA 4: 8 bytes in turn."""
    each = _once(of_elements, registers)
    e, lane = _grid(k // 2 if each else k, 32)
    return lane % 16, 2 * each * (e // each) + each * (lane // 16) + e % each if each else e


def _wmma_result(registers: int, of_elements: str) -> tuple[Array, Array]:
    e, lane = _grid(8, 32)
    return 8 * (lane // 16) + e if _once(of_elements, registers) else 2 * e + lane // 16, lane % 16


# ---- registers and matrices ------------------------------------------------------------------


def _registers(g: Waves, op: Operand) -> Array:
    """Bytes of the operand: (wavefront, lane, byte)."""
    words = g.vector[op.place : op.place + op.count]
    return np.ascontiguousarray(np.moveaxis(words, 0, -1)).view(np.uint8)


def _elements(g: Waves, op: Operand, kind: str, signed: int) -> Array:
    """(element, wavefront, lane)."""
    raw = _registers(g, op)
    if kind == "bf16":
        values = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    elif kind == "iu8":
        values = raw.view(np.int8 if signed else np.uint8)
    else:
        values = raw.view(_TYPES[kind])
    return np.moveaxis(values, -1, 0)


def _matrix(
    g: Waves, op: Operand, kind: str, places: tuple[Array, Array], shape: tuple[int, int], signed: int
) -> Array:
    """The operand as a matrix of each wavefront. Where lanes hold the same element twice they must agree."""
    values = _elements(g, op, kind, signed)
    found = np.zeros((g.index.size, *shape), values.dtype)
    row, column = places
    found[:, row, column] = np.moveaxis(values, 0, 1)
    bits = f"u{values.dtype.itemsize}"
    if (found[:, row, column].view(bits) != np.ascontiguousarray(np.moveaxis(values, 0, 1)).view(bits)).any():
        raise Fault("the halves of a wavefront hold different operands")
    return found


def _sums(g: Waves, op: Operand, kind: str, places: tuple[Array, Array], shape: tuple[int, int]) -> Array:
    dtype = {"f32": np.float32, "f64": np.float64, "i32": np.int32}[kind]
    if op.kind == "constant":
        return np.full((g.index.size, *shape), float(op.text), dtype)
    values = np.moveaxis(_registers(g, op).view(dtype), -1, 1)
    found = np.zeros((g.index.size, *shape), dtype)
    found[:, places[0], places[1]] = values
    return found


def _store(g: Waves, op: Operand, matrix: Array, places: tuple[Array, Array]) -> None:
    values = np.ascontiguousarray(np.moveaxis(matrix[:, places[0], places[1]], 1, -1))
    words = values.view(np.uint32)
    for place in range(op.count):
        g.vector[op.place + place] = words[..., place]


def _product(a: Array, b: Array, c: Array, kind: str) -> Array:
    """A B + C of each wavefront, B by columns. float32 and float64 go along K in order, fused and rounded."""
    if kind in ("i8", "iu8"):
        wide = a.astype(np.int64) @ b.astype(np.int64).swapaxes(1, 2) + c
        return wide.astype(np.int32)
    if kind in ("f32", "f64"):
        for k in range(a.shape[2]):
            c = fma(a[:, :, None, k], b[:, None, :, k], c)
        return c
    if kind == "xf32":
        a, b = ((x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b))
    product = a.astype(np.float64) @ b.astype(np.float64).swapaxes(1, 2)
    return np.asarray((product + c).astype(np.float32))
