"""A command on a terminal: a pseudo-terminal of so many columns, what it shows, and Ctrl-C."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass

# Control sequences (ECMA-48): CSI with its parameters, and the other escapes that rich sends.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")
# Takes the terminal as its own, so that Ctrl-C reaches it, and becomes the command. What a shell starts in
# the background has SIGINT ignored, and would leave it so to the command.
_IN_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
INTERRUPT = b"\x03"  # what the key Ctrl-C sends; the terminal makes SIGINT of it


@dataclass(frozen=True)
class Shown:
    """What a command wrote to its terminal, and its exit code."""

    raw: str
    status: int

    @property
    def lines(self) -> list[str]:
        """The lines without control sequences. A line that was written again counts each time."""
        return [line for line in re.split(r"[\r\n]+", _CONTROL.sub("", self.raw)) if line.strip()]

    @property
    def words(self) -> str:
        """Everything, with line breaks and runs of blanks as one blank."""
        return " ".join(_CONTROL.sub("", self.raw).split())


def run(*command, columns, press_at=None, timeout=400, **environment):
    """``python -m pyclmm *command`` on a terminal. Ctrl-C is pressed when the pattern *press_at* appears."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    variables = {name: x for name, x in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", _IN_TERMINAL, sys.executable, "-m", "pyclmm", *map(str, command)],
        stdin=child,
        stdout=child,
        stderr=child,
        env=variables | {"TERM": "xterm-256color"} | environment,
        start_new_session=True,
    )
    os.close(child)
    try:
        raw = _heard(parent, press_at, time.monotonic() + timeout)
        return Shown(raw, process.wait(100))
    finally:
        process.kill()
        process.wait()
        os.close(parent)


def _heard(parent, press_at, end):
    heard = b""
    with contextlib.suppress(OSError):  # EIO: the command has ended
        while time.monotonic() < end:
            if not select.select([parent], [], [], 0.5)[0]:
                continue
            part = os.read(parent, 65536)
            if not part:
                break
            heard += part
            if press_at is not None and re.search(press_at, heard.decode("utf-8", "replace")):
                os.write(parent, INTERRUPT)
                press_at = None
    return heard.decode("utf-8", "replace")
