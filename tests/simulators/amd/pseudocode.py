"""AMD's pseudocode of an instruction, as a tree.

The text is that of AMD's manuals of the instruction sets. A tree is tuples, the first element its kind:

    ("number", value, type)    ("name", name)           ("typed", x, type)         x.f32
    ("slice", x, high, low)    ("item", x, index)       ("cast", type, x)          32'F(x)
    ("join", [x, ...])         ("call", name, [x, ...]) ("unary", operator, x)     ("binary", operator, x, y)
    ("choice", x, y, z)        x ? y : z
    ("set", target, x)         ("if", [(x, block), ...])  ("for", name, first, last, block)
    ("declare", name, type, length or None)             ("return", x)  ("function", name, parameters, block)
"""

from __future__ import annotations

import re
from typing import Any

Tree = tuple[Any, ...]

_TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*)"
    r"|(?P<cast>\d+'[UIFB](?=[(\[;\n]|$))"
    r"|(?P<number>\d+'(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)U?|0x[0-9a-fA-F]+(?:ULL|LL|U)?|\d+\.\d+F?|\d+(?:ULL|LL|U|F)?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<operator>\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||\+=|-=|[-+*/%&|^~!?:()\[\]{},.;=<>])"
)
_TYPE = re.compile(r"(?:u|i|f|b|bf)\d+")
# What binds, weakest first.
_LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!=", "<>"), ("<", "<=", ">", ">="), ("<<", ">>"),
    ("+", "-"), ("*", "/", "%"), ("**",),
)  # fmt: skip
_ENDS = ("endif", "endfor", "else", "elsif", ")")


def parsed(text: str) -> list[Tree]:
    """The statements of *text*. Raises SyntaxError for what is no pseudocode."""
    parser = _Parser(text)
    found = parser.block()
    if parser.at is not None:
        raise SyntaxError(f"{parser.at!r} is not expected in {text!r}")
    return found


def number(token: str) -> Tree:
    """A literal: its type is None where none is written."""
    sized = re.fullmatch(r"(\d+)'([\w.]+?)U?", token)
    if sized and "." in sized[2]:
        return "number", float(sized[2]), f"f{sized[1]}"
    if sized:
        return "number", int(sized[2], 0), f"u{sized[1]}"
    digits = re.fullmatch(r"(0x[0-9a-fA-F]+|[\d.]+)(ULL|LL|U|F)?", token)
    if digits is None:
        raise SyntaxError(f"{token!r} is no number")
    if "." in digits[1]:
        return "number", float(digits[1]), "f32" if digits[2] else None
    kind = {"ULL": "u64", "LL": "i64", "U": "u32"}.get(digits[2] or "")
    return "number", int(digits[1], 0), kind


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise SyntaxError(f"{text[at:]!r} begins with no token")
            at = found.end()
            if found.lastgroup != "space":
                self._tokens.append((found.lastgroup or "", found[0]))
        self._next = 0

    @property
    def at(self) -> str | None:
        """The next token's text."""
        return self._tokens[self._next][1] if self._next < len(self._tokens) else None

    def _ahead(self, distance: int) -> str:
        place = self._next + distance
        return self._tokens[place][1] if place < len(self._tokens) else ""

    def _take(self, wanted: str | None = None) -> str:
        text = self.at
        if text is None or wanted not in (None, text):
            raise SyntaxError(f"{wanted!r} is expected, not {text!r}")
        self._next += 1
        return text

    def _took(self, *wanted: str) -> bool:
        if self.at in wanted:
            self._next += 1
            return True
        return False

    def block(self) -> list[Tree]:
        found = []
        while self.at is not None and self.at not in _ENDS:
            found.append(self._statement())
            while self._took(";"):
                pass
        return found

    def _statement(self) -> Tree:
        if self._took("declare"):
            name = self._take()
            self._take(":")
            kind, length = self._type(), None
            if self._took("["):
                length = int(self._take())
                self._take("]")
            return "declare", name, kind, length
        if self._took("if"):
            return self._conditional()
        if self._took("for"):
            name = self._take()
            self._take("in")
            first = self._binary(0)
            self._take(":")
            last = self._binary(0)
            self._take("do")
            block = self.block()
            self._take("endfor")
            return "for", name, first, last, block
        if self._took("return"):
            return "return", self.expression()
        if self._ahead(1) == "=" and self._ahead(2) == "lambda":
            return self._function()
        return self._assignment()

    def _conditional(self) -> Tree:
        branches: list[tuple[Tree, list[Tree]]] = []
        while True:
            condition = self.expression()
            self._take("then")
            branches.append((condition, self.block()))
            if self._took("elsif"):
                continue
            if self._took("else"):
                branches.append((("number", 1, "u1"), self.block()))
            self._take("endif")
            return "if", branches

    def _function(self) -> Tree:
        name = self._take()
        self._take("=")
        self._take("lambda")
        self._take("(")
        parameters = [self._take()]
        while self._took(","):
            parameters.append(self._take())
        self._take(")")
        self._take("(")
        start = self._next
        try:
            block = [("return", self.expression())]
            self._take(")")
        except SyntaxError:
            self._next = start
            block = self.block()
            self._take(")")
        return "function", name, parameters, block

    def _assignment(self) -> Tree:
        target = self._postfix()
        if self._took("+=", "-="):
            operator = self._tokens[self._next - 1][1][0]
            return "set", target, ("binary", operator, target, self.expression())
        if self.at != "=":
            return "call", "", [target]  # a call for its effect: nop()
        self._take("=")
        start = self._next
        value = self.expression()
        if self.at == "=":  # D0 = EXEC = x
            self._next = start
            return "chain", target, self._assignment()
        return "set", target, value

    def _type(self) -> str:
        bits, kind = self._take().split("'")
        return {"U": "u", "I": "i", "F": "f", "B": "b"}[kind] + bits

    def expression(self) -> Tree:
        condition = self._binary(0)
        if not self._took("?"):
            return condition
        yes = self.expression()
        self._take(":")
        return "choice", condition, yes, self.expression()

    def _binary(self, level: int) -> Tree:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self.at in _LEVELS[level]:
            left = "binary", self._take(), left, self._binary(level + 1)
        return left

    def _unary(self) -> Tree:
        if self.at in ("-", "+", "~", "!"):
            return "unary", self._take(), self._unary()
        return self._postfix()

    def _postfix(self) -> Tree:
        tree = self._primary()
        while True:
            if self.at == "." and self._tokens[self._next + 1][0] == "name":
                self._take(".")
                name = self._take()
                typed = _TYPE.fullmatch(name)
                tree = ("typed", tree, name) if typed else ("name", f"{tree[1]}.{name}")
            elif self._took("["):
                first = self.expression()
                tree = ("slice", tree, first, self.expression()) if self._took(":") else ("item", tree, first)
                self._take("]")
            elif self.at == "(" and tree[0] == "name":
                self._take("(")
                tree = "call", tree[1], self._list(")")
            else:
                return tree

    def _list(self, end: str) -> list[Tree]:
        found = []
        while not self._took(end):
            found.append(self.expression())
            self._took(",")
        return found

    def _primary(self) -> Tree:
        group = self._tokens[self._next][0] if self.at is not None else ""
        if group == "cast":
            kind = self._type()
            self._take("(")
            value = self.expression()
            self._take(")")
            return "cast", kind, value
        if group == "number":
            return number(self._take())
        if self._took("("):
            inner = self.expression()
            self._take(")")
            return inner
        if self._took("{"):
            return "join", self._list("}")
        if group != "name":
            raise SyntaxError(f"{self.at!r} begins no expression")
        return "name", self._take()
