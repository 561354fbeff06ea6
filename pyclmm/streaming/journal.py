"""Files of a checkpoint: its journal, what is written whole, and the folder's lock.

All are safe on the disk when the function that writes them returns. Lines of the journal are added and never
changed, and each has a check sum. The first is ``pyclmm 2 DIGEST`` of the problem, then comes ``TILE SIZE
DIGEST SUM`` for each finished tile, and ``done - - SUM`` at the end. SIZE is 0 for a tile that lies in
``out``. Of two lines of a tile the later one holds. A last line without its end was written by a process that
was killed: it is dropped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, StorageError
from ..store import fault_of, lock_open, replacing

_RECORD = re.compile(
    r"(?P<record>(?P<tile>[0-9]{1,18}) (?P<size>[0-9]{1,18}) (?P<digest>[0-9a-f]{32}|-)) (?P<sum>[0-9a-f]{8})"
)
ANEW = "delete the folder to start anew"


def damaged(path: Path, why: str) -> CheckpointError:
    """The error for a file of a checkpoint that is not as it was written."""
    return CheckpointError(f"checkpoint: {path} is damaged: {why}; {ANEW}")


@contextlib.contextmanager
def unusable(folder: Path, why: str) -> Iterator[None]:
    """What the system refuses in the block as a CheckpointError."""
    try:
        yield
    except StorageError:
        raise
    except NotADirectoryError:
        raise CheckpointError(f"checkpoint {folder} is a file, or lies in one; name a folder") from None
    except OSError as error:
        raise CheckpointError(f"checkpoint folder {folder} {why}: {error}; name another") from error


def digest_of(content: Any) -> str:
    """BLAKE2 of bytes, or of what JSON says of anything else."""
    if not isinstance(content, bytes | bytearray | memoryview):
        content = json.dumps(content, sort_keys=True).encode()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def sync(*paths: Path) -> None:
    """Wait until files, and the names in folders where the system can, are on the disk. Raises OSError."""
    for path in paths:
        # Windows opens no folder, and some file systems wait for no names.
        with contextlib.suppress(OSError) if path.is_dir() else contextlib.nullcontext():
            handle = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def refuse_untrusted(folder: Path) -> None:
    """Raise CheckpointError if others own or can write *folder* or a file of it, or a file is a link."""
    if not os.path.isdir(folder):
        return
    with unusable(folder, "cannot be read"):
        with os.scandir(folder) as entries:
            files = [(each.path, _status(each)) for each in entries if "pyclmm-" in each.name]
        found = [(f"checkpoint folder {folder}", folder.stat()), *files]
    for name, status in found:
        if status is None:
            continue
        is_plain = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        # The mode of a link lets everyone write.
        fault = fault_of(status, stat.S_IWOTH) if is_plain else "it is a link, or no regular file"
        if fault is not None:
            raise CheckpointError(f"{name} is not trusted: {fault}; name a folder of your own")


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """That of the file itself, where it is a link; None if it was removed in between."""
    with contextlib.suppress(FileNotFoundError):
        return entry.stat(follow_symlinks=False)
    return None


def write_whole(path: Path, *parts: bytes | memoryview) -> tuple[int, str]:
    """Write a file in one step, safe on the disk; returns its length and digest. Raises OSError."""
    state, length = hashlib.blake2b(digest_size=16), 0
    with replacing(path, ".pyclmm-new-") as file:
        for part in parts:
            file.write(part)
            state.update(part)
            length += len(part)
        file.flush()
        os.fsync(file.fileno())
    sync(path.parent)
    return length, state.hexdigest()


class FolderLock:
    """A file that this process locks until :meth:`release` or its end, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        for _ in range(100):  # again if the holder has removed the file in between
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                lock_open(self._handle)
            except OSError as error:
                os.close(self._handle)
                raise CheckpointError(
                    f"checkpoint {path.parent} is in use by another process or call; wait, or name another"
                ) from error
            if path.exists() and os.path.samestat(os.fstat(self._handle), path.stat()):
                return
            os.close(self._handle)
        raise OSError(f"{path} is removed again and again")

    def release(self, remove: bool = False) -> None:
        """Unlock, and remove the file on request."""
        if remove and sys.platform != "win32":
            self._path.unlink(missing_ok=True)
        os.close(self._handle)
        if remove:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


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
    def resumed(cls, path: Path, head: str, tiles: int) -> Journal:
        """The journal of an earlier run. Raises CheckpointError if it is damaged."""
        if not path.is_file():
            raise damaged(path, "it is missing")
        text = _content(path)
        whole = text[: text.rfind("\n") + 1]
        first, *lines = whole.splitlines() or [""]
        if first != f"pyclmm 2 {head}":
            raise damaged(path, "its first line is not the one that was written")
        records = {}
        for number, line in enumerate(lines, 2):
            found = _RECORD.fullmatch(line)
            if found is None or found["sum"] != _sum(found["record"]):
                raise damaged(path, f"line {number} is not the one that was written")
            if (tile := int(found["tile"])) >= tiles:
                raise damaged(path, f"line {number} names tile {tile} of {tiles}")
            records[tile] = int(found["size"]), found["digest"]
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
        os.close(self._handle)
