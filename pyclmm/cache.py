"""Small JSON files in the platform's cache folder: written whole or not at all, checked when read.

The folder is the platform's own for user caches, or ``PYCLMM_CACHE_DIR``. Nothing here is ever fatal: a
folder that cannot be written means that nothing is kept; a file that is not what it should be is
set aside with one warning, and what it held is found out again.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs

MAX_BYTES = 1 << 22  # a larger file is not one of ours


class CacheWarning(UserWarning):
    """A cache file was not usable and has been set aside."""


def folder(*parts: str) -> Path:
    """Where files of that kind lie; not created."""
    given = os.environ.get("PYCLMM_CACHE_DIR")
    return Path(given or platformdirs.user_cache_dir("pyclmm", appauthor=False), *parts)


def write_json(path: Path, content: Any) -> bool:
    """Put *content* at *path* in one step, readable by this user only; False where that fails."""
    temporary = None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # mode 0600
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, sort_keys=True)
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        return False
    return True


def read_json(path: Path, fault_of: Callable[[Any], str | None]) -> Any | None:
    """What is at *path*, or None: no such file, not readable, or *fault_of* named a fault in it."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES} bytes")
        content = json.loads(path.read_text(encoding="utf-8"))
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


def _set_aside(path: Path, reason: str) -> None:
    with contextlib.suppress(OSError):  # another process was faster, or the folder is read-only
        os.replace(path, path.with_suffix(".bad"))
    warnings.warn(f"cache file {path.name} was set aside: {reason}", CacheWarning, stacklevel=3)
