"""Small JSON files in the platform's cache folder: written whole or not at all, checked when read.

The folder is the platform's own for user caches, or ``PYCLMM_CACHE_DIR``. Nothing here is ever fatal: a
folder that cannot be written means that nothing is kept (nor is it for a user without a home, for whom the
platform's folder begins with a literal "~"); a file that is not what it should be is
set aside with one warning, and what it held is found out again.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import platformdirs

from .. import environment
from ..errors import CacheWarning

try:
    import fcntl
except ImportError:  # Windows: two processes that write at once may lose what one of them wrote
    fcntl = None  # type: ignore[assignment]

MAX_BYTES = 1 << 22  # a larger file is not one of ours


def folder(*parts: str) -> Path:
    """Where files of that kind lie; not created."""
    given = environment.CACHE_DIR.value
    if given:
        return Path(given, *parts).absolute()
    return Path(platformdirs.user_cache_dir("pyclmm", appauthor=False), *parts)


def write_json(path: Path, content: Any) -> bool:
    """Put *content* at *path* in one step, readable by this user only; False where that fails."""
    temporary = None
    try:
        _make_folder(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # mode 0600
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, sort_keys=True)
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
    """Keep other processes that ask for the same out, to read, change and write *path*.

    Where no lock can be had, go on without: what is written is whole in any case.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            _make_folder(path.parent)
            handle = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
            stack.callback(os.close, handle)  # which unlocks it, as does the end of the process
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _make_folder(path: Path) -> None:
    """*path* and what is missing above it, for this user only."""
    if not path.is_absolute():
        raise NotADirectoryError(f"{path} is not absolute")
    if not path.parent.is_dir():
        _make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def read_json(path: Path, fault_of: Callable[[Any], str | None]) -> Any | None:
    """What is at *path*, or None: no such file, not readable, or *fault_of* named a fault in it."""
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
    """The file's text; None for what is no plain file (a pipe would block, a device never end)."""
    if not path.is_absolute() or not stat.S_ISREG(path.stat().st_mode):
        return None
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    return content.decode("utf-8")


def _set_aside(path: Path, reason: str) -> None:
    with contextlib.suppress(OSError):  # another process was faster, or the folder is read-only
        os.replace(path, path.with_suffix(".bad"))
    warnings.warn(f"cache file {path.name} was set aside: {reason}", CacheWarning, stacklevel=3)
