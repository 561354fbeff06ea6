"""Matrix instructions: the manuals' pseudocode says only that D = A B + C.

How elements lie in registers comes from AMD's matrix instruction calculator, as formulas, whose every element
was compared (github.com/ROCm/amd_matrix_instruction_calculator, architectures cdna2, cdna3, rdna3 and rdna4).
Operand A: (row, k) of element e in lane l; B is the same with columns. D: (row, column).
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from .memory import Fault
from .program import Line, Operand
from .values import fma
from .waves import Array, Waves

MATRIX = re.compile(r"v_(mfma|wmma)_([fi]\d+)_(\d+)x(\d+)x(\d+)_?(f16|bf16|f32|f64|i8|iu8|xf32)(?:_1k)?$")
_TYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": np.uint16, "f32": np.float32, "xf32": np.float32, "f64": np.float64,
    "i8": np.int8, "iu8": np.uint8, "i32": np.int32,
}  # fmt: skip
Places = tuple[Array, Array]


def multiply(at: Line, match: re.Match[str]) -> Callable[[Waves], None]:
    """The step of an instruction that is like MATRIX."""
    if set(at.modifiers) - {"neg_lo"}:
        raise NotImplementedError(at.text)
    _, of_sums, *sizes, kind = match.groups()
    m, n, k = map(int, sizes)
    to, a, b, c = at.operands
    signed = at.modifiers.get("neg_lo", (0, 0, 0))
    of_operand, of_result = _places(match, a.count)

    def run(g: Waves) -> None:
        if not g.whole:
            raise Fault("a matrix instruction in a wavefront some of whose lanes are not active")
        left = _matrix(g, a, "i8" if signed[0] else kind, of_operand, (m, k))
        right = _matrix(g, b, "i8" if signed[1] else kind, of_operand, (n, k))
        if c.kind == "constant":
            sums = np.full((g.index.size, m, n), float(c.text), _TYPES[of_sums])
        else:
            sums = _matrix(g, c, of_sums, of_result, (m, n))
        values = _product(left, right, sums, kind)[:, of_result[0], of_result[1]]
        words = np.ascontiguousarray(np.moveaxis(values, 1, -1)).view(np.uint32)
        g.vector[to.place : to.place + to.count] = np.moveaxis(words, -1, 0)

    return run


def _places(match: re.Match[str], registers: int) -> tuple[Places, Places]:
    """Rows and columns of an operand and of the result, indexed [element, lane].

    WMMA of RDNA 3: both halves of the wavefront hold the whole operand. RDNA 4: 8 bytes in turn.
    """
    rows, k, kind = int(match[3]), int(match[5]), match[6]
    if match[1] == "wmma":
        each = 8 if kind == "iu8" else 4  # elements of RDNA 4 in 8 bytes
        once = registers * each // 2 == 8
        e, lane = np.indices((k // 2 if once else k, 32))
        of_operand = lane % 16, 2 * each * (e // each) + each * (lane // 16) + e % each if once else e
        e, lane = np.indices((8, 32))
        return of_operand, (8 * (lane // 16) + e if once else 2 * e + lane // 16, lane % 16)
    e, lane = np.indices((k * rows // 64, 64))
    of_operand = lane % rows, lane // rows * len(e) + e
    e, lane = np.indices((rows * rows // 64, 64))
    row = 256 // rows * (e // 4) + 4 * (lane // rows) + e % 4
    return of_operand, (4 * e + lane // rows if match[2] == "f64" else row, lane % rows)


def _matrix(g: Waves, op: Operand, kind: str, places: Places, shape: tuple[int, int]) -> Array:
    """A matrix of each wavefront. Where lanes hold the same element twice they must agree."""
    words = np.ascontiguousarray(np.moveaxis(g.vector[op.place : op.place + op.count], 0, -1))
    values = np.moveaxis(words.view(_TYPES[kind]), -1, 1)  # [wavefront, element, lane]
    found = np.zeros((len(values), *shape), values.dtype)
    found[:, places[0], places[1]] = values
    bits = f"u{values.dtype.itemsize}"
    if (found[:, places[0], places[1]].view(bits) != np.ascontiguousarray(values).view(bits)).any():
        raise Fault("the halves of a wavefront hold different operands")
    return (found.astype(np.uint32) << 16).view(np.float32) if kind == "bf16" else found


def _product(a: Array, b: Array, c: Array, kind: str) -> Array:
    """A B + C of each wavefront, B by columns. float32 and float64 go along K in order, fused and rounded."""
    if kind in ("i8", "iu8"):
        return (a.astype(np.int64) @ b.astype(np.int64).swapaxes(1, 2) + c).astype(np.int32)
    if kind in ("f32", "f64"):
        for k in range(a.shape[2]):
            c = fma(a[:, :, None, k], b[:, None, :, k], c)
        return c
    if kind == "xf32":
        a, b = ((x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b))
    product = a.astype(np.float64) @ b.astype(np.float64).swapaxes(1, 2)
    return np.asarray((product + c).astype(np.float32))
