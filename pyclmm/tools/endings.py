"""How a command ends: exit codes, one line for every error, and no traceback for what a user or a disk can
cause.

0: success. 1: a wrong result. 2: invalid arguments, a product that cannot be computed here, a file that
cannot be written. 130: Ctrl-C, as 128 + SIGINT. 141: nobody reads the output any more, as 128 + SIGPIPE.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import click
from click.exceptions import Exit

from ..errors import PyclmmError
from .terminal import broken, width_of

WRONG_RESULT, FAILED, INTERRUPTED, PIPE_CLOSED = 1, 2, 130, 141


class CommandError(click.ClickException):
    """An error in one line and exit code 2. A terminal gets it broken into lines that fit."""

    exit_code = FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        say(f"Error: {self.format_message()}")


class _MisuseError(CommandError):
    """A call that is not as the command's usage says. It shows the usage first."""

    def __init__(self, error: click.UsageError) -> None:
        super().__init__(error.format_message())
        self._ctx = error.ctx

    def show(self, file: IO[Any] | None = None) -> None:
        if self._ctx is not None:
            with suppress(OSError):
                click.echo(f"{self._ctx.get_usage()}", err=True)
            say(f"Try '{self._ctx.command_path} --help' for help.")
            say("")
        super().show(file)


def say(line: str) -> None:
    """Write a line to the error stream, if somebody reads that."""
    try:
        on_terminal = sys.stderr is not None and sys.stderr.isatty()
        click.echo(broken(line, width_of(sys.stderr), words=True) if on_terminal else line, err=True)
    except OSError:
        _drop(sys.stderr)


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
        raise _MisuseError(error) from error


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
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            near = difflib.get_close_matches(args[0], self.commands, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            ctx.fail(f"No such command {args[0]!r}: {hint}There are {', '.join(sorted(self.commands))}.")
