"""Every environment variable that pyclmm reads; no other module reads one. docs/environment.md lists them."""

from __future__ import annotations

import difflib
import functools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs

from .byte_sizes import parse_bytes
from .errors import ArgumentError, warn_caller


@dataclass(frozen=True)
class Variable:
    """An environment variable: its name, its meaning, and the default if it is not set."""

    name: str
    meaning: str
    default: str

    @property
    def value(self) -> str:
        """The current value; empty if it is not set."""
        return os.environ.get(self.name, "")

    @contextmanager
    def meanwhile(self, value: str) -> Iterator[None]:
        """In this block the variable has *value*, unless the user has set it. Then it is gone."""
        with nullcontext() if self.name in os.environ else self.replaced(value):
            yield

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
        """Whether the value is "off", in upper or lower case. Raises ArgumentError unless it is that, "on" or
        nothing.
        """
        value = self.value.strip().lower()
        if value not in ("", "on", "off"):
            raise ArgumentError(
                f"{self.name} is {self.value!r}; set off or on, or leave it unset, which is on"
            )
        return value == "off"

    @property
    def nbytes(self) -> int | None:
        """The value as a number of bytes; None if it is not set. Raises ArgumentError for any other value."""
        return parse_bytes(self.name, self.value, least=0) if self.value else None


CACHE_DIR = Variable(
    "PYCLMM_CACHE_DIR",
    "the folder for verdicts of the self-check, compiled programs and tables of `pyclmm tune`",
    "the platform's folder for user caches (`~/.cache/pyclmm` on Linux)",
)
SELFCHECK = Variable(
    "PYCLMM_SELFCHECK",
    "`off`: kernels run unchecked, so nothing notices a driver that gives wrong results",
    "each kernel is checked before its first use on a device",
)
TRIAL = Variable(
    "PYCLMM_TRIAL",
    "`off`: no trials, so a compiler that crashes ends this process",
    "a kernel that might crash a compiler is tried in a child process first",
)
TUNED = Variable(
    "PYCLMM_TUNED",
    "`off`: measured tables are ignored; only the families' models choose",
    "the user's tables, then the shipped ones",
)
WITHOUT = Variable(
    "PYCLMM_WITHOUT",
    "`cl_khr_fp64`: pyclmm acts as if no device had that extension, to see how float64 goes without it",
    "every device has what its driver says",
)
KEEP_WORKSPACE = Variable(
    "PYCLMM_KEEP_WORKSPACE",
    "the bytes of workspace that a thread keeps for each device (`64 MiB`, `2 GB`); "
    "[`pyclmm.keep_workspace`](semantics.md#plans-and-their-memory) overrides it",
    "a sixteenth of the device's memory",
)
CONTEXT = Variable(
    "PYOPENCL_CTX",
    "the default device, as `platform` or `platform:device`, by number or name",
    "the largest GPU, else Intel's CPU runtime, else the first platform's largest device",
)
BUILD_OPTIONS = Variable(
    "PYOPENCL_BUILD_OPTIONS",
    "options that PyOpenCL adds to every build; programs that were compiled with others are not loaded",
    "none",
)
POCL_CACHE_DIR = Variable(
    "POCL_CACHE_DIR",
    "PoCL's own cache folder; pyclmm looks whether it can be written if PoCL has no device or a build fails",
    "`pocl/kcache` in the platform's folder for user caches",
)
POCL_AFFINITY = Variable(
    "POCL_AFFINITY",
    "`0`: the system places PoCL's threads; `1`: each is bound to a CPU. Read when devices are first listed",
    "`1` meanwhile, on Linux, if the process may use every CPU; else pyclmm binds them",
)
POCL_MAX_PTHREAD_COUNT = Variable(
    "POCL_MAX_PTHREAD_COUNT",
    "how many threads, and so compute units, PoCL has; read when devices are first listed",
    "the number of CPUs meanwhile, on Linux, if the process may use some of them only",
)
POCL_CPU_MAX_CU_COUNT = Variable(
    "POCL_CPU_MAX_CU_COUNT",
    "PoCL 6's name for `POCL_MAX_PTHREAD_COUNT`; if it is set, pyclmm sets neither",
    "none",
)
ICD_VENDORS = Variable(
    "OCL_ICD_VENDORS",
    "where the loader of OpenCL drivers looks; if it is set, pyclmm tells it of no other driver",
    "`/etc/OpenCL/vendors` and the drivers that pip installed",
)
VENDOR_PATH = Variable(
    "OPENCL_VENDOR_PATH",
    "the system's folder of drivers; pyclmm looks whether Intel's CPU runtime is among them",
    "`/etc/OpenCL/vendors`",
)
ICD_FILENAMES = Variable(
    "OCL_ICD_FILENAMES",
    "drivers that Khronos's loader adds; pyclmm appends `[intel]`'s runtime while devices are first listed",
    "none",
)
PYOPENCL_HOME = Variable(
    "PYOPENCL_HOME",
    "where the loader in PyOpenCL's wheel finds pip's drivers; PyOpenCL sets it. While devices are first "
    "listed, pyclmm sets it to a folder that has `[intel]`'s runtime too",
    "PyOpenCL's folder",
)
RUNTIME_DIR = Variable(
    "XDG_RUNTIME_DIR",
    "the user's folder on this host: in `pyclmm/` of it are the locks by which Dask's workers share devices",
    "`pyclmm-` and the user's number in the folder for temporary files",
)
HDF5_EXTERNAL = Variable(
    "HDF5_EXTFILE_PREFIX",
    "where HDF5 finds the raw files of a dataset; pyclmm looks there whether `out` is one of them",
    "beside the dataset's file",
)
HDF5_VIRTUAL = Variable(
    "HDF5_VDS_PREFIX",
    "where HDF5 finds the sources of a virtual dataset; pyclmm looks there too",
    "beside the dataset's file",
)

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
        raise ArgumentError(f"{WITHOUT.name} is {value!r}; set cl_khr_fp64, or leave it unset")
    return (value,) if value else ()


def check() -> None:
    """Raise ArgumentError for a variable of pyclmm's own with a value that it does not understand.

    The first time in a process it warns of names like those of pyclmm's own that it does not know.
    """
    _warn_of_unknown_names()
    _ = SELFCHECK.is_off, TRIAL.is_off, TUNED.is_off, KEEP_WORKSPACE.nbytes, hidden_extensions()
    if CACHE_DIR.value.startswith("~"):
        raise ArgumentError(
            f"{CACHE_DIR.name} is {CACHE_DIR.value!r}, where ~ is a folder of that name; set the whole path"
        )
