"""The arguments of a product that are not arrays: options, scalars and events, with their checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from ..errors import ArgumentError, DTypeError
from ..kernels.config import TileConfig
from ..problem.dtypes import check_casting
from ..problem.gemm import Gemm
from ..problem.words import Casting
from ..selection.select import KernelChoice

_NUMBERS: tuple[tuple[Any, Any], ...] = (
    (int, np.integer | np.bool_),
    (float, np.floating),
    (complex, np.complexfloating),
)


@dataclass(frozen=True)
class Options:
    """The options of a plan; :func:`pyclmm.gemm` describes each."""

    trans_a: str = "N"
    trans_b: str = "N"
    activation: str | None = None
    kernel: KernelChoice = "auto"
    precision: str = "highest"
    reproducible: bool = False
    casting: Casting = "same_kind"
    dtype: np.dtype[Any] | None = None
    workspace_limit: int | None = None
    constant_b: bool = False

    def __post_init__(self) -> None:
        check_casting(self.casting)
        for name in ("trans_a", "trans_b"):
            _check_kind(name, getattr(self, name), isinstance(getattr(self, name), str), "a string")
        named = self.activation is None or isinstance(self.activation, str)
        _check_kind("activation", self.activation, named, "a string, or None")
        if not isinstance(self.kernel, str):
            kinds = [type(part) for part in self.kernel] if isinstance(self.kernel, tuple) else []
            fits = kinds == [str, TileConfig]
            _check_kind("kernel", self.kernel, fits, "a kernel's name, or (name, TileConfig)")


def _check_kind(name: str, value: Any, fits: bool, wanted: str) -> None:
    if not fits:
        raise DTypeError(f"{name} is {value!r}; pass {wanted}")


def plain_numbers(alpha: Any, beta: Any) -> tuple[complex, complex]:
    """alpha and beta as Python numbers. Raises DTypeError if one is not a number.

    A plan sets a number only if it differs from that of the call before. NumPy's numbers equal others that
    round to them, ``np.float32(0.1) == 0.1``, and -0.0 equals 0.0: adding 0 makes it 0.0.
    """
    if type(alpha) is float and type(beta) is float:
        return alpha + 0.0, beta + 0.0
    return _plain("alpha", alpha), _plain("beta", beta)


def _plain(name: str, value: Any) -> complex:
    for plain, numpys in _NUMBERS:
        if isinstance(value, plain | numpys):
            number: complex = plain(value) + plain(0)
            return number
    raise DTypeError(
        f"{name} is a {type(value).__name__}; pass a number: an int, float or complex of Python or NumPy"
    )


def shown(number: complex) -> str:
    """*number* for an error. Python does not write integers of more than 4,300 digits."""
    return str(number) if _has_float(number) else f"an integer of {int(number.real).bit_length()} bits"


def _has_float(number: complex) -> bool:
    """Whether *number* is no integer beyond the range of float64."""
    try:
        complex(number)
    except OverflowError:
        return False
    return True


def beta_of(beta: complex | None, c: Any) -> complex:
    """*beta*; 0 if neither it nor *c* is given. Raises ArgumentError for a *c* without *beta*."""
    if beta is not None:
        return beta
    if c is not None:
        raise ArgumentError("c is given without beta; pass beta=1.0 to add c, or leave c out")
    return 0.0


def check_scalars(gemm: Gemm, alpha: complex, beta: complex) -> None:
    """Raise DTypeError if alpha or beta, Python numbers, cannot be represented in the result's type.

    Integers beyond the range of float64 raise ArgumentError, except for integer results, where they wrap.
    """
    kind = gemm.dtype.kind
    if type(alpha) is float and type(beta) is float and kind not in "biu":
        return
    for name, value in (("alpha", alpha), ("beta", beta)):
        if kind != "c" and isinstance(value, complex):
            raise DTypeError(f"{name} is complex, but the result is {gemm.dtype}; pass a real number")
        if kind in "biu" and not (isinstance(value, int) or float(value.real).is_integer()):
            raise DTypeError(f"{name} is {value}, but the result is {gemm.dtype}; pass a whole number")
        if kind not in "biu" and not _has_float(value):
            raise ArgumentError(
                f"{name} is {shown(value)}, beyond the range of float64, but the result is {gemm.dtype}; "
                "pass a number of at most 1.7e308 in size"
            )


def events_of(wait_for: Any) -> list[cl.Event]:
    """A new list of the events to wait for. Raises DTypeError for anything but a list or tuple of events."""
    if wait_for is None:
        return []
    if not isinstance(wait_for, list | tuple) or not all(isinstance(e, cl.Event) for e in wait_for):
        raise DTypeError(f"wait_for is {wait_for!r}; pass a list of pyopencl.Event")
    return list(wait_for)
