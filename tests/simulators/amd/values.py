"""Values of AMD's pseudocode while it runs once, to write the code of an instruction: arithmetic.py.

A type is "u", "i", "f" or "b" with its bits, or "bool". A literal is a number of Python. Functions that the
pseudocode and the code call work on NumPy's arrays; their names are the pseudocode's, or NumPy's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, partialmethod
from typing import Any

import numpy as np

from pyclmm.checks import fma_reference

from .waves import Array

_TYPE = re.compile(r"[uifb]\d+")
_NAME = re.compile(r"\bt\d+\b")


def bits(kind: str) -> int:
    """Bits of a type: 24 for "u24"."""
    return 1 if kind == "bool" else int(kind[1:])


@cache
def dtype(kind: str) -> str:
    """NumPy's name of the type that holds *kind*."""
    if kind == "bool":
        return "bool_"
    wide = min(n for n in (8, 16, 32, 64) if n >= bits(kind))
    return {"f": "float", "i": "int"}.get(kind[0], "uint") + str(wide)


class Code:
    """Lines of Python, each a name's value; the same value has one name. Then what is written.

    ``fixed``: names of what is the same each time. ``halves``: a value of 64 bits -> the words of it.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self.fixed: dict[str, str] = {}
        self.halves: dict[str, list[Value]] = {}
        self.writes: list[str] = []

    def value(self, code: str, kind: str) -> Value:
        return Value(self, self._names.setdefault(code, f"t{len(self._names)}"), kind)

    def constant(self, code: str, kind: str) -> Value:
        return Value(self, self.fixed.setdefault(code, f"c{len(self.fixed)}"), kind)

    def of_kind(self, value: Any, kind: str) -> Value:
        """A value, or the lowest bits of a literal, as *kind*."""
        if isinstance(value, Value):
            return value.to(kind)
        if kind[0] == "f":
            return self.constant(f"{dtype(kind)}({value})", kind)
        unsigned = f"u{bits(kind)}"
        return self.constant(f"{dtype(unsigned)}({int(value) % 2 ** bits(kind)})", unsigned).view(kind)

    def joined(self, low: Value, high: Value) -> Value:
        """64 bits of two words."""
        for name, halves in self.halves.items():
            if [one.name for one in halves] == [low.name, high.name]:
                return Value(self, name, "u64")
        found = self.value(f"wide({low.name}, {high.name})", "u64")
        self.halves[found.name] = [low, high]
        return found

    def lines(self) -> list[str]:
        """Those that what is written needs, and these writes."""
        wanted = set(_NAME.findall(" ".join(self.writes)))
        written, code = set(wanted), []
        for line, name in reversed(self._names.items()):
            if name in wanted:
                wanted |= set(_NAME.findall(line))
                # of several writes one may change what another still reads
                copied = len(self.writes) > 1 and name in written and line[1] == "["
                code.append(f"{name} = {line}" + ".copy()" * copied)
        return code[::-1] + self.writes


def by_type(one: Any, name: str) -> Any:
    """Attributes of what has types as attributes: its lowest bits as them."""
    if _TYPE.fullmatch(name):
        return one.view(name)
    raise AttributeError(name)


@dataclass(frozen=True, eq=False)
class Value:
    """An array's name in the code. ``of``: the unsigned number that has the same bits."""

    code: Code
    name: str
    kind: str
    of: Value | None = None
    __getattr__ = by_type

    @property
    def raw(self) -> Any:
        """The bits as an unsigned number."""
        unsigned = "u32" if self.kind == "bool" else f"u{bits(self.kind)}"
        if self.kind == "bool" or dtype(self.kind) == dtype(unsigned):
            return self.to(unsigned)
        return self.of or self.code.value(f"{self.name}.view({dtype(unsigned)})", unsigned)

    def to(self, kind: str) -> Value:
        """Converted."""
        if dtype(self.kind) == dtype(kind):
            return Value(self.code, self.name, kind, self.of)
        return self.code.value(f"{self.name}.astype({dtype(kind)})", kind)

    def view(self, kind: str) -> Value:
        if kind in (self.kind, "bool"):
            return self.to(kind)
        size = bits(kind)
        found: Value = self.raw.to(f"u{size}")
        if kind == "i24":
            return self.code.value(f"({found.name} << 8).view(int32) >> 8", kind)
        if size < bits(self.kind) and size not in (8, 16, 32, 64):
            found = found & (2**size - 1)
        if dtype(kind) == dtype(found.kind):
            return found
        return Value(self.code, self.code.value(f"{found.name}.view({dtype(kind)})", kind).name, kind, found)

    def words(self) -> list[Value]:
        """The bits in words."""
        raw = self.raw
        if bits(raw.kind) <= 32:
            return [raw.to("u32")]
        return self.code.halves.setdefault(raw.name, [raw.to("u32"), (raw >> 32).to("u32")])

    def __getitem__(self, index: Any) -> Any:
        """A bit, or those from one down to another."""
        if not isinstance(index, slice):
            return (self.raw >> index) & 1
        return (self.raw >> index.stop).view(f"u{index.start - index.stop + 1}")

    def _unary(self, symbol: str) -> Value:
        return self.code.value(f"{symbol}{self.name}", self.kind)

    __invert__, __neg__ = partialmethod(_unary, "~"), partialmethod(_unary, "-")


