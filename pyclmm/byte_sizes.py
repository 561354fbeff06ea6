"""Numbers of bytes as people write and read them: the one parser and the one printer.

"1 GB" and "1G" are 10^9, "1 GiB" is 2^30: in arguments, environment variables and options of the command
line, as in Dask and by the units of SI and IEC.
"""

from __future__ import annotations

import operator
import re
from typing import Any

from .errors import ArgumentError, DTypeError, amount, brief

_UNITS = ("", "K", "M", "G", "T")
_MOST = 1 << 200  # more than any memory, and a number that floats have
_TEXT = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?(?:E\+?[0-9]{1,2})?)\s*(?:([KMGT]?)B?|([KMGT])IB?)")


def parse_bytes(name: str, value: Any, least: int = 1) -> int:
    """The number of bytes in *value*: a number, or a text such as "8 GiB" (2^30) or "8 GB" (10^9).

    Raises DTypeError for another type, and ArgumentError for what is no number of bytes or less than *least*.
    Both call it *name*.
    """
    advice = f'set a number of bytes, such as 1000000, "64 MB" (10^6) or "8 GiB" (2^30), of {least} or more'
    wrong = f"{name} is {brief(value)}; {advice}"
    if isinstance(value, str):
        found = _TEXT.fullmatch(value.strip().upper())
        if found is None:
            raise ArgumentError(wrong)
        digits, decimal, binary = found.groups()
        unit = 1024 ** _UNITS.index(binary) if binary else 1000 ** _UNITS.index(decimal)
        number = int((int(digits) if digits.isdigit() else float(digits)) * unit)
    elif isinstance(value, bool):
        raise DTypeError(wrong)
    else:
        try:
            number = operator.index(int(value) if isinstance(value, float) and value.is_integer() else value)
        except TypeError:
            raise DTypeError(wrong) from None
    if number < least:
        raise ArgumentError(wrong)
    return min(number, _MOST)


def parse_limit(name: str, value: Any, least: int = 1) -> int | None:
    """The same; None, no limit, stays None."""
    return None if value is None else parse_bytes(name, value, least)


def format_bytes(number: float) -> str:
    """*number* of bytes with a unit, a power of 1024, and four digits: "8 GiB", "79.65 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(number) < 1024:
            return amount(round(number), "bytes") if unit == "bytes" else f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} TiB"
