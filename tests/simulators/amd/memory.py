"""Global, private and local memory that notice what OpenCL forbids: see Fault."""

from __future__ import annotations

from typing import Any

import numpy as np

from .waves import Array, Waves

_GAP = 4096  # bytes between buffers that belong to none
# Of a byte: no buffer's, not written, constant, or written. A bit each says that it may be written, and read.
_NOTHING, _UNWRITTEN, _CONSTANT, _WRITTEN = range(4)
_REASONS = ("in no buffer", "not written before", "constant")
_EACH_BYTE = {"u1": 0x01, "u2": 0x0101, "u4": 0x01010101}  # a state times this is one of each byte of a type
_STAMP = 32  # an interval between barriers, and in these bits the wavefront
_MANY = 2**_STAMP - 1  # in place of one: several


class Fault(Exception):  # noqa: N818
    """An access that no kernel may make: outside of every buffer, of bytes that nobody wrote, to a constant,
    or a race between wavefronts in local memory.
    """


class Global:
    """Buffers at made-up addresses, in one array, with what may be done with each byte."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, Array, int]] = []
        self._next = _GAP
        self._data, self._state = np.empty(0, np.uint8), np.empty(0, np.uint8)

    def add(self, content: Array, *, written: bool = True, constant: bool = False, align: int = 256) -> int:
        """A buffer's address. Its end is where the next byte is nobody's, or within *align* of it."""
        start = self._next + -self._next % align
        state = (_CONSTANT if constant else _WRITTEN) if written else _UNWRITTEN
        self._parts.append((start, content, state))
        self._next = start + content.size + _GAP
        return start

    def place(self) -> None:
        """To be called when all buffers are added."""
        size = self._next + _GAP + 64
        self._data, self._state = (np.zeros(size + -size % 64, np.uint8) for _ in range(2))
        for start, content, state in self._parts:
            self._data[start : start + content.size] = content
            self._state[start : start + content.size] = state

    def content(self, start: int, nbytes: int) -> Array:
        return self._data[start : start + nbytes].copy()

    def load(self, addresses: Array, nbytes: int, g: Waves) -> Any:
        """*nbytes* from each address of the active lanes, as rows of bytes."""
        rows, unit = self._rows(addresses, nbytes, _CONSTANT, g)
        return self._data.view(unit)[rows].view(np.uint8)

    def store(self, addresses: Array, content: Array, g: Waves) -> None:
        """Rows of bytes to each address."""
        rows, unit = self._rows(addresses, content.shape[1], _UNWRITTEN, g)
        self._data.view(unit)[rows] = content.view(unit)
        self._state.view(unit)[rows] = _WRITTEN * _EACH_BYTE[unit]

    def _rows(self, addresses: Array, nbytes: int, able: int, _: Waves) -> tuple[Array, str]:
        """Places of the accesses as elements of a type, the longest. *able*: the bit that allows them."""
        low = int(np.bitwise_or.reduce(addresses, initial=0)) | nbytes | 4
        size = low & -low
        unit, inside = f"u{size}", addresses < self._data.size - nbytes
        start = np.where(inside, addresses, addresses.dtype.type(0)).astype(np.int64) // size
        rows = start[:, None] + np.arange(nbytes // size)
        wanted = able * _EACH_BYTE[unit]
        bad = self._state.view(unit)[rows] & wanted != wanted
        if bad.any():
            raise self._refused(addresses, bad.any(axis=1), nbytes, able)
        return rows, unit

    def _refused(self, addresses: Array, bad: Array, nbytes: int, able: int) -> Fault:
        address = int(addresses[bad][0])
        state = self._state[address : address + nbytes] if address < self._data.size - nbytes else [_NOTHING]
        wrong = _REASONS[min(int(x) for x in state if not int(x) & able)]
        near = max((start for start, *_ in self._parts if start <= address), default=0)
        return Fault(
            f"{nbytes} bytes at {address:#x} are {'read' if able == _CONSTANT else 'written'}, {wrong}: "
            f"{address - near} bytes behind the start of the buffer at {near:#x}; "
            f"{int(bad.sum())} of {bad.size} lanes"
        )


class Private(Global):
    """Private memory: for each lane of each wavefront *nbytes*, one after the other."""

    def __init__(self, owners: int, nbytes: int) -> None:
        super().__init__()
        self._nbytes = nbytes + -nbytes % 16
        self._start = self.add(np.zeros(owners * self._nbytes, np.uint8), written=False)
        self.place()

    def _owners(self, g: Waves) -> Array:
        found: Array = g.of_lanes * g.lanes + np.nonzero(g.active)[1]
        return found

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
        self._writer, self._reader = np.zeros((2, self._data.size // unit), np.int64)

    def _owners(self, g: Waves) -> Array:
        found: Array = self._of_wave[g.of_lanes]
        return found

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
            # of several lanes that read a unit now, one is noted, so those of other wavefronts are found first
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
