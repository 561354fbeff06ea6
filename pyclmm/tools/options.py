"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from . import plots
from .matrix_files import overlap, real
from .output import STDOUT, CommandError


@dataclass(frozen=True)
class Written:
    """What pyclmm writes, and how it is known again: by bytes at its beginning, or anywhere."""

    what: str
    mark: re.Pattern[bytes]
    anywhere: bool = False

    def wrote(self, path: Path) -> bool:
        """Whether the file *path* is such a one. An unreadable one is none."""
        try:
            with path.open("rb") as file:
                found = self.mark.search if self.anywhere else self.mark.match
                return found(file.read(_MOST if self.anywhere else _HEAD)) is not None
        except OSError:
            return False


_HEAD, _MOST = 200, 1 << 26  # bytes
REPORT = Written(
    "JSON report", re.compile(rb'\{\n  "command": "[a-z]+",\n  "interrupted": (true|false)[,\n]')
)
TABLE = Written("table", re.compile(rb'\{\n  "schema": \d+,\n  "device": \{'))
PICTURE = Written("picture", re.compile(re.escape(plots.MARK.encode())), anywhere=True)


length_type = click.IntRange(min=1)
file_type = click.Path(dir_okay=False, path_type=Path)
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
    if value is not None and value.isdecimal():
        raise click.BadParameter(f"{value!r} is taken for its file; write `--json -`, or `--json` last")
    if value is not None and value != STDOUT:
        check_file(Path(value), REPORT)
    return value


def check_file(path: Path | None, own: Written) -> None:
    """Fail before measuring if *path* could not be written after it.

    A file that is there must be one that pyclmm has written as such, or a device or a pipe. Two options of a
    command do not name one file.
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
    is_new = path.is_file() or not path.exists()  # it is written beside, and renamed
    if not os.access(real(path).parent if is_new else path, os.W_OK):
        raise CommandError(f"{path}: it cannot be written; name another file")
    if path.is_file() and not own.wrote(path):
        raise CommandError(f"{path}: it is there and is no {own.what} of pyclmm; name another file")
    ctx = click.get_current_context(silent=True)
    taken: dict[Path, None] = {} if ctx is None else ctx.meta.setdefault(__name__, {})
    if any(overlap(path, other) for other in taken):
        raise CommandError(f"{path}: two options name this file; name two files")
    taken[path] = None


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


def shapes(ctx: click.Context, param: click.Parameter, value: str) -> list[tuple[int, int, int]]:
    """ "1024x1024x64,..." as M, N and K."""
    found = []
    for name in names(ctx, param, value):
        lengths = re.fullmatch(r"([1-9][0-9]{0,9})x([1-9][0-9]{0,9})x([1-9][0-9]{0,9})", name, re.ASCII)
        if lengths is None:
            raise click.BadParameter(f"{name!r} is no MxNxK, such as 1024x1024x64")
        m, n, k = map(int, lengths.groups())
        found.append((m, n, k))
    return found


def seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """ "120", "120s" or "2m" in seconds."""
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([sm]?)", value, re.ASCII)
    if match is None or float(match[1]) == 0:
        raise click.BadParameter(f"{value!r} is no time, such as 120s or 2m")
    return float(match[1]) * (60 if match[2] == "m" else 1)
