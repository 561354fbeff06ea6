"""How commands write: lines and tables that fit the terminal, and progress on the error stream.

Text fits the terminal, or PAGE columns in a pipe or a file. Nothing is cut: lines are broken between words,
and a table that is too wide becomes several, each with the columns that name its rows.
"""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TextIO

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task
from rich.text import Text

from .. import repr_tables

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
PAGE = 80  # columns where the output is no terminal
_PROSE = 100  # columns: longer lines of words are hard to read
_GAP = 2  # blanks between columns of a table
_TEXT = 10  # the fewest columns of a text that is broken
_DULL = 10.0  # seconds between lines of progress where a line cannot be written again
_BESIDE = 5  # columns: the spinner and its blank, "^C" that the terminal writes, and one free
_BAR = 30  # columns of a bar
_ODD = 100 * 3600.0  # seconds; a longer estimate of the time left tells nothing


@dataclass(frozen=True)
class Stage:
    """What a long command tells before each piece of work: what runs next, how many pieces are *done*, of how
    many in *total*. ``seconds_left``: where the command knows better than the rate so far.
    """

    text: str
    done: float = 0
    total: float | None = None
    seconds_left: float | None = None


OnStage = Callable[[Stage], None]


def unheard(step: Stage) -> None:
    """An OnStage for callers who do not listen."""


def significant(value: float, digits: int = 3) -> str:
    """*value* with that many significant digits; no exponent but for values under 0.0001."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def duration(seconds: float) -> str:
    """Seconds with a unit that suits them."""
    scale, unit = next((u for u in _UNITS if seconds >= u[0]), _UNITS[-1])
    return f"{significant(seconds / scale)} {unit}"


def width_of(stream: TextIO | None) -> int:
    """The columns of the terminal that *stream* is; PAGE if it is none."""
    if stream is None or not stream.isatty():
        return PAGE
    return shutil.get_terminal_size((PAGE, 24)).columns


def broken(line: str, width: int = PAGE, indent: int = 4, words: bool = False) -> str:
    """*line* in lines of *width* columns, later ones indented; long words are broken only for *words*."""
    lead = " " * indent
    return textwrap.fill(line, width, subsequent_indent=lead, break_long_words=words, break_on_hyphens=False)


@dataclass(frozen=True)
class TextTable:
    """A head, and rows of as many cells. Columns named in *text* are set left, and may be broken into lines;
    numbers right. The first *keys* columns name a row: they stand on every page.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text: tuple[str, ...] = ()
    keys: int = 1

    def pages(self, width: int) -> list[str]:
        """Tables of *width* columns at most: one, or as many as it takes."""
        keys = list(range(self.keys))
        pages: list[list[int]] = []
        for column in range(self.keys, len(self.head)):
            if not pages or self._least([*keys, *pages[-1], column]) > width:
                pages.append([])
            pages[-1].append(column)
        return [self._table([*keys, *page], width) for page in pages or [[]]]

    def _cells(self, column: int) -> Iterator[str]:
        for row in (self.head, *self.rows):
            yield from row[column].splitlines()

    def _width(self, column: int) -> int:
        return max(map(len, self._cells(column)), default=0)

    def _narrowest(self, column: int) -> int:
        """The fewest columns that show it: a text may be broken between words."""
        if self.head[column] not in self.text or column < self.keys:
            return self._width(column)
        words = (word for cell in self._cells(column) for word in cell.split())
        return min(self._width(column), max([_TEXT, *map(len, words)]))

    def _least(self, columns: Sequence[int]) -> int:
        return sum(map(self._narrowest, columns)) + _GAP * (len(columns) - 1)

    def _table(self, columns: Sequence[int], width: int) -> str:
        """The table of these columns. The widest texts give way until it fits."""
        widths = {column: self._width(column) for column in columns}
        while sum(widths.values()) + _GAP * (len(columns) - 1) > width:
            wide = [column for column in columns if widths[column] > self._narrowest(column)]
            if not wide:
                break
            widths[max(wide, key=lambda column: widths[column])] -= 1
        rows = [[_filled(row[column], widths[column]) for column in columns] for row in self.rows]
        head = [self.head[column] for column in columns]
        right = [place for place, name in enumerate(head) if name not in self.text]
        return repr_tables.text(head, [["-" * widths[column] for column in columns], *rows], right)


