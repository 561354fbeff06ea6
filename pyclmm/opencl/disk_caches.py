"""Caches on disk that belong to PyOpenCL, for when they cannot be used.

PyOpenCL keeps the code that sets a kernel's arguments, and raises if its folder cannot be written, as in a
container whose root is read-only. The compiled programs that it keeps for other users' calls are never read
here. See docs/upstream/pyopencl-cache.md.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

import pyopencl as cl

from .. import environment, store
from ..errors import CacheWarning
from .pocl import pocl_folder

T = TypeVar("T")

_switch = threading.Lock()


def with_pyopencl_caches(call: Callable[[], T]) -> T:
    """The result of *call*, which may use PyOpenCL's caches; it is repeated without them if they fail.

    The first failure turns them off for this process, with one warning. A cache fails with any exception but
    cl.Error, which is the driver's.
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
    """Make the folder that PyOpenCL's next import makes, or raise OSError.

    PyOpenCL raises it too, but prints a second error to stderr.
    """
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
        warnings.warn(f"PoCL's cache folder: {fault}; {advice}", CacheWarning, stacklevel=6)
    for name in ("pyopencl", "pytools"):
        folder = _pyopencl_folder(name)
        for path in (folder, *(folder.iterdir() if folder.is_dir() else ())):
            if (fault := _fault_of(path)) is not None:
                raise PermissionError(fault)


def _fault_of(path: Path) -> str | None:
    """Why what is in *path* may be of others, or None.

    Its group may write it if that is the user's own: these programs make folders as the umask says.
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
    warnings.warn(
        f"PyOpenCL's caches in {folders} are off for this process, because they failed "
        f"({type(cause).__name__}: {cause}). Set XDG_CACHE_HOME or HOME so that these folders can be written "
        "and have room; delete the folders if their files are damaged or of others; or set "
        "PYOPENCL_NO_CACHE=1 to do without them",
        CacheWarning,
        stacklevel=3,
    )
