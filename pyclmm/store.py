"""Small files in the user's cache folder: each is written whole or not at all, and checked when read.

A file is JSON, or bytes with their length and digest before them. The digest is of the file's name too, so
that the content of one file is not taken for that of another.

A file is read only if it is a regular one, of this user or of root, and nobody else can write it. The same
holds for the folder that it is in. The cache folder itself may be one that others can write, as a volume of
a container is, but it must be of this user or of root too. No link is followed. What is not so is ignored
with one CacheWarning. An invalid file is renamed with one warning, and its content is computed again.

The cache folder is the platform's folder for user caches, or ``PYCLMM_CACHE_DIR``. No failure here is fatal.
If something in it cannot be read or written, it is not kept, with one CacheWarning for the folder and all in
it; the same holds for a user without a home, for whom the platform's folder begins with a literal "~".
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import IO, Any

from . import environment
from .errors import ArgumentError, CacheWarning, warn_caller
from .fields import Check, one_of, record
from .file_locks import CAN_LOCK, lock_open, unlock

MAX_BYTES = 1 << 22  # pyclmm writes no larger JSON file
MAX_CONTENT = 1 << 24  # and no more bytes into another file
_HEAD = re.compile(rb"pyclmm 2 ([0-9a-f]{64}) ([0-9]{1,8})\n")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# A pipe in place of a file must not block. Windows has only some of these flags.
_CAREFUL = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
_A_LINK = (errno.ELOOP, errno.EMLINK)  # the error of O_NOFOLLOW; FreeBSD has the second

_told: set[Path] = set()  # what was warned of
_refusing: dict[Path, object] = {}  # the cache folder, and others, in which not all could be read and written
unwritten: dict[Path, str] = {}  # folders in which this process could not write a file -> why


def folder(*parts: str) -> Path:
    """The path of a file or folder in the cache folder, which need not exist."""
    given = environment.CACHE_DIR.value
    if not given.strip():  # as of every variable: blanks say nothing
        return environment.user_cache("pyclmm").joinpath(*parts)
    path = Path(given, *parts)
    with contextlib.suppress(FileNotFoundError):  # the working directory was deleted: nothing is kept
        return path.absolute()
    return path


def digest_of(texts: Iterable[str]) -> str:
    """A digest of lines, for the name of a file that is about what they tell."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def device_name(identity: Mapping[str, str]) -> str:
    """The name of a file about the device of this identity (DeviceInfo.identity). Drivers share it."""
    digest = digest_of((identity["platform"], identity["name"]))[:8]
    name = re.sub(r"[^a-z0-9]+", "-", identity["name"].partition(",")[0].lower()).strip("-")[:40]
    return f"{name}-{digest}"


@dataclass(frozen=True)
class KeptFile:
    """A JSON file in the folder *kind*: its schema, what it is *about*, and values that *checks* allow. By
    what it is about files that were exchanged are noticed. *whose*: how an error calls what it should be.
    """

    kind: str
    name: str
    schema: int
    about: Mapping[str, object]
    checks: Mapping[str, Check]
    whose: str = ""

    @property
    def path(self) -> Path:
        return folder(self.kind, f"{self.name}.json")

    def check(self, name: str, content: Any) -> None:
        """Raise ArgumentError unless *content* is that of this file."""
        about = {key: one_of(value, what=self.whose) for key, value in self.about.items()}
        record({"schema": one_of(self.schema), **about, **self.checks})(name, content)

    def read(self) -> Any | None:
        """The content; None if there is no such file, it is not trusted, or the check fails."""
        return read_json(self.path, self.check)

    def write(self, **values: Any) -> bool:
        """Write *values*. False if they are none that could be read, or if that fails."""
        content = {"schema": self.schema, **self.about, **values}
        try:
            self.check("content", content)
        except ArgumentError:
            return False
        return write_json(self.path, content)


def write_json(path: Path, content: Any) -> bool:
    """Write *content* to *path* in one step, readable by this user only. Returns False if that fails."""
    return _write(path, json.dumps(content, indent=1, sort_keys=True).encode())


