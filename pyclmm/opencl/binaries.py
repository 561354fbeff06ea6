"""Compiled programs in the user's cache folder, where the driver keeps none itself.

A child process that tries a program (see checks/isolation.py) hands it to its parent in this way, and every
process to later ones. A file is kept only after the driver has built the program from it once.

PoCL and NVIDIA's driver keep what they compile from source. Besides, PoCL compiles a program a second time to
hand out its binary (`packed`, float32: built in 0.83 s, its binary in 0.92; PoCL 3.0, Zen 4, 2026-11-22). But
no driver keeps what pyclmm makes of a program that it rewrites (compiler.py).

PyOpenCL's own caches on disk hold the code that sets a kernel's arguments, and it raises if their folder
cannot be written, as in a container whose root is read-only: :func:`with_pyopencl_caches`. The compiled
programs that it keeps for other users' calls are never read here. See docs/upstream/pyopencl-cache.md.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

import pyopencl as cl

from .. import environment, store
from ..errors import CacheWarning, warn_caller
from ..kernels import Program
from ..kernels.device import DeviceInfo
from ..version import __version__
from . import processor
from .pocl import pocl_folder

_SCHEMA = 2
_KEEP_THEIR_OWN = ("pocl", "nvidia")  # vendors
_MOST_BYTES = 1 << 28  # of all files; the ones used longest ago are deleted


def are_kept(device: DeviceInfo, program: Program) -> bool:
    """Whether *program* for *device* is kept here."""
    return program.ptx_target is not None or device.vendor not in _KEEP_THEIR_OWN


def place(device: DeviceInfo, source_digest: str, detour: int) -> Path:
    """The file of a program. Its name is a digest of everything that decides what the driver compiles."""
    # A home folder may be shared by different machines. A detour goes past what was kept before it.
    host = processor.description() if device.is_cpu else ""
    built = str(_SCHEMA), __version__, cl.VERSION_TEXT, environment.BUILD_OPTIONS.value
    its = *device.identity.values(), device.platform_version, str(device.opencl_version), host
    texts = *built, *its, source_digest, str(detour)
    return store.folder("programs", f"{store.digest_of(texts)}.bin")


def read(path: Path) -> bytes | None:
    """The binary in *path*, or None."""
    content = store.read_bytes(path)
    if content is not None:
        with contextlib.suppress(OSError):
            os.utime(path)
    return content


def keep(path: Path, binary: bytes) -> None:
    """Write *binary* to *path*, and delete the oldest files if all of them are too large."""
    if store.write_bytes(path, binary):
        with contextlib.suppress(OSError):  # another process deletes too
            _delete_oldest(path.parent)


def drop(path: Path) -> None:
    """Delete a binary that the driver does not take."""
    with contextlib.suppress(OSError):
        path.unlink()


def _delete_oldest(folder: Path) -> None:
    found = [(path.stat(), path) for path in folder.glob("*.bin")]
    total = 0
    for status, path in sorted(found, key=lambda one: one[0].st_mtime_ns, reverse=True):
        total += status.st_size
        if total > _MOST_BYTES:
            path.unlink()


T = TypeVar("T")

_switch = threading.RLock()


def with_pyopencl_caches(call: Callable[[], T]) -> T:
    """The result of *call*, which may use PyOpenCL's caches. If they fail, by any exception but cl.Error,
    they are turned off for this process, with one warning, and it is repeated.
    """
    try:
        _make_folder()
        return call()
    except cl.Error:
        raise
    except Exception as error:  # the caches raise anything
        with _switch:  # several threads may fail at once
            first, cl._PYOPENCL_NO_CACHE = not cl._PYOPENCL_NO_CACHE, True
        result = call()  # raises again if the caches were not the cause
        if first:
            _warn(error)
        return result


def _pyopencl_folder(name: str) -> Path:
    """PyOpenCL's folder for binaries, "pyopencl", or for the code that sets arguments, "pytools"."""
    return environment.user_cache(name, name)


def _make_folder() -> None:
    """Make the folder that PyOpenCL's import makes, or raise OSError: PyOpenCL would print one too."""
    if cl._PYOPENCL_NO_CACHE:
        return
    _check_owners()
    if "pyopencl.invoker" not in sys.modules:
        folder = _pyopencl_folder("pytools")
        if not folder.is_absolute():
            raise NotADirectoryError(f"{folder} is not absolute: the user has no home")
        folder.mkdir(parents=True, exist_ok=True)


@cache
def _check_owners() -> None:
    """Raise OSError if others could have written PyOpenCL's caches, whose files hold Python code and pickles.
    A warning is all that can be done about PoCL's, which it reads by itself.
    """
    if (fault := _fault_of(pocl_folder())) is not None:
        advice = "PoCL runs what others put there; set POCL_CACHE_DIR to a folder of your own"
        warn_caller(f"PoCL's cache folder: {fault}; {advice}", CacheWarning)
    for name in ("pyopencl", "pytools"):
        folder = _pyopencl_folder(name)
        for path in (folder, *(folder.iterdir() if folder.is_dir() else ())):
            if (fault := _fault_of(path)) is not None:
                raise PermissionError(fault)


def _fault_of(path: Path) -> str | None:
    """Why what is in *path* may be of others, or None. Its group may write it if that is the user's own:
    these programs make folders as the umask says.
    """
    try:
        status = path.stat()
    except OSError:  # there is none
        return None
    own_group = hasattr(os, "getegid") and status.st_gid == os.getegid()
    fault = store.fault_of(status, stat.S_IWOTH if own_group else stat.S_IWOTH | stat.S_IWGRP)
    return None if fault is None else f"{path}: {fault}"


def _warn(error: Exception) -> None:
    cause: BaseException = error
    while isinstance(cause, KeyError) and cause.__context__ is not None:
        cause = cause.__context__  # PyOpenCL reads PYOPENCL_CACHE_FAILURE_FATAL, which is not set
    folders = " and ".join(str(_pyopencl_folder(name)) for name in ("pyopencl", "pytools"))
    warn_caller(
        f"PyOpenCL's caches in {folders} are off for this process, because they failed "
        f"({type(cause).__name__}: {cause}). Set XDG_CACHE_HOME or HOME so that these folders can be written "
        "and have room; delete the folders if their files are damaged or of others; or set "
        "PYOPENCL_NO_CACHE=1 to do without them",
        CacheWarning,
    )
