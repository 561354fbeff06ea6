"""The exceptions that pyclmm raises.

::

    PyclmmError
    ├── ArgumentError(ValueError)        a value is wrong: kernel name, read-only out, other context
    │   ├── ShapeError                   shapes that do not multiply
    │   │   └── AxisError                an axis that is not there; NumPy's AxisError, so an IndexError, too
    │   └── CheckpointError              a folder of finished tiles is of another product, damaged or in use
    ├── DTypeError(TypeError)            a dtype or kind of operand that cannot be multiplied
    ├── UnsupportedError(RuntimeError)   no kernel can compute this here; lists each kernel's reason
    ├── BuildError(RuntimeError)         the driver rejected a program; has device, options and log
    ├── DeviceMemoryError(MemoryError)   names the bytes needed and the limit; or the host has no memory
    │   └── WorkspaceError               the same for workspace, of which another kernel may need less
    ├── LaunchError(RuntimeError)        the driver rejected a launch; nothing was written
    ├── DeviceLostError(RuntimeError)    the device stopped during a run, or its context is lost
    ├── VerificationError(RuntimeError)  a result was checked and is wrong; names the rows and columns
    ├── ThreadError(RuntimeError)        the system refuses a thread, or the interpreter ends
    ├── StorageError(OSError)            a file or dataset could not be read or written; names the part
    ├── ForkError(RuntimeError)          the process forked after it had used OpenCL
    └── NoDeviceError(RuntimeError)      no OpenCL device; says what to install

Every message names the argument, what was passed, and what would do.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

import numpy as np

_SHOWN, _BITS = 120, 1000  # characters of a value in a message, and bits of an integer
_LINE = 500  # characters of another library's message, which may repeat a value


class KernelWarning(RuntimeWarning):
    """A kernel could not be used on this device, so a fallback is used."""


class CacheWarning(UserWarning):
    """A faulty cache file was renamed, a shipped table is left out, or a cache of others has failed."""


class DeviceWarning(RuntimeWarning):
    """A device takes no more part in a product of several devices; the others compute its tiles."""


class CheckpointWarning(UserWarning):
    """``out`` no longer holds tiles that a checkpoint notes as finished; they are computed again."""


class VerificationWarning(RuntimeWarning):
    """A part of a result was wrong and was computed again by another kernel (``verify="repair"``)."""


class PyclmmError(Exception):
    """The base of every exception that pyclmm raises on purpose."""


class ArgumentError(PyclmmError, ValueError):
    """An argument has a value that cannot be used."""


class ShapeError(ArgumentError):
    """Shapes that do not multiply, for which :func:`numpy.matmul` raises ValueError."""


class AxisError(ShapeError, np.exceptions.AxisError):
    """An axis that the array does not have. Code written for NumPy's AxisError catches it."""


class CheckpointError(ArgumentError):
    """A checkpoint's folder is of another product, ``out`` or owner, damaged, in use or not writable."""


class DTypeError(PyclmmError, TypeError):
    """A dtype, or a kind of operand, that cannot be multiplied."""


class UnsupportedError(PyclmmError, RuntimeError):
    """No kernel, or not the requested one, can compute this product on this device."""


class BuildError(PyclmmError, RuntimeError):
    """The compiler rejected a program. Attributes: ``device``, its name; ``options``; ``log``, its output."""

    def __init__(self, device: str, options: str, log: str) -> None:
        self.device, self.options, self.log = device, options, log
        super().__init__(
            f"the OpenCL compiler of device {device!r} rejected a program of pyclmm:\n{log}\n"
            f"options: {options}"
        )

    def __reduce__(self) -> tuple[Any, ...]:  # for pickle, which brings it from another process
        return type(self), (self.device, self.options, self.log)

    @property
    def complaint(self) -> str:
        """The compiler's first error, in one line; where it names none, the last line that it wrote."""
        lines = [line.strip() for line in self.log.splitlines() if line.strip()]
        found = next((line for line in lines if "error:" in line), lines[-1] if lines else "see the log")
        return f"does not build: {found}"


