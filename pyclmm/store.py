"""Small files in the user's cache folder: each is written whole or not at all, and checked when read.

A file is JSON, or bytes with their length and digest before them.

The folder is the platform's folder for user caches, or ``PYCLMM_CACHE_DIR``. No failure here is fatal. If the
folder cannot be written, nothing is kept; the same holds for a user without a home, for whom the platform's
folder begins with a literal "~". An invalid file is renamed with one warning, and its content is computed
again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from . import environment
from .errors import CacheWarning

try:
    import fcntl
except ImportError:  # Windows: if two processes write at once, the entries of one may be lost
    fcntl = None  # type: ignore[assignment]
_CAN_LOCK = fcntl is not None

MAX_BYTES = 1 << 22  # pyclmm writes no larger JSON file
MAX_CONTENT = 1 << 24  # and no more bytes into another file
_HEAD = re.compile(rb"pyclmm 1 ([0-9a-f]{64}) ([0-9]{1,8})\n")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def folder(*parts: str) -> Path:
    """The path of a file or folder in the cache folder, which need not exist."""
    given = environment.CACHE_DIR.value
    if given:
        return Path(given, *parts).absolute()
    return environment.user_cache("pyclmm").joinpath(*parts)


def device_path(kind: str, identity: Mapping[str, str]) -> Path:
    """The file of this *kind* about the device of this identity (DeviceInfo.identity). Drivers share it."""
    digest = hashlib.sha256(f"{identity['platform']}\n{identity['name']}".encode()).hexdigest()[:8]
    name = re.sub(r"[^a-z0-9]+", "-", identity["name"].partition(",")[0].lower()).strip("-")[:40]
    return folder(kind, f"{name}-{digest}.json")


def write_json(path: Path, content: Any) -> bool:
    """Write *content* to *path* in one step, readable by this user only. Returns False if that fails."""
    return _write(path, lambda file: json.dump(content, file, indent=1, sort_keys=True), "w", "utf-8")


def write_bytes(path: Path, content: bytes) -> bool:
    """Write *content*, at most MAX_CONTENT bytes, as :func:`write_json` does."""
    if len(content) > MAX_CONTENT:
        return False
    head = f"pyclmm 1 {hashlib.sha256(content).hexdigest()} {len(content)}\n".encode()
    return _write(path, lambda file: file.write(head + content), "wb")


def _write(path: Path, fill: Callable[[IO[Any]], object], mode: str, encoding: str | None = None) -> bool:
    temporary = None
    try:
        _make_folder(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # mode 0600
        with os.fdopen(handle, mode, encoding=encoding) as file:
            fill(file)
        os.replace(temporary, path)
        temporary = None
    except OSError:
        return False
    finally:  # also after Ctrl-C
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    return True


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock on *path* against other processes, so that the file can be read, changed and written.

    Goes on without a lock if there is none to be had; the file is written whole in any case.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            _make_folder(path.parent)
            handle = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
            stack.callback(os.close, handle)  # closing unlocks it, as does the end of the process
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class LockedFile:
    """An empty file that this process locks until :meth:`remove` or its end, however it ends."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path, self._handle = path, handle

    def remove(self) -> None:
        """Delete the file and unlock it."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        with contextlib.suppress(OSError):
            os.close(self._handle)


def create_locked(path: Path) -> LockedFile | None:
    """Create the empty file *path* and lock it. Returns None if that fails, and on Windows.

    It gets its name when it is locked, so that nobody sees it unlocked.
    """
    if not _CAN_LOCK:
        return None
    handle, early = None, path.with_name(f".{path.name}")
    try:
        _make_folder(path.parent)
        handle = os.open(early, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        early.rename(path)
    except OSError:
        if handle is not None:
            LockedFile(early, handle).remove()
        return None
    return LockedFile(path, handle)


def is_locked(path: Path) -> bool:
    """Whether a living process locks the file *path*, or has removed it. True if nothing can be told."""
    if not _CAN_LOCK:
        return True
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(handle).st_nlink == 0  # removed since it was opened
    except OSError:
        return True
    finally:
        os.close(handle)


def _make_folder(path: Path) -> None:
    """Create *path* and the folders above it that are missing, for this user only."""
    if not path.is_absolute():
        raise NotADirectoryError(f"{path} is not absolute")
    if not path.parent.is_dir():
        _make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def read_json(path: Path, fault_of: Callable[[Any], str | None]) -> Any | None:
    """The content of *path*; None if there is no file, it is unreadable, or *fault_of* finds a fault."""
    try:
        text = _text(path)
        if text is None:
            return None
        content = json.loads(text)
    except OSError:
        return None
    except (ValueError, RecursionError) as error:
        _set_aside(path, str(error))
        return None
    reason = fault_of(content)
    if reason is None:
        return content
    _set_aside(path, reason)
    return None


def _text(path: Path) -> str | None:
    """The file's text; None if it is not a regular file: a pipe would block, a device would not end."""
    if not path.is_absolute() or not stat.S_ISREG(path.stat().st_mode):
        return None
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    return content.decode("utf-8")


def read_bytes(path: Path) -> bytes | None:
    """What :func:`write_bytes` wrote to *path*; None if there is no such file, or others can change it."""
    try:
        if not path.is_absolute() or not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            if not _is_own(os.fstat(file.fileno())):
                return None
            text = file.read(MAX_CONTENT + 1024)
    except OSError:
        return None
    head = _HEAD.match(text)
    content = text[head.end() :] if head else b""
    if head is None or (hashlib.sha256(content).hexdigest(), len(content)) != (
        head[1].decode(),
        int(head[2]),
    ):
        _set_aside(path, "its digest or its length is not the one that was written")
        return None
    return content


def _is_own(status: os.stat_result) -> bool:
    """Whether a file is this user's, and no other user can write it."""
    if not hasattr(os, "geteuid"):  # Windows, where the folder's rights are the user's own
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE


def _set_aside(path: Path, reason: str) -> None:
    with contextlib.suppress(OSError):  # another process renamed it, or the folder is read-only
        os.replace(path, path.with_suffix(".bad"))
    warnings.warn(f"cache file {path.name} was set aside: {reason}", CacheWarning, stacklevel=3)