def write_bytes(path: Path, content: bytes) -> bool:
    """Write *content*, at most MAX_CONTENT bytes, as :func:`write_json` does."""
    if len(content) > MAX_CONTENT:
        return False
    head = f"pyclmm 2 {_digest(path, content)} {len(content)}\n".encode()
    return _write(path, head + content)


def _digest(path: Path, content: bytes) -> str:
    return hashlib.sha256(path.name.encode() + b"\n" + content).hexdigest()


def _write(path: Path, content: bytes) -> bool:
    reason = "others may write it"
    try:
        if _made(path.parent):
            with replacing(path) as file:
                file.write(content)
            return True
    except OSError as error:
        reason = error.strerror or str(error)
        _refused(path, error, "written")
    unwritten[path.parent] = reason
    return False


def _refused(path: Path, error: OSError, what: str) -> None:
    """Warn once in a process for the cache folder: something in it cannot be read or written."""
    place = folder() if folder() in path.parents else path.parent
    this = object()
    if path in _told:
        return
    if _refusing.setdefault(place, this) is this:  # of several threads one
        variable, then = "PYCLMM_CACHE_DIR", "each process compiles and checks its kernels anew"
        if place != folder():
            variable, then = "XDG_RUNTIME_DIR", "processes do not see which devices are taken"
        warn_caller(
            f"{place}: not all can be kept, so {then}. {path} cannot be {what} ({error.strerror or error}). "
            f"Results are right. Set {variable} to a folder that you can write",
            CacheWarning,
        )


@contextlib.contextmanager
def replacing(path: Path, prefix: str = ".new-") -> Iterator[IO[bytes]]:
    """A new file, for this user only, that takes the place of *path* when the block has ended. After an
    error, Ctrl-C too, *path* is as it was. Raises OSError.
    """
    handle, early = tempfile.mkstemp(dir=path.parent, prefix=prefix)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.replace(early, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(early)
        raise


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A free path of the same name; what is there at the block's end takes *path*'s place, and has the
    permissions that it had, or those of any new file. Raises OSError.
    """
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".pyclmm-new-") as folder:
        model, early = Path(folder, "model"), Path(folder, "new", path.name)
        model.touch()
        early.parent.mkdir()
        yield early
        with contextlib.suppress(OSError):  # a file system without permissions
            shutil.copymode(path if path.exists() else model, early)
        os.replace(early, path)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock on *path* against other processes, so that the file can be read, changed and written. Goes
    on without a lock if there is none to be had; the file is written whole in any case.
    """
    handle = try_lock(path.with_suffix(".lock"), waits=True)
    try:
        yield
    finally:
        if handle is not None:
            unlock(handle)


def try_lock(path: Path, waits: bool = False) -> int | None:
    """Lock *path*, made if missing, until ``unlock``; None if it is untrusted, on Windows, and where it is
    locked, unless this *waits*.
    """
    handle = None
    try:
        if CAN_LOCK and _made(path.parent):
            handle = _opened(path, os.O_RDWR | os.O_CREAT)
        if handle is not None:
            lock_open(handle, waits)
    except OSError as error:
        if handle is None:
            _refused(path, error, "written")
        else:
            unlock(handle)
        return None
    return handle


def create_locked(path: Path) -> int | None:
    """Create *path*, empty, and lock it before it has its name: until :func:`remove_locked` gets its handle,
    which this returns, or this process ends, however it does. None if that fails, and on Windows.
    """
    early = path.with_name(f".{path.name}")
    handle = try_lock(early)
    if handle is None:
        return None
    try:
        early.rename(path)
    except OSError:
        remove_locked(early, handle)
        return None
    return handle


def remove_locked(path: Path, handle: int) -> None:
    """Delete a file that this process locks, and unlock it."""
    with contextlib.suppress(OSError):
        path.unlink()
    with contextlib.suppress(OSError):
        unlock(handle)


def is_locked(path: Path) -> bool:
    """Whether a living process locks the file *path*, or has removed it. True if nothing can be told."""
    try:
        handle = _opened(path, os.O_RDWR) if CAN_LOCK else None
    except OSError:
        handle = None
    if handle is None:
        return True
    try:
        lock_open(handle)
        return os.fstat(handle).st_nlink == 0  # removed since it was opened
    except OSError:
        return True
    finally:
        unlock(handle)


def _made(folder: Path) -> bool:
    """Create *folder* and those above it that are missing, for this user only. False if it is not trusted."""
    if not folder.is_absolute():
        raise NotADirectoryError(f"{folder} is not absolute")
    missing = list(takewhile(lambda path: not path.is_dir(), (folder, *folder.parents)))
    for path in reversed(missing):
        try:
            path.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(f"{path} is no folder") from None
    return _is_trusted(folder)


def read_json(path: Path, check: Check) -> Any | None:
    """The content of *path*; None if there is no file, it is not trusted, or *check* raises ArgumentError."""
    content = _content(path, MAX_BYTES)
    if content is None:
        return None
    try:
        if len(content) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES} bytes")
        found = json.loads(content.decode("utf-8"))
        check("content", found)
    except (ValueError, RecursionError) as error:
        _set_aside(path, str(error))
        return None
    return found


