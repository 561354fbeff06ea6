"""What commands share: their options, text for people, JSON for programs, and how they end.

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

docs/cli.md says what exit codes mean. An error is one line; what a user or a disk can cause has no traceback.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click
from click.core import ParameterSource
from click.exceptions import Exit

from .. import store
from ..errors import PyclmmError, unknown_name
from . import plots
from .paths import overlap, real, stream_of, write_to
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
    """Drop what *stream* holds and cannot write: Python would complain at its exit and end with code 120."""
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
        if error.filename is None and isinstance(error, FileNotFoundError):  # of os.getcwd
            what = "the working directory was deleted, change to another one"
        raise CommandError(f"{what}: {error.strerror}") from error
    except click.UsageError as error:
        if error.message == (error.ctx and error.ctx.get_help()):  # the help, of a command without arguments
            raise
        message = _fitting(f"Error: {error.format_message()}").removeprefix("Error: ")
        raise click.UsageError(message, error.ctx) from error


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings are shown without the place in the code, which tells a user of a command nothing."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, category, *_: f"{_fitting(f'{category.__name__}: {message}')}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


class Group(click.Group):
    """Commands that end as :func:`endings` says. It suggests the nearest command for a misspelt one."""

    def main(self, *args: Any, **keywords: Any) -> Any:
        try:
            with plain_warnings():
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
        """Measure in this block, with a *bar* of progress if asked for. Ctrl-C ends it and keeps all."""
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
            self.write_text(self.file, text)

    def write_text(self, path: Path, text: str) -> None:
        """:meth:`write` of a text, also to a stream that *path* names: behind what is there."""
        stream = stream_of(path)

        def fill(at: Path) -> None:
            if stream is None:
                at.write_text(text, encoding="utf-8")
            else:
                write_to(stream, text)

        self.write(path, fill)

    def write(self, path: Path, fill: Callable[[Path], object]) -> bool:
        """Have *fill* write a file beside, which then becomes *path*, or a device or a pipe itself. If it
        fails, the text still appears, and :meth:`finish` gives the reason.
        """
        try:
            if stream_of(path) is not None or (path.exists() and not path.is_file()):
                fill(path)
                return self._unwritten is None
            with store.beside(real(path)) as early:
                fill(early)
        except OSError as error:
            self._unwritten = f"cannot write {path}: {error.strerror or error}"
        return self._unwritten is None

    def draw(self, path: Path | None, fill: Callable[[Path], object]) -> None:
        """Draw a picture by ``fill(path)`` if one is asked for, and say so."""
        if path is not None and self.write(path, fill):
            self.screen.lines(f"drawn to {path}")

    def warn(self, line: str) -> None:
        """Print a line that must be seen: on the error stream if standard output holds JSON."""
        if self.target == STDOUT:
            say(line)
        else:
            self.screen.lines(line)

    def finish(self, failure: str | None = None, status: int = 2, measured: object = True) -> None:
        """End the command: after Ctrl-C, an unwritten file or a *failure* with its *status*, else return.
        *measured* is empty if nothing was.
        """
        if self.interrupted:
            say(f"Interrupted; {'what was measured is shown' if measured else 'nothing was measured yet'}")
            if self._unwritten is not None:
                say(f"Error: {self._unwritten}")
            sys.exit(INTERRUPTED)
        if self._unwritten is not None:
            raise CommandError(self._unwritten)
        if failure is not None:
            say(f"Error: {failure}")
            sys.exit(status)


@dataclass(frozen=True)
class Written:
    """What pyclmm writes, and the bytes by which it is known again."""

    what: str
    mark: bytes

    def wrote(self, path: Path) -> bool:
        """Whether the file *path* is such a one. An unreadable one is none."""
        with suppress(OSError), path.open("rb") as file:
            return re.search(self.mark, file.read(_MOST)) is not None
        return False


_MOST = 1 << 26  # bytes
REPORT = Written("JSON report", rb'\A\{\n  "command": "[a-z]+",\n  "interrupted": (true|false)[,\n]')
TABLE = Written("table", rb'\A\{\n  "schema": \d+,\n  "device": \{')
PICTURE = Written("picture", re.escape(plots.MARK.encode()))


length_type = click.IntRange(min=1)
file_type = click.Path(dir_okay=False, path_type=Path)
reasons_option = click.option("--reasons", is_flag=True, help="Say of each kernel that cannot run why.")
device_option = click.option(
    "--device", help='"cpu", "gpu", a number as `pyclmm info` lists it ("0:1"), or part of a name.'
)
plot_option = click.option(
    "--plot", "plot_file", type=file_type, help="Draw to this file (.png, .svg, .pdf)."
)


def json_option(*others: str) -> Callable[[Any], Any]:
    """The option ``--json [FILE]`` of a command, with the *others* as further names for it."""
    return click.option(
        "--json",
        *others,
        "json_target",
        metavar="[FILE]",
        is_flag=False,
        flag_value=STDOUT,
        callback=_checked_target,
        help="Write JSON to FILE, or to standard output in place of the text.",
    )


def _checked_target(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and re.fullmatch(r"[0-9]+(x[0-9]+)*", value, re.ASCII):
        raise click.BadParameter(f"{value!r} is taken for its file; write `--json -`, or `--json` last")
    if value is not None and value != STDOUT:
        check_file(Path(value), REPORT)
    return value


def check_file(path: Path | None, own: Written) -> None:
    """Fail before measuring if *path* could not be written after it. A file that is there must be one that
    pyclmm has written as such, or a device or a pipe. Two options of a command do not name one file.
    """
    if path is None:
        return
    folder = path.absolute().parent
    if not folder.is_dir():
        raise CommandError(f"{path}: there is no folder {folder}")
    if path == Path():
        raise CommandError(
            f"{str(path)!r} is a folder, or the name of a file is empty; give the name of a file"
        )
    if path.is_dir():
        raise CommandError(f"{path}: it is a folder; name a file")
    # A text goes behind what a stream's file holds; a picture replaces that.
    is_file = path.is_file() and (own is PICTURE or stream_of(path) is None)
    is_new = is_file or not path.exists()  # it is written beside, and renamed
    if not os.access(real(path).parent if is_new else path, os.W_OK):
        raise CommandError(f"{path}: it cannot be written; name another file")
    if is_file and not own.wrote(path):
        raise CommandError(f"{path}: it is there and is no {own.what} of pyclmm; name another file")
    ctx = click.get_current_context(silent=True)
    taken: dict[Path, None] = {} if ctx is None else ctx.meta.setdefault(__name__, {})
    if any(overlap(path, other) for other in taken):
        raise CommandError(f"{path}: two options name this file; name two files")
    taken[path] = None


def unused(mode: str, *names: str) -> None:
    """Raise click.UsageError if the command line has one of these parameters, which *mode* does not use."""
    ctx = click.get_current_context()
    for option in ctx.command.params:
        if option.name in names and ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{mode} goes without {option.opts[0]}")


def check_plot(path: Path | None) -> None:
    """Fail before measuring if no picture could be drawn to *path* after it."""
    if path is not None:
        plots.check(path)
    check_file(path, PICTURE)


def finite(ctx: click.Context, param: click.Parameter, value: float) -> float:
    """A number that is neither NaN, which is in every range, nor infinity."""
    if not math.isfinite(value):
        raise click.BadParameter(f"{str(value)!r} is no number to measure with")
    return value


def names(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    """Names separated by commas."""
    found = [name.strip() for name in value.split(",") if name.strip()]
    if not found:
        raise click.BadParameter(f"{value!r} names nothing; separate names by commas")
    return found


_LENGTH = "([1-9][0-9]{0,29})"
_PRODUCT = re.compile(f"{_LENGTH}(x| ){_LENGTH}\\2{_LENGTH}", re.ASCII)


def shapes(
    ctx: click.Context, param: click.Parameter, value: str | tuple[str, ...]
) -> list[tuple[int, int, int]]:
    """M, N and K of each product: MxNxK, "M x N x K" or M N K, with commas between products."""
    text = value if isinstance(value, str) else " ".join(value)
    found = []
    for name in names(ctx, param, re.sub(r"\s*x\s*", "x", text)):
        for one in name.split() if "x" in name else [" ".join(name.split())]:
            lengths = _PRODUCT.fullmatch(one)
            if lengths is None:
                raise click.BadParameter(
                    f"{one!r} is no product; write M N K or MxNxK in whole numbers of 1 or more, such as "
                    "1024x1024x64"
                )
            found.append((int(lengths[1]), int(lengths[3]), int(lengths[4])))
    return found


def one_shape(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> tuple[int, int, int] | None:
    """M, N and K of one product; None if none is given, and none is required."""
    found = shapes(ctx, param, value) if value else [None]
    if len(found) > 1:
        raise click.BadParameter(f"{' '.join(value)!r} names {len(found)} products; give one")
    return found[0]


def seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """ "120", "120s" or "2m" in seconds; None where the option is not given."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([sm]?)", value, re.ASCII)
    if match is None or float(match[1]) == 0:
        raise click.BadParameter(f"{value!r} is no time, such as 120s or 2m")
    return float(match[1]) * (60 if match[2] == "m" else 1)
