"""Every environment variable that pyclmm reads; no other module reads one.

docs/environment.md says what each does, and what holds where it is not set.
"""

from __future__ import annotations

import difflib
import functools
import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs

from .byte_sizes import parse_bytes
from .errors import ArgumentError, brief, warn_caller


@dataclass(frozen=True)
class Variable:
    """An environment variable, by name."""

    name: str

    @property
    def value(self) -> str:
        """The current value; empty if it is not set."""
        # What is not set takes os.environ an exception, half a microsecond of each warm call.
        known = getattr(os.environ, "_data", None)
        if known is not None and self._key not in known:
            return ""
        return os.environ.get(self.name, "")

    @property
    def is_set(self) -> bool:
        """Whether it is set, if only to nothing."""
        return self.name in os.environ

    @functools.cached_property
    def _key(self) -> str | bytes:
        """The name as CPython keeps it in ``os.environ._data``."""
        return os.environ.encodekey(self.name)

    def meanwhile(self, value: str) -> AbstractContextManager[None]:
        """In this block the variable has *value*, unless the user has set it. Then it is gone."""
        return nullcontext() if self.is_set else self.replaced(value)

    @contextmanager
    def replaced(self, value: str) -> Iterator[None]:
        """In this block the variable has *value*, whatever it was. Then it is as before."""
        before = os.environ.get(self.name)
        os.environ[self.name] = value
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(self.name, None)
            else:
                os.environ[self.name] = before

    @property
    def is_off(self) -> bool:
        """Whether the value is "off", in any case. Raises ArgumentError if it is not that, "on" or empty."""
        value = self.value.strip().lower()
        if value not in ("", "on", "off"):
            raise ArgumentError(
                f"{self.name} is {brief(self.value)}; set off or on, or leave it unset, which is on"
            )
        return value == "off"

    @property
    def nbytes(self) -> int | None:
        """The value as a number of bytes; None if it is not set. Raises ArgumentError for any other value."""
        return parse_bytes(self.name, self.value, least=0) if self.value.strip() else None


CACHE_DIR = Variable("PYCLMM_CACHE_DIR")
SELFCHECK = Variable("PYCLMM_SELFCHECK")
TRIAL = Variable("PYCLMM_TRIAL")
TUNED = Variable("PYCLMM_TUNED")
WITHOUT = Variable("PYCLMM_WITHOUT")
SHORT_TRACEBACKS = Variable("PYCLMM_SHORT_TRACEBACKS")
KEEP_WORKSPACE = Variable("PYCLMM_KEEP_WORKSPACE")
THREADLESS = Variable("PYCLMM_THREADLESS")
CONTEXT = Variable("PYOPENCL_CTX")
BUILD_OPTIONS = Variable("PYOPENCL_BUILD_OPTIONS")
POCL_CACHE_DIR = Variable("POCL_CACHE_DIR")
POCL_DEVICES = Variable("POCL_DEVICES")
POCL_AFFINITY = Variable("POCL_AFFINITY")
POCL_MAX_PTHREAD_COUNT = Variable("POCL_MAX_PTHREAD_COUNT")
POCL_CPU_MAX_CU_COUNT = Variable("POCL_CPU_MAX_CU_COUNT")
POCL_MAX_COMPUTE_UNITS = Variable("POCL_MAX_COMPUTE_UNITS")
POCL_PTHREAD_MIN_THREADS = Variable("POCL_PTHREAD_MIN_THREADS")
POCL_CPU_MIN_CU_COUNT = Variable("POCL_CPU_MIN_CU_COUNT")
POCL_MAX_WORK_GROUP_SIZE = Variable("POCL_MAX_WORK_GROUP_SIZE")
ICD_VENDORS = Variable("OCL_ICD_VENDORS")
VENDOR_PATH = Variable("OPENCL_VENDOR_PATH")
ICD_FILENAMES = Variable("OCL_ICD_FILENAMES")
PYOPENCL_HOME = Variable("PYOPENCL_HOME")
RUNTIME_DIR = Variable("XDG_RUNTIME_DIR")
HDF5_EXTERNAL = Variable("HDF5_EXTFILE_PREFIX")
HDF5_VIRTUAL = Variable("HDF5_VDS_PREFIX")

VARIABLES = tuple(found for found in tuple(globals().values()) if isinstance(found, Variable))


@functools.cache
def _warn_of_unknown_names() -> None:
    known = [variable.name for variable in VARIABLES]
    for name in sorted(os.environ.keys() - known):
        if name.startswith("PYCLMM_"):
            (nearest,) = difflib.get_close_matches(name, known, n=1, cutoff=0)
            warn_caller(
                f"the environment variable {name} has no effect; the nearest name that has is {nearest}",
                UserWarning,
            )


def user_cache(name: str, author: str | Literal[False] = False) -> Path:
    """The platform's cache folder of a program. It begins with a literal "~" for a user without a home."""
    try:
        return Path(platformdirs.user_cache_dir(name, author))
    except RuntimeError:  # platformdirs 4.14, where earlier versions return the "~"
        return Path("~", ".cache", name)


def user_runtime() -> Path:
    """A folder of this user on this host, for locks. The system's, or one beside other temporary files."""
    own = RUNTIME_DIR.value
    return Path(own, "pyclmm") if own else Path(tempfile.gettempdir(), f"pyclmm-{os.getuid()}")


def hidden_extensions() -> tuple[str, ...]:
    """The extensions that ``PYCLMM_WITHOUT`` names. Raises ArgumentError for one that makes no difference."""
    value = WITHOUT.value.strip()
    if value not in ("", "cl_khr_fp64"):
        raise ArgumentError(f"{WITHOUT.name} is {brief(value)}; set cl_khr_fp64, or leave it unset")
    return (value,) if value else ()


_CHECKED = (BUILD_OPTIONS, *(variable for variable in VARIABLES if variable.name.startswith("PYCLMM_")))


def check() -> None:
    """Raise ArgumentError for a variable of pyclmm's own with a value that it does not understand, and for
    build options that are no text or incomplete. The first time in a process it warns of names like those of
    pyclmm's own that it does not know.
    """
    _warn_of_unknown_names()
    _check(*[os.environ.get(variable.name) for variable in _CHECKED])


@functools.lru_cache(maxsize=1)
def _check(*_values: str | None) -> None:
    """:func:`check` for variables with these values."""
    _ = SELFCHECK.is_off, TRIAL.is_off, TUNED.is_off, SHORT_TRACEBACKS.is_off, THREADLESS.is_off
    _ = KEEP_WORKSPACE.nbytes, hidden_extensions()
    if CACHE_DIR.value.startswith("~"):
        raise ArgumentError(
            f"{CACHE_DIR.name} is {brief(CACHE_DIR.value)}, where ~ is a folder of that name; set the whole "
            "path"
        )
    if BUILD_OPTIONS.value.split()[-1:] in (["-D"], ["-I"]):  # PoCL 3.0 ends the process
        raise ArgumentError(
            f"{BUILD_OPTIONS.name} is {brief(BUILD_OPTIONS.value)}; set a macro after -D and a "
            "folder after -I, or leave it unset"
        )
    if any("\ud800" <= character <= "\udfff" for character in BUILD_OPTIONS.value):  # no bytes of UTF-8
        raise ArgumentError(
            f"{BUILD_OPTIONS.name} is {brief(BUILD_OPTIONS.value)}; set options of the compiler in UTF-8, or "
            "leave it unset"
        )
