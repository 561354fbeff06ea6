"""What JSON from a file or a pipe may hold: each field has a type, finite bounds and a limit of length.

A check is called with the name of a value and the value. It raises ArgumentError if the value is not allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .errors import ArgumentError

Check = Callable[[str, Any], None]
_SHOWN = 40  # characters of a refused value


def _allowed(what: str, holds: Callable[[Any], bool]) -> Check:
    def check(name: str, value: Any) -> None:
        if not holds(value):
            raise ArgumentError(f"{name} is {ascii(value)[:_SHOWN]}, not {what}")

    return check


def integer(low: int, high: int) -> Check:
    """An integer from *low* to *high*."""
    return _allowed(f"an integer from {low} to {high}", lambda x: type(x) is int and low <= x <= high)


def number(low: float, high: float, zero: bool = False) -> Check:
    """An integer or float from *low* to *high*; with *zero* 0 too. NaN and infinity are neither."""
    return _allowed(
        f"a number from {low:g} to {high:g}{' or 0' * zero}",
        lambda x: type(x) in (int, float) and (low <= x <= high or (zero and x == 0)),
    )


def text(longest: int) -> Check:
    """One line of printable characters."""
    return _allowed(
        f"printable text of at most {longest} characters",
        lambda x: isinstance(x, str) and 0 < len(x) <= longest and x.isprintable(),
    )


def matching(pattern: str, what: str) -> Check:
    """ASCII text that the regular expression matches as a whole."""
    return _allowed(what, lambda x: isinstance(x, str) and re.fullmatch(pattern, x, re.ASCII) is not None)


DATE = matching(r"\d{4}-\d{2}-\d{2}", "a date as 2026-11-22")


def one_of(*values: object, what: str = "") -> Check:
    """One of *values*, of the same type. *what*: how an error calls them."""
    what = what or " or ".join(map(repr, values))
    return _allowed(what, lambda x: any(type(x) is type(value) and x == value for value in values))


def optional(check: Check) -> Check:
    """None, or what *check* allows."""
    return lambda name, value: None if value is None else check(name, value)


def list_of(check: Check, least: int, most: int) -> Check:
    """A list of *least* to *most* values that *check* allows."""
    is_list = _allowed(
        f"a list of {least} to {most} values", lambda x: isinstance(x, list) and least <= len(x) <= most
    )

    def check_all(name: str, value: Any) -> None:
        is_list(name, value)
        for place, one in enumerate(value):
            check(f"{name}[{place}]", one)

    return check_all


def record(checks: Mapping[str, Check]) -> Check:
    """A dictionary with the keys of *checks*, whose values they allow."""

    def check_all(name: str, value: Any) -> None:
        if not isinstance(value, dict) or set(value) != set(checks):
            raise ArgumentError(f"{name}: its keys are not {', '.join(checks)}")
        for key, check in checks.items():
            check(f"{name}.{key}", value[key])

    return check_all


def hearing(*forms: tuple[Mapping[str, Check], Callable[..., None]]) -> Callable[[Any], None]:
    """What calls the first of *forms* that allows an answer with the answer's fields. No other is heard."""

    def hear(answer: Any) -> None:
        for checks, call in forms:
            try:
                record(checks)("answer", answer)
            except ArgumentError:
                continue
            call(**answer)
            return

    return hear
