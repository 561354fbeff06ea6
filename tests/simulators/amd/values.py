"""Expressions of AMD's pseudocode as Python code over NumPy's arrays."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import functions
from .kinds import Value, alike, bits, converted_to, dtype, read_as, truth_of
from .pseudocode import Tree

SOURCES = ("S0", "S1", "S2", "D0", "SIMM16", "SIMM32", "M0")  # operands of an instruction
# OVERFLOW and UNDERFLOW are what rounding to nearest makes of them.
_CONSTANTS = {"INF": "inf", "NAN": "nan", "PI": "pi"} | {
    f"{name}_F{width}": value
    for name, value in (("OVERFLOW", "inf"), ("UNDERFLOW", "0.0"))
    for width in (32, 64)
}
NAMES = {"fma": functions.fma, "np": np, **vars(functions)}
_PREDICATES = ("sign", "isNAN", "isQuietNAN", "isSignalNAN", "isEven", "subnormal")
_COMPARE = ("==", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Meaning:
    """An instruction's function: arrays of the ``inputs``, in their order -> those of the ``outputs``.

    Both are (name, type). "VCC", and "lanes:D0", are a truth value for each lane. ``kinds``: how a source is
    first read, which says what its constants mean.
    """

    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    kinds: Mapping[str, str]
    function: Callable[..., tuple[Any, ...]]


def walk(tree: Any) -> Iterator[Tree]:
    if isinstance(tree, tuple) and tree and isinstance(tree[0], str):
        yield tree
    if isinstance(tree, (tuple, list)):
        for part in tree:
            yield from walk(part)


def base_of(tree: Tree) -> str | None:
    """The name that *tree* selects bits of."""
    while tree[0] in ("typed", "slice", "item"):
        tree = tree[1]
    return tree[1] if tree[0] == "name" else None


def is_lane(tree: Tree) -> bool:
    return bool(tree[0] == "item" and tree[2] == ("name", "laneId"))


class Values(ABC):
    """What is known while an instruction is compiled: its variables, and the code so far."""

    def __init__(self, constants: Mapping[str, int], other: Any) -> None:
        self._constants, self._other = constants, other
        self._lines: list[str] = []
        self._variables: dict[str, Any] = {}  # name -> Value, or a list of them for an array
        self._functions: dict[str, tuple[list[str], list[Tree]]] = {}
        self._inputs: dict[str, str] = {}
        self._outputs: dict[str, None] = {}
        self._mask: str | None = None
        self._used = dict(NAMES)
        self._count = 0
        self._widths: dict[str, int] = {}
        self._kinds: dict[str, str] = {}

    def _raw(self, name: str) -> str:
        return "u64" if self._widths.get(name, 32) > 32 else "u32"

    def _constant(self, tree: Tree) -> int | None:
        """The value of *tree* if it is known now."""
        try:
            code, _ = self.value(tree)
            found = eval(code, dict(NAMES))
        except (NameError, TypeError, AttributeError, SyntaxError, KeyError):
            return None
        return int(found) if isinstance(found, (int, np.integer, np.bool_)) else None

    def _new(self, code: str) -> str:
        self._count += 1
        self._lines.append(f"v{self._count} = {code}")
        return f"v{self._count}"

    @abstractmethod
    def block(self, trees: list[Tree]) -> None:
        """Write the code of statements."""

    def value(self, tree: Tree) -> Value:
        found: Value = getattr(self, f"_get_{tree[0]}")(*tree[1:])
        return found

    def _get_number(self, number: float, kind: str | None) -> Value:
        if kind is None or bits(kind) < 8:
            return repr(number), None
        return f"{dtype(kind)}({number!r})", kind

    def _get_name(self, name: str) -> Value:
        if name in self._variables:
            found: Value = self._variables[name]
            return found
        if name in self._constants:
            return str(self._constants[name]), None
        if name in _CONSTANTS:
            return _CONSTANTS[name], None
        if name in ("VCC", "SCC"):
            self._inputs[name] = "bool"
            return name, "bool"
        if name in ("EXEC", "PC"):
            self._inputs[name] = "u64"
            return name, "u64"
        if name not in SOURCES:
            raise NameError(name)
        self._inputs[name] = self._raw(name)
        return name, self._inputs[name]

    def _get_typed(self, tree: Tree, kind: str) -> Value:
        inner = self._get_slice(tree[1], tree[2], tree[3], kind) if tree[0] == "slice" else self.value(tree)
        return read_as(inner, kind), kind

    def _get_item(self, tree: Tree, index: Tree) -> Value:
        if index == ("name", "laneId"):
            return self.value(("name", base_of(tree)))
        place = self._constant(index)
        if tree == ("name", "S"):
            return self._get_name(f"S{place}")
        listed = self._variables.get(tree[1]) if tree[0] == "name" else None
        if isinstance(listed, list) and place is not None:
            found: Value = listed[place]
            return found
        at, kind = self.value(index)
        if isinstance(listed, list):
            (code, of), *rest = listed
            for number, (other, _) in enumerate(rest, 1):
                code = f"where({at} == {number}, {other}, {code})"
            return self._new(code), of
        inner = self.value(tree)
        if inner[1] is None:
            return f"(({inner[0]} >> {at}) & 1)", None
        unsigned = f"u{bits(inner[1])}"
        at = at if kind is None else f"({at}).astype({dtype(unsigned)})"
        return f"(({read_as(inner, unsigned)} >> {at}) & 1)", unsigned

    def _get_slice(self, tree: Tree, high: Tree, low: Tree, wanted: str = "") -> Value:
        """Bits of *tree*. Those that become a longer *wanted* anyway need no type of their own."""
        first, last = self._constant(low), self._constant(high)
        inner = self.value(tree)
        if first is None or last is None or inner[1] is None:
            raise NotImplementedError(f"bits {high} to {low} of {tree}")
        if last < first:
            return f"reverse({read_as(inner, 'u32')})", "u32"
        length = last - first + 1
        raw = self._raw(str(base_of(tree))) if last >= bits(inner[1]) else f"u{bits(inner[1])}"
        code = read_as(inner if last < bits(inner[1]) else self.value(("name", base_of(tree))), raw)
        shifted = f"({code} >> {first})" if first else code
        kept = wanted if wanted[:1] in ("u", "b") and bits(wanted) > length else f"u{length}"
        if length + first < bits(raw) and (bits(kept) > length or length not in (8, 16, 32)):
            shifted = f"({shifted} & {(1 << length) - 1})"
        return (shifted if dtype(kept) == dtype(raw) else f"({shifted}).astype({dtype(kept)})"), kept

    def _get_cast(self, kind: str, tree: Tree) -> Value:
        if kind[0] == "f" and tree[0] == "number" and tree[1] >= 1 << 31:  # a NaN's bits
            return f"uint{bits(kind)}({tree[1]}).view({dtype(kind)})", kind
        code, have = self.value(tree)
        kind = kind[0] + "64" if bits(kind) > 64 else kind
        return converted_to((code, have), kind), kind

    def _get_join(self, trees: list[Tree]) -> Value:
        code, total = "", 0
        for tree in reversed(trees):
            inner = self.value(tree)
            assert inner[1] is not None
            part = read_as((read_as(inner, f"u{bits(inner[1])}"), f"u{bits(inner[1])}"), "u64")
            code = f"({part} << uint64({total})) | {code}" if code else part
            total += bits(inner[1])
        return f"({code})", f"u{total}"

    def _get_choice(self, condition: Tree, yes: Tree, no: Tree) -> Value:
        known = self._constant(condition)
        if known is not None:
            return self.value(yes if known else no)
        truth = truth_of(self.value(condition))
        (one, two), kind = alike(self.value(yes), self.value(no))
        return f"where({truth}, {one}, {two})", kind

    def _get_unary(self, operator: str, tree: Tree) -> Value:
        code, kind = self.value(tree)
        if operator == "!":
            return (f"(not {code})", None) if kind is None else (f"~{truth_of((code, kind))}", "bool")
        return f"({operator}{code})", kind

    def _get_binary(self, operator: str, left: Tree, right: Tree) -> Value:
        one, two = self.value(left), self.value(right)
        if operator in ("&&", "||"):
            if one[1] is None and two[1] is None:
                return f"({one[0]} {'and' if operator == '&&' else 'or'} {two[0]})", None
            return f"({truth_of(one)} {operator[0]} {truth_of(two)})", "bool"
        if operator == "**":
            return self._power(one, two)
        if operator in ("<<", ">>"):
            kind = one[1] or "i32"
            by = two[0] if two[1] is None else f"({two[0]}).astype({dtype(kind)})"
            return (f"({one[0]} {operator} {by})", None) if two[1] is None and one[1] is None else (
                f"({converted_to(one, kind)} {operator} {by})", kind)  # fmt: skip
        (first, second), kind = alike(one, two)
        if operator == "<>":
            return f"(({first} < {second}) | ({first} > {second}))", "bool"
        known = kind is None
        return f"({first} {operator} {second})", kind if known or operator not in _COMPARE else "bool"

    def _power(self, base: Value, exponent: Value) -> Value:
        if exponent[1] is not None:
            raise NotImplementedError("powers of what is not known")
        return f"({base[0]} ** {exponent[0]})", base[1]

    def _get_call(self, name: str, trees: list[Tree]) -> Value:
        if name in self._functions:
            return self._inlined(name, trees)
        values = [self.value(tree) for tree in trees]
        codes, kinds = ", ".join(code for code, _ in values), [kind for _, kind in values]
        if name.startswith("v_"):
            return self._instruction(name.upper(), values)
        converted = re.fullmatch(r"([uif]\d+)_to_([uif]\d+)", name)
        if converted:
            return f"converted({codes}, {dtype(converted[2])})", converted[2]
        kind = "i32" if name == "exponent" else "bool" if name in _PREDICATES else kinds[-1]
        if name not in NAMES:
            raise NameError(name)
        return f"{name}({codes})", kind

    def _inlined(self, name: str, trees: list[Tree]) -> Value:
        parameters, block = self._functions[name]
        values = [self.value(tree) for tree in trees]
        outer, mask = dict(self._variables), self._mask
        self._variables |= dict(zip(parameters, values, strict=True))
        self._mask = None
        self._variables.pop("return", None)
        self.block(block)
        found: Value = self._variables["return"]
        self._variables, self._mask = outer, mask
        return found

    def _instruction(self, name: str, values: list[Value]) -> Value:
        """Another instruction, of the same operands' types."""
        other = self._other(name)
        self._used[name] = other.function
        given = {"D0": "uint32(0)"}  # it is read where no branch sets it
        given |= {f"S{i}": read_as(value, other_kind) for i, value in enumerate(values)
                 for other_kind in [dict(other.inputs).get(f"S{i}", "u32")]}  # fmt: skip
        ((_, kind),) = other.outputs
        return f"{name}({', '.join(given[key] for key, _ in other.inputs)})[0]", kind