def _filled(cell: str, width: int) -> str:
    """*cell* in lines of *width* columns."""
    return "\n".join(textwrap.fill(line, width, break_on_hyphens=False) for line in cell.split("\n"))


class Screen:
    """Standard output as wide as it is. A *quiet* one shows nothing."""

    def __init__(self, quiet: bool = False) -> None:
        self._is_quiet = quiet
        self.width = width_of(sys.stdout)
        self._on_terminal = sys.stdout is not None and sys.stdout.isatty()

    def lines(self, *texts: str, indent: int = 4) -> None:
        """Print each text as a line, broken where it is too long; what follows is indented."""
        width = min(self.width, _PROSE)
        for text in texts:
            self._write(broken(text, width, indent, self._on_terminal) if text else "")

    def table(self, table: TextTable) -> None:
        """Print a table, or several that together are this one."""
        for number, page in enumerate(table.pages(self.width)):
            self._write("\n" * (number > 0) + page)

    def _write(self, text: str) -> None:
        if not self._is_quiet:
            click.echo(text)


def _clock(seconds: float) -> str:
    """ "12 s", or "3:05" and "2:03:05" in minutes and hours."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return str(timedelta(seconds=round(seconds))).lstrip("0:")


def progress_line(step: Stage, seconds: float, each: float | None, width: int) -> str:
    """A line of *width* columns: what runs, the *seconds* so far, how much is done, the rate, the rest."""
    tail = [_clock(seconds)]
    left = step.seconds_left
    if step.total:
        tail.append(f"{step.done:g} of {step.total:g}")
        if left is None and each is not None:
            left = each * max(0.0, step.total - step.done)
    if each:
        tail.append(f"{1 / each:.3g}/s" if each < 1 else f"{each:.3g} s each")
    if left is not None and left < _ODD:
        tail.append(f"{_clock(left)} left")
    end = ", ".join(tail)
    room = width - len(end) - 2
    text = step.text if len(step.text) <= room else f"{step.text[: max(0, room - 3)]}..."
    return f"{text}  {end}"[:width]


class _StageColumn(ProgressColumn):
    """The step, the time since *begun*, the rate and the time left, in one line of *width* columns."""

    def __init__(self, width: int, begun: float) -> None:
        super().__init__()
        self._width, self._begun = width, begun

    def line(self, task: Task) -> str:
        each = 1 / task.speed if task.speed else None
        return progress_line(task.fields["step"], time.monotonic() - self._begun, each, self._width)

    def render(self, task: Task) -> Text:
        return Text(self.line(task), no_wrap=True, overflow="crop")


@contextmanager
def progress(bar: bool = False) -> Iterator[OnStage]:
    """What is called with each step; it shows on the error stream, a *bar* in place of a spinner. A terminal
    that cannot go back to the line before gets a line now and then.
    """
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    is_dull, told = console.is_dumb_terminal, time.monotonic()
    has_bar = bar and console.width >= PAGE
    taken = 1 if is_dull else _BESIDE + _BAR * has_bar
    column = _StageColumn(console.width - taken, told)
    with Progress(
        *(BarColumn(_BAR) if has_bar else SpinnerColumn(), column), console=console, transient=True,
        redirect_stdout=False, disable=is_dull or not console.is_terminal, speed_estimate_period=math.inf,
    ) as shown:  # fmt: skip
        shown.add_task("", total=None, step=Stage("starting"))
        [task] = shown.tasks

        def on_stage(step: Stage) -> None:
            nonlocal told
            last = task.fields["step"]
            if step.total != last.total or step.done < last.done:  # another series, with a pace of its own
                shown.reset(task.id, total=step.total)
            shown.update(task.id, completed=step.done, step=step)
            if is_dull and time.monotonic() - told >= _DULL:
                told = time.monotonic()
                console.print(column.line(task))

        yield on_stage
