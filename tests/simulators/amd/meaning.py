"""Pseudocode of an instruction (pseudocode.py) compiled to a Python function over NumPy's arrays.

An element of an array is a lane of a wavefront, or a wavefront where the instruction is scalar. Conditions
become masks: both branches are computed, and `where` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .kinds import Value, alike, bits, converted_to, dtype, read_as, truth_of
from .pseudocode import Tree, parsed
from .values import SOURCES, Meaning, Values, base_of, is_lane, walk


def compiled(text: str, constants: Mapping[str, int], other: Callable[[str], Meaning]) -> Meaning:
    """The meaning of *text*. *constants* are names with known values, *other* finds instructions it calls."""
    return _Writer(constants, other).meaning(parsed(text))


class _Writer(Values):
    """Statements."""

    def meaning(self, trees: list[Tree]) -> Meaning:
        self._measure(trees)
        self.block(trees)
        outputs = []
        for name in self._outputs:
            code, kind = self._variables[name]
            if kind is None or kind == "bool" or name == "SCC":
                kind = kind or ("bool" if ":" in name or name in ("VCC", "SCC") else "u32")
                kind = "bool" if name == "SCC" else kind
                code = truth_of((code, kind)) if kind == "bool" else code
            outputs.append((name, code, kind))
        names = ", ".join(self._inputs)
        results = "".join(f"{code}, " for _, code, _ in outputs)
        source = "\n  ".join([f"def meaning({names}):", *self._lines, f"return ({results})"])
        exec(compile(source, "<an instruction>", "exec"), self._used)
        found = tuple((name, kind) for name, _, kind in outputs)
        return Meaning(tuple(self._inputs.items()), found, self._kinds, self._used["meaning"])

    def _measure(self, trees: list[Tree]) -> None:
        """How wide each operand is, and how it is read."""
        for tree in walk(trees):
            if tree[0] not in ("typed", "slice"):
                continue
            name = self._operand(tree)
            if name is None:
                continue
            if tree[0] == "slice":
                high = self._constant(tree[2])
                width = (
                    32 if high is None or _is_word(tree[1]) else max(high, self._constant(tree[3]) or 0) + 1
                )
            else:
                width = bits(tree[2]) if tree[1][0] == "name" else 0
                if tree[1][0] != "slice" or name not in self._kinds:
                    self._kinds.setdefault(name, tree[2])
            self._widths[name] = max(self._widths.get(name, 0), width)

    def _operand(self, tree: Tree) -> str | None:
        inner = tree[1]
        if inner[0] == "typed":
            inner = inner[1]
        if inner[0] == "slice":
            inner = inner[1]
        if inner[0] == "item" and inner[1] == ("name", "S"):
            return None
        name = base_of(inner)
        return name if name in SOURCES else None

    def block(self, trees: list[Tree]) -> None:
        for tree in trees:
            getattr(self, f"_do_{tree[0]}")(*tree[1:])

    def _do_declare(self, name: str, kind: str, length: int | None) -> None:
        if length:
            self._variables[name] = [None] * length
        elif name not in ("in", "S"):
            self._variables[name] = (f"{dtype(kind)}(0)", kind)

    def _do_function(self, name: str, parameters: list[str], block: list[Tree]) -> None:
        self._functions[name] = parameters, block

    def _do_for(self, name: str, first: Tree, last: Tree, block: list[Tree]) -> None:
        low, high = self._constant(first), self._constant(last)
        assert low is not None
        assert high is not None
        for i in range(low, high + 1):
            self._variables[name] = (str(i), None)
            self.block(block)

    def _do_if(self, branches: list[tuple[Tree, list[Tree]]]) -> None:
        outer, left = self._mask, self._mask
        for condition, block in branches:
            known = self._constant(condition)
            if known == 0:
                continue
            if known is not None:
                self._mask = left
                self.block(block)
                break
            truth = self._new(truth_of(self.value(condition)))
            self._mask = self._new(f"{truth} & {left}") if left else truth
            self.block(block)
            left = self._new(f"~{truth} & {left}") if left else self._new(f"~{truth}")
        self._mask = outer

    def _do_return(self, tree: Tree) -> None:
        self._store("return", self.value(tree))

    def _do_call(self, name: str, trees: list[Tree]) -> None:
        raise NotImplementedError(f"{trees} is a call for its effect")

    def _do_chain(self, target: Tree, rest: Tree) -> None:
        self.block([rest])
        self.block([("set", target, rest[1])])

    def _do_set(self, target: Tree, tree: Tree) -> None:
        value = self.value(tree)
        name = base_of(target)
        if name is None:
            raise NotImplementedError(f"{target} cannot be set")
        if is_lane(target):
            name = name if name == "VCC" else f"lanes:{name}"
            self._store(name, (truth_of(value), "bool"))
        elif name == "VCC":
            self._store(name, (f"bool_({value[0]})", "bool"))
        elif target[0] == "item" and isinstance(self._variables.get(name), list):
            place = self._constant(target[2])
            assert place is not None
            kind = None
            self._variables[name][place] = (self._new(value[0]), value[1] or kind)
        elif target[0] == "name":
            self._store(name, value)
        elif target[0] == "typed" and target[1][0] == "name":
            self._store(name, (converted_to(value, target[2]), target[2]))
        else:
            self._insert(name, target, value)

    def _insert(self, name: str, target: Tree, value: Value) -> None:
        """Sets bits of *name*."""
        kind = target[2] if target[0] == "typed" else None
        part = target[1] if target[0] == "typed" else target
        first = self._constant(part[3] if part[0] == "slice" else part[2])
        last = self._constant(part[2])
        place = str(first) if first is not None else self.value(part[2])[0]
        length = 1 if part[0] == "item" else (last or 0) - (first or 0) + 1
        if length < 0:
            return self._store(name, (f"reverse({read_as(value, 'u32')})", "u32"))
        self._widths[name] = max(self._widths.get(name, 32), (last or 0) + 1)
        whole = self._raw(name)
        value = value if kind is None else (converted_to(value, kind), kind)
        new = read_as((read_as(value, f"u{length}"), f"u{length}"), whole)
        old = read_as(self._old(name), whole)
        cut, to = (1 << length) - 1, dtype(whole)
        shifted = f"({new} << {to}({place}))"
        if length < bits(whole):
            shifted = f"(({old} & ~({to}({cut}) << {to}({place}))) | {shifted})"
        return self._store(name, (shifted, whole))

    def _old(self, name: str) -> Value:
        if name in self._variables:
            found: Value = self._variables[name]
            return found
        return self.value(("name", name)) if name in SOURCES else ("uint64(0)", "u64")

    def _store(self, name: str, value: Value) -> None:
        if self._mask:
            old = self._variables.get(name)
            if old is None and name in ("D0", "SCC", "VCC"):
                old = self.value(("name", name))
            if old is not None:
                (new, former), kind = alike(value, old)
                value = f"where({self._mask}, {new}, {former})", kind
        self._variables[name] = (self._new(value[0]), value[1])
        if name in ("D0", "SCC", "EXEC", "VCC", "M0") or name.startswith("lanes:"):
            self._outputs[name] = None


def _is_word(tree: Tree) -> bool:
    """Whether a slice is of something that is not an operand itself."""
    return bool(tree[0] == "item")
