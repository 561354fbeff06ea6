"""The arguments of a product that are not arrays: options, scalars and events, with their checks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any, get_args
from weakref import WeakValueDictionary

import numpy as np
import pyopencl as cl
from numpy.typing import DTypeLike

from ..byte_sizes import parse_limit
from ..errors import ArgumentError, DTypeError, UnsupportedError, brief, unknown_name, warn_caller
from ..kernels import kernel_named
from ..kernels.config import TileConfig
from ..opencl import status
from ..opencl.steps import Scales
from ..problem.dtypes import check_casting, named_dtype
from ..problem.gemm import ACTIVATIONS
from ..problem.literals import Activation, Casting, Precision, Rounded, Trans, Verify
from ..problem.settings import chosen, in_context, is_reproducible, is_verified
from ..raising import OfProcess
from ..selection.select import KernelChoice

_NUMBERS: tuple[tuple[Any, Any], ...] = (
    (int, np.integer | np.bool_),
    (float, np.floating),
    (complex, np.complexfloating),
)


@dataclass(frozen=True)
class Options:
    """The options of a product, checked; :func:`pyclmm.gemm` describes each, :class:`pyclmm.Matmul` the last
    two. None for ``precision``, ``reproducible`` and ``verify`` becomes the default of the context.

    Raises DTypeError for a value of another type, and ArgumentError for one that is none of an option's.
    """

    trans_a: str = "N"
    trans_b: str = "N"
    activation: str | None = None
    kernel: KernelChoice = "auto"
    precision: Any = None  # a str
    reproducible: Any = None  # a bool
    casting: Casting = "same_kind"
    verify: Any = None  # a bool, or "repair"
    dtype: Any = None  # an np.dtype, or None
    quantize_a: Rounded | None = None
    b_format: str = ""  # of quantised weights: the name of a format (pyclmm/formats)
    workspace_limit: Any = None  # an int, or None
    constant_b: bool = False
    pairs: tuple[int, ...] = ()  # of a list, for each product that is checked: the number of its pair
    key: tuple[Any, ...] = field(init=False, repr=False, compare=False)  # of what depends on the options

    def __post_init__(self) -> None:
        for name in ("trans_a", "trans_b"):
            check_name(name, getattr(self, name), get_args(Trans))
        if self.activation is not None:
            check_name("activation", self.activation, ACTIVATIONS)
        check_kernel(self.kernel)
        check_casting(self.casting)
        _check_kind(
            "constant_b", self.constant_b, isinstance(self.constant_b, bool | np.bool_), "True or False"
        )
        checked = {
            "workspace_limit": parse_limit("workspace_limit", self.workspace_limit, least=0),
            "precision": chosen(self.precision),
            "reproducible": is_reproducible(self.reproducible),
            "verify": is_verified(self.verify),
            "dtype": named_dtype(self.dtype),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.quantize_a is not None:
            self._check_rounding()
        object.__setattr__(self, "key", (*vars(self).values(), _letter(self.dtype)))

    def _check_rounding(self) -> None:
        """Raise unless ``quantize_a`` is offered with the other options."""
        check_name("quantize_a", self.quantize_a, get_args(Rounded))
        asked = f"quantize_a is {brief(self.quantize_a)}"
        if not self.b_format:
            raise ArgumentError(
                f"{asked}, but b is no quantised weights; leave it out, or pass pyclmm.quantize(b.T).T"
            )
        for name in ("reproducible", "verify"):
            if value := getattr(self, name):
                raise UnsupportedError(
                    f"{asked} and {name} is {brief(value)}; one of the two at a time is offered"
                )

    def keywords(self) -> dict[str, Any]:
        """As keywords of gemm."""
        left_out = ("quantize_a", "b_format", "workspace_limit", "constant_b", "pairs", "key")
        return {name: value for name, value in vars(self).items() if name not in left_out}


class WithOptions(OfProcess):
    """A plan, which tells the options that it was made with."""

    _options: Options
    _has_same_bits: bool

    @property
    def precision(self) -> str:
        """The precision that the plan was made with."""
        return str(self._options.precision)

    @property
    def reproducible(self) -> bool:
        """Whether the bits of its results are the same on every device. Those of integers always are."""
        return self._has_same_bits

    @property
    def verify(self) -> bool | str:
        """How its results are checked: False, True or "repair" (docs/verification.md)."""
        how: bool | str = self._options.verify
        return how


def _letter(dtype: np.dtype[Any] | None) -> str | None:
    """What tells longlong from int64, which are equal dtypes."""
    return None if dtype is None else dtype.char


_alive: WeakValueDictionary[Any, Options] = WeakValueDictionary()


@lru_cache(maxsize=256)
def _kept(*key: Any) -> Options:
    """*key*: a dtype's letter, and the options asked for. What is still in use is not made anew."""
    return _alive.setdefault(key, Options(*key[1]))


