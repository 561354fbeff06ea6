"""Arithmetic instructions as steps: functions that change the registers of wavefronts (waves.py).

What an instruction computes comes from AMD's pseudocode (tables.py), which writes Python code (traced.py).
Instructions that differ in registers and constants alone have the same code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from .functions import OF_CODE
from .operands import Operand, constant, operand
from .program import Line, line
from .pseudocode import python
from .tables import pseudocode
from .traced import SDWA, Reading, Scope, Source, Variable, flags
from .values import Code, Value, bits, truth
from .waves import EXEC, M0, VCC, Waves

Step = Callable[[Waves], None]
Shape = tuple[
    str, tuple[tuple[str, str], ...], tuple[Operand, ...]
]  # name, modifiers, operands without places

# They order or prefetch what the emulator does in order, or say what becomes of registers.
NOTHING = re.compile(
    r"s_(nop|waitcnt\w*|wait_\w+|delay_alu|clause|inst_prefetch|set_inst_prefetch_distance|sendmsg|code_end|"
    r"setprio|sleep|set_gpr_idx_off|barrier_signal)|buffer_(gl[01]_inv|inv|wbl2|wbinvl1\w*)|global_(inv|wb\w*)|v_nop"
)
_UNKNOWN = {"mul", "div", "quad_perm", "row_shr", "row_mask", "dpp8"}
_SELECTING = re.compile(r"v_(pk_|fma_mix)")


def arithmetic(processor: str, at: Line, relative: str = "") -> Step:
    """*relative*: the operand whose register M0 moves, where an instruction before has said so."""
    texts = at.text.split(" :: ")
    parts = [line(at.address, text) for text in texts] if texts[1:] else [at]
    shapes = tuple(
        (_name(part, relative), tuple(part.modifiers.items()), tuple(map(_shape, part.operands)))
        for part in parts
    )
    make, needs = _template(processor, shapes)
    given = [operand(text) for part in parts for text in part.operands]
    constants = [_constant(given[number].text, kind) for number, kind in needs]
    step: Step = make(at.address, *(one.place for one in given), *constants)
    return step


def _name(at: Line, relative: str) -> str:
    name = re.sub(r"_(e32|e64|sdwa)$", "", at.name) + ("_clamp" if "clamp" in at.modifiers else "")
    if relative == "SRC0" and name == "v_mov_b32":
        return "v_movrels_b32"
    wrong = _UNKNOWN & set(at.modifiers)
    if not _SELECTING.match(name):
        wrong |= {"op_sel", "neg_lo", "neg_hi"} & set(at.modifiers)
    if relative or wrong:
        raise NotImplementedError(f"{relative or wrong} of {at.text}")
    return name


@cache
def _shape(text: str) -> Operand:
    one = operand(text)
    own = one.text if re.search("(scc|execz|vccz)$", one.text) else ""
    return replace(one, place=0, count=1, text=own)


def _constant(text: str, kind: str) -> Any:
    value = constant(text, kind)
    if kind == "f32" and value >> 32:
        value >>= 32
    return (np.uint64 if bits(kind) > 32 else np.uint32)(value)


@cache
def _template(
    processor: str, shapes: tuple[Shape, ...]
) -> tuple[Callable[..., Step], tuple[tuple[int, str], ...]]:
    """What makes a step of an address, places and constants; which constants: an operand's number, a type."""
    code, first = Code(), 0
    for name, modifiers, operands in shapes:
        try:
            _trace(code, processor, name, dict(modifiers), dict(enumerate(operands, first)))
        except (NameError, TypeError, ValueError, SyntaxError, AttributeError, KeyError) as error:
            raise NotImplementedError(f"{name}: {error!r}") from error
        first += len(operands)
    places = [f"p{number}" for number in range(first)]
    body = "\n    ".join(["V, S = g.vector, g.scalar", *code.lines()])
    given = ", ".join(["address", *places, *code.needs])
    source = f"def make({given}):\n  def step(g):\n    {body}\n  return step"
    known = OF_CODE | code.constants | {f"p{place}": place for place in (VCC, EXEC, M0)}
    exec(compile(source, shapes[0][0], "exec"), known)
    return known["make"], tuple(code.needs.values())


