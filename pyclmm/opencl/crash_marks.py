"""Programs in doubt, and the detour around a damaged cache of the driver.

A driver may end its process while it builds a program or runs it for the first time, for example because a
file of its cache is damaged. So a program has a mark until its first run has ended: a file that its process
locks. A mark that nobody locks makes later processes try the program in a child first. If that fails too, the
device takes a detour, kept on disk: one more macro, which no source reads, gives programs another place in
every cache. docs/design.md has the whole. No marks: where files cannot be locked, and on Windows.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import uuid
from collections.abc import Iterable
from pathlib import Path

from .. import fields, store
from ..errors import CacheWarning, warn_caller
from ..kernels.device import DeviceInfo
from .pocl import pocl_folder

_SCHEMA = 2
DETOUR = fields.integer(0, 1 << 20)
_MOST_MARKS = 64  # each holds a file open; a plan that is never called keeps its programs in doubt

_lock = threading.RLock()
_marks: dict[Path, int] = {}  # the handles of this process's, by their paths
_detours: dict[str, int] = {}  # by device


def mark(device: DeviceInfo, digest: str) -> Path | None:
    """Mark a program that is going to be built for *device*. Returns the mark, or None without one."""
    path = store.folder("crash_marks", f"{_key(device, digest)}.{uuid.uuid4().hex}")
    handle = store.create_locked(path)
    if handle is None:
        return None
    with _lock:
        _marks[path] = handle
        oldest = next(iter(_marks)) if len(_marks) > _MOST_MARKS else None
    clear([oldest])
    return path


def clear(marks: Iterable[Path | None]) -> None:
    """Remove marks of this process: the first run has ended, or the build has failed with an error."""
    for path in marks:
        if path is not None:
            with _lock:
                handle = _marks.pop(path, None)
            if handle is not None:
                store.remove_locked(path, handle)


def of_the_dead(device: DeviceInfo, digests: Iterable[str]) -> list[Path]:
    """The marks of processes that died while one of these programs was in doubt."""
    keys = {_key(device, digest) for digest in digests}
    if not keys:
        return []
    try:
        found = [path for path in store.folder("crash_marks").iterdir() if path.stem in keys]
    except OSError:
        return []
    return [path for path in found if not store.is_locked(path)]


def forget_the_dead(device: DeviceInfo, digests: Iterable[str]) -> None:
    """Remove the marks of :func:`of_the_dead`."""
    for path in of_the_dead(device, digests):
        with contextlib.suppress(OSError):
            path.unlink()


def detour(device: DeviceInfo) -> int:
    """The number of the device's detour; 0 for none."""
    key = _key(device)
    if key not in _detours:
        kept = _detour_file(device).read()
        _detours.setdefault(key, 0 if kept is None else kept["detour"])
    return _detours[key]


def take_detour(device: DeviceInfo, number: int, keep: bool = False) -> None:
    """Compile programs for *device* by this detour from now on; with *keep*, in later processes too."""
    _detours[_key(device)] = number
    if keep:
        _detour_file(device).write(detour=number)


def warn(device: DeviceInfo, what: str) -> None:
    """Warn that a detour is taken on *device*, because of *what* happened."""
    is_pocl = device.vendor == "pocl"
    cache = f"PoCL's cache folder, {pocl_folder()}" if is_pocl else "the cache folder of its driver"
    warn_caller(
        f"device {device.name!r}: {what}. Programs are compiled past the driver's cache from now on, because "
        f"a file there seems to be damaged; delete {cache}",
        CacheWarning,
    )


def _detour_file(device: DeviceInfo) -> store.KeptFile:
    name, about = _key(device, str(_SCHEMA)), {"key": _key(device)}
    return store.KeptFile("detours", name, _SCHEMA, about, {"detour": DETOUR})


def _key(device: DeviceInfo, digest: str = "") -> str:
    return store.digest_of((*device.identity.values(), digest))


def _after_fork() -> None:
    """A forked process leaves its parent's marks alone."""
    _marks.clear()


@atexit.register
def _at_exit() -> None:
    """A process that ends regularly leaves no mark."""
    clear(list(_marks))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
