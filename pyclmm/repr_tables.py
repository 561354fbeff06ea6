"""Tables as text and, for a notebook, as HTML. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape
from itertools import zip_longest

Rows = Sequence[Sequence[object]]


def aligned(rows: Rows, right: Collection[int] = (), indent: int = 0) -> list[str]:
    """The lines of a table without a head: columns two blanks apart, those numbered in *right* set right. A
    cell of several lines makes its row as many lines high.
    """
    cells = [[str(cell).split("\n") for cell in row] for row in rows]
    widths = [max(len(line) for cell in column for line in cell) for column in zip(*cells, strict=True)]
    marks = [f"{'>' if column in right else ''}{width}" for column, width in enumerate(widths)]
    found = []
    for row in cells:
        for line in zip_longest(*row, fillvalue=""):
            text = "  ".join(f"{part:{mark}}" for part, mark in zip(line, marks, strict=True))
            found.append(" " * indent + text.rstrip())
    return found


def text(head: Sequence[str], rows: Rows, right: Collection[int] = ()) -> str:
    """The table with its head."""
    return "\n".join(aligned([head, *rows], right))


def html(head: Sequence[str], rows: Rows, caption: str = "") -> str:
    """The table as notebooks show it. Every cell is escaped: drivers name devices as they like."""
    title = f"<caption style='text-align:left'>{escape(caption)}</caption>" if caption else ""
    names = "".join(_cell("th", name) for name in head)
    body = "".join(f"<tr>{''.join(_cell('td', cell) for cell in row)}</tr>" for row in rows)
    return f"<table>{title}<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def _cell(tag: str, content: object) -> str:
    return f"<{tag} style='text-align:left'>{escape(str(content))}</{tag}>"
