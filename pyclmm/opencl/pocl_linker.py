"""Whether PyPI's PoCL can link kernels here: it ends the process where it cannot.

It links each kernel by the system's ld, with gcc's libraries and libc's, when the kernel is first run. OpenCL
has no error for that moment, so PoCL 3.0 aborts (pocl issue 593).
"""

from __future__ import annotations

import shutil
import sys
import warnings
from functools import cache
from pathlib import Path

import pyopencl as cl

_VERSION = "PoCL 3.0"  # in the platform's version
_GCC = ("/usr/lib/gcc", "/usr/lib64/gcc", "/usr/lib32/gcc", "/lib/gcc")  # where PoCL's clang looks for libgcc


def linker_fault(platform: cl.Platform) -> str | None:
    """Why a kernel cannot be linked on this platform, and what would do; None if it can."""
    return _fault() if _VERSION in platform.version else None


@cache
def _fault() -> str | None:
    own = Path(cl.__file__).parent / ".libs"
    if not sys.platform.startswith("linux") or not any(own.glob("libpocl-*")) or _has_linker():
        return None
    return (
        "PoCL of PyPI is left out, because it needs a linker and gcc's libraries, and would end this process "
        "without them: `pip install intel-opencl-rt intel-cmplr-lib-rt` brings a driver that needs none, "
        "`apt install gcc libc6-dev` installs them"
    )


def _has_linker() -> bool:
    return shutil.which("ld") is not None and any(any(Path(f).glob("*/*/libgcc.a")) for f in _GCC)


@cache
def warn_once(fault: str) -> None:
    """One RuntimeWarning in a process."""
    warnings.warn(fault, RuntimeWarning, stacklevel=3)
