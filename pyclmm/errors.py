"""The exceptions that pyclmm raises.

::

    PyclmmError
    ├── ArgumentError(ValueError)        a value is wrong: kernel name, read-only out, other context
    │   └── ShapeError                   shapes that do not multiply
    ├── DTypeError(TypeError)            a dtype or kind of operand that cannot be multiplied
    ├── UnsupportedError(RuntimeError)   no kernel can do this here; lists each kernel's reason
    ├── BuildError(RuntimeError)         the driver refused a program; has device, options and log
    ├── DeviceMemoryError(MemoryError)   names the bytes needed and the limit
    ├── LaunchError(RuntimeError)        the driver refused to run a kernel; nothing was written
    ├── DeviceLostError(RuntimeError)    the device stopped in mid-run, or its context is gone
    ├── ForkError(RuntimeError)          forked after OpenCL was used; drivers do not survive that
    └── NoDeviceError(RuntimeError)      no OpenCL device; says what to install

Every message names the argument, what was passed, and what would do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class KernelWarning(RuntimeWarning):
    """A kernel could not be used on this device, and the next one was taken."""


class CacheWarning(UserWarning):
    """A cache file was not usable and has been set aside."""


class PyclmmError(Exception):
    """Base of everything pyclmm raises on purpose."""


class ArgumentError(PyclmmError, ValueError):
    """An argument has a value that cannot be used."""


class ShapeError(ArgumentError):
    """Shapes that do not fit each other, as :func:`numpy.matmul` would refuse them."""


class DTypeError(PyclmmError, TypeError):
    """A dtype, or a kind of operand, that cannot be multiplied."""


class UnsupportedError(PyclmmError, RuntimeError):
    """No kernel (or not the one asked for) can do this product on this device."""


class BuildError(PyclmmError, RuntimeError):
    """The OpenCL compiler refused a program.

    Attributes: ``device`` (its name), ``options`` (the build options), ``log`` (the compiler's).
    """

    def __init__(self, device: str, options: str, log: str) -> None:
        self.device, self.options, self.log = device, options, log
        super().__init__(
            f"the OpenCL compiler of device {device!r} refused a program of pyclmm; "
            f"options: {options!r}; log:\n{log}"
        )

    @property
    def complaint(self) -> str:
        """The compiler's first complaint, in one line."""
        found = next((line.strip() for line in self.log.splitlines() if "error:" in line), "see the log")
        return f"does not build: {found}"


class DeviceMemoryError(PyclmmError, MemoryError):
    """A buffer is larger than the device allows, or its memory is used up."""


class LaunchError(PyclmmError, RuntimeError):
    """The driver refused to run a kernel: out of resources, or a work-group it does not take.

    ``begun``: whether it had taken an earlier launch of the same product.
    """

    begun = False


class DeviceLostError(PyclmmError, RuntimeError):
    """The device stopped before a result was there, or its context cannot be used any more."""


class ForkError(PyclmmError, RuntimeError):
    """This process was forked from one that had used OpenCL, where drivers would hang."""


class NoDeviceError(PyclmmError, RuntimeError):
    """There is no OpenCL platform, or none with a device."""


def in_short(error: BaseException) -> str:
    """One line of an error: for a failed build, the compiler's first complaint."""
    if isinstance(error, BuildError):
        return error.complaint
    return next(iter(str(error).splitlines()), type(error).__name__)


INSTALL_HINT = (
    'install a driver: `pip install "pyclmm[pocl]"` brings one for the CPU; for a GPU install its '
    "vendor's OpenCL driver (on Debian: nvidia-opencl-icd, intel-opencl-icd, rocm-opencl-icd or "
    "mesa-opencl-icd)"
)


def unknown_name(what: str, given: object, valid: Iterable[str]) -> ArgumentError:
    """An error for a name that is not among the *valid* ones, with the nearest of them first."""
    names = list(valid)
    near = difflib.get_close_matches(str(given), names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return ArgumentError(f"unknown {what} {given!r}: {hint}valid are {', '.join(map(repr, names))}")
