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

Exit codes: 0: success. 1: a wrong result. 2: invalid arguments, a product that cannot be computed here, a
file that cannot be written. 130: Ctrl-C, as 128 + SIGINT. 141: nobody reads the output any more, as 128 +
SIGPIPE. An error is one line; what a user or a disk can cause has no traceback.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import click
from click.exceptions import Exit

from ..errors import PyclmmError, unknown_name
from .terminal import OnStage, Screen, broken, progress, width_of

STDOUT = "-"
WRONG_RESULT, FAILED, INTERRUPTED, PIPE_CLOSED = 1, 2, 130, 141


class CommandError(click.ClickException):
    """An error in one line and exit code 2. A terminal gets it broken into lines that fit."""

    exit_code = FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        say(f"Error: {self.format_message()}")


def say(line: str) -> None:
    """Write a line to the error stream, if somebody reads that."""
    try:
        click.echo(_fitting(line), err=True)
    except OSError:
        _drop(sys.stderr)


def _fitting(line: str) -> str:
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    return broken(line, width_of(sys.stderr), words=True) if on_terminal else line


def _drop(stream: IO[Any] | None) -> None:
    """Send what *stream* still holds, and cannot write, nowhere.

    Python would try again at its exit, complain, and end with code 120.
    """
    if stream is None:
        return
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):  # ValueError: a stream without a file
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)


@contextmanager
def endings() -> Iterator[None]:
    """Turn whatever ends a command into its exit code, and a line on the error stream where one is due."""
    for stream in (sys.stdout, sys.stderr):  # a character that the terminal lacks is no reason to fail
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
    except KeyboardInterrupt:
        say("Interrupted")
        raise Exit(INTERRUPTED) from None
    except BrokenPipeError:
        _drop(sys.stdout)
        raise Exit(PIPE_CLOSED) from None
    except (PyclmmError, MemoryError) as error:  # a StorageError is an OSError that names the argument
        raise CommandError(str(error) or "out of memory") from error
    except OSError as error:
        _drop(sys.stdout)
        what = f"{error.filename}" if error.filename else "the output cannot be written"
        raise CommandError(f"{what}: {error.strerror}") from error
    except click.UsageError as error:
        message = _fitting(f"Error: {error.format_message()}").removeprefix("Error: ")
        raise click.UsageError(message, error.ctx) from error


class Group(click.Group):
    """Commands that end as :func:`endings` says. It suggests the nearest command for a misspelt one."""

    def main(self, *args: Any, **keywords: Any) -> Any:
        try:
            return super().main(*args, **keywords)
        except OSError:  # not even an error can be written
            _drop(sys.stderr)
            sys.exit(FAILED)

    def make_context(self, *args: Any, **keywords: Any) -> click.Context:
        with endings():  # --help and --version print here
            return super().make_context(*args, **keywords)

    def invoke(self, ctx: click.Context) -> Any:
        with endings():
            try:
                return super().invoke(ctx)
            except click.NoSuchOption as error:
                if re.match(r"-\d", error.option_name):
                    raise CommandError(
                        f"{error.option_name}: M, N and K are whole numbers of 1 or more"
                    ) from error
                raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            raise unknown_name("command", args[0], sorted(self.commands))
        return super().resolve_command(ctx, args)


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
        target = Path(os.path.realpath(path))
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
