"""Files by their names: which are one, and which are streams of the process."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

_STREAMS = Path("/dev/fd")
_MOST_LINKS = 40  # one behind the other, as in Linux


def real(path: Path) -> Path:
    """*path* without links. It need not be there."""
    return Path(os.path.realpath(path))


def stream_of(path: Path) -> int | None:
    """The number of the process's open file that *path* names, as /dev/stdout and /dev/fd/1 do; else None.

    A shell may have redirected it to a file, which has another name and something in it.
    """
    for _ in range(_MOST_LINKS):
        # With ten digits no C int has it.
        if path.name.isdecimal() and len(path.name) < 10 and real(path.parent) == real(_STREAMS):
            return int(path.name)
        if not path.is_symlink():
            break
        path = path.parent / os.readlink(path)
    return None


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode; None if nothing is there. Links are followed."""
    with suppress(FileNotFoundError, NotADirectoryError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def overlap(x: Path, y: Path) -> bool:
    """Whether one of two files or folders is the other, or lies in it, by whatever names and links."""
    x, y = real(x), real(y)
    if x == y or x in y.parents or y in x.parents:
        return True
    around_x, around_y = ({identity(at) for at in (z, *z.parents)} - {None} for z in (x, y))
    return identity(x) in around_y or identity(y) in around_x


def write_to(stream: int, text: str) -> None:
    """Write *text* behind what is in the open file of that number. Raises OSError."""
    of_python = {1: sys.stdout, 2: sys.stderr}
    if stream in of_python:
        own = of_python[stream]
        if own is None:  # it was closed; another file may have its number
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        own.flush()
    with open(os.dup(stream), "w", encoding="utf-8") as file:
        file.write(text)
