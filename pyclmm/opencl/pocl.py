"""What PoCL needs: threads on the right CPUs, a linker, and a folder for its cache.

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
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path

import pyopencl as cl

from .. import environment
from ..errors import ArgumentError, brief, warn_caller

_POCL = "Portable Computing Language"
_ROOM = 1 << 16  # bytes; PoCL writes more for each program
_LINKS = "PoCL 3.0"  # in the platform's version
# By PoCL's version, the variables from which it takes the most threads, and the least: the first above 0, or
# the last.
_MOST = (
    environment.POCL_MAX_PTHREAD_COUNT,
    environment.POCL_CPU_MAX_CU_COUNT,
    environment.POCL_MAX_COMPUTE_UNITS,
)
_LEAST = (environment.POCL_PTHREAD_MIN_THREADS, environment.POCL_CPU_MIN_CU_COUNT)
_COUNTS = {7: (_MOST,), 4: (_MOST[:2], _LEAST), 0: (_MOST[:1], _LEAST[:1])}
_VERSION = re.compile(r"PoCL ([0-9]+)", re.ASCII)
_NUMBER = re.compile(r"\s*([+-]?[0-9]+)", re.ASCII)
_TOO_MANY = 1 << 22  # Linux has no more threads
_GCC = ("/usr/lib/gcc", "/usr/lib64/gcc", "/usr/lib32/gcc", "/lib/gcc")  # where PoCL's clang looks for libgcc


def _allowed() -> set[int]:
    """The CPUs that this process may use, if they are not all; else, or if the system does not tell, none."""
    if not hasattr(os, "sched_getaffinity"):  # Linux only, as is PoCL's binding
        return set()
    found = os.sched_getaffinity(0)
    return set() if found == set(range(os.cpu_count() or 0)) else found


def bound() -> AbstractContextManager[None]:
    """PoCL's devices that are first listed in this block have bound threads, or as many as this process may
    use CPUs, unless the user has set the variable for it. It is gone afterwards, for child processes.
    """
    if not hasattr(os, "sched_getaffinity"):
        return nullcontext()
    allowed = _allowed()
    if not allowed:
        # PoCL aborts if it cannot bind one.
        has_room = max(map(_number, (*_MOST, *_LEAST))) <= (os.cpu_count() or 1)
        return environment.POCL_AFFINITY.meanwhile("1") if has_room else nullcontext()
    if any(other.value for other in _MOST[1:]):
        return nullcontext()
    return environment.POCL_MAX_PTHREAD_COUNT.meanwhile(str(len(allowed)))


def _number(variable: environment.Variable) -> float:
    """The number that PoCL reads at the start of a value, of whatever length; 0 if there is none."""
    found = _NUMBER.match(variable.value)
    return float(found[1]) if found else 0


def _check_counts(version: str) -> None:
    """Raise ArgumentError for a number of threads with which PoCL of this *version* would end the process."""
    found = _VERSION.search(version)
    own = int(found[1]) if found else max(_COUNTS)
    for variables in next(counts for first, counts in _COUNTS.items() if own >= first):
        taken = next((x for x in variables if _number(x) > 0), variables[-1])
        if not 0 <= _number(taken) < _TOO_MANY:
            raise ArgumentError(
                f"{taken.name} is {brief(taken.value)}; set a number of threads of 1 or more, or leave it "
                "unset"
            )


def check_items(device: cl.Device) -> None:
    """Raise ArgumentError if a work-group of *device* may have no work-item, so that it can run nothing."""
    if device.max_work_group_size > 0:
        return
    size = environment.POCL_MAX_WORK_GROUP_SIZE
    says = f"device {device.name.strip()!r} allows 0 work-items in a work-group"
    if size.is_set and _has_pocl([device.platform]):
        raise ArgumentError(
            f"{size.name} is {brief(size.value)}, and {says}: set a number of 1 or more, or leave it unset"
        )
    raise ArgumentError(f"{says}, so that it computes nothing; take another device, or update its driver")


@contextmanager
def placed(platform: cl.Platform) -> Iterator[None]:
    """Threads that *platform* starts in this block are bound to the CPUs that this process may use, if it is
    PoCL, there is one for each, and these CPUs are not all. With POCL_AFFINITY set they are left alone.
    Raises ArgumentError if PoCL cannot start the number of threads that a variable asks for.
    """
    is_pocl = platform.name.strip() == _POCL
    if is_pocl:
        _check_counts(platform.version)
    allowed = _allowed() if is_pocl and not environment.POCL_AFFINITY.value else set()
    before = _threads() if allowed else set()
    yield
    started = sorted(_threads() - before) if allowed else []
    if len(started) == len(allowed):
        for thread, cpu in zip(started, sorted(allowed), strict=True):
            with suppress(OSError):  # it has ended
                os.sched_setaffinity(thread, {cpu})


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Threads that start here, and their children, take no SIGINT. One that comes now is taken afterwards."""
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


def linker_fault(platform: cl.Platform) -> str | None:
    """Why a kernel cannot be linked on this platform, and what would do; None if it can. PyPI's PoCL links by
    the system's ld, with gcc's libraries and libc's, at the first run, and PoCL 3.0 ends the process where it
    cannot (pocl issue 593).
    """
    return _fault() if _LINKS in platform.version else None


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
    warn_caller(fault, RuntimeWarning)


def pocl_folder() -> Path:
    """PoCL's cache folder."""
    if environment.POCL_CACHE_DIR.value:
        return Path(environment.POCL_CACHE_DIR.value)
    folder = environment.user_cache("pocl") / "kcache"
    return folder if folder.is_absolute() else Path("/tmp/pocl/kcache")  # for a user without a home


def hidden_fault(platforms: Iterable[cl.Platform]) -> str | None:
    """Which variable, if PoCL is among *platforms* and none has a device, is why; None if none is."""
    shown, kept = environment.POCL_DEVICES, environment.POCL_CACHE_DIR
    if not _has_pocl(platforms):
        return None
    if kept.is_set and len(kept.value) < 2:  # PoCL 3.0 takes no shorter name
        return (
            f"{kept.name} is {kept.value!r}, with which PoCL has no device: unset it, or set a folder that "
            "can be written and has room"
        )
    if not shown.is_set:
        return None
    return (
        f"{shown.name} is {brief(shown.value)}, and PoCL has no such device: unset it, or name those that "
        "PoCL is to show, with spaces between: pthread and basic (since PoCL 4: cpu and cpu-minimal)"
    )


def _has_pocl(platforms: Iterable[cl.Platform]) -> bool:
    return any(_POCL.lower() in platform.name.lower() for platform in platforms)


def pocl_fault(platforms: Iterable[cl.Platform]) -> str | None:
    """Why PoCL, if it is among *platforms*, cannot use its cache folder, and what would do; else None. Writes
    a small file there. Where it cannot be written PoCL shows no device or builds nothing.
    """
    if not _has_pocl(platforms):
        return None
    folder = pocl_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_ROOM))
    except OSError as error:
        return (
            f"PoCL cannot write its cache folder {folder} ({error.strerror}), and so has no device or builds "
            "nothing: set POCL_CACHE_DIR to a folder that can be written and has room"
        )
    return None