def options_of(
    *,
    trans_a: Trans = "N",
    trans_b: Trans = "N",
    activation: Activation | None = None,
    kernel: KernelChoice = "auto",
    precision: Precision | None = None,
    reproducible: bool | None = None,
    casting: Casting = "same_kind",
    verify: Verify | None = None,
    dtype: DTypeLike | None = None,
    quantize_a: Rounded | None = None,
    b_format: str = "",
) -> Options:
    """The options asked for: of two calls that ask for the same, the same object. Raises as Options does."""
    named = None if dtype is None else named_dtype(dtype)
    asked = (
        trans_a, trans_b, activation, kernel, chosen(precision), is_reproducible(reproducible), casting,
        is_verified(verify), named, quantize_a, b_format,
    )  # fmt: skip
    try:
        return _kept(None if named is None else _letter(named), asked)
    except TypeError:  # one cannot be hashed, and no value of an option is like that
        return Options(*asked)


@cache
def _unnamed(_settings: tuple[Any, ...]) -> Options:
    return options_of()  # which reads these settings


def unnamed_options() -> Options:
    """Those of a call that names none, which :func:`options_of` takes three times as long to find."""
    return _unnamed(in_context())


@lru_cache(maxsize=256)
def computed_in(options: Options, dtype: np.dtype[Any]) -> Options:
    """The same *options*, which name no dtype, with this one."""
    return replace(options, dtype=dtype)


def _check_kind(name: str, value: Any, fits: bool, wanted: str) -> None:
    if not fits:
        raise DTypeError(f"{name} is {brief(value)}; pass {wanted}")


def check_name(name: str, value: Any, valid: tuple[str, ...]) -> None:
    """Raise DTypeError unless the argument *name* is a string, ArgumentError unless it is *valid*."""
    _check_kind(name, value, isinstance(value, str), f"a string: one of {', '.join(map(repr, valid))}")
    if value not in valid:
        raise unknown_name(name, value, valid)


def check_kernel(kernel: Any) -> None:
    """Raise DTypeError or ArgumentError unless *kernel* is what a call takes."""
    if not isinstance(kernel, str):
        kinds = [type(part) for part in kernel] if isinstance(kernel, tuple) else []
        _check_kind("kernel", kernel, kinds == [str, TileConfig], "a kernel's name, or (name, TileConfig)")
        kernel = kernel[0]
    if kernel != "auto":
        kernel_named(kernel)


def plain_numbers(alpha: Any, beta: Any) -> Scales:
    """alpha and beta as Python numbers. Raises DTypeError if one is not a number.

    A plan sets a number only if it differs from that of the call before. NumPy's numbers equal others that
    round to them, ``np.float32(0.1) == 0.1``, and -0.0 equals 0.0: adding 0 makes it 0.0.
    """
    if type(alpha) is float and type(beta) is float:
        return alpha + 0.0, beta + 0.0
    return plain_number("alpha", alpha), plain_number("beta", beta)


def plain_number(name: str, value: Any) -> complex:
    """:func:`plain_numbers` for the one called *name*."""
    for plain, numpys in _NUMBERS:
        if isinstance(value, plain | numpys):
            number: complex = plain(value) + plain(0)
            return number
    raise DTypeError(
        f"{name} is a {type(value).__name__}; pass a number: an int, float or complex of Python or NumPy"
    )


def zeros_of(scales: Scales) -> tuple[bool, bool]:
    """Whether alpha is 0, and whether beta is."""
    alpha, beta = scales
    return alpha == 0, beta == 0


def beta_of(beta: complex | None, c: Any) -> complex:
    """*beta*; 0 if neither it nor *c* is given. Raises ArgumentError for a *c* without *beta*."""
    if beta is not None:
        return beta
    if c is not None:
        raise ArgumentError("c is given without beta; pass beta=1.0 to add c, or leave c out")
    return 0.0


def warn_of_dropped() -> None:
    """Warn as NumPy does where a complex product becomes real."""
    words = "Casting complex values to real discards the imaginary part"  # NumPy's
    warn_caller(words, np.exceptions.ComplexWarning)


def refuse_events(wait_for: list[cl.Event]) -> None:
    """Raise ArgumentError for events to wait for."""
    if wait_for:
        raise ArgumentError("wait_for has events of OpenCL; arrays on CUDA are ordered by their stream")


def events_of(wait_for: Any, queue: Any = None) -> list[cl.Event]:
    """A new list of the events to wait for, on *queue* if one is given.

    Raises DTypeError for anything but a list or tuple of events, ArgumentError for one of another context,
    or of a command that failed.
    """
    if wait_for is None:
        return []
    if not isinstance(wait_for, list | tuple) or not all(isinstance(e, cl.Event) for e in wait_for):
        raise DTypeError(f"wait_for is {brief(wait_for)}; pass a list of pyopencl.Event")
    if isinstance(queue, cl.CommandQueue):  # a path on CUDA refuses all events itself
        status.check_events(wait_for, queue.context, "wait_for has")
        for at, event in enumerate(wait_for):
            if failure := status.failure_of(event):  # PoCL would wait for it forever
                raise status.failed_event(f"wait_for[{at}]", failure)
    return list(wait_for)


def wait_here(wait_for: Any) -> None:
    """Wait for the events on the host, which reads operands next. Raises as :func:`events_of` does, and
    ArgumentError for one that ends with an error.
    """
    for at, event in enumerate(events_of(wait_for)):
        try:
            event.wait()
        except cl.Error as error:
            raise status.failed_event(f"wait_for[{at}]", error) from error
