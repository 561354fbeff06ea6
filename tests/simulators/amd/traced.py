"""An instruction's pseudocode, run once with operands that write Python code over NumPy's arrays.

An element of an array is a lane of a wavefront, or a wavefront where the instruction is scalar. Conditions
become masks: both branches are computed, and `where` chooses. All is read before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from .functions import OF_PSEUDOCODE
from .operands import Operand
from .pseudocode import python
from .tables import pseudocode
from .values import LANE, TYPE, Code, Value, as_kind, bits, choice, dtype, truth
from .waves import M0

_PREDICATES = ("sign", "isNAN", "subnormal")
SDWA = {
    f"{name}_{i}": (size * i, size) for name, size in (("BYTE", 8), ("WORD", 16)) for i in range(32 // size)
}


def flags(modifiers: Mapping[str, str], name: str, default: int = 0) -> list[int]:
    """A modifier like [0,1,0]."""
    text = modifiers.get(name)
    return [default] * 3 if text is None else [int(x) for x in text.strip("[]").split(",")]


class Variable:
    """Bits that are set and read by parts: a name of the pseudocode's own, or an operand.

    An operand's place is the parameter p with its number, a constant k, with its number and type. It is the
    source *which*.
    """

    def __init__(self, scope: Scope, op: Operand | None = None, number: int = 0, which: int = 0) -> None:
        self.scope, self.code, self.op, self.place, self._which = scope, scope.code, op, f"p{number}", which
        self._number = number
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
            self._put(value, name)
        else:
            object.__setattr__(self, name, value)

    def __getitem__(self, index: Any) -> Value:
        high, low = (index.start, index.stop) if isinstance(index, slice) else (index, index)
        if self.whole is not None or self.words or self.op is None:
            found = (self.whole or self._read("u64"))[high:low]
        else:
            found = self._part(high, low)
        return Value(found.code, found.name, found.kind, self, (high, low))

    def __setitem__(self, index: slice, value: Any) -> None:
        length = abs(index.start - index.stop) + 1
        self.set_bits(index.start, index.stop, as_kind(self.code, value, f"u{length}"))

    # ---- reading ----

    def _read(self, kind: str) -> Value:
        if self.whole is not None:
            return self.whole.view(kind)
        if self.op is None and not self.words:
            return self.code.literal(0, kind)
        if self.op and self.op.kind == "constant":
            raw = self._constant(kind)
        else:
            raw = self._wide() if bits(kind) > 32 else self._selected(self._word(0))
        return self._signed(raw.view(f"u{bits(kind)}")).view(kind)

    def _part(self, high: int, low: int) -> Value:
        """Bits of an operand. In packed instructions modifiers say which half they are."""
        assert self.op is not None
        found: Any
        length, flip, half = high - low + 1, 0, self.scope.packed
        if half:
            name, negative = (("op_sel", "neg_lo"), ("op_sel_hi", "neg_hi"))[low // half]
            low = half * flags(self.scope.modifiers, name, low // half)[self._which]
            flip, high = flags(self.scope.modifiers, negative)[self._which], low + half - 1
        if self.op.kind == "constant":
            kept = length in (16, 32)
            found = self._constant(f"f{length}" if kept else "u32") >> (0 if kept else low)
        elif high // 32 == low // 32:
            found = self._selected(self._word(low // 32)) >> low % 32
        else:
            found = self._wide() >> low
        return self._signed(found.view(f"u{length}"), flip)

    def _word(self, place: int) -> Value:
        if place in self.words:
            return self.words[place]
        if self.whole is not None:
            part: Value = self.whole[32 * place + 31 : 32 * place]
            return part
        if self.op is None:
            return self.code.literal(0, "u32")
        row = f"[{self.place} + {place}]" if place else f"[{self.place}]"
        scalar = f"S{row}[:, None]" if self.scope.vector else f"S{row}"
        return self.code.value(f"V{row}" if self.op.kind == "v" else scalar, "u32")

    def _wide(self) -> Value:
        return self.code.value(f"wide({self._word(0).name}, {self._word(1).name})", "u64")

    def _constant(self, kind: str) -> Value:
        assert self.op is not None
        if self.op.text:  # src_scc and alike
            told = self.code.value(f"special(g, {self.op.text!r})", "u32")
            return self.code.value(f"{told.name}[:, None]", "u32") if self.scope.vector else told
        self.code.needs[f"k{self._number}_{kind}"] = self._number, kind
        return Value(self.code, f"k{self._number}_{kind}", "u64" if bits(kind) > 32 else "u32")

    def _selected(self, word: Value) -> Value:
        """The part that SDWA selects."""
        chosen = self.scope.modifiers.get(f"src{self._which}_sel", "DWORD")
        if chosen == "DWORD" or self.op is None:
            return word
        first, size = SDWA[chosen]
        word = word[first + size - 1 : first]
        return word.view(f"i{size}").to("i32").view("u32") if self.op.extended else word.to("u32")

    def _signed(self, value: Value, flip: int = 0) -> Value:
        """Absolute or negated: the highest bit changes."""
        top, op = 1 << (bits(value.kind) - 1), self.op or Operand("s")
        name = f"({value.name} & {top - 1})" if op.absolute else value.name
        flips = flip ^ op.negated
        return (
            self.code.value(f"{name} ^ {top}" if flips else name, value.kind)
            if flips or op.absolute
            else value
        )

    def lanes(self) -> Value:
        if self.chosen is not None:
            return self.chosen
        if self.op is None or self.op.kind == "constant":
            raise NotImplementedError(f"{self.op} for each lane")
        return self.code.value(f"g.mask({self.place})", "bool")

    # ---- writing ----

    def _put(self, value: Any, kind: str) -> None:
        if isinstance(value, Variable) and value.words:
            self.words, self.whole = dict(value.words), None
        else:
            value = value.b64 if isinstance(value, Variable) else value
            self.whole = self.scope.masked(as_kind(self.code, value, kind), lambda: self._read(kind))
        self.scope.written.setdefault(id(self), self)

    def set_bits(self, high: int, low: int, value: Value) -> None:
        place, low, length = low // 32, low % 32, high - low + 1
        raw, old = value.view(f"u{length}").to("u32"), self._word(place)
        if length < 32:
            raw = old & ~(((1 << length) - 1) << low) % 2**32 | raw << low
        self.words |= {place: self.scope.masked(raw, lambda: old)}
        self.scope.written.setdefault(id(self), self)

    def set_lanes(self, value: Value) -> None:
        self.chosen = self.scope.masked(value, self.lanes)
        self.scope.written.setdefault(id(self), self)


class Scope(dict[str, Any]):
    """The names of an instruction's pseudocode while it runs, and its conditions.

    ``packed``: bits of a half of what a packed instruction reads, else 0.
    """

    def __init__(self, code: Code, processor: str, name: str, modifiers: Mapping[str, str]) -> None:
        super().__init__(WAVE_MODE=SimpleNamespace(IEEE=1), laneId=LANE)
        self.code, self.processor, self.name, self.modifiers = code, processor, name, modifiers
        self.vector, self.text = name.startswith("v_"), pseudocode(processor, name)
        self.packed = (32 if name.endswith("f32") else 16) if re.match("v_pk_(?!mov)", name) else 0
        self.written: dict[int, Variable] = {}
        self._mask: Value | None = None
        # of each `if`: the mask, and what no branch took yet
        self._outer: list[tuple[Value | None, Any]] = []

    def run(self) -> None:
        """What the pseudocode calls is a function (functions.py) or another instruction."""
        own = {"choice": choice, "truth": truth, "range": range, "join": self._join,
               "cast": self._cast, "when": self._when, "ended": self._ended, "differs": self._differs,
               "isSignalNAN": lambda _: False, "cvtToQuietNAN": lambda x: x, "signext": lambda x: x,
               "moved": self._moved, "first_lane": self._first_lane}  # fmt: skip
        own |= {name: self._function(name) for name in OF_PSEUDOCODE}
        own["isQuietNAN"] = own["isNAN"]
        self |= own
        exec(python(self.text), own, self)

    def __missing__(self, name: str) -> Any:
        if name.startswith("v_"):
            return lambda *values: self._instruction(name, values)
        if converted := re.fullmatch(r"([uif]\d+)_to_([uif]\d+)", name):
            return lambda x: self.code.value(f"converted({x.name}, {dtype(converted[2])})", converted[2])
        if known := re.fullmatch(r"(INF|NAN|PI|OVERFLOW|UNDERFLOW)(_F\d+)?", name):
            return float({"NAN": "nan", "PI": 3.141592653589793, "UNDERFLOW": 0.0}.get(known[1], "inf"))
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
        inner = Scope(self.code, self.processor, name, {})
        inner |= {f"S{i}": value for i, value in enumerate(values)}
        inner["D0"] = found = Variable(inner)
        inner.run()
        assert found.whole is not None
        return found.whole

    def _cast(self, kind: str, value: Any) -> Value:
        kind = kind[0].lower() + str(min(64, int(kind[1:])))
        if isinstance(value, Value):
            return value.to(kind)
        if kind[0] == "f" and isinstance(value, int) and value >= 1 << 31:  # a NaN's bits
            return self.code.literal(value, f"u{bits(kind)}").view(kind)
        return self.code.literal(value, kind)

    def _join(self, *parts: Value) -> Value:
        found, total = "", 0
        for part in reversed(parts):
            wide = part.view(f"u{bits(part.kind)}").to("u64").name
            found = f"{wide} << {total} | {found}" if found else wide
            total += bits(part.kind)
        return self.code.value(found, f"u{total}")

    def _moved(self, source: Variable) -> Value:
        """The register that is M0 further."""
        place = f"{source.place} + (S[{M0}] & 255).astype(int64)"
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
