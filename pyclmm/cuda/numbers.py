"""Numbers in a device's memory that products read, such as the 1 that sums are made with."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import driver
from .streams import Context, own_stream


def number_one(context: Context, dtype: np.dtype[Any]) -> driver.Memory:
    """The number 1 of *dtype*, written once and kept with its context: captured graphs may read it."""
    made: driver.Memory = context.own.get(dtype, lambda: _number_one(context, dtype))
    return made


def _number_one(context: Context, dtype: np.dtype[Any]) -> driver.Memory:
    number, own = np.ones(1, dtype), own_stream(context).handle
    with driver.current(context.handle), driver.uncaptured():
        made = driver.Memory(number.nbytes, "the number 1")
        made.write(number.ctypes.data, own)
        driver.wait(own, "the number 1")  # the host's copy may go, and every stream may read
    return made
