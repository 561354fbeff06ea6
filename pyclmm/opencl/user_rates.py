"""The rates that `pyclmm tune --device` measured on the user's devices, in the cache folder.

A file is for one device and driver. It is checked when it is read: a wrong rate would choose a slow kernel,
never a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .. import environment, store
from ..kernels.rates import MEANINGS, Rates

SCHEMA = 1
_MAY_BE_ZERO = (
    "group",
    "float64",
    "int32",
    "dot8",
    "matrix16",
    "matrix32",
    "matrix64",
    "matrix8",
    "cache_size",
)
_KEYS = {"schema", "device", "date", "rates"}


def path_of(identity: Mapping[str, str]) -> Path:
    """The file for the device of this identity (DeviceInfo.identity)."""
    return store.device_path("rates", identity)


def read(identity: Mapping[str, str]) -> Rates | None:
    """The user's rates of this device and driver, or None. ``PYCLMM_TUNED=off`` ignores them."""
    if environment.TUNED.is_off:
        return None
    content = store.read_json(path_of(identity), partial(fault, identity=identity))
    if content is None:
        return None
    return Rates(**content["rates"], source=f"measured here, {content['date']}")


def write(identity: Mapping[str, str], rates: Mapping[str, float], date: str) -> bool:
    """Keep *rates*, measured on *date* (UTC). False if they cannot be written."""
    content = {"schema": SCHEMA, "device": dict(identity), "date": date, "rates": dict(rates)}
    return store.write_json(path_of(identity), content)


def fault(content: Any, identity: Mapping[str, str]) -> str | None:
    """What is wrong with the content of a file for this device, or None."""
    if not isinstance(content, dict) or set(content) != _KEYS or content["schema"] != SCHEMA:
        return f"it has not the keys of schema {SCHEMA}"
    rates, date = content["rates"], content["date"]
    if not isinstance(date, str) or len(date) > 20 or not date.isprintable():
        return "its date is no date"
    if not isinstance(rates, dict) or set(rates) != set(MEANINGS):
        return "it does not have every rate"
    for name, value in rates.items():
        positive = type(value) in (int, float) and math.isfinite(value) and value >= 0
        if not positive or (value == 0 and name not in _MAY_BE_ZERO):
            return f"{name} is {value!r}, which is no rate"
    if content["device"] != dict(identity):
        return "it is for another device or driver: run `pyclmm tune --device` again"
    return None
