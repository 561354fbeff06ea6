"""Locks of open files, which this process holds until it unlocks them or ends, however it ends."""

from __future__ import annotations

import contextlib
import os
import sys

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl
CAN_LOCK = sys.platform != "win32"  # there, if two processes write at once, the entries of one may be lost

_held: set[int] = set()  # the handles


def lock_open(handle: int, waits: bool = False) -> None:
    """Lock an open file until :func:`unlock`, which is called in any case. Raises OSError if it is locked
    already, unless this *waits*.
    """
    _held.add(handle)
    if sys.platform == "win32":
        msvcrt.locking(handle, msvcrt.LK_LOCK if waits else msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))


def unlock(handle: int) -> None:
    """Close the file."""
    if handle in _held:
        _held.remove(handle)
        if sys.platform != "win32":  # where each process has its own; a forked one may not have closed it yet
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _after_fork() -> None:
    """A file is locked until every process that has inherited the handle has closed it. Whoever holds it
    closes that number here too, so no other file may get it.
    """
    for handle in (*_held,):
        _held.remove(handle)
        with contextlib.suppress(OSError):
            os.close(handle)
            nothing = os.open(os.devnull, os.O_RDONLY)
            if nothing != handle:
                os.dup2(nothing, handle, inheritable=False)
                os.close(nothing)
            _held.add(handle)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
