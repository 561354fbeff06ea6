"""Files of a checkpoint: its journal, what is written whole, and the folder's lock.

All are safe on the disk when the function that writes them returns. Lines of the journal are added and never
changed, and each ends with a check sum. The first is the problem as JSON has it, then comes ``TILE SIZE
DIGEST SUM`` for each finished tile, and ``done SUM`` at the end. SIZE is 0 for a tile that lies in ``out``.
Of two lines of a tile the later one holds. A last line without its end was written by a process that was
killed: it is dropped.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import CheckpointError, StorageError
from ..file_locks import lock_open, unlock
from ..store import fault_of, replacing

VERSION = 4  # 3 did not know the dtype of a mapped out, 2 had the problem in a file of its own
_RECORD = re.compile(r"(?P<tile>[0-9]{1,18}) (?P<size>[0-9]{1,18}) (?P<digest>[0-9a-f]{32}|-)")
ANEW = "delete the folder to start anew"
_LOCKED = (errno.EAGAIN, errno.EACCES)  # the second on Windows


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
    except (NotADirectoryError, FileExistsError):
        is_broken = any(at.is_symlink() and not at.exists() for at in (folder, *folder.parents))
        what = "a link that leads nowhere" if is_broken else "a file"
        raise CheckpointError(f"checkpoint {folder} is {what}, or lies in one; name a folder") from None
    except OSError as error:
        raise CheckpointError(f"checkpoint folder {folder} {why}: {error}; name another") from error


def digest_of(content: bytes | bytearray | memoryview) -> str:
    """BLAKE2 of *content*."""
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


def write_whole(path: Path, content: bytes | memoryview) -> tuple[int, str]:
    """Write a file in one step, safe on the disk; returns its length and digest. Raises OSError."""
    with replacing(path, ".pyclmm-new-") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync(path.parent)
    return len(content), digest_of(content)


class FolderLock:
    """A file that this process locks until :meth:`release` or its end, however it ends. Where Ctrl-C keeps
    it from being released, it is when nobody has it.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._handle = path, -1
        for _ in range(100):  # again if the holder has removed the file in between
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                lock_open(self._handle)
            except OSError as error:
                self._close()
                if error.errno not in _LOCKED:  # a file system without locks
                    raise
                raise CheckpointError(
                    f"checkpoint {path.parent} is in use by another process or call; wait, or name another"
                ) from error
            if path.exists() and os.path.samestat(os.fstat(self._handle), path.stat()):
                return
            self._close()
        raise OSError(f"{path} is removed again and again")

    def release(self, remove: bool = False) -> None:
        """Unlock, and remove the file on request."""
        try:
            if remove and sys.platform != "win32":  # while it is locked: afterwards it may be another's
                self._path.unlink(missing_ok=True)
        finally:
            self._close()
        if remove and sys.platform == "win32":  # which removes no open file
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _close(self) -> None:
        handle, self._handle = self._handle, -1
        if unlock is not None:  # as at the end of the process
            unlock(handle)

    __del__ = _close


def _line(text: str) -> str:
    return f"{text} {zlib.crc32(text.encode()):08x}\n"


_DONE = _line("done")


def _checked(line: str) -> str:
    """The text of a line, "" if its check sum is not that of the text."""
    text = line.rpartition(" ")[0]
    return text if f"{line}\n" == _line(text) else ""


class Contents(NamedTuple):
    """What a journal says: ``head``, the problem and what it was asked with; ``records``, a tile's size and
    digest in its file, or 0 and that in ``out``; the ``length`` of the lines that have an end."""

    head: dict[str, Any]
    records: dict[int, tuple[int, str]]
    length: int


def is_done(path: Path) -> bool:
    """Whether the product of this journal is complete."""
    return path.is_file() and path.read_bytes().endswith(_DONE.encode())


def contents(path: Path) -> Contents:
    """What a journal says. Raises CheckpointError if it is damaged or of another version, and OSError."""
    text = path.read_text(encoding="ascii", errors="replace")
    whole = text[: text.rfind("\n") + 1]
    first, *lines = whole.splitlines() or [""]
    head = json.loads(_checked(first) or "{}")
    if not head and not first.startswith("pyclmm "):  # as that of version 2 and before
        raise damaged(path, "its first line is not the one that was written")
    if head.get("version") != VERSION:
        raise CheckpointError(
            f"checkpoint {path.parent} was written by another version of pyclmm; let that version "
            f"finish the product, or {ANEW}"
        )
    records = {}
    for number, line in enumerate(lines, 2):
        found = _RECORD.fullmatch(_checked(line))
        if found is None:
            raise damaged(path, f"line {number} is not the one that was written")
        if (tile := int(found["tile"])) >= head["tiles"]:
            raise damaged(path, f"line {number} names tile {tile} of {head['tiles']}")
        records[tile] = int(found["size"]), found["digest"]
    return Contents(head, records, len(whole))


class Journal:
    """An open journal, with its ``head`` and ``records``."""

    def __init__(self, path: Path, said: Contents) -> None:
        self.head, self.records, self._length = said
        self._handle = os.open(path, os.O_RDWR | os.O_APPEND)
        os.ftruncate(self._handle, self._length)

    @classmethod
    def new(cls, path: Path, head: dict[str, Any]) -> Journal:
        """A journal without tiles."""
        length, _ = write_whole(path, _line(json.dumps(head)).encode())
        return cls(path, Contents(head, {}, length))

    def add(self, tile: int, size: int, digest: str) -> None:
        """Add a line, safe on the disk. Raises OSError; then the journal is as it was."""
        if tile not in self.records:
            self._write(_line(f"{tile} {size} {digest}"))
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
            raise
        self._length += len(text)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)
