"""Forks: OpenCL drivers do not survive them, so a child of a process that used one gets a clear error.

A driver's threads are not there in the child, and its first command would wait for them for ever.
"""

from __future__ import annotations

import os

from ..errors import ForkError

_used = False  # whether this process, or one it was forked from, has talked to a driver
_broken = False  # whether that was before the fork


def check_process() -> None:
    """Note that a driver is going to be used; ForkError where it would hang."""
    global _used  # noqa: PLW0603 - a fact of the process
    if _broken:
        raise ForkError(
            "this process was forked from one that had already used OpenCL, and no driver survives that; "
            'start processes with multiprocessing.get_context("spawn"), or use pyclmm only after the fork'
        )
    _used = True


def _after_fork() -> None:
    global _broken  # noqa: PLW0603
    _broken = _used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
