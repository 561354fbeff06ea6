"""What the frames of steps.json are made of: what a kernel did, as words and as elements to colour."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, NamedTuple, Protocol

Cells = list[list[Any]]
FEW = 6  # rectangles that words name


class Event(NamedTuple):
    """What one work-item did once, to so many elements side by side."""

    what: str
    item: int
    row: int
    column: int
    more: int = 1


class Followed(Protocol):
    """What has a followed work-item."""

    @property
    def item(self) -> int: ...


def frame(walk: Followed, title: str, touched: Iterable[Event], shown: Cells) -> dict[str, Any]:
    """With the elements that the followed work-item touches in words."""
    return {"words": [title, own_words(walk, touched)], "cells": shown}


def own_words(walk: Followed, touched: Iterable[Event]) -> str:
    """The elements of the followed work-item."""
    return said_of(event for event in touched if event.item == walk.item)


def item_of(event: Event) -> str:
    """The label that says who."""
    return str(event.item)


def cells(
    walk: Followed, touched: Iterable[Event], label: Callable[[Event], str] = lambda _: "", more: str = ""
) -> Cells:
    """Matrix, row, column, kind and label of each element."""
    found = {}
    for event in sorted(touched, key=lambda event: (event.item == walk.item, event)):
        kind = "hot" if event.item == walk.item else event.what.lower() + more
        for column in range(event.column, event.column + event.more):
            found[event.what, event.row, column] = [event.what, event.row, column, kind, label(event)]
    return list(found.values())


def said_of(touched: Iterable[Event]) -> str:
    """The elements in words, neighbours together."""
    places: dict[str, set[tuple[int, int]]] = {}
    for event in touched:
        side_by_side = range(event.column, event.column + event.more)
        places.setdefault(event.what, set()).update((event.row, column) for column in side_by_side)
    said = []
    for what in sorted(places):
        for row, column, rows, columns in rectangles(places[what]):
            said.append(f"{what}({_to(row, rows)}, {_to(column, columns)})")
    return ", ".join(said if len(said) <= FEW else [*said[: FEW - 1], f"and {len(said) - FEW + 1} more"])


def _to(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first} to {first + count - 1}"


def rectangles(places: Iterable[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Rectangles that cover the places: row, column, rows, columns."""
    found: dict[tuple[int, int], list[list[int]]] = {}
    for row, each in groupby(sorted(places), key=lambda place: place[0]):
        columns = [column for _, column in each]
        for _, run in groupby(enumerate(columns), key=lambda pair: pair[1] - pair[0]):
            side = [column for _, column in run]
            above = found.setdefault((side[0], len(side)), [])
            if above and above[-1][0] + above[-1][1] == row:
                above[-1][1] += 1
            else:
                above.append([row, 1])
    return sorted((row, side[0], rows, side[1]) for side, all_rows in found.items() for row, rows in all_rows)


def merged(shown: Cells) -> Cells:
    """The same with neighbours of one kind as one cell, which has rows and columns. Labels are lost."""
    kinds: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for matrix, row, column, kind, *_ in shown:
        kinds.setdefault((matrix, matrix.lower()), []).append((row, column))
        if kind == "hot":
            kinds.setdefault((matrix, kind), []).append((row, column))
    return [
        [matrix, row, column, kind, "", rows, columns]
        for (matrix, kind), places in kinds.items()
        for row, column, rows, columns in rectangles(places)
    ]
