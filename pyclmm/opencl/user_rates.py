"""The rates that `pyclmm tune --device` measured on the user's devices, in the cache folder.

A file is for one device and driver. It is checked when it is read: a wrong rate would choose a slow kernel,
never a wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .. import environment, fields, store
from ..errors import ArgumentError
from ..kernels.rates import BOUNDS, MAY_BE_ZERO, MEANINGS, Rates

SCHEMA = 2  # in 1 a matrix unit's rate may be more than it can do
_RATES = fields.record(
    {name: fields.number(*BOUNDS[unit], name in MAY_BE_ZERO) for name, (unit, _) in MEANINGS.items()}
)


def path_of(identity: Mapping[str, str]) -> Path:
    """The file for the device of this identity (DeviceInfo.identity)."""
    return store.device_path("rates", identity)


def read(identity: Mapping[str, str]) -> Rates | None:
    """The user's rates of this device and driver, or None. ``PYCLMM_TUNED=off`` ignores them."""
    if environment.TUNED.is_off:
        return None
    content = store.read_json(path_of(identity), _check_of(identity))
    if content is None:
        return None
    numbers = {name: float(value) for name, value in content["rates"].items()}
    return Rates(**numbers, source=f"measured here, {content['date']}")


def write(identity: Mapping[str, str], rates: Mapping[str, float], date: str) -> bool:
    """Keep *rates*, measured on *date* (UTC). False if they are none that could be read or written."""
    content = {"schema": SCHEMA, "device": dict(identity), "date": date, "rates": dict(rates)}
    try:
        _check_of(identity)("content", content)
    except ArgumentError:
        return False
    return store.write_json(path_of(identity), content)


def _check_of(identity: Mapping[str, str]) -> fields.Check:
    advice = "this device and driver: run `pyclmm tune --device` again"
    return fields.record(
        {
            "schema": fields.one_of(SCHEMA),
            "device": fields.one_of(dict(identity), what=advice),
            "date": fields.DATE,
            "rates": _RATES,
        }
    )