def _binary(symbol: str, *, swapped: bool = False) -> Any:
    def apply(one: Value, other: Any) -> Value:
        left, right = (other, one) if swapped else (one, other)
        if symbol in ("<<", ">>"):  # the type is what is shifted's
            shifted = left if isinstance(left, Value) else one.code.of_kind(left, "u32")
            by = right.to(shifted.kind).name if isinstance(right, Value) else right
            return one.code.value(f"{shifted.name} {symbol} {by}", shifted.kind) if by else shifted
        (first, second), kind = _alike(left, right)
        return one.code.value(f"{first} {symbol} {second}", "bool" if symbol[0] in "=!<>" else kind)

    return apply


for _name, _symbol in {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "and": "&", "or": "|", "xor": "^", "lshift": "<<",
    "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}.items():  # fmt: skip
    setattr(Value, f"__{_name}__", _binary(_symbol))
    setattr(Value, f"__r{_name}__", _binary(_symbol, swapped=True))


def _alike(*both: Any) -> tuple[list[str], str]:
    """The names of two values, or a literal, in the type in which they meet, and it."""
    kinds = [x.kind for x in both if isinstance(x, Value)]
    floats = [kind for kind in kinds if kind[0] == "f"]
    literal = "f64" if any(isinstance(x, float) for x in both) else "i64"
    kind = max(floats or kinds or [literal], key=lambda kind: (bits(kind), kind[0] != "i"))
    return [x.to(kind).name if isinstance(x, Value) else repr(x) for x in both], kind


def truth(value: Any) -> Any:
    """A truth value for each lane, or a known one."""
    if not isinstance(value, Value):
        return bool(value)
    return value if value.kind == "bool" else value.code.value(f"{value.name} != 0", "bool")


def choice(condition: Any, yes: Any, no: Any) -> Any:
    chosen = truth(condition)
    if not isinstance(chosen, Value):
        return yes if chosen else no
    (one, two), kind = _alike(yes, no)
    return chosen.code.value(f"where({chosen.name}, {one}, {two})", kind)


# ---- functions -------------------------------------------------------------------------------


def fma(x: Array, y: Array, z: Array) -> Array:
    """x * y + z, rounded once."""
    if z.dtype == np.float32:
        total = x.astype(np.float64) * y + z
        # Rounding twice differs only from a float64 in the middle of two float32, or below their range.
        low = total.view(np.int64) & 0x1FFFFFFF
        if not ((low == 0x10000000) | (np.abs(total) < 2.0**-126) & (total != 0)).any():
            return np.asarray(total.astype(np.float32))
    return np.asarray(fma_reference.fma(*np.broadcast_arrays(x, y, z)))


def converted(x: Array, to: type) -> Array:
    """*x* in another type: to integers towards zero, at the ends of their range where *x* is beyond."""
    if x.dtype.kind != "f" or np.dtype(to).kind == "f":
        return x.astype(to)
    limits = np.iinfo(to)
    return np.clip(np.nan_to_num(x.astype(np.float64), nan=0.0), limits.min, limits.max).astype(to)


def exponent(x: Array) -> Array:
    """The exponent as it is stored."""
    shift, mask = (23, 0xFF) if x.dtype.itemsize == 4 else (52, 0x7FF)
    return (x.view(f"u{x.dtype.itemsize}") >> shift & mask).astype(np.int32)


def wide(low: Array, high: Array) -> Array:
    """Words as the halves of 64 bits."""
    shape = low.shape if low.shape == high.shape else np.broadcast_shapes(low.shape, high.shape)
    found = np.empty((*shape, 2), np.uint32)
    found[..., 0], found[..., 1] = low, high
    return found.view(np.uint64)[..., 0]


# The types of what they give; "": that of what they are given.
OF_PSEUDOCODE = {"exponent": "i32"} | dict.fromkeys(("any_lane", "sign", "isNAN", "subnormal"), "bool")
_ALIKE = "fma ldexp floor trunc rint sqrt log2 exp2 abs mantissa first_lane"
OF_PSEUDOCODE |= dict.fromkeys(_ALIKE.split(), "")
OF_CODE = vars(np) | {
    "fma": fma, "converted": converted, "exponent": exponent, "wide": wide,
    "sign": np.signbit, "isNAN": np.isnan,
    "mantissa": lambda x: np.frexp(x)[0],  # between 0.5 and 1, with the sign of x
    "subnormal": lambda x: (exponent(x) == 0) & (x != 0),
    "any_lane": lambda lanes: lanes.any(axis=1, keepdims=True),
    # the value of each wavefront's first lane of *lanes*, or of its first if there is none
    "first_lane": lambda x, lanes: x[np.arange(len(x)), lanes.argmax(axis=1)][:, None],
}  # fmt: skip
