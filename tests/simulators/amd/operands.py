"""Operands of instructions as LLVM prints them, and functions that read and write them.

A reader gives an array that broadcasts to (wavefronts, lanes) in vector instructions, to (wavefronts,) in
scalar ones.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .waves import ACCUMULATORS, EXEC, M0, NULL, TTMP, VCC, Array, Waves

Reader = Callable[[Waves], Array]
Writer = Callable[[Waves, Array], None]

_NAMED = {
    "vcc": VCC, "vcc_lo": VCC, "vcc_hi": VCC + 1, "exec": EXEC, "exec_lo": EXEC, "exec_hi": EXEC + 1,
    "m0": M0, "null": NULL, "flat_scratch_lo": 102, "flat_scratch_hi": 103, "flat_scratch": 102,
}  # fmt: skip
_REGISTER = re.compile(r"(v|s|a|ttmp)(?:(\d+)|\[(\d+):(\d+)\])")


@dataclass(frozen=True)
class Operand:
    """A register's place, or a constant's text. ``kind``: "v", "s" or "constant"."""

    kind: str
    place: int = 0
    count: int = 1  # of 32-bit registers
    text: str = ""
    negated: bool = False
    absolute: bool = False
    extended: bool = False  # sext() of SDWA


@cache
def operand(text: str) -> Operand:
    inner, negated = text, False
    if re.match(r"-[vsa|(\[]", inner) or inner.startswith("-ttmp"):
        inner, negated = inner[1:], True
    absolute = inner.startswith("|")
    extended = inner.startswith("sext(")
    inner = inner[5:-1] if extended else inner.strip("|")
    given = {"text": inner, "negated": negated, "absolute": absolute, "extended": extended}
    if inner in _NAMED:
        return Operand("s", _NAMED[inner], 2 if inner in ("vcc", "exec", "flat_scratch") else 1, **given)
    match = _REGISTER.fullmatch(inner)
    if match is None:
        return Operand("constant", **given)
    first = int(match[2] or match[3])
    count = 1 if match[2] else int(match[4]) - first + 1
    base = {"v": 0, "s": 0, "a": ACCUMULATORS, "ttmp": TTMP}[match[1]]
    return Operand("v" if match[1] in "va" else "s", base + first, count, **given)


def constant(text: str, kind: str) -> int:
    """The bits of a constant where the instruction reads it as *kind*."""
    size = 64 if kind.endswith("64") else 32
    if "." in text or ("e" in text and not text.startswith("0x")):
        form = {"f16": ("<e", "<H"), "f64": ("<d", "<Q")}.get(kind, ("<f", "<I"))
        return int(struct.unpack(form[1], struct.pack(form[0], float(text)))[0])
    value = int(text, 0)
    if kind == "f64" and text.startswith("0x") and value < 1 << 32:
        return value << 32  # a literal is the upper half
    if kind == "i64" and text.startswith("0x") and value >> 31 == 1:
        value -= 1 << 32
    return value % (1 << size)


def reader(op: Operand, raw: str, kind: str, *, vector: bool) -> Reader:
    """Reads *op* as *raw* bits ("u32", "u64"); *kind* says what constants and signs mean."""
    return with_signs(_plain_reader(op, raw, kind, vector), op, raw, kind)


def with_signs(plain: Reader, op: Operand, raw: str, kind: str) -> Reader:
    """What *plain* reads, negated or absolute as *op* says."""
    if not (op.negated or op.absolute):
        return plain
    width = {"f16": 16, "f64": 64}.get(kind, 64 if raw == "u64" and kind != "f32" else 32)
    dtype: Any = np.uint64 if raw == "u64" else np.uint32
    top = dtype(1 << (width - 1))
    keep, flip = (~top if op.absolute else ~dtype(0)), (top if op.negated else dtype(0))
    return lambda g: np.asarray((plain(g) & keep) ^ flip)


def _plain_reader(op: Operand, raw: str, kind: str, vector: bool) -> Reader:
    place = op.place
    if op.kind == "constant":
        bits = special(op.text)
        if bits is not None:
            return bits
        value = constant(op.text, kind if raw == "u64" or kind == "f16" else "u32")
        if raw == "u64" and kind == "f32":  # both halves of a packed operand
            value = value | value << 32
        found = np.array(value, np.uint64 if raw == "u64" else np.uint32)
        return lambda g: found
    if place == NULL and op.kind == "s":
        return lambda g: np.zeros((), np.uint64 if raw == "u64" else np.uint32)
    if op.kind == "v":
        one, two = (lambda g: g.vector[place]), (lambda g: wide(g.vector[place], g.vector[place + 1]))
    elif vector:
        one, two = (
            (lambda g: g.scalar[place][:, None]),
            (lambda g: wide(g.scalar[place], g.scalar[place + 1])[:, None]),
        )
    else:
        one, two = (lambda g: g.scalar[place]), (lambda g: wide(g.scalar[place], g.scalar[place + 1]))
    return one if raw == "u32" else two


def special(text: str) -> Reader | None:
    """Values that are neither registers nor numbers."""
    if text in ("src_scc", "scc"):
        return lambda g: g.scc.astype(np.uint32)
    if text in ("src_execz", "execz"):
        return lambda g: np.asarray(~g.active.any(axis=1), np.uint32)
    if text in ("src_vccz", "vccz"):
        return lambda g: np.asarray(~g.mask(VCC).any(axis=1), np.uint32)
    return None


def wide(low: Array, high: Array) -> Array:
    found = np.empty((*low.shape, 2), np.uint32)
    found[..., 0], found[..., 1] = low, high
    return found.view(np.uint64)[..., 0]


def lanes(op: Operand) -> Reader:
    """Reads scalar registers, or -1 or 0, as a truth value for each lane."""
    if op.kind == "constant":
        value = np.asarray(int(op.text, 0) != 0)
        return lambda g: value
    place = op.place
    return lambda g: g.mask(place)


def vector_writer(op: Operand, bits: int, keep_high: bool) -> Writer:
    """Writes *bits* to vector registers in the active lanes. 16 bits leave the others if *keep_high*."""
    place = op.place
    if bits == 64:

        def write_wide(g: Waves, value: Array) -> None:
            halves = np.broadcast_to(value, g.active.shape).copy().view(np.uint32)
            halves = halves.reshape(*g.active.shape, 2)
            g.set_vector(place, halves[..., 0])
            g.set_vector(place + 1, halves[..., 1])

        return write_wide
    if bits == 32:
        return lambda g, value: g.set_vector(place, value.view(np.uint32))

    def write_part(g: Waves, value: Array) -> None:
        new = value.view(f"u{bits // 8}").astype(np.uint32)
        if keep_high:
            new = new | g.vector[place] & np.uint32(0xFFFFFFFF << bits & 0xFFFFFFFF)
        g.set_vector(place, new)

    return write_part


def scalar_writer(op: Operand) -> Writer:
    place = op.place
    unsigned = {4: np.uint32, 8: np.uint64}
    return lambda g, value: g.set_scalar(place, value.view(unsigned[value.dtype.itemsize]))
