"""Values of AMD's pseudocode while it runs once, to write the code of an instruction: traced.py.

A type is "u", "i", "f" or "b" with its bits, or "bool". A literal is a number of Python.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np

TYPE = re.compile(r"[uifb]\d+")
LANE = "laneId"


def bits(kind: str) -> int:
    """Bits of a type: 24 for "u24"."""
    return 1 if kind == "bool" else int(kind[1:])


@cache
def dtype(kind: str) -> str:
    """NumPy's name of the type that holds *kind*."""
    if kind == "bool":
        return "bool_"
    wide = next(n for n in (8, 16, 32, 64) if n >= bits(kind) or n == 64)
    return {"f": "float", "i": "int"}.get(kind[0], "uint") + str(wide)


class Code:
    """Lines of Python, each a name's value; the same value has one name. Then what is written."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self.constants: dict[str, Any] = {}
        self.writes: list[str] = []
        self.needs: dict[str, tuple[int, str]] = {}  # name -> an operand, and the type of a constant

    def value(self, code: str, kind: str) -> Value:
        return Value(self, self._names.setdefault(code, f"t{len(self._names)}"), kind)

    def literal(self, value: float, kind: str) -> Value:
        """A number as *kind*, of which it has the lowest bits."""
        name, unsigned = f"c{len(self.constants)}", dtype(f"u{bits(kind)}")
        raw = (
            np.array(value, dtype(kind))
            if kind[0] == "f"
            else np.array(int(value) % 2 ** bits(kind), unsigned)
        )
        self.constants[name] = raw.view(dtype(kind))[()]
        return Value(self, name, kind)

    def lines(self) -> list[str]:
        """Those that what is written needs, and these writes."""
        code, wanted = [], set(re.findall(r"\bt\d+\b", " ".join(self.writes)))
        bare = set(wanted) if len(self.writes) > 1 else set()  # registers as they are may change before
        for line, name in reversed(self._names.items()):
            if name not in wanted:
                continue
            wanted |= set(re.findall(r"\bt\d+\b", line))
            viewed = re.fullmatch(r"(t\d+)\.view\(\w+\)|[VS]\[.*", line) if name in bare else None
            bare |= {viewed[1]} if viewed else set()
            code.append(f"{name} = {line}" + ".copy()" * bool(viewed and not viewed[1]))
        return code[::-1] + self.writes


class Value:
    """An array's name in the code. ``home``: the variable whose bits these are, ``place`` which of them."""

    code: Code
    name: str
    kind: str

    def __init__(
        self, code: Code, name: str, kind: str, home: Any = None, place: tuple[int, int] | None = None
    ) -> None:
        self.__dict__.update(code=code, name=name, kind=kind, home=home, place=place)

    def _new(self, text: str, kind: str) -> Value:
        return self.code.value(text, kind)

    def to(self, kind: str) -> Value:
        """Converted; a float that becomes an integer of as many bits keeps these."""
        if self.kind == kind:
            return self
        if self.kind[0] == "f" != kind[0] and bits(self.kind) == bits(kind):
            return self.view(kind)
        if dtype(self.kind) == dtype(kind):
            return Value(self.code, self.name, kind)
        return self._new(f"{self.name}.astype({dtype(kind)})", kind)

    def view(self, kind: str) -> Value:
        """The same bits as *kind*."""
        if self.kind == kind:
            return self
        if self.kind == "bool":
            return self.to(kind)
        found, cut = self, f"u{bits(kind)}"
        if dtype(found.kind)[0] != "u":
            found = self._new(f"{self.name}.view({dtype(f'u{bits(self.kind)}')})", f"u{bits(self.kind)}")
        if dtype(cut) != dtype(found.kind):
            found = self._new(f"{found.name}.astype({dtype(cut)})", cut)
        if kind == "i24":
            return self._new(f"({found.name} << 8).view(int32) >> 8", kind)
        if bits(cut) < bits(self.kind) and bits(cut) not in (8, 16, 32, 64):
            found = self._new(f"{found.name} & {2 ** bits(cut) - 1}", cut)
        return found._new(
            found.name if dtype(kind) == dtype(cut) else f"{found.name}.view({dtype(kind)})", kind
        )

    def __getattr__(self, name: str) -> Any:
        if TYPE.fullmatch(name):
            return self.view(name)
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.home.set_bits(*self.place, as_kind(self.code, value, name))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):  # LANE
            return self.home.lanes() if self.home is not None else self
        if not isinstance(index, slice):
            kind = f"u{bits(self.kind)}"
            at = index if isinstance(index, int) else index.to(kind).name
            return self._new(f"{self.view(kind).name} >> {at} & 1", kind)
        high, low = index.start, index.stop
        if self.home is not None and high >= bits(self.kind):
            return self.home[high:low]
        raw = self.view(f"u{bits(self.kind)}")
        if low > high:
            return self._new(f"reverse({raw.name})", "u32")
        return (raw >> low).view(f"u{high - low + 1}")

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            self.home[index] = value
        elif isinstance(index, str):  # LANE
            self.home.set_lanes(truth(as_kind(self.code, value, "u32")))
        else:
            bit, new = (as_kind(self.code, x, self.kind) << index for x in (1, value))
            setattr(self.home, self.kind, self & ~bit | new)


