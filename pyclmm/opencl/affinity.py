"""How many threads PoCL starts, and on which CPUs.

PoCL has a thread for each CPU, and lets the system place them. On few CPUs two are often woken on the same
one, and a product of half a millisecond takes up to twice as long (docs/kernels/packed.md). PoCL binds its
threads if POCL_AFFINITY is 1 when its device is first asked for. In a process that may use some CPUs only (a
container, taskset, a batch system) it has a thread for each of the others, too; POCL_MAX_PTHREAD_COUNT limits
them. Intel's CPU runtime counts and binds its own threads.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext

from .. import environment


def bound() -> AbstractContextManager[None]:
    """PoCL's devices that are first listed in this block have bound threads, or as many as this process may
    use CPUs, unless the user has set the variable for it. The variable is gone afterwards, so that programs
    that this one starts do not see it.
    """
    if not hasattr(os, "sched_getaffinity"):  # Linux only, as is PoCL's binding
        return nullcontext()
    allowed = os.sched_getaffinity(0)
    if allowed == set(range(os.cpu_count() or 0)):
        return environment.POCL_AFFINITY.meanwhile("1")
    # PoCL counts CPUs from 0, whichever ones are allowed: it would bind threads to CPUs that the user
    # excluded, or end the process.
    if environment.POCL_CPU_MAX_CU_COUNT.value:  # its name since PoCL 6, which takes both
        return nullcontext()
    return environment.POCL_MAX_PTHREAD_COUNT.meanwhile(str(len(allowed)))
