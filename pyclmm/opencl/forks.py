"""Forks: an OpenCL driver does not work in a forked process, so such a process gets a clear error.

The forked process lacks the driver's threads, and its first command would wait for them forever.
"""

from __future__ import annotations

import os

from ..errors import ForkError

_used = False  # whether this process, or one that it was forked from, has used a driver
_broken = False  # whether it was used before the fork


def check_process() -> None:
    """Record that a driver will be used. Raises ForkError if it would hang."""
    global _used  # noqa: PLW0603 - a fact of the process
    if _broken:
        raise ForkError(
            "this process was forked from one that had already used OpenCL, and drivers fail after a fork; "
            'start processes with multiprocessing.get_context("spawn"), or use pyclmm only after the fork'
        )
    _used = True


def is_forked() -> bool:
    """Whether this process was forked from one that had used a driver, of which no thread came along."""
    return _broken


def _after_fork() -> None:
    global _broken  # noqa: PLW0603
    _broken = _used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