def read_bytes(path: Path) -> bytes | None:
    """What :func:`write_bytes` wrote to *path*; None if there is no such file, or it is not trusted."""
    text = _content(path, MAX_CONTENT + 1024)
    if text is None:
        return None
    head = _HEAD.match(text)
    content = text[head.end() :] if head else b""
    if head is None or (_digest(path, content), len(content)) != (head[1].decode(), int(head[2])):
        _set_aside(path, "its digest or its length is not the one that was written under this name")
        return None
    return content


def _content(path: Path, most: int) -> bytes | None:
    """The first *most* + 1 bytes of a file that is trusted; None if there is none."""
    try:
        handle = _opened(path, os.O_RDONLY)
        if handle is None:
            return None
        with open(handle, "rb") as file:
            return file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        _refused(path, error, "read")
        return None


def _opened(path: Path, flags: int) -> int | None:
    """A handle of the file if it is trusted (see above); else None, with one warning. Raises OSError."""
    if not path.is_absolute() or not _is_trusted(path.parent):
        return None
    try:
        handle = os.open(path, flags | _CAREFUL, 0o600)
    except OSError as error:
        if error.errno not in _A_LINK:
            raise
        _ignore(path, "it is a link")
        return None
    status = os.fstat(handle)
    fault = fault_of(status) if stat.S_ISREG(status.st_mode) else "it is no regular file"
    if fault is None:
        return handle
    os.close(handle)
    _ignore(path, fault)
    return None


def _is_trusted(folder: Path) -> bool:
    """Whether files in *folder*, one of the cache folder's, can be trusted. Raises OSError."""
    for path, others in ((folder, _OTHERS_WRITE), (folder.parent, 0)):
        status = os.lstat(path)
        fault = fault_of(status, others) if stat.S_ISDIR(status.st_mode) else "it is no folder, but a link"
        if fault is not None:
            _ignore(path, fault)
            return False
    return True


def fault_of(status: os.stat_result, others: int = _OTHERS_WRITE) -> str | None:
    """Why what has this status is not trusted: another user owns it, or can write it by a bit of *others*."""
    if not hasattr(os, "geteuid"):  # Windows, where the folder's rights are the user's own
        return None
    if status.st_uid not in (0, os.geteuid()):
        return "another user owns it"
    return "others can write it" if status.st_mode & others else None


def _ignore(path: Path, reason: str) -> None:
    if path not in _told:
        _told.add(path)
        warn_caller(
            f"{path} is ignored: {reason}; delete it, or set PYCLMM_CACHE_DIR (for locks of devices "
            "XDG_RUNTIME_DIR) to a folder of your own",
            CacheWarning,
        )


def _set_aside(path: Path, reason: str) -> None:
    done = "was set aside"
    try:
        os.replace(path, path.with_suffix(".bad"))
    except FileNotFoundError:  # another process renamed it
        pass
    except OSError as error:
        done = f"is ignored, and cannot be set aside ({error.strerror}); delete it"
    warn_caller(f"cache file {path} {done}: {reason}", CacheWarning)
