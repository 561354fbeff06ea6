"""Instructions as steps: functions that change the registers of wavefronts (waves.py).

What an arithmetic instruction computes comes from AMD's pseudocode (tables.py). Memory and matrix
instructions are in access.py and matrix.py. What moves control, and barriers, are in machine.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .kinds import bits
from .operands import (
    Operand,
    Reader,
    Writer,
    lanes,
    operand,
    reader,
    scalar_writer,
    vector_writer,
    with_signs,
)
from .program import Line, line
from .tables import meaning_of
from .values import Meaning
from .waves import EXEC, M0, VCC, Array, Waves

Step = Callable[[Waves], None]

# They order or prefetch what the emulator does in order, or say what becomes of registers.
NOTHING = re.compile(
    r"s_(nop|waitcnt\w*|wait_\w+|delay_alu|clause|inst_prefetch|set_inst_prefetch_distance|sendmsg|code_end|"
    r"setprio|sleep|set_gpr_idx_off|barrier_signal)|buffer_(gl[01]_inv|inv|wbl2|wbinvl1\w*)|global_(inv|wb\w*)|v_nop"
)
_SDWA = {
    f"{name}_{i}": (size * i, size) for name, size in (("BYTE", 8), ("WORD", 16)) for i in range(32 // size)
}
_UNKNOWN = {"mul", "div", "quad_perm", "row_shr", "row_mask", "dpp8"}


def arithmetic(processor: str, at: Line, relative: str = "") -> Step:
    """*relative*: the operand whose register M0 moves, where an instruction before has said so."""
    if " :: " in at.text:
        parts = [line(at.address, part) for part in at.text.split(" :: ")]
        return _together([arithmetic(processor, part) for part in parts])
    name = re.sub(r"_(e32|e64|sdwa)$", "", at.name) + ("_clamp" if "clamp" in at.modifiers else "")
    if relative == "SRC0" and name == "v_mov_b32":
        return _moved(at)
    if relative or (missing := _UNKNOWN & set(at.modifiers)):
        raise NotImplementedError(f"{relative or missing} of {at.text}")
    if name in _OWN:
        return _OWN[name](at)
    return _bound(processor, at, meaning_of(processor, name, _constants(at)))


def _together(steps: list[Step]) -> Step:
    """Two instructions of one: both read before either writes."""

    def run(g: Waves) -> None:
        written: list[tuple[int, Array]] = []
        g.set_vector = lambda register, value: written.append((register, value.copy()))
        for step in steps:
            step(g)
        del g.set_vector
        for register, value in written:
            g.set_vector(register, value)

    return run


def _constants(at: Line) -> tuple[tuple[str, int], ...]:
    """What the instruction says besides its operands, for pseudocode that asks for it."""
    if not re.match(r"v_(fma_mix|mad_mix|pk_mov|dot)", at.name):
        return ()
    packed = 0 if "mix" in at.name else 7
    return (("OPSEL", flags(at, "op_sel", 0)), ("OPSEL_HI", flags(at, "op_sel_hi", packed)),
            ("NEG", flags(at, "neg_lo", 0)))  # fmt: skip


def flags(at: Line, name: str, default: int) -> int:
    """A modifier like [0,1,0] as bits."""
    text = at.modifiers.get(name)
    return default if text is None else sum(int(x) << i for i, x in enumerate(text.strip("[]").split(",")))


def _bound(processor: str, at: Line, meaning: Meaning) -> Step:
    """The function of *meaning* between readers and writers of the operands of *at*."""
    written, sources = _divided(at, meaning)
    readers = [_input(at, name, raw, written, sources, meaning) for name, raw in meaning.inputs]
    writers = [_output(processor, at, name, kind, written) for name, kind in meaning.outputs]
    function = meaning.function
    if len(writers) == 1:
        (write,) = writers
        return lambda g: write(g, function(*[read(g) for read in readers])[0])

    def run(g: Waves) -> None:
        for write, value in zip(writers, function(*[read(g) for read in readers]), strict=True):
            write(g, value)

    return run


def _divided(at: Line, meaning: Meaning) -> tuple[dict[str, Operand], list[Operand]]:
    """Operands that are written, by the output's name, and those that are read."""
    names = [name for name, _ in meaning.outputs]
    given = [operand(text) for text in at.operands]
    written = {}
    if "D0" in names or "lanes:D0" in names:
        written["D0"] = given.pop(0)
        if "VCC" in names:
            written["VCC"] = given.pop(0)
    elif "lanes:EXEC" in names and len(given) == 3:
        given.pop(0)  # where v_cmpx names a destination it is EXEC's copy
    return written, given


