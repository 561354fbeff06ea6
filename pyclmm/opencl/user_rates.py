"""The rates that `pyclmm tune --device` measured on the user's devices, in the cache folder.

A file is for one device and driver. It is checked when it is read: a wrong rate would choose a slow kernel,
never a wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping

from .. import environment, fields, store
from ..kernels.rates import BOUNDS, MAY_BE_ZERO, MEANINGS, Rates

SCHEMA = 2  # in 1 a matrix unit's rate may be more than it can do
_RATES = fields.record(
    {name: fields.number(*BOUNDS[unit], name in MAY_BE_ZERO) for name, (unit, _) in MEANINGS.items()}
)


def file_of(identity: Mapping[str, str]) -> store.KeptFile:
    """The file for the device of this identity (DeviceInfo.identity)."""
    name, about = store.device_name(identity), {"device": dict(identity)}
    whose = "this device and driver: run `pyclmm tune --device` again"
    return store.KeptFile("rates", name, SCHEMA, about, {"date": fields.DATE, "rates": _RATES}, whose)


def read(identity: Mapping[str, str]) -> Rates | None:
    """The user's rates of this device and driver, or None. ``PYCLMM_TUNED=off`` ignores them."""
    if environment.TUNED.is_off:
        return None
    content = file_of(identity).read()
    if content is None:
        return None
    numbers = {name: float(value) for name, value in content["rates"].items()}
    return Rates(**numbers, source=f"measured here, {content['date']}")


def write(identity: Mapping[str, str], rates: Mapping[str, float], date: str) -> bool:
    """Keep *rates*, measured on *date* (UTC). False if they are none that could be read or written."""
    return file_of(identity).write(date=date, rates=dict(rates))
