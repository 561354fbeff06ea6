"""Casts of arrays in the host's memory. NumPy's warnings of them would name a line of pyclmm's, and so be
shown once for all calls; these name the line that called pyclmm.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import tell_caller, warn_caller
from ..problem.dtypes import drops_parts
from ..problem.literals import Casting
from .options import warn_of_dropped


def errors_of_caller() -> dict[str, Any]:
    """Keywords of np.errstate, by which an overflow in a cast does what the caller's np.errstate says."""
    errors = {kind: "call" if how in ("warn", "print") else how for kind, how in np.geterr().items()}
    return errors | {"call": _OfCaller()}


class _OfCaller:
    """What NumPy calls, or writes to, where the caller is to hear of a cast."""

    def __init__(self) -> None:
        self._how, self._told = np.geterr(), cast(Any, np.geterrcall())

    def __call__(self, kind: str, flag: int) -> None:
        how = next(how for name, how in self._how.items() if kind.startswith(name))  # "over" of "overflow"
        said = f"{kind} encountered in cast"
        if how == "warn":
            warn_caller(said, RuntimeWarning)
        elif how == "print":
            tell_caller(_print, f"Warning: {said}\n")
        elif self._told is None:  # as NumPy does
            raise NameError(f"{said}: call= of np.errstate is no function")
        else:
            tell_caller(self._told, kind, flag)

    def write(self, text: str) -> None:
        if self._told is None:  # as NumPy does
            raise NameError(f"{text.strip()}: to be logged, but call= of np.errstate has no write method")
        tell_caller(self._told.write, text)


def _print(text: str) -> None:
    """Write *text* where NumPy prints: to the process's standard error, which may be closed."""
    with suppress(OSError):
        os.write(2, text.encode())


def real_if_cast(x: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """*x*, or its real parts where a cast to *dtype* drops the imaginary ones, of which it warns."""
    if not drops_parts(x.dtype, dtype):
        return x
    warn_of_dropped()
    return x.real


def cast_into(out: NDArray[Any], x: NDArray[Any], casting: Casting = "unsafe") -> None:
    """Write *x* into *out*."""
    if np.can_cast(x.dtype, out.dtype):  # NumPy warns of none of these
        np.copyto(out, x, casting=casting)
        return
    with np.errstate(**errors_of_caller()):
        np.copyto(out, real_if_cast(x, out.dtype), casting=casting)


def converted(x: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A C-contiguous copy of *x* with that *dtype*."""
    if np.can_cast(x.dtype, dtype):  # the faster way
        return np.array(x, dtype, order="C", copy=True)
    made = np.empty(x.shape, dtype)
    cast_into(made, x)
    return made
