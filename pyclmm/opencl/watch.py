"""Does something after an event has ended, without waiting for it.

A thread looks at the events every now and then, as long as there are any. It does not wait for one, because
an event that never ends would then hold up the end of the process. OpenCL's callbacks are not used: PyOpenCL
calls them from threads that Python does not wait for when it exits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pyopencl as cl

_POLL = 0.01  # seconds between two looks

_lock = threading.Lock()  # for the two below
_watched: list[tuple[cl.Event, Callable[[], None]]] = []
_thread: threading.Thread | None = None


def after(event: cl.Event, action: Callable[[], None]) -> None:
    """Call *action*, from another thread, when *event* has ended; never if the process ends before."""
    global _thread  # noqa: PLW0603
    with _lock:
        _watched.append((event, action))
        if _thread is None:
            _thread = threading.Thread(target=_run, name="pyclmm-watch")
            try:
                _thread.start()
            except RuntimeError:  # no more threads, or the process ends; the next call tries again
                _thread = None


def _run() -> None:
    while _look():
        time.sleep(_POLL)


def _look() -> bool:
    """Do what is due. Returns whether there is more to wait for."""
    global _thread  # noqa: PLW0603
    with _lock:
        ended = [_has_ended(event) for event, _ in _watched]
        due = [action for (_, action), has_ended in zip(_watched, ended, strict=True) if has_ended]
        _watched[:] = [pair for pair, has_ended in zip(_watched, ended, strict=True) if not has_ended]
        more = bool(_watched) and threading.main_thread().is_alive()
        if not more:
            _thread = None
    for action in due:
        action()
    return more


def _has_ended(event: cl.Event) -> bool:
    try:
        state: Any = event.command_execution_status
    except cl.Error:  # the device is lost, so nothing runs
        return True
    return bool(state <= cl.command_execution_status.COMPLETE)  # less than that is an error
