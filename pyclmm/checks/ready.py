"""Keeps a child process ready for the next trial: to start one takes as long as many a trial.

The child ends by itself when it has waited for some seconds, and with this process.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from dataclasses import dataclass
from typing import Any

from . import worker

Surroundings = tuple[dict[str, str], list[str], str]


@dataclass(frozen=True)
class _Waiting:
    """A child that waits, and what a child of now would not share with it if that has changed."""

    child: worker.Child
    surroundings: Surroundings
    is_new: bool = False


_lock = threading.Lock()
_waiting: list[_Waiting] = []  # one at most


def start() -> None:
    """Start a child, if none waits, so that it is ready sooner."""
    with _lock:
        if not _waiting:
            child = worker.started()
            if isinstance(child, worker.Child):
                _waiting.append(_Waiting(child, _surroundings(), is_new=True))


def ask(module: str, request: Any, limit: float) -> tuple[list[Any], worker.Failure | None]:
    """The answers of a child, and its failure or None; see :func:`worker.ask`.

    If a child fails that has answered before, what it did before may be the cause. So a new child is asked.
    """
    used = _take()
    if used is not None:
        answers, failure = _asked(used.child, module, request, limit)
        if failure is None or used.is_new:
            return answers, failure
    child = worker.started()
    return ([], child) if isinstance(child, worker.Failure) else _asked(child, module, request, limit)


def _asked(
    child: worker.Child, module: str, request: Any, limit: float
) -> tuple[list[Any], worker.Failure | None]:
    surroundings = _surroundings()
    answers: list[Any] = []
    failure = child.ask(module, request, limit, answers.append)
    if child.is_alive():
        _let_wait(_Waiting(child, surroundings))
    else:
        child.end()
    return answers, failure


def _take() -> _Waiting | None:
    """The child that waits. One with other surroundings is ended."""
    with _lock:
        found = _waiting.pop() if _waiting else None
    if found is None or (found.child.is_alive() and found.surroundings == _surroundings()):
        return found
    found.child.end()
    return None


def _let_wait(waiting: _Waiting) -> None:
    with _lock:
        if not _waiting:
            _waiting.append(waiting)
            return
    waiting.child.end()


def _surroundings() -> Surroundings:
    """What a child takes from this process when it starts."""
    try:
        folder = os.getcwd()
    except OSError:  # it was deleted
        folder = ""
    return dict(os.environ), list(sys.path), folder


def end() -> None:
    """End the child that waits."""
    with _lock:
        waiting, _waiting[:] = list(_waiting), []
    for one in waiting:
        one.child.end()


def _after_fork() -> None:
    """Let go of the child in a fork: it is the parent's. Another thread of the parent may hold the lock."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    end()


atexit.register(end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
