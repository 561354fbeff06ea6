"""Numbers of bytes as people write them."""

from __future__ import annotations

import operator
import re
from typing import Any

from ..errors import ArgumentError, DTypeError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_POWERS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def nbytes(name: str, value: Any) -> int:
    """The number of bytes in *value*: a number, or a text such as "8 GiB" (2^30) or "8 GB" (10^9).

    Raises DTypeError or ArgumentError, which call it *name*.
    """
    advice = 'pass a number of bytes, or a text such as "8 GiB"'
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", value, re.IGNORECASE)
        if found is None or (found[3] and not found[2]):
            raise ArgumentError(f"{name} is {value!r}; {advice}")
        unit = found[2].upper()
        number = int(float(found[1]) * (_POWERS[unit] if found[3] else _UNITS[unit]))
    elif isinstance(value, bool):
        raise DTypeError(f"{name} is {value!r}; {advice}")
    else:
        try:
            number = operator.index(value)
        except TypeError:
            raise DTypeError(f"{name} is {value!r}; {advice}") from None
    if number <= 0:
        raise ArgumentError(f"{name} is {value!r}; {advice}, more than 0")
    return number


def in_words(number: float) -> str:
    """*number* of bytes with a unit: "8.0 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(number) < 1024:
            return f"{number:.0f} bytes" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
