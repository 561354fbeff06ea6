"""Child processes with a time limit, for code that may crash or hang. The one place that starts them.

The child has this process's search path, environment and interpreter's options. It has its own session, so a
Ctrl-C on the terminal reaches only the parent, which then ends the child. What drivers print does not mix
with the answers. PyOpenCL's caches are off in the child: it would wait for somebody else's lock there until
its time is over. child.py says how it ends itself.

To start a child takes as long as many a request, so one that has answered may wait for the next (`waiting`).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from . import child

_MAX_LINE = 1 << 20  # bytes; no answer of pyclmm's is longer
_WITHOUT_PYOPENCLS_CACHES = {"PYOPENCL_NO_CACHE": "1"}
_TO_START = 60.0  # seconds
# Signals of a process that crashed, and was not ended by another one.
_CRASHES = ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS")


class _LateError(Exception):
    """The time limit is over."""


@dataclass(frozen=True)
class Failure:
    """Why a child gave no answer, or no further one. ``crashed``: the child crashed; another one would most
    likely crash too. ``hung``: the child was ended at its time limit.
    """

    reason: str
    crashed: bool = False
    hung: bool = False


def ask(
    module: str,
    request: Any,
    limit: float,
    on_answer: Callable[[Any], None],
    environment: Mapping[str, str] | None = None,
) -> Failure | None:
    """Call ``answers(request)`` of the module ``pyclmm.<module>`` in a child, for at most *limit* seconds.
    *on_answer* is called with each value that it yields, at once. Returns None if the child finished.
    """
    new = started(environment)
    return new if isinstance(new, Failure) else new.ask(module, request, limit, on_answer, last=True)


def started(environment: Mapping[str, str] | None = None) -> Child | Failure:
    """A new child, or why there is none."""
    if not sys.executable or getattr(sys, "frozen", False):  # a frozen program would start itself
        return Failure("there is no Python interpreter to start a child process with")
    try:
        return Child(environment)
    except (OSError, MemoryError, RuntimeError) as error:  # the last one while the interpreter ends
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Failure(f"a child process could not be started: {said}")


class Child:
    """A child process that answers one request after the other. Raises OSError if it cannot be started."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.surroundings, self.has_answered = _surroundings(), False
        with contextlib.ExitStack() as opened:
            theirs, ours = os.pipe()
            opened.callback(os.close, ours)  # which ends the child, see child.py
            try:
                self._errors = opened.enter_context(_error_file())
                self._process = _new_process(theirs, self._errors, environment or {})
            finally:
                os.close(theirs)
            self._stdin: Any = opened.enter_context(self._process.stdin)  # type: ignore[arg-type]
            self._stdout: Any = opened.enter_context(self._process.stdout)  # type: ignore[arg-type]
            self._opened = opened.pop_all()

    def ask(
        self, module: str, request: Any, limit: float, on_answer: Callable[[Any], None], last: bool = False
    ) -> Failure | None:
        """:func:`ask` of this child. After a failure or the *last* request it has ended."""
        deadline = time.monotonic() + limit
        stays, failure = False, None
        try:
            line = json.dumps({"module": module, "request": request, "limit": limit}).encode() + b"\n"
            stays = self._converse(line, deadline, on_answer, last) and not last
            if not stays:
                code = self._process.wait(max(0.0, deadline - time.monotonic()))
                failure = _failure(code, _last_line(self._errors)) if code else None
        except (_LateError, subprocess.TimeoutExpired):
            failure = Failure(f"it did not end within {limit:g} seconds", hung=True)
        finally:  # also after Ctrl-C
            self.has_answered = True
            if not stays:
                self.end()
        return failure

    def _converse(
        self, request: bytes, deadline: float, on_answer: Callable[[Any], None], last: bool
    ) -> bool:
        """Send the request and hear the answers. Returns False if the child ended, or sent anything else."""
        for line in self._lines(request, deadline, last):
            try:
                said = json.loads(line)
            except (ValueError, RecursionError):
                break
            if said == {}:
                return True
            if not isinstance(said, dict) or set(said) != {"answer"}:
                break
            on_answer(said["answer"])
        self._stdin.close()  # so that a child that lives ends
        self._stdout.close()
        return False

    def _lines(self, request: bytes, deadline: float, last: bool) -> Iterator[bytes]:
        """Send *request*, and then no more if it is the *last*; the lines that come. Raises _LateError. No
        thread and no descriptor more is needed, which the system could refuse.
        """
        if not hasattr(select, "poll"):  # Windows, where the child alone keeps the limit
            self._stdin.write(request)
            if last:
                self._stdin.close()
            yield from self._stdout
            return
        sending, hearing, rest = self._stdin.fileno(), self._stdout.fileno(), b""
        os.set_blocking(sending, False)
        waits = select.poll()
        waits.register(sending, select.POLLOUT)
        waits.register(hearing, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0 and len(rest) < _MAX_LINE:
            for handle, _ in waits.poll(1000 * left):
                if handle == hearing:
                    read = os.read(hearing, 1 << 16)
                    if not read:
                        return
                    *lines, rest = (rest + read).split(b"\n")
                    yield from lines
                    continue
                request = _unsent(sending, request)
                if not request:
                    waits.unregister(sending)
                    if last:
                        self._stdin.close()
        if left <= 0:
            raise _LateError

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def end(self) -> None:
        """End the process and all that it has started, and free its pipes; in a fork only free them."""
        process = self._process
        with contextlib.suppress(OSError):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
            process.wait()
        self._opened.close()


def _unsent(pipe: int, request: bytes) -> bytes:
    """What is left to send after as much of *request* as the pipe takes now."""
    try:
        return request[os.write(pipe, request) :]
    except OSError:  # the child died before it had read the request
        return b""


def _new_process(pipe: int, errors: IO[bytes], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """An interpreter with this one's options, which ends when nobody holds the other end of *pipe*."""
    posix = os.name == "posix"
    site = "" if sys.flags.no_site else "site"
    arguments = [str(pipe if posix and pipe > 2 else -1), str(_TO_START), site, *sys.path]
    options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return subprocess.Popen(
        [sys.executable, *options, "-S", "-c", child.START, *arguments],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=os.environ | {**_WITHOUT_PYOPENCLS_CACHES, **environment},
        start_new_session=True,
        pass_fds=(pipe,) if posix else (),
    )


def _error_file() -> IO[bytes]:
    """A file for what the child writes to stderr. Without a folder for one its last words are not known."""
    try:
        return tempfile.TemporaryFile()
    except OSError:  # a root that is read-only
        return open(os.devnull, "r+b")


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0, os.SEEK_END)
    errors.seek(max(0, errors.tell() - 4096))
    lines = [line.strip() for line in errors.read().decode("utf-8", "replace").splitlines()]
    # Intel's compiler asks for a report after it has said what went wrong.
    return next((x for x in reversed(lines) if x and not x.startswith("PLEASE submit a bug report")), "")


def _failure(code: int, last_line: str) -> Failure:
    try:
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        name = f"signal {-code}"
    said = f": {last_line!r}" if last_line else ""
    return Failure(f"it ended with {name}{said}", crashed=name in _CRASHES, hung=name == "SIGALRM")


# A child that waits


_lock = threading.RLock()
_waiting: list[Child] = []  # one at most


def start_waiting() -> None:
    """Start a child, if none waits, so that it is ready sooner."""
    with _lock:
        if not _waiting and isinstance(new := started(), Child):
            _waiting.append(new)


def ask_waiting(
    module: str, request: Any, limit: float, apart: bool = False
) -> tuple[list[Any], Failure | None]:
    """The answers of a child that waits, or a new one, and its failure or None; see :func:`ask`. If a child
    fails that has answered before, what it did before may be the cause; one that waited may end as it is
    asked, since nobody did for long. So a new child is asked. *apart*: a new one, which must end well too.
    """
    with _lock:
        waiting = _waiting.pop() if _waiting and not apart else None
    if waiting is not None and not (waiting.is_alive() and waiting.surroundings == _surroundings()):
        waiting.end()
        waiting = None
    asked = waiting or started()
    if isinstance(asked, Failure):
        return [], asked
    is_used, answers = asked.has_answered, list[Any]()
    failure = asked.ask(module, request, limit, answers.append, last=apart)
    stays = failure is None and asked.is_alive()
    if stays:
        _let_wait(asked)
    is_opinion = not is_used if failure is not None else stays or asked is not waiting
    return (answers, failure) if is_opinion else ask_waiting(module, request, limit)


def _let_wait(waiting: Child) -> None:
    with _lock:
        if not _waiting:
            _waiting.append(waiting)
            return
    waiting.end()


def _surroundings() -> tuple[dict[str, str], list[str], str]:
    """What a child takes from this process when it starts. With others it is not asked."""
    try:
        folder = os.getcwd()
    except OSError:  # it was deleted
        folder = ""
    return dict(os.environ), list(sys.path), folder


def end_waiting() -> None:
    """End the child that waits."""
    with _lock:
        waiting, _waiting[:] = list(_waiting), []
    for one in waiting:
        one.end()


def _after_fork() -> None:
    """Let go of the child in a fork: it is the parent's. Another thread of the parent may hold the lock."""
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()
    end_waiting()


atexit.register(end_waiting)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
