"""Files of a checkpoint: written whole and safe on the disk, and a folder that one process uses at a time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from ..store import fault_of

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


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
    try:
        with os.scandir(folder) as entries:
            files = [(each.path, _status(each)) for each in entries if "pyclmm-" in each.name]
        found = [(f"checkpoint folder {folder}", folder.stat()), *files]
    except OSError as error:
        raise CheckpointError(f"checkpoint folder {folder} cannot be read: {error}; name another") from error
    for name, status in found:
        if status is None:
            continue
        fault = fault_of(status, stat.S_IWOTH)
        if fault is None and not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            fault = "it is a link, or no regular file"
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
    handle, early = tempfile.mkstemp(dir=path.parent, prefix=".pyclmm-new-")  # for this user only
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
                state.update(part)
                length += len(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(early, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(early)
        raise
    sync(path.parent)
    return length, state.hexdigest()


class FolderLock:
    """A file that this process locks until :meth:`release` or its end, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        for _ in range(100):  # again if the holder has removed the file in between
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _take(self._handle)
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


def _take(handle: int) -> None:
    if sys.platform == "win32":
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
