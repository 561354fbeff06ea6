"""Memory instructions: loads and stores of global, local and private memory, and of arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from .memory import Fault, Global, Local
from .operands import Operand, Reader, operand, reader
from .program import Line
from .steps import Step
from .waves import Array, Waves

ACCESS = re.compile(
    r"(?P<space>global|flat|scratch|buffer|ds|s)_(?P<what>load|store|read|write)_?(?P<two>2addr_(?:stride64_)?|2(?:st64)?_)?"
    r"(?P<type>dword(?:x\d+)?|[subi]?(?:byte|short)|[bui]\d+)$"
)
_NAMES = {
    "dword": "b32",
    "ubyte": "u8",
    "sbyte": "i8",
    "byte": "b8",
    "ushort": "u16",
    "sshort": "i16",
    "short": "b16",
}


@dataclass(frozen=True)
class Machine:
    """The memories, and what belongs to the wavefronts of the dispatch. ``base``: where the program is."""

    memory: Global
    local: Local
    private: Array  # (wavefronts, lanes, bytes)
    written: Array  # which of these bytes were written
    group: Array  # the work-group of each wavefront
    base: int


def element(kind: str) -> tuple[int, bool]:
    """Bytes, and whether they are signed: (2, True) for "i16" and "sshort"."""
    wide = re.fullmatch(r"dwordx(\d+)", kind)
    name = f"b{32 * int(wide[1])}" if wide else _NAMES.get(kind, kind)
    return int(name[1:]) // 8, name[0] == "i"


def shortest_local(lines: tuple[Line, ...]) -> int:
    """Bytes of the shortest access to local memory."""
    found = [ACCESS.match(at.name) for at in lines if at.name.startswith("ds_")]
    return min((min(element(match["type"])[0], 16) for match in found if match), default=4)


def access(at: Line) -> Step:
    """The step of a memory instruction. Raises NotImplementedError for another."""
    match = ACCESS.match(at.name)
    if match is None or set(at.modifiers) & {"gds", "lds", "idxen", "tfe"}:
        raise NotImplementedError(at.text)
    nbytes, signed = element(match["type"])
    if match["space"] == "s":
        return _scalar_load(at, nbytes, signed)
    load = match["what"] in ("load", "read")
    if match["space"] == "ds":
        return _local(at, nbytes, signed, load, match["two"] or "")
    if match["space"] in ("scratch", "buffer"):
        return _private(at, nbytes, signed, load, match["space"])
    return _global(at, nbytes, signed, load)


def _number(at: Line, name: str = "offset") -> int:
    return int(at.modifiers.get(name, "0"), 0)


def _scalar_load(at: Line, nbytes: int, signed: bool) -> Step:
    to, base, *more = (operand(text) for text in at.operands)
    start = reader(base, "u64", "u64", vector=False)
    offsets = [reader(x, "u32", "u32", vector=False) for x in more]
    constant = np.uint64(_number(at))

    def run(g: Waves) -> None:
        address = start(g) + constant
        for offset in offsets:
            address = address + offset(g)
        words = _words(g.machine.memory.load(np.atleast_1d(address), nbytes), signed)
        for place in range(words.shape[1]):
            g.set_scalar(to.place + place, words[:, place])

    return run


def _words(content: Array, signed: bool) -> Array:
    """Rows of bytes as rows of words; fewer than four bytes become a word."""
    if content.shape[1] < 4:
        kind = f"{'i' if signed else 'u'}{content.shape[1]}"
        content = np.ascontiguousarray(content).view(kind).astype(np.int32).view(np.uint8)
    return np.ascontiguousarray(content).view(np.uint32)


def _put(g: Waves, to: Operand, content: Array, signed: bool) -> None:
    """Rows of bytes, one for each active lane, to registers."""
    words = _words(content, signed)
    for place in range(words.shape[1]):
        if g.whole:
            g.vector[to.place + place] = words[:, place].reshape(g.active.shape)
        else:
            g.vector[to.place + place][g.active] = words[:, place]


def _taken(g: Waves, source: Operand, nbytes: int) -> Array:
    """Rows of bytes of the active lanes' registers."""
    words = g.vector[source.place : source.place + max(1, nbytes // 4)]
    found = np.ascontiguousarray(np.moveaxis(words, 0, -1)[g.active])
    return found.view(np.uint8)[:, :nbytes]


def _global(at: Line, nbytes: int, signed: bool, load: bool) -> Step:
    given = [operand(text) for text in at.operands]
    register, at_lane, data = (given[0], given[1], given[0]) if load else (None, given[0], given[1])
    base = given[2] if len(given) > 2 else operand("off")
    offset = np.int64(_number(at))
    address: Reader
    if base.kind == "s":
        lane, start = (reader(x, k, k, vector=True) for x, k in ((at_lane, "u32"), (base, "u64")))

        def address(g: Waves) -> Array:
            return np.broadcast_to(start(g) + lane(g), g.active.shape)

    else:
        address = reader(at_lane, "u64", "u64", vector=True)
    moved = offset.astype(np.uint64)

    def run(g: Waves) -> None:
        places = address(g)[g.active] + moved
        if not places.size:
            return
        if register is not None:
            _put(g, register, g.machine.memory.load(places, nbytes), signed)
        else:
            g.machine.memory.store(places, _taken(g, data, nbytes))

    return run


def _local(at: Line, nbytes: int, signed: bool, load: bool, two: str) -> Step:
    given = [operand(text) for text in at.operands]
    to, address, data = (given[0], given[1], []) if load else (None, given[0], given[1:])
    lane = reader(address, "u32", "u32", vector=True)
    step = nbytes * (64 if "64" in two else 1)
    offsets = [_number(at, f"offset{i}") * step for i in (0, 1)] if two else [_number(at)]

    def run(g: Waves) -> None:
        start = np.broadcast_to(lane(g), g.active.shape)[g.active]
        if not start.size:
            return
        waves = np.broadcast_to(g.index[:, None], g.active.shape)[g.active]
        groups = g.machine.group[waves]
        if to is None:
            for source, offset in zip(data, offsets, strict=True):
                g.machine.local.store(start + np.uint32(offset), _taken(g, source, nbytes), groups, waves)
            return
        parts = [g.machine.local.load(start + np.uint32(offset), nbytes, groups, waves) for offset in offsets]
        _put(g, to, np.concatenate(parts, axis=1), signed)

    return run


def _private(at: Line, nbytes: int, signed: bool, load: bool, space: str) -> Step:
    """Private memory by its own instructions, or through a resource, which is that of all private memory."""
    given = [operand(text) for text in at.operands]
    if space == "buffer":
        data, lane_at, _, base = given
        lane_at = lane_at if "offen" in at.modifiers else operand("off")
    else:
        (data, lane_at), base = (given[:2] if load else (given[1], given[0])), given[2]
    lane, start = (None if x.text == "off" else reader(x, "u32", "u32", vector=True) for x in (lane_at, base))
    offset = _number(at)

    def run(g: Waves) -> None:
        place = np.full(g.active.shape, offset, np.int64)
        for more in (lane, start):
            if more is not None:
                place = place + more(g)
        columns = place[g.active][:, None] + np.arange(nbytes)
        if not columns.size:
            return
        if columns.max() >= g.machine.private.shape[2] or columns.min() < 0:
            raise Fault(
                f"{nbytes} bytes of private memory at {columns.max()}, of {g.machine.private.shape[2]}"
            )
        waves, lanes = np.nonzero(g.active)
        where = g.index[waves][:, None], lanes[:, None], columns
        if not load:
            g.machine.private[where] = _taken(g, data, nbytes)
            g.machine.written[where] = True
        elif g.machine.written[where].all():
            _put(g, data, g.machine.private[where], signed)
        else:
            raise Fault(f"{nbytes} bytes of private memory are read that nobody wrote")

    return run
