"""The threads that drivers start: how many PoCL has, on which CPUs, and which signals they take.

PoCL has a thread for each CPU, and lets the system place them. On few CPUs two are often woken on the same
one, and a product of half a millisecond takes up to twice as long (docs/kernels/packed.md). PoCL binds its
threads if POCL_AFFINITY is 1 when its device is first asked for.

In a process that may use some CPUs only (a container, taskset, a batch system) PoCL has a thread for each of
the others, too, and would bind to CPUs that are not allowed. There POCL_MAX_PTHREAD_COUNT limits the threads,
and this module binds them. Intel's CPU runtime counts and binds its own threads.

PoCL's threads link programs by child processes. A terminal's Ctrl-C goes to these, too, and PoCL ends the
whole process if the linker fails. So drivers' threads, and what they start, do not take SIGINT.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from .. import environment

_POCL = "Portable Computing Language"


def _allowed() -> set[int]:
    """The CPUs that this process may use, if they are not all; else, or if the system does not tell, none."""
    if not hasattr(os, "sched_getaffinity"):  # Linux only, as is PoCL's binding
        return set()
    found = os.sched_getaffinity(0)
    return set() if found == set(range(os.cpu_count() or 0)) else found


def bound() -> AbstractContextManager[None]:
    """PoCL's devices that are first listed in this block have bound threads, or as many as this process may
    use CPUs, unless the user has set the variable for it. The variable is gone afterwards, so that programs
    that this one starts do not see it.
    """
    if not hasattr(os, "sched_getaffinity"):
        return nullcontext()
    allowed = _allowed()
    if not allowed:
        return environment.POCL_AFFINITY.meanwhile("1")
    if environment.POCL_CPU_MAX_CU_COUNT.value:  # its name since PoCL 6, which takes both
        return nullcontext()
    return environment.POCL_MAX_PTHREAD_COUNT.meanwhile(str(len(allowed)))


@contextmanager
def placed(platform: str) -> Iterator[None]:
    """Threads that *platform* starts in this block are bound to the CPUs that this process may use, if it is
    PoCL, there is one for each, and these CPUs are not all. With POCL_AFFINITY set they are left alone.
    """
    allowed = _allowed() if platform == _POCL and not environment.POCL_AFFINITY.value else set()
    before = _threads() if allowed else set()
    yield
    started = sorted(_threads() - before) if allowed else []
    if len(started) == len(allowed):
        for thread, cpu in zip(started, sorted(allowed), strict=True):
            with suppress(OSError):  # it has ended
                os.sched_setaffinity(thread, {cpu})


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Threads that start in this block, and their child processes, do not take SIGINT. One that comes
    meanwhile is taken afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _threads() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}
