"""The journal of a checkpoint: lines are added and never changed, and each has a check sum.

The first line is ``pyclmm 2 DIGEST`` of the problem, then ``TILE SIZE DIGEST SUM`` for each finished tile,
and ``done - - SUM`` at the end. SIZE is 0 for a tile that lies in ``out``. Of two lines of a tile the later
one holds. A last line without its end was written by a process that was killed: it is dropped.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path

from .folders import sync

Fault = Callable[[Path, str], Exception]


def _sum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _line(tile: int | str, size: int | str, digest: str) -> str:
    text = f"{tile} {size} {digest}"
    return f"{text} {_sum(text)}\n"


_DONE = _line("done", "-", "-")


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def is_done(path: Path) -> bool:
    """Whether the product of this journal is complete."""
    return _content(path).endswith("\n" + _DONE)


def has_records(path: Path) -> bool:
    """Whether a journal names a tile."""
    return _content(path).count("\n") > 1


class Journal:
    """An open journal. ``records``: a tile's size and digest in its file, or 0 and that in ``out``."""

    def __init__(self, path: Path, records: dict[int, tuple[int, str]], length: int) -> None:
        self.records = records
        self._handle, self._length = os.open(path, os.O_RDWR), length
        self.is_closed = False
        os.ftruncate(self._handle, length)
        os.lseek(self._handle, length, os.SEEK_SET)

    @classmethod
    def new(cls, path: Path, head: str) -> Journal:
        """A journal without tiles."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        text = f"pyclmm 2 {head}\n".encode()
        try:
            os.write(handle, text)
            os.fsync(handle)
        finally:
            os.close(handle)
        sync(path.parent)
        return cls(path, {}, len(text))

    @classmethod
    def resumed(cls, path: Path, head: str, tiles: int, fault: Fault) -> Journal:
        """The journal of an earlier run. Raises what *fault* makes if it is damaged."""
        if not path.is_file():
            raise fault(path, "it is missing")
        text = _content(path)
        whole = text[: text.rfind("\n") + 1]
        first, *lines = whole.splitlines() or [""]
        if first != f"pyclmm 2 {head}":
            raise fault(path, "its first line is not the one that was written")
        records = {}
        for number, line in enumerate(lines, 2):
            body, _, check = line.rpartition(" ")
            if check != _sum(body) or len(body.split()) != 3 or not body.split()[0].isdigit():
                raise fault(path, f"line {number} is not the one that was written")
            tile, size, digest = body.split()
            if int(tile) >= tiles:
                raise fault(path, f"line {number} names tile {tile} of {tiles}")
            records[int(tile)] = int(size), digest
        return cls(path, records, len(whole))

    def add(self, tile: int, size: int, digest: str) -> None:
        """Add a line, safe on the disk. Raises OSError; then the journal is as it was."""
        if tile not in self.records:
            self._write(_line(tile, size, digest))
            self.records[tile] = size, digest

    def done(self) -> None:
        """Add the last line."""
        self._write(_DONE)

    def _write(self, line: str) -> None:
        text = line.encode()
        try:
            if os.write(self._handle, text) != len(text):
                raise OSError("the disk is full")
            os.fsync(self._handle)
        except OSError:
            os.ftruncate(self._handle, self._length)
            os.lseek(self._handle, self._length, os.SEEK_SET)
            raise
        self._length += len(text)

    def close(self) -> None:
        """Close the file."""
        if not self.is_closed:
            self.is_closed = True
            os.close(self._handle)
