"""Global and local memory that notice what OpenCL forbids: see Fault."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
_GAP = 4096  # bytes between buffers that belong to none
_NOTHING, _UNWRITTEN, _READABLE, _WRITABLE = (
    0,
    1,
    2,
    3,
)  # of a byte: no buffer's, not written, constant, written
_MANY = np.int32(2**31 - 1)  # wavefronts have read it


class Fault(Exception):  # noqa: N818
    """An access that no kernel may make: outside of every buffer, of bytes that nobody wrote, to a constant,
    or a race between wavefronts in local memory.
    """


class Global:
    """Buffers at made-up addresses, in one array, with what may be done with each byte."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, Array, Array]] = []
        self._next = _GAP
        self._data, self._state = np.empty(0, np.uint8), np.empty(0, np.uint8)

    def add(self, content: Array, *, written: bool = True, constant: bool = False, align: int = 256) -> int:
        """A buffer's address. Its end is where the next byte is nobody's, or within *align* of it."""
        self._next += -self._next % align
        start = self._next
        state = (_READABLE if constant else _WRITABLE) if written else _UNWRITTEN
        self._parts.append((start, content, np.full(content.size, state, np.uint8)))
        self._next += content.size + _GAP
        return start

    def place(self) -> None:
        """To be called when all buffers are added."""
        size = self._next + _GAP + 64
        size += -size % 64
        self._data, self._state = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
        for start, content, state in self._parts:
            self._data[start : start + content.size] = content
            self._state[start : start + content.size] = state

    def content(self, start: int, nbytes: int) -> Array:
        return self._data[start : start + nbytes].copy()

    def unwritten(self, start: int, nbytes: int) -> int:
        """How many bytes nobody has written."""
        return int((self._state[start : start + nbytes] == _UNWRITTEN).sum())

    def load(self, addresses: Array, nbytes: int) -> Array:
        """*nbytes* from each address, as rows of bytes."""
        rows = self._rows(addresses, nbytes)
        state = self._state[rows]
        if (state < _READABLE).any():
            self._refuse(addresses, (state < _READABLE).any(axis=1), state, nbytes, "read")
        return self._data[rows]

    def store(self, addresses: Array, content: Array) -> None:
        """Rows of bytes to each address."""
        nbytes = content.shape[1]
        rows = self._rows(addresses, nbytes)
        state = self._state[rows]
        bad = (state == _NOTHING) | (state == _READABLE)
        if bad.any():
            self._refuse(addresses, bad.any(axis=1), state, nbytes, "written")
        self._data[rows] = content
        self._state[rows] = _WRITABLE

    def _rows(self, addresses: Array, nbytes: int) -> Array:
        inside = addresses < self._data.size - nbytes
        safe = np.where(inside, addresses, np.uint64(0)).astype(np.int64)
        return safe[:, None] + np.arange(nbytes)

    def _refuse(self, addresses: Array, bad: Array, state: Array, nbytes: int, what: str) -> None:
        where = int(np.flatnonzero(bad)[0])
        address = int(addresses[where])
        reason = {_NOTHING: "in no buffer", _UNWRITTEN: "not written before", _READABLE: "constant"}
        wrong = reason[int(state[where].min())] if what == "read" else reason[min(int(state[where].min()), 2)]
        near = max((start for start, *_ in self._parts if start <= address), default=0)
        raise Fault(
            f"{nbytes} bytes at {address:#x} are {what}, {wrong}: {address - near} bytes behind the start of "
            f"the buffer at {near:#x}; {int(bad.sum())} of {bad.size} lanes"
        )


class Local:
    """Local memory of all work-groups. Between two barriers wavefronts must not touch what another writes.

    ``unit``: bytes of the shortest access of the kernel.
    """

    def __init__(self, groups: int, nbytes: int, unit: int) -> None:
        self._size = nbytes + -nbytes % 16
        self._data = np.zeros(groups * self._size, np.uint8)
        self._unit = unit
        units = groups * self._size // unit
        self._written = np.zeros(units, bool)
        self._interval = np.ones(groups, np.int32)
        # the wavefront that wrote or read last, and in which interval
        self._writer, self._wrote = np.zeros(units, np.int32), np.zeros(units, np.int32)
        self._reader, self._read = np.zeros(units, np.int32), np.zeros(units, np.int32)

    def barrier(self, groups: Array) -> None:
        """Another interval begins in *groups*."""
        self._interval[np.unique(groups)] += 1

    def load(self, addresses: Array, nbytes: int, groups: Array, waves: Array) -> Array:
        """*nbytes* from each address of the lanes of these work-groups and wavefronts."""
        rows, units, now, wave = self._places(addresses, nbytes, groups, waves)
        if not self._written[units].all():
            raise Fault(f"{nbytes} bytes of local memory are read that nobody wrote: {addresses[:8]}")
        raced = (self._wrote[units] == now) & (self._writer[units] != wave)
        if raced.any():
            raise Fault(
                f"a race: wavefront {self._pair(raced, self._writer[units], wave)} reads what it wrote"
            )
        others = (self._read[units] == now) & (self._reader[units] != wave)
        # of several lanes that read a unit now, one is noted, so those of other wavefronts are found first
        self._read[units] = now
        self._reader[units] = np.where(others, _MANY, wave)
        several = self._reader[units] != np.where(others, _MANY, wave)
        self._reader[units[several]] = _MANY
        return self._data[rows]

    def store(self, addresses: Array, content: Array, groups: Array, waves: Array) -> None:
        rows, units, now, wave = self._places(addresses, content.shape[1], groups, waves)
        for last, when, what in ((self._writer, self._wrote, "wrote"), (self._reader, self._read, "read")):
            raced = (when[units] == now) & (last[units] != wave)
            if raced.any():
                raise Fault(f"a race: wavefront {self._pair(raced, last[units], wave)} writes what it {what}")
        self._written[units] = True
        self._wrote[units] = now
        self._writer[units] = wave
        if (self._writer[units] != wave).any():
            raise Fault("a race: two wavefronts write the same bytes of local memory")
        self._data[rows] = content

    def _places(
        self, addresses: Array, nbytes: int, groups: Array, waves: Array
    ) -> tuple[Array, Array, Array, Array]:
        if (addresses.astype(np.int64) + nbytes > self._size).any():
            raise Fault(f"{nbytes} bytes at {addresses.max()} are outside of {self._size} of local memory")
        if (addresses % np.uint32(min(nbytes, self._unit))).any():
            raise Fault(f"{nbytes} bytes of local memory at {addresses.max()} are not aligned")
        start = addresses.astype(np.int64) + groups * self._size
        units = (start // self._unit)[:, None] + np.arange(max(1, nbytes // self._unit))
        now = np.broadcast_to(self._interval[groups][:, None], units.shape)
        wave = np.broadcast_to(waves.astype(np.int32)[:, None], units.shape)
        return start[:, None] + np.arange(nbytes), units, now, wave

    def _pair(self, raced: Array, last: Array, wave: Array) -> str:
        before, now = int(last[raced][0]), int(wave[raced][0])
        return f"{now} after {'several' if before == _MANY else before}"