def _input(
    at: Line,
    name: str,
    raw: str,
    written: dict[str, Operand],
    sources: list[Operand],
    meaning: Meaning,
) -> Reader:
    vector = at.name.startswith("v_")
    if name in ("VCC", "SCC", "PC"):
        explicit = len(sources) == 3 and "div_fmas" not in at.name
        mask = lanes(sources[2] if explicit else operand("vcc"))
        return {
            "VCC": mask,
            "SCC": lambda g: g.scc,
            "PC": lambda g: np.asarray(g.machine.base + at.address, np.uint64),
        }[name]
    if name in ("EXEC", "SIMM16"):
        return reader(sources[-1] if name == "SIMM16" else operand("exec"), raw, "i16", vector=vector)
    kind = meaning.kinds.get(name, raw)
    if name == "D0":
        return reader(replace(written["D0"], negated=False), raw, kind, vector=vector)
    place = int(name[1])
    if "mix" in at.name:
        half = flags(at, "op_sel_hi", 0) >> place & 1 and not flags(at, "op_sel", 0) >> place & 1
        kind = "f16" if half else "f32"
    return _selected(at, place, sources[place], raw, kind)


def _selected(at: Line, place: int, source: Operand, raw: str, kind: str) -> Reader:
    """The part of a source that modifiers choose."""
    vector = at.name.startswith("v_")
    choice = at.modifiers.get(f"src{place}_sel", "DWORD")
    if choice != "DWORD":
        first, size = _SDWA[choice]
        left, right = np.uint32(32 - first - size), np.uint32(32 - size)
        whole = reader(replace(source, negated=False, absolute=False), raw, kind, vector=vector)
        if source.extended:
            return lambda g: np.asarray(
                ((whole(g) << left).view(np.int32) >> right.view(np.int32)).view(np.uint32)
            )
        return with_signs(lambda g: np.asarray((whole(g) << left) >> right), source, raw, kind)
    plain = reader(source, raw, kind, vector=vector)
    if at.name.startswith("v_pk_") and "pk_mov" not in at.name:
        return _packed(at, place, raw, plain)
    if {"op_sel", "neg_lo", "neg_hi"} & set(at.modifiers) and not re.match(r"v_(pk_mov|fma_mix)", at.name):
        raise NotImplementedError(at.text)
    return plain


def _packed(at: Line, place: int, raw: str, plain: Reader) -> Reader:
    """Both halves of a source of a packed instruction: which of its halves they are, and their signs."""
    low, high, negative_low, negative_high = (
        flags(at, name, default) >> place & 1
        for name, default in (("op_sel", 0), ("op_sel_hi", 7), ("neg_lo", 0), ("neg_hi", 0))
    )
    dtype: Any = np.uint64 if raw == "u64" else np.uint32
    half = bits(raw) // 2
    mask = dtype((1 << half) - 1)
    signs = dtype(negative_low << (half - 1) | negative_high << (2 * half - 1))
    left, right = dtype(half * low), dtype(half * high)
    if (low, high) == (0, 1):
        return (lambda g: np.asarray(plain(g) ^ signs)) if signs else plain

    def read(g: Waves) -> Array:
        value = plain(g)
        return np.asarray((value >> left & mask | (value >> right & mask) << dtype(half)) ^ signs)

    return read


