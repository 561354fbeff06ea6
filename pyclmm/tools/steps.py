"""What a long command tells while it measures: a :class:`Step` before each piece of work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """What runs next, how many pieces of work are *done*, and how many there are in *total*, if that is
    known.

    ``seconds_left``: the time left, where the command knows better than the rate so far can tell.
    """

    text: str
    done: float = 0
    total: float | None = None
    seconds_left: float | None = None


OnStep = Callable[[Step], None]


def unheard(step: Step) -> None:
    """An OnStep for callers who do not listen."""