def _unary(symbol: str) -> Any:
    return lambda one: one.code.value(f"{symbol}{one.name}", one.kind)


def _binary(symbol: str, *, swapped: bool = False) -> Any:
    def apply(one: Value, other: Any) -> Value:
        left, right = (other, one) if swapped else (one, other)
        if symbol in ("<<", ">>"):  # the type is what is shifted's
            shifted = left if isinstance(left, Value) else one.code.literal(left, "u32")
            by = right.to(shifted.kind).name if isinstance(right, Value) else right
            return one.code.value(f"{shifted.name} {symbol} {by}", shifted.kind) if by else shifted
        (first, second), kind = alike(left, right)
        return one.code.value(f"{first} {symbol} {second}", "bool" if symbol[0] in "=!<>" else kind)

    return apply


for _name, _symbol in {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "and": "&", "or": "|", "xor": "^", "lshift": "<<",
    "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}.items():  # fmt: skip
    setattr(Value, f"__{_name}__", _binary(_symbol))
    setattr(Value, f"__r{_name}__", _binary(_symbol, swapped=True))
Value.__invert__, Value.__neg__ = _unary("~"), _unary("-")


def as_kind(code: Code, value: Any, kind: str) -> Value:
    return value.to(kind) if isinstance(value, Value) else code.literal(value, kind)


def alike(*both: Any) -> tuple[tuple[str, str], str]:
    """The names of two values, or a literal, in the type in which they meet, and it."""
    kinds = [x.kind for x in both if isinstance(x, Value)]
    floats = [kind for kind in kinds if kind[0] == "f"]
    literal = "f64" if any(isinstance(x, float) for x in both) else "i64"
    kind = max(floats or kinds or [literal], key=lambda kind: (bits(kind), kind[0] != "i"))
    if kind == "bool" and any(type(x) is int for x in both):
        kind = "u32"
    one, two = (x.to(kind).name if isinstance(x, Value) else repr(x) for x in both)
    return (one, two), kind


def truth(value: Any) -> Any:
    """A truth value for each lane, or a known one."""
    if not isinstance(value, Value):
        return bool(value)
    return value if value.kind == "bool" else value._new(f"{value.name} != 0", "bool")


def choice(condition: Any, yes: Any, no: Any) -> Any:
    chosen = truth(condition)
    if not isinstance(chosen, Value):
        return yes if chosen else no
    if not isinstance(yes, Value) and not isinstance(no, Value) and (yes, no) == (1, 0):
        return chosen
    (one, two), kind = alike(yes, no)
    return chosen.code.value(f"where({chosen.name}, {one}, {two})", kind)