def _output(processor: str, at: Line, name: str, kind: str, written: dict[str, Operand]) -> Writer:
    if name == "SCC":
        return _set_scc
    if name == "lanes:EXEC":
        return lambda g, value: g.set_mask(EXEC, value & g.active)
    if name == "EXEC":
        return lambda g, value: g.set_scalar(EXEC, value if g.lanes == 64 else value.astype(np.uint32))
    if name in ("VCC", "lanes:D0"):
        place = written[name.removeprefix("lanes:")].place
        return lambda g, value: g.set_mask(place, value & g.active)
    assert name == "D0"
    return _result(processor, at, kind, written["D0"])


def _result(processor: str, at: Line, kind: str, to: Operand) -> Writer:
    if at.modifiers.get("dst_sel", "DWORD") != "DWORD":
        return _part(at, to.place)
    if at.name.startswith("v_") and to.kind == "v":
        return vector_writer(to, bits(kind), keep_high=processor >= "gfx1" and len(processor) > 6)
    return scalar_writer(to)


def _part(at: Line, place: int) -> Writer:
    """Writes a byte or a half of a register; the others become 0 or stay."""
    first, size = _SDWA[at.modifiers["dst_sel"]]
    mask = np.uint32((1 << size) - 1)
    stays = ~(mask << np.uint32(first)) if at.modifiers["dst_unused"] == "UNUSED_PRESERVE" else np.uint32(0)
    if at.modifiers["dst_unused"] == "UNUSED_SEXT":
        raise NotImplementedError(at.text)

    def write(g: Waves, value: Array) -> None:
        new = value.view(f"u{value.dtype.itemsize}").astype(np.uint32) & mask
        g.set_vector(place, new << np.uint32(first) | g.vector[place] & stays)

    return write


def _set_scc(g: Waves, value: Array) -> None:
    g.scc = np.broadcast_to(value, g.scc.shape).copy()


# ---- instructions across lanes, or of registers that M0 moves --------------------------------


def _first_lane(at: Line) -> Step:
    to, source = (operand(text) for text in at.operands)

    def run(g: Waves) -> None:
        lane = g.active.argmax(axis=1)
        g.set_scalar(to.place, g.vector[source.place][np.arange(len(lane)), lane])

    return run if source.kind == "v" else lambda g: g.set_scalar(to.place, g.scalar[source.place])


def _read_lane(at: Line) -> Step:
    to, source, which = (operand(text) for text in at.operands)
    lane = reader(which, "u32", "u32", vector=False)

    def run(g: Waves) -> None:
        chosen = lane(g) % np.uint32(g.lanes)
        g.set_scalar(to.place, g.vector[source.place][np.arange(g.index.size), chosen])

    return run


def _write_lane(at: Line) -> Step:
    to, source, which = (operand(text) for text in at.operands)
    value, lane = (reader(x, "u32", "u32", vector=False) for x in (source, which))

    def run(g: Waves) -> None:
        g.vector[to.place][np.arange(g.index.size), lane(g) % np.uint32(g.lanes)] = value(g)

    return run


def _moved(at: Line) -> Step:
    """The source is M0 registers further."""
    to, source = (operand(text) for text in at.operands)

    def run(g: Waves) -> None:
        places = source.place + (g.scalar[M0] & np.uint32(0xFF)).astype(np.int64)
        g.set_vector(to.place, g.vector[places, np.arange(g.index.size)])

    return run


def _index_on(at: Line) -> Step:
    by = reader(operand(at.operands[0]), "u32", "u32", vector=False)

    def run(g: Waves) -> None:
        g.scalar[M0] = g.scalar[M0] & np.uint32(0xFFFFFF00) | by(g) & np.uint32(0xFF)

    return run


_OWN: dict[str, Callable[[Line], Step]] = {
    "v_readfirstlane_b32": _first_lane,
    "v_readlane_b32": _read_lane,
    "v_writelane_b32": _write_lane,
    "v_movrels_b32": _moved,
    "s_set_gpr_idx_on": _index_on,
}
__all__ = ["NOTHING", "VCC", "Step", "arithmetic"]