def _trace(
    code: Code, processor: str, name: str, modifiers: dict[str, str], operands: dict[int, Operand]
) -> None:
    """Adds an instruction to *code*."""
    text = pseudocode(processor, name)
    numbers = list(operands)
    to = {"EXEC": EXEC, "M0": M0}
    if "D0" in text:
        to["D0"] = numbers.pop(0)
        if re.search(r"^\s*VCC(\.u64\[laneId\])? =", text, re.MULTILINE):
            to["VCC"] = numbers.pop(0)
    elif "EXEC.u64[laneId] =" in text and len(numbers) == 3:
        numbers.pop(0)  # where v_cmpx names a destination it is EXEC's copy
    scope = _scope(
        code, processor, Reading(name, modifiers, numbers[0] if numbers else 0), operands, numbers, to
    )
    before = scope["SCC"]
    scope.run(python(text))
    for variable in scope.written.values():
        (own,) = (key for key, value in scope.items() if value is variable)
        if own in to:
            op = operands.get(to[own], Operand("s"))
            code.writes += _writes(code, variable, f"p{to[own]}", op, name, modifiers, processor)
    if scope["SCC"] is not before:
        code.writes.append(f"g.set_scc({truth(scope['SCC']).name})")


def _scope(
    code: Code,
    processor: str,
    at: Reading,
    operands: dict[int, Operand],
    numbers: list[int],
    to: dict[str, int],
) -> Scope:
    known = {"WAVE32": int(processor >= "gfx1000" and len(processor) > 6)}
    known |= {"OPSEL": flags(at.modifiers, "op_sel"), "NEG": flags(at.modifiers, "neg_lo")}
    known["OPSEL_HI"] = flags(at.modifiers, "op_sel_hi", 0 if "mix" in at.name else 7)
    scope = Scope(code, lambda name: python(pseudocode(processor, name)), known)

    def variable(number: int, one: Operand | None = None) -> Variable:
        return Variable(scope, Source(code, number, one or operands[number], at))

    sources = [variable(number) for number in numbers]
    scope |= {f"S{place}": source for place, source in enumerate(sources)} | {"S": sources}
    scope |= {name: variable(place, Operand("s", place)) for name, place in (("EXEC", EXEC), ("M0", M0))}
    explicit = len(sources) == 3 and "div_fmas" not in at.name
    scope["VCC"] = variable(numbers[2]) if explicit else variable(VCC, Operand("s", VCC))
    scope["PC"] = code.value("uint64(g.machine.base + address)", "u64")
    dict.__setitem__(scope, "SCC", code.value("g.scc[:, None]" if at.vector else "g.scc", "bool"))
    if sources:
        scope["SIMM16"] = sources[-1]
    if "D0" in to:
        scope["D0"] = variable(to["D0"], replace(operands[to["D0"]], negated=False))
    return scope


def _writes(
    code: Code,
    variable: Variable,
    place: str,
    op: Operand,
    name: str,
    modifiers: dict[str, str],
    processor: str,
) -> list[str]:
    """Calls that write what *variable* has become."""
    if variable.chosen is not None:
        return [f"g.set_mask({place}, {variable.chosen.name} & g.active)"]
    words = {f"{place} + {number}": word for number, word in variable.words.items()}
    if variable.whole is not None:
        words = {place: variable.whole.view(f"u{bits(variable.whole.kind)}")}
    if op.kind != "v" or not name.startswith("v_"):
        return [f"g.set_scalar({where}, {word.name})" for where, word in words.items()]
    if variable.whole is not None:
        words = _of_whole(code, words[place], place, modifiers, keep_high=not processor.startswith("gfx9"))
    if name == "v_writelane_b32":
        return [f"V[{where}][...] = {word.name}" for where, word in words.items()]
    return [f"g.set_vector({where}, {word.name})" for where, word in words.items()]


def _of_whole(
    code: Code, value: Value, place: str, modifiers: dict[str, str], *, keep_high: bool
) -> dict[str, Value]:
    """Words of registers. Fewer bits leave the others if *keep_high*, or as SDWA says."""
    if bits(value.kind) == 64:
        return {place: value.to("u32"), f"{place} + 1": (value >> 32).to("u32")}
    chosen = modifiers.get("dst_sel", "DWORD")
    first, size = SDWA[chosen] if chosen != "DWORD" else (0, bits(value.kind))
    if size == 32:
        return {place: value}
    stays = modifiers["dst_unused"] == "UNUSED_PRESERVE" if chosen != "DWORD" else keep_high
    if modifiers.get("dst_unused") == "UNUSED_SEXT" and chosen != "DWORD":
        raise NotImplementedError(f"{modifiers}")
    cut = (1 << size) - 1
    value = code.value(f"({value.to('u32').name} & {cut}) << {first}", "u32")
    others = (cut << first) ^ 0xFFFFFFFF
    return {place: code.value(f"{value.name} | V[{place}] & {others}", "u32") if stays else value}