class DeviceMemoryError(MemoryError, PyclmmError):  # in this order its __new__ is MemoryError's
    """A buffer is larger than the device allows, or its memory is used up, or the host's."""


class WorkspaceError(DeviceMemoryError):
    """No memory for the workspace of a kernel. ``begun``: the device had accepted an earlier launch."""

    begun = False


class LaunchError(PyclmmError, RuntimeError):
    """The driver rejected a launch: it lacks resources, or the work-group is too large. ``begun``: whether it
    had accepted an earlier launch of the same product.
    """

    begun = False


REFUSED = (LaunchError, WorkspaceError)  # with another kernel the product may succeed
Refused = LaunchError | WorkspaceError


class DeviceLostError(PyclmmError, RuntimeError):
    """The device stopped before the result was complete, or its context can no longer be used."""


class VerificationError(PyclmmError, RuntimeError):
    """A result was checked, as ``verify=`` asks, and is wrong.

    Attributes: ``device`` and ``kernel`` (names), ``rows`` and ``columns`` (half-open ranges around
    what is wrong), ``stack`` (the range of products of a stack), ``seed`` (of the random signs, a number),
    ``error`` and ``limit`` (of the first wrong row's sum; ``error`` is infinite where a NaN or an infinity is
    wrong).
    """

    device: str
    kernel: str
    rows: tuple[int, int]
    columns: tuple[int, int]
    stack: tuple[int, int]
    seed: int
    error: float
    limit: float

    def __init__(self, text: str, **found: Any) -> None:
        super().__init__(text)
        vars(self).update(found)  # by pickle later


class ThreadError(PyclmmError, RuntimeError):
    """The system lets this process start no further thread, or the interpreter ends; tiles need threads."""


class StorageError(PyclmmError, OSError):
    """A file or dataset could not be read or written: names the argument, the rows and columns, the cause."""


class ForkError(PyclmmError, RuntimeError):
    """This process was forked from one that had used OpenCL. A driver would hang here."""


class NoDeviceError(PyclmmError, RuntimeError):
    """There is no OpenCL platform, or none with a device."""


# In threads of pyclmm: what has the thread that called it call a function, once with the same arguments.
bring: ContextVar[Callable[..., None] | None] = ContextVar("bring", default=None)


def tell_caller(function: Callable[..., Any], *said: object) -> None:
    """Call *function* in the thread that called pyclmm."""
    if (to_caller := bring.get()) is None:
        function(*said)
    else:
        to_caller(function, *said)


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line outside pyclmm that called it, however deep this is."""
    if bring.get() is not None:
        tell_caller(warn_caller, message, category)
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "pyclmm":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def in_short(error: BaseException) -> str:
    """An error in one line, to go on from; for a failed build, the compiler's first error."""
    if isinstance(error, BuildError):
        return error.complaint
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    line = next(iter(text.splitlines()), type(error).__name__)
    return line.rstrip(".") if len(line) <= _LINE else f"{line[:_LINE]}..."


def amount(count: int, what: str) -> str:
    """*count* and what is counted, in the plural: "2 axes", "1 axis"."""
    ends = {"axes": "axis", "entries": "entry", "launches": "launch"}
    *words, last = what.split()
    one = " ".join([*words, ends.get(last, last.removesuffix("s"))])
    return f"{count} {one if count == 1 else what}"


def brief(value: object) -> str:
    """``repr(value)`` in a short line, also of an integer of 5,000 digits, which Python does not print."""
    if isinstance(value, int) and value.bit_length() > _BITS:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = " ".join(repr(value).splitlines())
    except Exception:  # a list of such integers; of somebody else's class anything
        return f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


def unknown_name(what: str, given: object, valid: Iterable[str]) -> ArgumentError:
    """An error for a name that is not *valid*. It suggests the nearest valid names and lists all of them."""
    names = list(valid)
    text = given if isinstance(given, str) else brief(given)
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return ArgumentError(f"unknown {what} {brief(given)}: {hint}valid are {', '.join(map(repr, names))}")
