"""What every command tells: text for people, JSON for programs, and its end.

``--json FILE`` writes JSON to a file, beside the text. ``--json`` alone, or ``--json -``, writes it to
standard output, which then holds nothing else. A long command goes::

    out = Output("bench", json_target)
    with out.measuring() as on_stage:  # shows progress; Ctrl-C ends this block, and what was measured is kept
        for ...:
            on_stage(Stage("what runs next", done, total))
            found.append(...)
    out.save(content)                 # before the text: a closed pipe loses no measurement
    out.screen.table(table)
    out.finish()                      # exit code 130 after Ctrl-C, 2 if a file could not be written
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from .endings import INTERRUPTED, CommandError, say
from .matrix_files import real
from .options import STDOUT
from .terminal import OnStage, Screen, progress


class Output:
    """The output of the command called *command*. *target*: the value of ``--json``."""

    def __init__(self, command: str, target: str | None) -> None:
        self.command, self.target = command, target
        self.screen = Screen(quiet=target == STDOUT)
        self.interrupted = False
        self._unwritten: str | None = None

    @property
    def file(self) -> Path | None:
        """The file that gets JSON, if one does."""
        return None if self.target in (None, STDOUT) else Path(self.target)

    @contextmanager
    def measuring(self, bar: bool = False) -> Iterator[OnStage]:
        """Measure in this block, with a *bar* of progress where one is asked for.

        Ctrl-C ends it, and the command goes on with what was measured until then.
        """
        try:
            with progress(bar) as on_stage:
                yield on_stage
        except KeyboardInterrupt:
            self.interrupted = True

    def save(self, content: dict[str, Any]) -> None:
        """Write JSON where it was asked for: the command, whether Ctrl-C ended it, and *content*."""
        if self.target is None:
            return
        whole = {"command": self.command, "interrupted": self.interrupted} | content
        text = json.dumps(whole, indent=2, allow_nan=False) + "\n"
        if self.file is None:
            click.echo(text, nl=False)
        else:
            self.write(self.file, lambda path: path.write_text(text, encoding="utf-8"))

    def write(self, path: Path, fill: Callable[[Path], object]) -> bool:
        """Have *fill* write a file beside, which then becomes *path*; what was there stays until then.

        A device or a pipe is written itself. If it fails, the text still appears, and :meth:`finish` gives
        the reason.
        """
        target = real(path)
        try:
            if target.exists() and not target.is_file():
                fill(target)
                return self._unwritten is None
            with TemporaryDirectory(dir=target.parent, prefix=".pyclmm-new-") as folder:
                early = Path(folder, target.name)
                fill(early)
                os.replace(early, target)
        except OSError as error:
            self._unwritten = f"cannot write {path}: {error.strerror or error}"
        return self._unwritten is None

    def draw(self, path: Path | None, fill: Callable[[Path], object]) -> None:
        """Draw a picture by ``fill(path)`` if one is asked for, and say so."""
        if path is not None and self.write(path, fill):
            self.screen.line(f"drawn to {path}")

    def warn(self, line: str) -> None:
        """Print a line that must be seen: on the error stream if standard output holds JSON."""
        if self.target == STDOUT:
            say(line)
        else:
            self.screen.line(line)

    def finish(self, failure: str | None = None, status: int = 2) -> None:
        """End the command: after Ctrl-C, an unwritten file or a *failure* with its *status*, else return."""
        if self.interrupted:
            say("Interrupted; what was measured is shown")
            if self._unwritten is not None:
                say(f"Error: {self._unwritten}")
            sys.exit(INTERRUPTED)
        if self._unwritten is not None:
            raise CommandError(self._unwritten)
        if failure is not None:
            say(f"Error: {failure}")
            sys.exit(status)
