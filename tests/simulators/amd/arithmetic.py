"""Arithmetic instructions as steps: functions that change the registers of wavefronts (waves.py).

An instruction's pseudocode runs once, with operands that write Python code over NumPy's arrays. An element
of an array is a lane of a wavefront; where the instruction is scalar a wavefront has one. Conditions become
masks: both branches are computed, and `where` chooses. All is read before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from .program import Line, Operand, constant
from .pseudocode import pseudocode, python
from .values import OF_CODE, OF_PSEUDOCODE, Code, Value, bits, by_type, choice, dtype, truth
from .waves import EXEC, M0, SCC, VCC, Waves

Step = Callable[[Waves], str | None]
Shape = tuple[str, tuple[tuple[str, Any], ...], tuple[Operand, ...]]  # name, modifiers, operands

_NONE = (0, 0, 0)  # modifiers of three operands that are not there
_UNKNOWN = {"mul", "div", "quad_perm", "row_shr", "row_mask", "dpp8"}
_SELECTING = re.compile(r"v_(pk_|fma_mix)")
# What SDWA selects of a word: the first bit, and bits.
_SDWA = {f"BYTE_{i}": (8 * i, 8) for i in range(4)}
_SDWA |= {"WORD_0": (0, 16), "WORD_1": (16, 16), "DWORD": (0, 32)}


class Register:
    """Words that are set and read by parts: an operand, or a name of the pseudocode's own, which is 0.

    ``place``: the operand's, or its constant, in the code; ``to``: where it is written. It is source *which*.
    """

    __getattr__ = by_type

    def __init__(self, scope: Scope, op: Operand | None = None, place: str = "", which: int = -1) -> None:
        self._scope, self._code, self._op, self._which = scope, scope.code, op or Operand("s"), which
        self.place = self.to = place
        self._words = {} if op else dict.fromkeys((0, 1), scope.code.of_kind(0, "u32"))
        self.chosen: Value | None = None  # a truth value for each lane

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return self.view("u32")[index]
        return self.view(f"u{index.start - index.stop + 1}", index.stop)

    def view(self, kind: str, low: int = 0) -> Value:
        """Bits from *low* on, or a constant. In packed instructions modifiers say which half they are."""
        op, size, flips, packed = self._op, bits(kind), 0, self._scope.packed
        if packed and self._which >= 0:
            half, modifiers = low // packed, self._scope.modifiers
            low = packed * modifiers.get(("op_sel", "op_sel_hi")[half], (half,) * 3)[self._which]
            flips = modifiers.get(("neg_lo", "neg_hi")[half], _NONE)[self._which]
        if op.kind == "constant":
            given = f"f{size}" if size in (16, 32) else kind
            found = self._code.constant(f"constant({self.place}, {given!r})", "u64" if size > 32 else "u32")
            found = found >> (low if size < 16 else 0)
        elif (low + size - 1) // 32 == low // 32:
            found = self._selected(self._word(low // 32)) >> low % 32
        else:
            found = self._code.joined(self._word(0), self._word(1)) >> low
        found, top = found.view(f"u{size}"), 1 << (size - 1)
        found = found & (top - 1) if op.absolute else found
        return (found ^ top if flips ^ op.negated else found).view(kind)

    def _word(self, place: int) -> Value:
        given = f"{self._op.kind.upper()}[{self.place} + {place}]"
        return self._words.get(place) or self._code.value(given, "u32")

    def _selected(self, word: Value) -> Value:
        first, size = _SDWA[self._scope.modifiers.get(f"src{self._which}_sel", "DWORD")]
        word = word[first + size - 1 : first]
        return word.view(f"i{size}").to("i32").raw if self._op.extended else word.to("u32")

    @property
    def lanes(self) -> Value:
        held = "g.active" if self.place == str(EXEC) else f"g.mask({self.place})"
        return self.chosen or self._code.value(held, "bool")

    def put(self, low: int, value: Value, *, keeps: bool) -> None:
        """The bits from *low* on become those of *value*. What else is in a word stays, or is 0."""
        for place, word in enumerate(value.words(), low // 32):
            old, size = self._word(place), min(32, bits(value.kind))
            cut = (1 << size) - 1 << low % 32
            new = (word << low % 32) & cut if size < 32 else word
            self._words[place] = choice(self._scope.mask, old & ~cut % 2**32 | new if keeps else new, old)

    def write(self) -> Iterator[str]:
        """Calls that write what has been put."""
        if self.chosen is not None:
            yield f"g.set_mask({self.to}, {self.chosen.name} & g.active)"
        first, size = _SDWA[self._scope.modifiers.get("dst_sel", "DWORD")]
        file = "vector" if self._op.kind == "v" else "scalar"
        for place, word in self._words.items():
            placed = word if size == 32 else word[size - 1 : 0].to("u32") << first
            yield f"g.set_{file}({self.to} + {place}, {placed.name})"


class Scope:
    """An instruction's pseudocode while it runs: its names, and its conditions.

    ``packed``: bits of a half of what a packed instruction reads, else 0.
    """

    def __init__(self, code: Code, processor: str, name: str, modifiers: Mapping[str, Any]) -> None:
        self.code, self.processor, self.name, self.modifiers = code, processor, name, modifiers
        self.text, self.gfx9 = pseudocode(processor, name), processor.startswith("gfx9")
        self.packed = (32 if name.endswith("f32") else 16) if re.match("v_pk_(?!mov)", name) else 0
        self.mask: Any = True  # what is put in which lanes
        self._outer: list[tuple[Any, Any]] = []  # of each `if`: the mask, and what no branch took yet
        self.names: dict[str, Any] = {
            "choice": choice, "truth": truth, "put": self._put, "part": np.s_, "when": self._when,
            "ended": self._outer.pop, "instruction": self._instruction,
            "join": lambda x, y: code.joined(y, x) if x.kind == y.kind == "u32" else None,
            "differs": lambda x, y: (x < y) | (x > y) if x.kind[0] == "f" else x != y,  # NaN does not
            "cast": lambda kind, x: code.of_kind(x, kind.lower()) if isinstance(x, Value)
            else code.of_kind(x, f"u{kind[1:]}").view(kind.lower()),  # a NaN's bits
            # the register that is *by* further
            "moved": lambda source, by: code.value(
                f"V[{source.place} + ({by.name}[:, 0] & 255).astype(int64), arange(len(g.index))]", "u32"),
            "converted": lambda kind, x: code.value(f"converted({x.name}, {dtype(kind)})", kind),
            "isSignalNAN": lambda _: False, "cvtToQuietNAN": lambda x: x, "signext": lambda x: x,
            "INF": np.inf, "NAN": np.nan, **{name: partial(self._function, name) for name in OF_PSEUDOCODE},
        }  # fmt: skip

    def trace(self, operands: Mapping[int, Operand]) -> None:
        """Adds the instruction to the code. *operands*: by their numbers."""
        numbers, places = list(operands), {"VCC": VCC, "EXEC": EXEC, "M0": M0, "SCC": SCC}
        written = {name: Register(self, Operand("s"), str(place)) for name, place in places.items()}
        if "D0" in self.text:
            written["D0"] = Register(self, operands[numbers[0]], f"p{numbers.pop(0)}")
            if re.search(r"^\s*VCC\.u64\[laneId\] =", self.text, re.MULTILINE):
                written["VCC"].to = f"p{numbers.pop(0)}"
        sources = [Register(self, operands[n], f"p{n}", which) for which, n in enumerate(numbers)]
        if len(numbers) == 3 and "div_fmas" not in self.name:
            written["VCC"].place = sources[2].place
        here = self.code.value("uint64(g.run.base + address)", "u64")
        halves = self.modifiers.get("op_sel_hi", _NONE if "mix" in self.name else (1, 1, 1))
        more = {"PC": here, "OPSEL": self.modifiers.get("op_sel", _NONE), "OPSEL_HI": halves, "S": sources}
        numbered = {f"S{which}": source for which, source in enumerate(sources)}
        self.names |= written | numbered | more | {"SIMM16": sources[-1] if sources else None}
        exec(python(self.text), self.names)
        self.code.writes += [line for register in written.values() for line in register.write()]
        if self.names["PC"] is not here:
            self.code.writes.append(f"return g.jump({self.names['PC'].name})")

    def _put(self, name: str, part: slice | None, kind: str, value: Any) -> None:
        """`name[part].kind = value`. A name of the pseudocode's own is a value unless it has parts."""
        if part is not None:
            kind = kind or f"u{part.start - part.stop + 1}"
            self.names.setdefault(name, Register(self))
        old = self.names.get(name)
        value = getattr(value, kind) if isinstance(value, Register) else value
        if kind == "lanes":
            new = truth(value if isinstance(value, Value) else self.code.of_kind(value, "u32"))
            self.names[name].chosen = choice(self.mask, new, self.names[name].lanes)
        elif isinstance(old, Register):
            new = self.code.of_kind(value, kind or "u32")
            old.put(part.stop if part else 0, new, keeps=bool(part) or not self.gfx9)
        else:
            value = self.code.of_kind(value, kind) if kind else value
            self.names[name] = value if old is None else choice(self.mask, value, old)

    def _when(self, condition: Any, *, again: bool = False) -> Iterator[None]:
        if not again:
            self._outer.append((self.mask, self.mask))
        outer, left = self._outer[-1]
        chosen = truth(condition)
        self.mask = _both(chosen, left)
        if self.mask is not False:
            yield
        self.mask = outer
        self._outer[-1] = outer, _both(~chosen if isinstance(chosen, Value) else not chosen, left)

    def _function(self, name: str, *values: Any) -> Value:
        kinds = [x.kind for x in values if isinstance(x, Value)]
        given = ", ".join(x.name if isinstance(x, Value) else repr(x) for x in values)
        return self.code.value(f"{name}({given})", OF_PSEUDOCODE[name] or kinds[0])

    def _instruction(self, name: str, *values: Value) -> Any:
        inner = Scope(self.code, self.processor, name, {})
        inner.names |= {f"S{i}": value for i, value in enumerate(values)} | {"D0": (found := Register(inner))}
        exec(python(inner.text), inner.names)
        return getattr(found, name.rpartition("_")[2])


