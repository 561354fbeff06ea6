"""Global, private and local memory that notice what OpenCL forbids: see Fault."""

from __future__ import annotations

from typing import Any

import numpy as np

from .waves import Array, Waves

_GAP = 4096  # bytes between buffers that belong to none
# Of a byte: no buffer's, not written, constant, or written. A bit each says that it may be written, and read.
_NOTHING, _UNWRITTEN, _CONSTANT, _WRITTEN = range(4)
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

    def load(self, addresses: Array, nbytes: int, _: Waves) -> Any:
        """*nbytes* from each address, as rows of bytes."""
        return self._data.view(self._units(addresses, nbytes, "read"))[self._rows].view(np.uint8)

    def store(self, addresses: Array, content: Array, _: Waves) -> None:
        """Rows of bytes to each address."""
        unit = self._units(addresses, content.shape[1], "written")
        self._data.view(unit)[self._rows] = content.view(unit)
        self._state.view(unit)[self._rows] = _of_bytes(_WRITTEN, unit)

    def _units(self, addresses: Array, nbytes: int, what: str) -> str:
        """The longest type whose elements the accesses are. Their places become ``_rows``."""
        low = int(np.bitwise_or.reduce(addresses)) | nbytes | 4
        unit = f"u{low & -low}"
        inside = addresses < self._data.size - nbytes
        start = np.where(inside, addresses, np.uint64(0)).astype(np.int64) // (low & -low)
        self._rows = start[:, None] + np.arange(nbytes // (low & -low))
        able = _of_bytes(_CONSTANT if what == "read" else _UNWRITTEN, unit)
        bad = self._state.view(unit)[self._rows] & able != able
        if bad.any():
            raise self._refused(addresses, bad.any(axis=1), nbytes, what)
        return unit

    def _refused(self, addresses: Array, bad: Array, nbytes: int, what: str) -> Fault:
        address = int(addresses[bad][0])
        state = self._state[address : address + nbytes] if address < self._data.size - nbytes else [_NOTHING]
        able = _CONSTANT if what == "read" else _UNWRITTEN
        reasons = {_NOTHING: "in no buffer", _UNWRITTEN: "not written before", _CONSTANT: "constant"}
        wrong = reasons[min(int(x) for x in state if not int(x) & able)]
        near = max((start for start, *_ in self._parts if start <= address), default=0)
        return Fault(
            f"{nbytes} bytes at {address:#x} are {what}, {wrong}: {address - near} bytes behind the start of "
            f"the buffer at {near:#x}; {int(bad.sum())} of {bad.size} lanes"
        )


def _of_bytes(state: int, unit: str) -> int:
    """*state* in each byte."""
    return int.from_bytes(bytes([state] * int(unit[1:])), "little")


class Private(Global):
    """Private memory: for each lane of each wavefront *nbytes*, one after the other."""

    def __init__(self, waves: int, lanes: int, nbytes: int) -> None:
        super().__init__()
        self._nbytes = nbytes + -nbytes % 4
        self._start = self.add(np.zeros(waves * lanes * self._nbytes, np.uint8), written=False)
        self.place()

    def load(self, addresses: Array, nbytes: int, g: Waves) -> Any:
        return super().load(self._moved(addresses, nbytes, g), nbytes, g)

    def store(self, addresses: Array, content: Array, g: Waves) -> None:
        super().store(self._moved(addresses, content.shape[1], g), content, g)

    def _moved(self, addresses: Array, nbytes: int, g: Waves) -> Array:
        if (outside := addresses > self._nbytes - nbytes).any():
            raise Fault(f"{nbytes} bytes of private memory at {addresses[outside][0]}, of {self._nbytes}")
        lanes = np.nonzero(g.active)[1]
        found: Array = (
            self._start + (g.of_lanes * g.lanes + lanes) * self._nbytes + addresses.astype(np.int64)
        )
        return found.astype(np.uint64)


class Local:
    """Local memory of all work-groups. Between two barriers wavefronts must not touch what another writes.

    ``unit``: bytes of the shortest access of the kernel. ``of_wave``: the work-group of each wavefront.
    """

    def __init__(self, of_wave: Array, nbytes: int, unit: int) -> None:
        self._of_wave, self._unit, self._size = of_wave, unit, nbytes + -nbytes % 16
        groups = int(of_wave[-1]) + 1
        self._data = np.zeros(groups * self._size // unit, f"u{unit}")
        self._interval = np.ones(groups, np.int64)
        # stamps of who wrote and who read last
        self._writer, self._reader = np.zeros((2, self._data.size), np.int64)

    def barrier(self, waves: Array) -> None:
        """Another interval begins in the work-groups of *waves*."""
        self._interval[np.unique(self._of_wave[waves])] += 1

    def load(self, addresses: Array, nbytes: int, g: Waves) -> Array:
        """*nbytes* from each address of the active lanes."""
        units, now, own = self._places(addresses, nbytes, g)
        writer, reader = self._writer[units], self._reader[units]
        if not writer.all():
            raise Fault(f"{nbytes} bytes of local memory are read that nobody wrote: {addresses[:8]}")
        self._demand(writer, now, own, "reads what it wrote")
        # of several lanes that read a unit now, one is noted, so those of other wavefronts are found first
        stamps = np.where((reader >= now) & (reader != own), now + _MANY, own)
        self._reader[units] = stamps
        several = self._reader[units] != stamps
        self._reader[units[several]] |= _MANY
        return self._data[units].view(np.uint8)

    def store(self, addresses: Array, content: Array, g: Waves) -> None:
        units, now, own = self._places(addresses, content.shape[1], g)
        self._demand(self._writer[units], now, own, "writes what it wrote")
        self._demand(self._reader[units], now, own, "writes what it read")
        self._writer[units] = own
        if (self._writer[units] != own).any():
            raise Fault("a race: two wavefronts write the same bytes of local memory")
        self._data[units] = content.view(self._data.dtype)

    def _demand(self, last: Array, now: Array, own: Array, what: str) -> None:
        """Nobody else has done so in this interval."""
        raced = (last >= now) & (last != own)
        if raced.any():
            before, wave = int(last[raced][0]) & _MANY, int(own[raced.any(axis=1)][0, 0]) & _MANY
            raise Fault(f"a race: wavefront {wave} after {'several' if before == _MANY else before} {what}")

    def _places(self, addresses: Array, nbytes: int, g: Waves) -> tuple[Array, Array, Array]:
        """Units of each access, the first stamp of this interval, and the wavefront's own."""
        if (addresses.astype(np.int64) + nbytes > self._size).any():
            raise Fault(f"{nbytes} bytes at {addresses.max()} are outside of {self._size} of local memory")
        if (addresses % np.uint32(self._unit)).any():
            raise Fault(f"{nbytes} bytes of local memory at {addresses.max()} are not aligned")
        waves = g.of_lanes
        groups = self._of_wave[waves]
        start = (groups * self._size + addresses) // self._unit
        now = (self._interval[groups] << _STAMP)[:, None]
        return start[:, None] + np.arange(nbytes // self._unit), now, now + waves[:, None]
