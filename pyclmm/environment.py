"""Every environment variable that pyclmm reads; no other module reads one. docs/environment.md lists them."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """An environment variable: its name, what it does, and what holds where it is not set."""

    name: str
    meaning: str
    default: str

    @property
    def value(self) -> str:
        """Its value now; empty where it is not set."""
        return os.environ.get(self.name, "")

    @property
    def is_off(self) -> bool:
        """Whether it is "off", in capitals or not."""
        return self.value.lower() == "off"


CACHE_DIR = Variable(
    "PYCLMM_CACHE_DIR",
    "the folder for verdicts of self-checks and for tables of the tuner",
    "the platform's folder for user caches (`~/.cache/pyclmm` on Linux)",
)
SELFCHECK = Variable(
    "PYCLMM_SELFCHECK",
    "`off`: kernels run unchecked; a wrong driver then gives wrong products without a word",
    "each kernel is checked before its first use on a device",
)
TRIAL = Variable(
    "PYCLMM_TRIAL",
    "`off`: no child process; a compiler that crashes then ends this process",
    "what might crash a compiler is built in a child process first",
)
TUNED = Variable(
    "PYCLMM_TUNED",
    "`off`: measured tables are not used, only the families' models",
    "the user's tables, then those that come with pyclmm",
)
CONTEXT = Variable(
    "PYOPENCL_CTX",
    "PyOpenCL's choice of a device, as `platform` or `platform:device`, by number or name",
    "the largest GPU, else the first device",
)

VARIABLES = (CACHE_DIR, SELFCHECK, TRIAL, TUNED, CONTEXT)
