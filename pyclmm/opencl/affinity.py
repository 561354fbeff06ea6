"""Binds PoCL's threads to CPUs, as they start.

PoCL has a thread for each CPU, and lets the system place them. On few CPUs two are often woken on the same
one, and a product of half a millisecond takes up to twice as long (docs/kernels/packed.md). PoCL binds its
threads if POCL_AFFINITY is 1 when its device is first asked for. Intel's CPU runtime binds its own threads.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext

from .. import environment


def _all_cpus_allowed() -> bool:
    """Whether this process may use every CPU. PoCL counts CPUs from 0, whichever ones are allowed, so with
    fewer it would bind threads to CPUs that the user excluded, or end the process.
    """
    allowed = getattr(os, "sched_getaffinity", None)  # Linux only, as is PoCL's binding
    return allowed is not None and allowed(0) == set(range(os.cpu_count() or 0))


def bound() -> AbstractContextManager[None]:
    """PoCL's devices that are first listed in this block have bound threads, unless the user has set
    POCL_AFFINITY. The variable is gone afterwards, so that programs that this one starts do not see it.
    """
    return environment.POCL_AFFINITY.meanwhile("1") if _all_cpus_allowed() else nullcontext()
