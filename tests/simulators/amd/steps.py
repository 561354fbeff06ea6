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
from .program import Line
from .traced import SDWA, Scope, Variable, flags
from .values import Code, Value, bits, truth
from .waves import EXEC, M0, VCC, Waves

Step = Callable[[Waves], None]
Modifiers = tuple[tuple[str, str], ...]
Shape = tuple[str, Modifiers, tuple[Operand, ...]]  # name, modifiers, operands without places

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
    parts = [Line(at.address, text) for text in texts] if texts[1:] else [at]
    shapes = tuple(
        (*_shapes(part.name, tuple(part.modifiers.items()), relative), tuple(map(_shape, part.operands)))
        for part in parts
    )
    make, needs = _template(processor, shapes)
    given = [operand(text) for part in parts for text in part.operands]
    constants = [
        (np.uint64 if bits(kind) > 32 else np.uint32)(constant(given[number].text, kind))
        for number, kind in needs
    ]
    step: Step = make(at.address, *(one.place for one in given), *constants)
    return step


@cache
def _shapes(mnemonic: str, modifiers: Modifiers, relative: str) -> tuple[str, Modifiers]:
    """The instruction's name, and its modifiers if all are known."""
    name = re.sub(r"_(e32|e64|sdwa)$", "", mnemonic) + "_clamp" * (("clamp", "") in modifiers)
    if relative == "SRC0" and name == "v_mov_b32":
        return "v_movrels_b32", modifiers
    unknown = _UNKNOWN if _SELECTING.match(name) else _UNKNOWN | {"op_sel", "neg_lo", "neg_hi"}
    if relative or unknown & {key for key, _ in modifiers}:
        raise NotImplementedError(f"{mnemonic} {modifiers} {relative}")
    return name, modifiers


@cache
def _shape(text: str) -> Operand:
    one = operand(text)
    own = one.text if re.search("(scc|execz|vccz)$", one.text) else ""
    return replace(one, place=0, count=1, text=own)


@cache
def _template(
    processor: str, shapes: tuple[Shape, ...]
) -> tuple[Callable[..., Step], tuple[tuple[int, str], ...]]:
    """What makes a step of an address, places and constants; which constants: an operand's number, a type."""
    code, first = Code(), 0
    for name, modifiers, operands in shapes:
        try:
            _trace(Scope(code, processor, name, dict(modifiers)), dict(enumerate(operands, first)))
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


def _trace(scope: Scope, operands: dict[int, Operand]) -> None:
    """Adds an instruction to the code."""
    text, numbers, to = scope.text, list(operands), {"EXEC": EXEC, "M0": M0}
    if "D0" in text:
        to["D0"] = numbers.pop(0)
        if re.search(r"^\s*VCC(\.u64\[laneId\])? =", text, re.MULTILINE):
            to["VCC"] = numbers.pop(0)
    elif "EXEC.u64[laneId] =" in text and len(numbers) == 3:
        numbers.pop(0)  # where v_cmpx names a destination it is EXEC's copy
    scope |= _operands(scope, operands, numbers, to)
    before = scope["SCC"]
    scope.run()
    for variable in scope.written.values():
        name = next(key for key, value in scope.items() if value is variable)
        if name in to:
            scope.code.writes += _writes(variable, f"p{to[name]}", operands.get(to[name], Operand("s")))
    if scope["SCC"] is not before:
        scope.code.writes.append(f"g.set_scc({truth(scope['SCC']).name})")


def _operands(
    scope: Scope, operands: dict[int, Operand], numbers: list[int], to: dict[str, int]
) -> dict[str, Any]:
    """Names: *numbers* of operands that are read, *to* of those that are written, and registers besides."""

    def own(number: int) -> Variable:
        return Variable(scope, Operand("s", number), number)

    sources = [Variable(scope, operands[number], number, which) for which, number in enumerate(numbers)]
    found: dict[str, Any] = {f"S{which}": source for which, source in enumerate(sources)} | {"S": sources}
    found |= {"EXEC": own(EXEC), "M0": own(M0), "VCC": own(VCC), "SIMM16": sources[-1] if sources else None}
    if len(numbers) == 3 and "div_fmas" not in scope.name:
        found["VCC"] = Variable(scope, operands[numbers[2]], numbers[2])
    if "D0" in to:
        found["D0"] = Variable(scope, replace(operands[to["D0"]], negated=False), to["D0"])
    found["PC"] = scope.code.value("uint64(g.machine.base + address)", "u64")
    found["SCC"] = scope.code.value("g.scc[:, None]" if scope.vector else "g.scc", "bool")
    found |= {"WAVE32": not scope.processor.startswith("gfx9"), "OPSEL": flags(scope.modifiers, "op_sel")}
    return found | {"OPSEL_HI": flags(scope.modifiers, "op_sel_hi", int("mix" not in scope.name))}


def _writes(variable: Variable, place: str, op: Operand) -> list[str]:
    """Calls that write what *variable* has become."""
    scope = variable.scope
    if variable.chosen is not None:
        return [f"g.set_mask({place}, {variable.chosen.name} & g.active)"]
    words = {f"{place} + {number}": word for number, word in variable.words.items()}
    if variable.whole is not None:
        words = {place: variable.whole.view(f"u{bits(variable.whole.kind)}")}
    if op.kind != "v" or not scope.vector:
        return [f"g.set_scalar({where}, {word.name})" for where, word in words.items()]
    if variable.whole is not None:
        words = _of_whole(scope, words[place], place)
    if scope.name == "v_writelane_b32":
        return [f"V[{where}][...] = {word.name}" for where, word in words.items()]
    return [f"g.set_vector({where}, {word.name})" for where, word in words.items()]


def _of_whole(scope: Scope, value: Value, place: str) -> dict[str, Value]:
    """Words of registers. Of less than a word the others stay as the processor, or SDWA, has it."""
    if bits(value.kind) == 64:
        high: Any = value >> 32
        return {place: value.to("u32"), f"{place} + 1": high.to("u32")}
    chosen = scope.modifiers.get("dst_sel", "DWORD")
    first, size = SDWA[chosen] if chosen != "DWORD" else (0, bits(value.kind))
    if size == 32:
        return {place: value}
    unused = scope.modifiers["dst_unused"] if chosen != "DWORD" else ""
    if unused == "UNUSED_SEXT":
        raise NotImplementedError(unused)
    cut = (1 << size) - 1
    value = (value.to("u32") & cut) << first
    if unused == "UNUSED_PRESERVE" or not (unused or scope.processor.startswith("gfx9")):
        value = value | scope.code.value(f"V[{place}]", "u32") & (cut << first ^ 0xFFFFFFFF)
    return {place: value}
