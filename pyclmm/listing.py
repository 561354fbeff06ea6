"""Small tables for ``repr``: text for a prompt, HTML for a notebook. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Rows = Sequence[Sequence[object]]


def text(head: Sequence[str], rows: Rows) -> str:
    """The table in columns, two blanks apart."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def html(head: Sequence[str], rows: Rows, caption: str = "") -> str:
    """The table as notebooks show it. Every cell is escaped: drivers name devices as they like."""
    title = f"<caption style='text-align:left'>{escape(caption)}</caption>" if caption else ""
    names = "".join(_cell("th", name) for name in head)
    body = "".join(f"<tr>{''.join(_cell('td', cell) for cell in row)}</tr>" for row in rows)
    return f"<table>{title}<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def _cell(tag: str, content: object) -> str:
    return f"<{tag} style='text-align:left'>{escape(str(content))}</{tag}>"
