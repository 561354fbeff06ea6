"""AMD's pseudocode of an instruction as Python. Expressions are the same but for operators that Python lacks.

    tmp = S0.u32[31] ? 1'1U : 1'0U;    ->    tmp = choice(S0.u32[31], 1, 0)
    if S0.f32 > 0.0F then ... endif    ->    for _ in when(S0.f32 > 0.0): ...; ended()

What runs it (traced.py) gives these calls their meaning: a block of `when` runs once, under a condition.
"""

from __future__ import annotations

import re
from functools import cache
from types import CodeType

_FIRST = (
    (r"//[^\n]*", ""),
    (r"declare \w+ : \d+'[UIFB](?![\[])|declare S : [^;\n]*", ""),
    (r"declare (\w+) : \d+'[UIFB]\[(\d+)\]", r"\1 = [None] * \2"),
    (r"\bin\b(?=\[| =)", "listed"),  # an array's name
    (r"lambda\(([^)]*)\)", r"lambda \1:"),
    (r"(\d+)'([UIFB])\(", r'cast("\2\1", '),
    (r"\b(\d+)'(0\w*)(?=,| })", r'cast("U\1", \2)'),  # in { }, where its length counts
    (r"(?<![\w.])(?:\d+')?(0x[0-9a-fA-F]+|\d+\.\d+|\d+)(?:ULL|LL|U|F)?\b", r"\1"),  # literals have no type
    (r"\b(INF|NAN)\.f\d+|(OPSEL\w*)\.u3|(OPSEL\[\d\])\.i32", r"\1\2\3"),
)
_INNER = re.compile(r"([(\[{])([^()\[\]{}]*)[)\]}]")
_BREAKS = ((r"\b(then|do|else|endif|endfor)\b", r"\1\n"), (r"\b(if|elsif|else|endif|endfor|for)\b", r"\n\1"))
_BLOCKS = (
    (r"if (.*) then", "for _ in when({}):"),
    (r"elsif (.*) then", "for _ in when({}, again=True):"),
    (r"else", "for _ in when(True, again=True):"),
    (r"for (\w+) in (.*) : (.*) do", "for {} in range({}, {} + 1):"),
)


@cache
def python(text: str) -> CodeType:
    """*text* as the body of a Python module."""
    for pattern, new in _FIRST:
        text = re.sub(pattern, new, text)
    kept: list[str] = []  # what is in brackets; a character in its place

    def keep(match: re.Match[str]) -> str:
        opening, inner = match.groups()
        inner = " ".join(inner.split())
        if opening == "[" and "?" not in inner:
            kept.append(f"[{':'.join(map(_expression, inner.split(':')))}]")
        else:
            inner = ", ".join(map(_expression, inner.split(",")))
            kept.append({"(": f"({inner})", "[": f"[{inner}]", "{": f"join({inner})"}[opening])
        return chr(0xE000 + len(kept) - 1)

    while _INNER.search(text):
        text = _INNER.sub(keep, text, count=1)
    text = "\n".join(_indented(text))
    while found := re.search("[\ue000-\uf8ff]", text):
        text = text.replace(found[0], kept[ord(found[0]) - 0xE000])
    return compile(text, "pseudocode", "exec")


def _expression(text: str) -> str:
    """Without brackets: the weakest operators first."""
    condition, choice, rest = text.partition("?")
    if choice:
        yes, _, no = rest.partition(":")
        return f"choice({_expression(condition)}, {_expression(yes)}, {_expression(no)})"
    for operator, own in (("||", "|"), ("&&", "&")):
        if operator in text:
            return f" {own} ".join(f"truth({_expression(part)})" for part in text.split(operator))
    one, differs, two = text.partition("<>")
    if differs:
        return f"differs({_expression(one)}, {_expression(two)})"
    text = re.sub("!(?!=)\\s*([\\w.\ue000-\uf8ff]+)", r"(truth(\1) ^ True)", text)
    return text.strip().lstrip("+")


def _indented(text: str) -> list[str]:
    """The lines of Python. *text* has no brackets left."""
    for pattern, new in _BREAKS:
        text = re.sub(pattern, new, text)
    lines, depth = [], 0
    for line in filter(None, map(str.strip, re.split(r"[;\n]", text))):
        depth -= line.startswith(("els", "end"))
        for pattern, header in _BLOCKS:
            if block := re.fullmatch(pattern, line):
                lines.append("  " * depth + header.format(*map(_expression, block.groups())))
                depth += 1
                break
        else:
            target, sign, value = re.fullmatch(r"(.*?)( (?:[-+]?=) |$)(.*)", line).groups()
            plain = "ended()" if line == "endif" else "" if line == "endfor" else line
            lines.append("  " * depth + (f"{target}{sign}{_assigned(value)}" if sign else plain))
    return lines


def _assigned(value: str) -> str:
    """A value, or another assignment: D0 = EXEC = x."""
    target, chained, last = value.partition(" = ")
    return f"{target} = {_expression(last)}" if chained else _expression(value)
