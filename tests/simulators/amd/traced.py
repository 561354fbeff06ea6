"""An instruction's pseudocode, run once with operands that write Python code over NumPy's arrays.

An element of an array is a lane of a wavefront, or a wavefront where the instruction is scalar. Conditions
become masks: both branches are computed, and `where` chooses. All is read before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from .functions import OF_PSEUDOCODE
from .operands import Operand
from .values import LANE, TYPE, Code, Real, Value, Whole, as_kind, bits, choice, dtype, number, truth
from .waves import M0

_PREDICATES = ("sign", "isNAN", "subnormal")
SDWA = {
    f"{name}_{i}": (size * i, size) for name, size in (("BYTE", 8), ("WORD", 16)) for i in range(32 // size)
}


@dataclass(frozen=True)
class Reading:
    """How an instruction reads its sources. ``first``: the number of the first among its operands."""

    name: str
    modifiers: Mapping[str, str]
    first: int

    @property
    def vector(self) -> bool:
        return self.name.startswith("v_")

    @property
    def packed(self) -> int:
        """Bits of a half of what a packed instruction reads, else 0."""
        if not self.name.startswith("v_pk_") or "pk_mov" in self.name:
            return 0
        return 32 if self.name.endswith("f32") else 16

    def half(self, source: int, high: int) -> tuple[int, int]:
        """Which half is read as the low or the high one, and whether its sign changes."""
        name, negative = (("op_sel", "neg_lo"), ("op_sel_hi", "neg_hi"))[high]
        return flags(self.modifiers, name, 7 * high) >> source & 1, flags(
            self.modifiers, negative
        ) >> source & 1


def flags(modifiers: Mapping[str, str], name: str, default: int = 0) -> int:
    """A modifier like [0,1,0] as bits."""
    text = modifiers.get(name)
    return default if text is None else sum(int(x) << i for i, x in enumerate(text.strip("[]").split(",")))


class Source:
    """An operand that is read: the place is the parameter p and its number, a constant's k."""

    def __init__(self, code: Code, number: int, op: Operand, at: Reading) -> None:
        self.code, self._number, self.op, self._at = code, number, op, at
        self.place = f"p{number}"

    def read(self, kind: str) -> Value:
        if self.op.kind == "constant":
            return self._signed(self._constant(kind), bits(kind)).view(kind)
        if bits(kind) > 32:
            return self._signed(self._wide(), 64).view(kind)
        return self._signed(self._selected(self.word(0)).view(f"u{bits(kind)}"), bits(kind)).view(kind)

    def part(self, high: int, low: int) -> Value:
        """These bits. In packed instructions modifiers say which half they are."""
        length = high - low + 1
        if half := self._at.packed:
            chosen, flip = self._at.half(self._number_of_source, low // half)
            low, high = half * chosen, half * chosen + half - 1
        if self.op.kind == "constant":
            kept = length in (16, 32)
            found = self._constant(f"f{length}" if kept else "u32")
            found = found if kept or not low else self.code.value(f"{found.name} >> {low}", "u32")
        elif high // 32 == low // 32:
            found = self._selected(self.word(low // 32))
            found = self.code.value(f"{found.name} >> {low % 32}", "u32") if low % 32 else found
        else:
            found = self.code.value(f"{self._wide().name} >> {low}", "u64")
        found = self._signed(found.view(f"u{length}"), length)
        return self.code.value(f"{found.name} ^ {1 << (length - 1)}", found.kind) if half and flip else found

    @property
    def _number_of_source(self) -> int:
        return self._number - self._at.first

    def word(self, place: int) -> Value:
        more = f" + {place}" if place else ""
        return self.code.value(self._row(f"{self.place}{more}"), "u32")

    def _row(self, place: str) -> str:
        if self.op.kind == "v":
            return f"V[{place}]"
        return f"S[{place}][:, None]" if self._at.vector else f"S[{place}]"

    def _wide(self) -> Value:
        return self.code.value(f"wide({self.word(0).name}, {self.word(1).name})", "u64")

    def _constant(self, kind: str) -> Value:
        if self.op.text:  # src_scc and alike
            told = self.code.value(f"special(g, {self.op.text!r})", "u32")
            return self.code.value(f"{told.name}[:, None]", "u32") if self._at.vector else told
        name = f"k{self._number}_{kind}"
        self.code.needs[name] = self._number, kind
        return Value(self.code, name, "u64" if bits(kind) > 32 else "u32")

    def _selected(self, word: Value) -> Value:
        """The part that SDWA selects."""
        chosen = self._at.modifiers.get(f"src{self._number_of_source}_sel", "DWORD")
        if chosen == "DWORD" or self.op.kind == "constant":
            return word
        first, size = SDWA[chosen]
        word = word[first + size - 1 : first]
        return word.view(f"i{size}").to("i32").view("u32") if self.op.extended else word.to("u32")

    def _signed(self, value: Value, length: int) -> Value:
        top, raw = 1 << (length - 1), value
        if self.op.absolute:
            raw = self.code.value(f"{raw.name} & {top - 1}", raw.kind)
        return self.code.value(f"{raw.name} ^ {top}", raw.kind) if self.op.negated else raw

    def lanes(self) -> Value:
        if self.op.kind == "constant":
            raise NotImplementedError(f"{self.op} for each lane")
        return self.code.value(f"g.mask({self.place})", "bool")


class Variable:
    """Bits that are set and read by parts: an operand, or a name of the pseudocode's own."""

    def __init__(self, scope: Scope, source: Source | None = None) -> None:
        self.scope, self.source = scope, source
        self.whole: Value | None = None
        self.words: dict[int, Value] = {}
        self.chosen: Value | None = None  # a truth value for each lane

    def __getattr__(self, name: str) -> Any:
        if TYPE.fullmatch(name):
            found = self._read(name)
            return Value(found.code, found.name, found.kind, self)
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if TYPE.fullmatch(name):
            self.put(value, name)
        else:
            object.__setattr__(self, name, value)

    def put(self, value: Any, kind: str) -> None:
        if isinstance(value, Variable) and value.words:
            self.words, self.whole = dict(value.words), None
        else:
            value = value.b64 if isinstance(value, Variable) else value
            self.whole = self.scope.masked(as_kind(self.scope.code, value, kind), lambda: self._read(kind))
        self.scope.written.setdefault(id(self), self)

    def _read(self, kind: str) -> Value:
        code = self.scope.code
        if self.whole is not None:
            return self.whole.view(kind)
        if self.words and bits(kind) > 32:
            return code.value(f"wide({self._word(0).name}, {self._word(1).name})", "u64").view(kind)
        if self.words:
            return self._word(0).view(kind)
        return self.source.read(kind) if self.source else code.literal(0, kind)

    def _word(self, place: int) -> Value:
        if place in self.words:
            return self.words[place]
        if self.whole is not None:
            part: Value = self.whole[32 * place + 31 : 32 * place]
            return part
        return self.source.word(place) if self.source else self.scope.code.literal(0, "u32")

    def __getitem__(self, index: Any) -> Value:
        high, low = (index.start, index.stop) if isinstance(index, slice) else (index, index)
        if self.whole is not None or self.words or self.source is None:
            found = (self.whole or self._read("u64"))[high:low]
        else:
            found = self.source.part(high, low)
        return Value(found.code, found.name, found.kind, self, (high, low))

    def __setitem__(self, index: slice, value: Any) -> None:
        length = abs(index.start - index.stop) + 1
        self.set_bits(index.start, index.stop, as_kind(self.scope.code, value, f"u{length}"))

    def set_bits(self, high: int, low: int, value: Value) -> None:
        place, low, length = low // 32, low % 32, high - low + 1
        raw, old = value.view(f"u{length}").to("u32"), self._word(place)
        if length < 32:
            cut = ((1 << length) - 1) << low
            raw = self.scope.code.value(f"{old.name} & {cut ^ 0xFFFFFFFF} | {raw.name} << {low}", "u32")
        self.words |= {place: self.scope.masked(raw, lambda: old)}
        self.scope.written.setdefault(id(self), self)

    def lanes(self) -> Value:
        assert self.source is not None
        return self.source.lanes() if self.chosen is None else self.chosen

    def set_lanes(self, value: Value) -> None:
        self.chosen = self.scope.masked(value, self.lanes)
        self.scope.written.setdefault(id(self), self)


class Scope(dict[str, Any]):
    """The names of a pseudocode while it runs, and its conditions."""

    def __init__(self, code: Code, other: Callable[[str], str], constants: Mapping[str, int]) -> None:
        super().__init__({name: Whole(value) for name, value in constants.items()})
        self |= {"WAVE_MODE": SimpleNamespace(IEEE=1), "laneId": LANE}
        self.code, self._other = code, other
        self.written: dict[int, Variable] = {}
        self._mask: Value | None = None
        self._outer: list[
            tuple[Value | None, Any]
        ] = []  # of each `if`: the mask, and what no branch took yet

    def run(self, text: str) -> None:
        """*text* as Python. Names that it calls are in ``functions`` or are other instructions."""
        own = {"choice": choice, "truth": truth, "number": number, "range": range, "join": self._join,
               "cast": self._cast, "when": self._when, "ended": self._ended, "differs": self._differs,
               "isSignalNAN": lambda _: False, "cvtToQuietNAN": lambda x: x, "signext": lambda x: x,
               "moved": self._moved, "first_lane": self._first_lane}  # fmt: skip
        own |= {name: self._function(name) for name in OF_PSEUDOCODE}
        own["isQuietNAN"] = own["isNAN"]
        self |= own
        exec(text, own, self)

    def __missing__(self, name: str) -> Any:
        if name.startswith("v_"):
            return lambda *values: self._instruction(name, values)
        if converted := re.fullmatch(r"([uif]\d+)_to_([uif]\d+)", name):
            return lambda x: self.code.value(f"converted({x.name}, {dtype(converted[2])})", converted[2])
        if known := re.fullmatch(r"(INF|NAN|PI|OVERFLOW|UNDERFLOW)(_F\d+)?", name):
            return Real({"NAN": "nan", "PI": 3.141592653589793, "UNDERFLOW": 0.0}.get(known[1], "inf"))
        return self.setdefault(name, Variable(self))

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "VCC" and not isinstance(value, Variable):
            self["VCC"].set_lanes(truth(as_kind(self.code, value, "u32")))
        elif isinstance(value, Value) and (self._mask is not None or name == "SCC"):
            old = dict.get(self, name)
            value = truth(value) if name == "SCC" else value
            super().__setitem__(name, self.masked(value, lambda: old) if old is not None else value)
        else:
            super().__setitem__(name, value)

    def masked(self, value: Value, old: Callable[[], Any]) -> Value:
        return value if self._mask is None else choice(self._mask, value, old())

    # ---- conditions ----

    def _when(self, condition: Any, *, again: bool = False) -> Iterator[None]:
        if not again:
            self._outer.append((self._mask, self._mask if self._mask is not None else True))
        outer, left = self._outer[-1]
        chosen = truth(condition)
        taken = _both(chosen, left)
        if taken is not False:
            self._mask = taken if isinstance(taken, Value) else None
            yield
            self._mask = outer
        rest = _both(~chosen if isinstance(chosen, Value) else not chosen, left)
        self._outer[-1] = outer, rest

    def _ended(self) -> None:
        self._mask, _ = self._outer.pop()

    # ---- functions ----

    def _function(self, name: str) -> Callable[..., Any]:
        def call(*values: Any) -> Value:
            kinds = [x.kind for x in values if isinstance(x, Value)]
            kind = "i32" if name == "exponent" else "bool" if name in _PREDICATES else kinds[0]
            given = ", ".join(x.name if isinstance(x, Value) else repr(x) for x in values)
            return self.code.value(f"{name}({given})", kind)

        return call

    def _instruction(self, name: str, values: tuple[Value, ...]) -> Value:
        inner = Scope(self.code, self._other, {})
        inner |= {f"S{i}": value for i, value in enumerate(values)}
        inner["D0"] = found = Variable(inner)
        inner.run(self._other(name))
        assert found.whole is not None
        return found.whole

    def _cast(self, kind: str, value: Any) -> Value:
        kind = kind[0].lower() + str(min(64, int(kind[1:])))
        if isinstance(value, Value):
            return value.to(kind)
        as_bits = kind[0] == "f" and isinstance(value, int) and value >= 1 << 31  # a NaN's
        return (
            self.code.literal(value, f"u{bits(kind)}").view(kind)
            if as_bits
            else self.code.literal(value, kind)
        )

    def _join(self, *parts: Value) -> Value:
        found, total = "", 0
        for part in reversed(parts):
            wide = part.view(f"u{bits(part.kind)}").to("u64").name
            found = f"{wide} << {total} | {found}" if found else wide
            total += bits(part.kind)
        return self.code.value(found, f"u{total}")

    def _moved(self, source: Variable) -> Value:
        """The register that is M0 further."""
        assert source.source is not None
        place = f"{source.source.place} + (S[{M0}] & 255).astype(int64)"
        return self.code.value(f"V[{place}, arange(len(g.index))]", "u32")

    def _first_lane(self) -> Value:
        return self.code.value("g.active.argmax(axis=1)", "i64")

    def _differs(self, one: Any, two: Any) -> Any:
        """Neither equal nor NaN."""
        return (one < two) | (one > two) if one.kind[0] == "f" else one != two


def _both(one: Any, two: Any) -> Any:
    if isinstance(one, bool) or isinstance(two, bool):
        return two if one is True else one if two is True else False
    return one & two