def _both(one: Any, two: Any) -> Any:
    if isinstance(one, bool) or isinstance(two, bool):
        return two if one is True else one if two is True else False
    return one & two


def arithmetic(processor: str, at: Line) -> Step:
    parts = [Line(at.address, text) for text in at.text.split(" :: ")]
    given = [one for part in parts for one in part.operands]
    make = _template(processor, tuple(_shape(part) for part in parts))
    return make(at.address, *(one.text if one.kind == "constant" else one.place for one in given))


def _shape(at: Line) -> Shape:
    """The instruction without what differs between those that have the same code."""
    name = re.sub(r"_(e32|e64|sdwa)$", "", at.name) + "_clamp" * ("clamp" in at.modifiers)
    unknown = _UNKNOWN if _SELECTING.match(name) else _UNKNOWN | {"op_sel", "neg_lo", "neg_hi"}
    if unknown & set(at.modifiers) or at.modifiers.get("dst_unused", "UNUSED_PAD") != "UNUSED_PAD":
        raise NotImplementedError(at.text)
    return name, tuple(at.modifiers.items()), tuple(at.operands)


@cache
def _template(processor: str, shapes: tuple[Shape, ...]) -> Callable[..., Step]:
    """What makes a step of an address, and of operands' places and constants."""
    code, first = Code(), 0
    for name, modifiers, operands in shapes:
        try:
            Scope(code, processor, name, dict(modifiers)).trace(dict(enumerate(operands, first)))
        except (NameError, TypeError, ValueError, SyntaxError, AttributeError, KeyError) as error:
            raise NotImplementedError(f"{name}: {error!r}") from error
        first += len(operands)
    given = ", ".join(["address", *(f"p{number}" for number in range(first))])
    made = "\n  ".join([f"def make({given}):", *(f"{name} = {line}" for line, name in code.fixed.items())])
    body = "\n    ".join(["def step(g):", "V, S = g.vector, g.scalar", *code.lines()])
    known = OF_CODE | {"constant": constant}
    exec(compile(f"{made}\n  {body}\n  return step", shapes[0][0], "exec"), known)
    make: Callable[..., Step] = known["make"]
    return make
