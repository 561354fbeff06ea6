"""Child processes with a time limit, for code that may crash or hang; lines of JSON in and out.

The child has this process's search path and environment. It has its own session, so a Ctrl-C on the terminal
reaches only the parent, which then ends the child. What drivers print does not mix with the answers.
PyOpenCL's caches are off in the child: it would wait for somebody else's lock there until its time is over.

A request is a line {"module": ..., "request": ...}. Each answer to it is a line {"answer": ...}, and the line
{} ends them.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

_START = "import sys; sys.path[:] = sys.argv[1:]; from pyclmm.checks import worker; worker.serve()"
_MAX_LINE = 1 << 20  # bytes; no answer of pyclmm's is longer
_WITHOUT_PYOPENCLS_CACHES = {"PYOPENCL_NO_CACHE": "1"}
_IDLE = 10.0  # seconds after which a child without requests ends; on Windows it ends with its parent
# Signals of a process that crashed, and was not ended by another one.
_CRASHES = ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS")


@dataclass(frozen=True)
class Failure:
    """Why a child gave no answer, or no further one.

    ``crashed``: the child crashed; another one would most likely crash too.
    ``hung``: the child was ended at its time limit.
    """

    reason: str
    crashed: bool = False
    hung: bool = False


def can_start() -> bool:
    """Whether there is a Python interpreter to start. A frozen program would start itself."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


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
    child = started(environment)
    return child if isinstance(child, Failure) else child.ask(module, request, limit, on_answer, last=True)


def started(environment: Mapping[str, str] | None = None) -> Child | Failure:
    """A new child, or why there is none."""
    if not can_start():
        return Failure("there is no Python interpreter to start a child process with")
    try:
        return Child(environment)
    except OSError as error:
        return Failure(f"a child process could not be started: {error.strerror}")


class Child:
    """A child process that answers one request after the other. Raises OSError if it cannot be started."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._errors = _error_file()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=os.environ | {**_WITHOUT_PYOPENCLS_CACHES, **(environment or {})},
                start_new_session=True,
            )
        except OSError:
            self._errors.close()
            raise

    def ask(
        self, module: str, request: Any, limit: float, on_answer: Callable[[Any], None], last: bool = False
    ) -> Failure | None:
        """:func:`ask` of this child. After a failure or the *last* request it has ended."""
        late = threading.Event()
        timer = threading.Timer(limit, self._end_late, (late,))
        timer.start()
        ended, failure = True, None
        try:
            line = json.dumps({"module": module, "request": request})
            ended = not self._converse(line, on_answer, last) or last
            if ended:
                code = self._process.wait()
                failure = _failure(code, _last_line(self._errors)) if code else None
        finally:  # also after Ctrl-C
            timer.cancel()
            if ended:
                self.end()
        return Failure(f"it did not end within {limit:g} seconds", hung=True) if late.is_set() else failure

    def _converse(self, request: str, on_answer: Callable[[Any], None], last: bool) -> bool:
        """Send the request and hear the answers. Returns False if the child ended, or sent anything else."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            return False
        with contextlib.suppress(OSError, ValueError, RecursionError):
            # The child died before it had read the request, or sent something that is not JSON.
            stdin.write(request.encode() + b"\n")
            stdin.flush()
            if last:
                stdin.close()
            for line in _lines(stdout):
                said = json.loads(line)
                if said == {}:
                    return True
                if not isinstance(said, dict) or set(said) != {"answer"}:
                    break
                on_answer(said["answer"])
        self._close()  # so that a child that lives ends
        return False

    def _end_late(self, late: threading.Event) -> None:
        late.set()
        self._kill()

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def end(self) -> None:
        """End the process and all that it has started, and free its pipes; in a fork only free them."""
        self._kill()
        self._close()
        self._errors.close()

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # the child has not read all of it
                    stream.close()

    def _kill(self) -> None:
        process = self._process
        with contextlib.suppress(OSError):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
            process.wait()


def _error_file() -> IO[bytes]:
    """A file for what the child writes to stderr. Without a folder for one its last words are not known."""
    try:
        return tempfile.TemporaryFile()
    except OSError:  # a root that is read-only
        return open(os.devnull, "r+b")


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    while line := stream.readline(_MAX_LINE):
        yield line


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0, os.SEEK_END)
    errors.seek(max(0, errors.tell() - 4096))
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _failure(code: int, last_line: str) -> Failure:
    try:
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        name = f"signal {-code}"
    said = f": {last_line!r}" if last_line else ""
    return Failure(f"it ended with {name}{said}", crashed=name in _CRASHES)


def serve() -> None:
    """Answer requests on standard input, in the child, until there are no more."""
    from importlib import import_module  # noqa: PLC0415

    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)  # drivers may print to standard output
        for line in _requests(sys.stdin.buffer):
            asked = json.loads(line)
            for answer in import_module(f"pyclmm.{asked['module']}").answers(asked["request"]):
                _send(out, {"answer": answer})
            _send(out, {})


def _requests(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines of *stream* until its end or a long pause. Each comes after the answers to the last one."""
    while os.name == "nt" or select.select([stream], [], [], _IDLE)[0]:
        line = stream.readline()
        if not line:
            return
        yield line


def _send(out: IO[str], line: Any) -> None:
    out.write(json.dumps(line) + "\n")
    out.flush()
