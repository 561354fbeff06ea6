"""Memory instructions: loads and stores of global, local and private memory, and of arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from .arithmetic import Step
from .functions import wide
from .memory import Global, Local, Private
from .program import Line, Operand, constant
from .waves import Array, Waves

ACCESS = re.compile(
    r"(?P<space>global|flat|scratch|buffer|ds|s)_(?P<what>load|store|read|write)_?"
    r"(?P<two>2addr_(?:stride64_)?|2(?:st64)?_)?(?P<type>dword(?:x\d+)?|[subi]?(?:byte|short)|[bui]\d+)$"
)
_BYTES = {"dword": 4, "short": 2, "byte": 1}


@dataclass(frozen=True)
class Machine:
    """The memories of a dispatch. ``base``: where the program is; ``places``: of instructions, by address."""

    s: Global
    ds: Local
    scratch: Private
    base: int
    places: Mapping[int, int]

    def memory(self, space: str) -> Global:
        """By the first part of an instruction's name."""
        return self.ds if space == "ds" else self.scratch if space in ("scratch", "buffer") else self.s


def nbytes_of(kind: str) -> int:
    """2 for "i16" and "sshort", 8 for "dwordx2"."""
    for name, nbytes in _BYTES.items():
        if name in kind:
            return nbytes * int(kind.partition("x")[2] or 1)
    return int(kind[1:]) // 8


def shortest_local(lines: tuple[Line, ...]) -> int:
    """Bytes of the shortest access to local memory."""
    found = [ACCESS.match(at.name) for at in lines if at.name.startswith("ds_")]
    return min((min(nbytes_of(match["type"]), 8) for match in found if match), default=4)


def access(at: Line, match: re.Match[str]) -> Step:
    """The step of an instruction that is like ACCESS."""
    if set(at.modifiers) & {"gds", "lds", "idxen", "tfe"}:
        raise NotImplementedError(at.text)
    space, two, nbytes = match["space"], match["two"] or "", nbytes_of(match["type"])
    signed = match["type"][0] in "si" and match["type"] != "short"
    element, extended = f"{'i' if signed else 'u'}{min(nbytes, 4)}", np.int32 if signed else np.uint32
    given = list(at.operands)
    load = match["what"] in ("load", "read")
    data = [given.pop(0 if load or space == "buffer" else 1)]
    if two and not load:
        data.append(given.pop())
    if space == "buffer":  # through a resource, which is that of all private memory
        given = [given[0]] * ("offen" in at.modifiers) + [given[2]]
    readers = [_reader(one) for one in given if one.text != "off"]
    word = np.uint32 if space == "ds" else np.uint64
    step = nbytes * (64 if "64" in two else 1)
    names = [("offset0", step), ("offset1", step)] if two else [("offset", 1)]
    moved = [int(at.modifiers.get(name, "0"), 0) * by for name, by in names]
    offsets = [word(x % 2 ** (8 * word().itemsize)) for x in moved]

    def run(g: Waves) -> None:
        memory = g.machine.memory(space)
        start = sum((read(g) for read in readers), word(0))
        start = start[:, 0] if space == "s" else np.broadcast_to(start, g.active.shape)[g.active]
        if not load:
            for source, offset in zip(data, offsets, strict=True):
                words = g.vector[source.place : source.place + max(1, nbytes // 4), g.active].T
                content = np.ascontiguousarray(words).view(np.uint8)[:, :nbytes]
                memory.store(start + offset, np.ascontiguousarray(content), g)
            return
        parts = [memory.load(start + offset, nbytes, g) for offset in offsets]
        content = np.concatenate(parts, axis=1) if two else parts[0]
        words = content.view(element).astype(extended, copy=False).view(np.uint32)
        for place, column in enumerate(words.T, data[0].place):
            if space == "s":
                g.set_scalar(place, column[:, None])
            else:
                g.vector[place][g.active] = column

    return run


def _reader(op: Operand) -> Callable[[Waves], Array]:
    """Of a register, or of two as 64 bits, or a constant."""
    if op.kind == "constant":
        return lambda g: np.asarray(constant(op.text, "u32"))
    words = [
        lambda g, at=at: (g.vector if op.kind == "v" else g.scalar)[at]
        for at in range(op.place, op.place + 2)
    ]
    return words[0] if op.count == 1 else lambda g: wide(*(word(g) for word in words))
