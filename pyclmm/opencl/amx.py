"""Asks Linux for the tile registers of Intel's AMX: a process that uses them without leave is ended."""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from functools import cache

from ..kernels.device import Amx
from . import processor

_ARCH_PRCTL = 158  # the system call of Linux on x86-64
_REQUEST = 0x1023  # ARCH_REQ_XCOMP_PERM
_TILE_DATA = 18  # the part of the processor's state: XFEATURE_XTILEDATA
_TYPES = {"amx_int8": "int8", "amx_bf16": "bfloat16"}  # flag of /proc/cpuinfo -> what is multiplied


def amx_of(vendor: str) -> Amx:
    """What the processor multiplies by AMX for the driver of *vendor*. Asks Linux for leave if it can.

    Leave is for the process, its threads and its forks, and for good. The child process of a trial asks for
    itself.
    """
    if vendor != "pocl":
        return Amx(refusal="only PoCL's compiler takes the instructions")
    return _of_process()


@cache
def _of_process() -> Amx:
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 1 << 32:
        return Amx(refusal="it needs Linux on x86-64")
    types = types_of(processor.description())
    if not types:
        return Amx(refusal="the processor does not have it")
    if not _granted():
        return Amx(refusal="Linux does not let this process use the tile registers")
    return Amx(types)


def types_of(description: str) -> tuple[str, ...]:
    """The types that the processor of that description multiplies; none without the tile registers."""
    found = re.search(r"^flags\s*:(.*)$", description, re.MULTILINE)
    flags = found[1].split() if found else []
    return tuple(name for flag, name in _TYPES.items() if flag in flags) if "amx_tile" in flags else ()


def _granted() -> bool:
    try:
        call = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):  # no C library to load
        return False
    call.restype = ctypes.c_long
    return bool(call(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_REQUEST), ctypes.c_long(_TILE_DATA)) == 0)
