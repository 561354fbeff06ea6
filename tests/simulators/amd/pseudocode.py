"""What each instruction does: AMD's pseudocode, from the files of PyPI's tinygrad, as Python.

tinygrad takes the text from AMD's manuals: CDNA 3 and 4, RDNA 3, RDNA 3.5, RDNA 4. Only these files are read,
as data: nothing of tinygrad is imported. What differs from the manuals, and why, stands in instead.txt.

Expressions of Python are the same but for operators that it lacks.

    tmp = S0.u32[31] ? 1'1U : 1'0U;    ->    put("tmp", None, "", choice(S0.u32[31], 1, 0))
    D0[31 : 16].f16 = S1.f16           ->    put("D0", part[31:16], "f16", S1.f16)
    if S0.f32 > 0.0F then ... endif    ->    for _ in when(S0.f32 > 0.0): ...; ended()

What runs it (arithmetic.py) gives these calls their meaning: a block of `when` runs once, under a condition.
"""

import ast
import hashlib
import re
from functools import cache
from pathlib import Path
from types import CodeType

from tests.conformance.implementations import TINYGRAD

_DIGESTS = {  # of tinygrad 0.14.0
    "cdna": "e67649d19bb728278d97065a843518535a87126358710aa85f5a5cd61760fb1a",
    "rdna3": "a96d00d1b3d4d2037ad62297f18948ac39f63acc6764ed1cdb1844279ef7c8c3",
    "rdna4": "18e336dc1f03e27c81860d1bd34bbff2fde7f8c861ae0e59341539d5e0151c71",
}
# Which manual describes a processor. gfx90a and gfx1030 are older; what differs stands in instead.txt.
MANUALS = {"gfx90a": "cdna", "gfx942": "cdna", "gfx1030": "rdna3", "gfx1100": "rdna3", "gfx1201": "rdna4"}


def _plain(name: str) -> str:
    """Without the encoding: V_ADD_F32 for v_dual_add_f32 and V_ADD_F32_E64. Older names become newer ones."""
    name = re.sub("_E(32|64)$", "", name.upper()).replace("V_DUAL_", "V_")
    return name.replace("_ANDN2_", "_AND_NOT1_").replace("_ORN2_", "_OR_NOT1_")


@cache
def _instead() -> dict[str, str]:
    text = re.sub(r"#.*\n", "", Path(__file__).with_name("instead.txt").read_text(encoding="utf-8"))
    blocks = (block.partition("\n") for block in re.split(r"\n{2,}", text.strip()))
    return {name: code for names, _, code in blocks for name in names.split()}


@cache
def _manual(name: str) -> dict[str, str]:
    """The pseudocode of a manual, by instruction."""
    (path,) = TINYGRAD.glob(f"lib/python3*/site-packages/tinygrad/runtime/autogen/amd/{name}/str_pcode.py")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != _DIGESTS[name]:
        raise ValueError(f"{path} is not that of tinygrad 0.14.0")
    pairs = re.findall(r"Op\.(\w+): (['\"].*['\"]),$", content.decode(), re.MULTILINE)
    return {_plain(key): ast.literal_eval(text) for key, text in reversed(pairs)}  # the first of each counts


@cache
def pseudocode(processor: str, mnemonic: str) -> str:
    """Raises NotImplementedError where no manual has the instruction."""
    for texts in (_instead(), *map(_manual, (MANUALS[processor], "rdna3", "cdna", "rdna4"))):
        if text := texts.get(_plain(mnemonic)):
            return text
    raise NotImplementedError(f"no manual has {mnemonic}")


# ---- as Python -------------------------------------------------------------------------------

_FIRST = (
    (r"//[^\n]*", ""),
    (r" \? 1'1U : 1'0U", ""),  # as comparisons are
    (r"\bWAVE_MODE\.IEEE\b", "1"),
    (r"\bisQuietNAN\b", "isNAN"),
    (r"\bSCC\b(\.u\d+)?(?! =(?!=))", "SCC.u32"),
    (r"declare \w+ : \d+'[UIFB](?![\[])|declare S : [^;\n]*", ""),
    (r"declare (\w+) : \d+'[UIFB]\[(\d+)\]", r"\1 = [None] * \2"),
    (r"\bin\b(?=\[| =)", "listed"),  # an array's name
    (r"lambda\(([^)]*)\)", r"lambda \1:"),
    (r"\.u64\[laneId\]", ".lanes"),
    (r"\.[uib]\d+(?=\[[^?;\n]*? : )", ""),  # bits of a variable are the same in each type
    (r"(\d+)'([UIFB])\(", r'cast("\2\1", '),
    (r"\b[uif]\d+_to_([uif]\d+)\(", r'converted("\1", '),
    (r"\b(v_\w+)\(", r'instruction("\1", '),
    (r"(?<![\w.])(?:\d+')?(0x[0-9a-fA-F]+|\d+\.\d+|\d+)(?:ULL|LL|U|F)?\b", r"\1"),  # literals have no type
    (r"\b(INF|NAN)\.f\d+|(OPSEL\w*)\.u3|(OPSEL\[\d\])\.i32", r"\1\2\3"),
    (r"\bOVERFLOW_F\d+", "INF"),
    (r"\bUNDERFLOW_F\d+", "0.0"),
    (r"\b(then|do|else|endif|endfor)\b", r"\1\n"),
    (r"\b(if|elsif|else|endif|endfor|for)\b", r"\n\1"),
)
_INNER = re.compile(r"([(\[{])([^()\[\]{}]*)[)\]}]")
_BLOCKS = (
    (r"if (.*) then", "for _ in when({}):"),
    (r"elsif (.*) then", "for _ in when({}, again=True):"),
    (r"else", "for _ in when(True, again=True):"),
    (r"for (\w+) in (.*) : (.*) do", "for {} in range({}, {} + 1):"),
)
# A name, its type, which bits of it, and their type. The others remain Python's.
_ASSIGNED = re.compile("^((?!listed)\\w+)(\\.\\w+)?([\ue000-\uf8ff])?(\\.\\w+)? ([-+]?)= (?!lambda|\\[)(.*)")


@cache
def python(text: str) -> CodeType:
    """*text* as the body of a Python module."""
    for pattern, new in _FIRST:
        text = re.sub(pattern, new, text)
    kept: list[str] = []  # what is in brackets; a character in its place

    def keep(match: re.Match[str]) -> str:
        opening, inner = match.groups()
        separator = ":" if opening == "[" and "?" not in inner else ","
        inner = f"{separator} ".join(map(_expression, inner.split(separator)))
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
    lines, depth = [], 0
    for line in filter(None, map(str.strip, re.split(r"[;\n]", text))):
        depth -= line.startswith(("els", "end"))
        for pattern, header in _BLOCKS:
            if block := re.fullmatch(pattern, line):
                lines.append("  " * depth + header.format(*map(_expression, block.groups())))
                depth += 1
                break
        else:
            plain = {"endif": "ended()", "endfor": ""}.get(line, line)
            lines.append("  " * depth + _ASSIGNED.sub(_put, plain))
    return lines


def _put(match: re.Match[str]) -> str:
    name, before, part, after, sign, value = match.groups()
    value = _expression(value)
    if sign:
        value = f"{match[0].partition(' ')[0]} {sign} {value}"
    return f"put({name!r}, {f'part{part}' if part else None}, {(after or before or '.')[1:]!r}, {value})"
