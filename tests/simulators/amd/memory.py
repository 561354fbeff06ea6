"""Memory that notices what OpenCL forbids (Fault): global, private and local. Loads and stores."""

import re
from typing import Any

import numpy as np

from .arithmetic import Step
from .program import Line, Operand, constant
from .values import wide
from .waves import Array, Waves

_GAP = 4096  # bytes between buffers that belong to none
# Of a byte: no buffer's, not written, constant, or written. A bit each says that it may be written, and read.
_NOTHING, _UNWRITTEN, _CONSTANT, _WRITTEN = range(4)
_REASONS = ("in no buffer", "not written before", "constant")
_EACH_BYTE = {"u1": 0x01, "u2": 0x0101, "u4": 0x01010101}  # a state times this is one of each byte of a type
_STAMP = 32  # an interval between barriers, and in these bits the wavefront
_MANY = 2**_STAMP - 1  # in place of one: several


class Fault(Exception):  # noqa: N818
    """What no kernel may do, such as an access outside of every buffer, or a race in local memory."""


class Global:
    """Buffers at made-up addresses, in one array, with what may be done with each byte."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self.data, self._state = np.zeros((2, _GAP), np.uint8)

    def add(self, content: Array, *, written: bool = True, constant: bool = False, align: int = 256) -> int:
        """A buffer's address. Its end is where the next byte is nobody's."""
        start = self.data.size + -self.data.size % align
        around = start - self.data.size, _GAP + -content.size % 64
        state = (_CONSTANT if constant else _WRITTEN) if written else _UNWRITTEN
        self.data = np.append(self.data, np.pad(content, around))
        self._state = np.append(self._state, np.pad(np.full(content.size, state, np.uint8), around))
        self._starts.append(start)
        return start

    def load(self, addresses: Array, nbytes: int, g: Waves) -> Any:
        """*nbytes* from each address of the active lanes, as rows of bytes."""
        rows, unit = self._rows(addresses, nbytes, _CONSTANT, g)
        return self.data.view(unit)[rows].view(np.uint8)

    def store(self, addresses: Array, content: Array, g: Waves) -> None:
        """Rows of bytes to each address."""
        rows, unit = self._rows(addresses, content.shape[1], _UNWRITTEN, g)
        self.data.view(unit)[rows] = content.view(unit)
        self._state.view(unit)[rows] = _WRITTEN * _EACH_BYTE[unit]

    def _rows(self, addresses: Array, nbytes: int, able: int, _: Waves) -> tuple[Array, str]:
        """Places of the accesses as elements of a type, the longest. *able*: the bit that allows them."""
        low = int(np.bitwise_or.reduce(addresses, initial=0)) | nbytes | 4
        size = low & -low
        unit, inside = f"u{size}", addresses < self.data.size - nbytes
        start = (addresses if inside.all() else addresses * inside).astype(np.int64) // size
        rows = start[:, None] + np.arange(nbytes // size)
        wanted = able * _EACH_BYTE[unit]
        bad = (self._state.view(unit)[rows] & wanted != wanted).any(axis=1)
        if bad.any():
            address = int(addresses[bad][0])
            state = (
                self._state[address : address + nbytes] if address < self.data.size - nbytes else [_NOTHING]
            )
            wrong = _REASONS[min(int(x) for x in state if not int(x) & able)]
            near = max((start for start in self._starts if start <= address), default=0)
            raise Fault(
                f"{nbytes} bytes at {address:#x} are {'read' if able == _CONSTANT else 'written'}, {wrong}: "
                f"{address - near} bytes behind the start of the buffer at {near:#x}; "
                f"{int(bad.sum())} of {bad.size} lanes"
            )
        return rows, unit


class Private(Global):
    """Private memory: for each lane of each wavefront *nbytes*, one after the other."""

    def __init__(self, owners: int, nbytes: int) -> None:
        super().__init__()
        self._nbytes = nbytes + -nbytes % 16
        self._start = self.add(np.zeros(owners * self._nbytes, np.uint8), written=False)

    def _owners(self, g: Waves) -> Any:
        return g.of_lanes * g.lanes + np.nonzero(g.active)[1]

    def _rows(self, addresses: Array, nbytes: int, able: int, g: Waves) -> tuple[Array, str]:
        if (outside := addresses > self._nbytes - nbytes).any():
            at = addresses[outside][0]
            raise Fault(f"{nbytes} bytes at {at} of {self._nbytes} of local or private memory: outside")
        moved = self._start + self._owners(g) * self._nbytes + addresses.astype(np.int64)
        return super()._rows(moved, nbytes, able, g)


class Local(Private):
    """Local memory of all work-groups. Between two barriers wavefronts must not touch what another writes.

    ``unit``: bytes of the shortest access of the kernel. ``of_wave``: the work-group of each wavefront.
    """

    def __init__(self, of_wave: Array, nbytes: int, unit: int) -> None:
        self._of_wave, self._unit = of_wave, unit
        super().__init__(int(of_wave[-1]) + 1, nbytes)
        self._interval = np.ones(int(of_wave[-1]) + 1, np.int64)
        # stamps of who wrote and who read last
        self._writer, self._reader = np.zeros((2, self.data.size // unit), np.int64)

    def _owners(self, g: Waves) -> Any:
        return self._of_wave[g.of_lanes]

    def barrier(self, waves: Array) -> None:
        """Another interval begins in the work-groups of *waves*."""
        self._interval[np.unique(self._of_wave[waves])] += 1

    def _rows(self, addresses: Array, nbytes: int, able: int, g: Waves) -> tuple[Array, str]:
        rows, unit = super()._rows(addresses, nbytes, able, g)
        if (addresses % np.uint32(self._unit)).any():
            raise Fault(f"{nbytes} bytes of local memory at {addresses.max()} are not aligned")
        first = rows[:, :1] * int(unit[1:]) // self._unit
        units = first + np.arange(nbytes // self._unit)
        now = (self._interval[self._owners(g)] << _STAMP)[:, None]  # the first stamp of this interval
        own = now + g.of_lanes[:, None]
        writer, reader = self._writer[units], self._reader[units]
        if able == _CONSTANT:
            self._demand(writer, now, own, "reads what it wrote")
            # of lanes that read a unit now one is noted, so those of other wavefronts are found first
            stamps = np.where((reader >= now) & (reader != own), now + _MANY, own)
            self._reader[units] = stamps
            several = self._reader[units] != stamps
            self._reader[units[several]] |= _MANY
        else:
            self._demand(writer, now, own, "writes what it wrote")
            self._demand(reader, now, own, "writes what it read")
            self._writer[units] = own
            if (self._writer[units] != own).any():
                raise Fault("a race: two wavefronts write the same bytes of local memory")
        return rows, unit

    def _demand(self, last: Array, now: Array, own: Array, what: str) -> None:
        """Nobody else has done so in this interval."""
        raced = (last >= now) & (last != own)
        if raced.any():
            before, wave = int(last[raced][0]) & _MANY, int(own[raced.any(axis=1)][0, 0]) & _MANY
            raise Fault(f"a race: wavefront {wave} after {'several' if before == _MANY else before} {what}")


# ---- instructions ----------------------------------------------------------------------------

ACCESS = re.compile(
    r"(?P<space>global|flat|scratch|buffer|ds|s)_(?P<what>load|store|read|write)_?"
    r"(?P<two>2addr_(?:stride64_)?|2(?:st64)?_)?"
    r"(?:(?P<sign>[su]?)(?P<unit>dword|short|byte)x?|(?P<bits>[biu]))(?P<count>\d*)$"
)


def nbytes_of(match: re.Match[str]) -> int:
    """2 for "i16" and "sshort", 8 for "dwordx2"."""
    return {"dword": 32, "short": 16, "byte": 8}.get(match["unit"], 1) * int(match["count"] or 1) // 8


def shortest_local(lines: tuple[Line, ...]) -> int:
    """Bytes of the shortest access to local memory."""
    found = [ACCESS.match(at.name) for at in lines if at.name.startswith("ds_")]
    return min((min(nbytes_of(match), 8) for match in found if match), default=4)


def access(at: Line, match: re.Match[str]) -> Step:
    """The step of an instruction that is like ACCESS."""
    if set(at.modifiers) & {"gds", "lds", "idxen", "tfe"}:
        raise NotImplementedError(at.text)
    space, two, nbytes = match["space"], match["two"] or "", nbytes_of(match)
    signed = match["sign"] == "s" or match["bits"] == "i"
    element, extended = f"{'i' if signed else 'u'}{min(nbytes, 4)}", np.int32 if signed else np.uint32
    given = list(at.operands)
    load = match["what"] in ("load", "read")
    data = [given.pop(0 if load or space == "buffer" else 1)]
    if two and not load:
        data.append(given.pop())
    if space == "buffer":  # through a resource, which is that of all private memory
        given = [given[0]] * ("offen" in at.modifiers) + [given[2]]
    summed = [one for one in given if one.text != "off"]
    word = np.uint32 if space == "ds" else np.uint64
    step = nbytes * (64 if "64" in two else 1)
    names = [("offset0", step), ("offset1", step)] if two else [("offset", 1)]
    moved = (int(at.modifiers.get(name, "0"), 0) * by for name, by in names)
    offsets = [word(x % 2 ** (8 * word().itemsize)) for x in moved]

    def run(g: Waves) -> None:
        memory = g.run.memories[space]
        start = sum((_read(g, one) for one in summed), word(0))
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


def _read(g: Waves, op: Operand) -> Array:
    """A register, or two as 64 bits, or a constant."""
    if op.kind == "constant":
        return np.asarray(constant(op.text, "u32"))
    file = g.vector if op.kind == "v" else g.scalar
    return file[op.place] if op.count == 1 else wide(file[op.place], file[op.place + 1])
