"""Operands of instructions as LLVM prints them."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import cache

from .waves import ACCUMULATORS, EXEC, M0, NULL, TTMP, VCC

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
