"""What a child process runs (see worker.py): it answers requests, and ends whatever happens to its parent.

A request is a line {"module": ..., "request": ..., "limit": seconds}. Each answer to it is a line {"answer":
...}, and the line {} ends them.

The child must end though its driver hangs in C and holds the interpreter's lock, and though its parent was
killed. So nothing of that is left to Python code:

- The limit is the system's interval timer, whose signal ends the process and tells the parent why. Behind it
  stands a thread of faulthandler's, which needs no lock of the interpreter and no signal: a driver may have
  blocked them, and the parent may be stopped. Windows has this thread alone.
- The parent holds the other end of a pipe. When the parent has ended, however it did, Linux sends SIGKILL to
  the child and all that it has started. Other systems wake a thread that does so as soon as it gets the lock,
  and there the limit is what holds in any case.

Both begin before the user's sitecustomize, which may hang too.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import IO, Any

IDLE = 10.0  # seconds after which a child without requests ends; on Windows it ends with its parent
_GRACE = 5.0  # seconds; the parent, while it lives, is first to end a child and what that has started; the
# signal, if it is heard, is second, and the thread a second later third
# Run by an interpreter that has not imported `site` yet. Arguments: the pipe, seconds to start, whether to
# import `site`, and the parent's search path.
START = """
import sys
sys.path[:] = [path for path in sys.path if path]
import faulthandler, os, signal
pipe, limit = int(sys.argv[1]), float(sys.argv[2])
def within(seconds):
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        faulthandler.dump_traceback_later(seconds + 1, exit=True)
    except RuntimeError:  # the system refuses a thread
        pass
within(limit)
def end():
    if not os.read(pipe, 1):
        os.killpg(0, signal.SIGKILL)
if pipe >= 0:
    import fcntl
    os.set_inheritable(pipe, False)
    try:
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    except (AttributeError, OSError):
        import threading
        threading.Thread(target=end, daemon=True).start()
    else:
        try:
            end()
        except BlockingIOError:
            pass
answers = os.dup(1)
os.dup2(2, 1)  # what a sitecustomize or a driver prints is no answer
if sys.argv[3] == "site":
    import site
    site.main()
sys.path[:] = sys.argv[4:]
from pyclmm.checks import child
child.within = within
child.serve(answers)
"""


def within(seconds: float) -> None:
    """End this process if it is a child and still runs after *seconds*, whatever it does then: ``START``
    puts its own function in the place of this one.
    """


def serve(answers: int) -> None:
    """Answer requests on standard input, to the handle *answers*, until there are no more."""
    with os.fdopen(answers, "w", encoding="utf-8") as out:
        for line in _requests(sys.stdin.buffer):
            asked = json.loads(line)
            within(asked["limit"] + _GRACE)
            for answer in import_module(f"pyclmm.{asked['module']}").answers(asked["request"]):
                _send(out, {"answer": answer})
            _send(out, {})


def _requests(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines of *stream* until its end or a long pause. Each comes after the answers to the last one."""
    if os.name == "nt":  # cannot wait for a pipe
        faulthandler.cancel_dump_traceback_later()
        yield from stream
        return
    while True:
        within(2 * IDLE)
        if not select.select([stream], [], [], IDLE)[0]:
            return
        line = stream.readline()
        if not line:
            return
        yield line


def _send(out: IO[str], line: Any) -> None:
    out.write(json.dumps(line) + "\n")
    out.flush()
