"""`pyclmm multiply` in this process, and the matrices that it writes."""

from functools import partial
from typing import Any

import numpy as np

from tests.support.commands import command
from tests.support.optional import optional

h5py = optional("h5py")
zarr = optional("zarr")


multiply = partial(command, "multiply")


def kept(place: str) -> Any:
    """The matrix where *place* says."""
    path, _, name = place.partition(":")
    if path.endswith(".npy"):
        return np.load(path)
    if path.endswith(".h5"):
        with h5py.File(path, "r") as file:
            return file[name][()]
    return (zarr.open(path, mode="r")[name] if name else zarr.open(path, mode="r"))[()]
