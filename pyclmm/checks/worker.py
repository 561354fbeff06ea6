"""Child processes with a time limit, for code that may crash or hang; JSON in, lines of JSON out.

The child has this process's search path and environment. It has its own session, so a Ctrl-C on the terminal
reaches only the parent, which then ends the child. What drivers print does not mix with the answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

_START = "import sys; sys.path[:] = sys.argv[2:]; from pyclmm.checks import worker; worker.serve(sys.argv[1])"
_MAX_LINE = 1 << 20  # bytes; no answer of pyclmm's is longer
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
    if not can_start():
        return Failure("there is no Python interpreter to start a child process with")
    with _error_file() as errors:
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _START, module, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | (environment or {}),
                start_new_session=True,
            )
        except OSError as error:
            return Failure(f"a child process could not be started: {error.strerror}")
        late = threading.Event()
        timer = threading.Timer(limit, _end_late, (process, late))
        timer.start()
        try:
            _converse(process, request, on_answer)
            code = process.wait()
        finally:  # also after Ctrl-C
            timer.cancel()
            _end(process)
        if late.is_set():
            return Failure(f"it did not end within {limit:g} seconds", hung=True)
        return _failure(code, _last_line(errors)) if code else None


def _error_file() -> IO[bytes]:
    """A file for what the child writes to stderr. Without a folder for one its last words are not known."""
    try:
        return tempfile.TemporaryFile()
    except OSError:  # a root that is read-only
        return open(os.devnull, "r+b")


def _converse(process: subprocess.Popen[bytes], request: Any, on_answer: Callable[[Any], None]) -> None:
    if process.stdin is None or process.stdout is None:
        return
    with process.stdout, contextlib.suppress(OSError, ValueError, RecursionError):
        # The child died before it had read the request, or sent something that is not JSON.
        with process.stdin:
            process.stdin.write(json.dumps(request).encode())
        for line in _lines(process.stdout):
            on_answer(json.loads(line))


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    while line := stream.readline(_MAX_LINE):
        yield line


def _end_late(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all processes that it has started."""
    with contextlib.suppress(OSError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
        process.wait()


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


def serve(module: str) -> None:
    """Answer the request on standard input, in the child; each answer is a line on standard output."""
    from importlib import import_module  # noqa: PLC0415

    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)  # drivers may print to standard output
        answers = import_module(f"pyclmm.{module}").answers
        for answer in answers(json.loads(sys.stdin.read())):
            out.write(json.dumps(answer) + "\n")
            out.flush()
