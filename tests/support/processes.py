"""New processes, and what this one remembers of pyclmm, forgotten: tests see what a new process would do."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from weakref import WeakValueDictionary

import pyopencl as cl

import pyclmm
from pyclmm import calls, plan_cache, release, store
from pyclmm.checks import selfcheck
from pyclmm.execution import host_path
from pyclmm.linalg import repeated
from pyclmm.opencl import binaries, crash_marks, program, queues
from pyclmm.opencl.single_flight import LastUsed, SingleFlight
from tests.support.limits import limited


def ended(*command, timeout=600, check=False, **keywords):
    """A command that has ended: what subprocess.run gives, as text."""
    command = [*map(str, command)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=check, **keywords)


def python(*arguments, **keywords):
    """A new interpreter with these arguments, when it has ended."""
    return ended(sys.executable, *arguments, **keywords)


def in_a_process_of_its_own(call, *arguments):
    """Call a function of a module, with constants. What it does may end the process."""
    code = f"import {call.__module__} as t; t.{call.__name__}{arguments!r}"
    done = python("-c", code, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, f"it ended with {done.returncode}: {done.stderr[-1000:]}"


def runs(pid):
    return ended("ps", "-o", "stat=", "-p", pid).stdout.strip()[:1] not in ("", "Z")


def with_this_package(**variables):
    """An environment in which a process finds this pyclmm, whatever folder it runs in."""
    path = os.pathsep.join([str(Path(pyclmm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path} | variables


# What a process remembers: of what was checked, and of what was compiled.
_CHECKED = {
    (selfcheck, "_verdicts"): SingleFlight,
    (selfcheck, "_run_here"): set,
    (crash_marks, "_detours"): dict,
    (store, "_refusing"): dict,
    (binaries, "_check_owners"): lambda: cache(binaries._check_owners.__wrapped__),
    (host_path, "_takes_addresses"): dict,
}
_QUEUES = {(queues, "_contexts"): dict, (queues, "_queues"): dict}
_COMPILED = {
    (calls, "_last"): queues.PerThread,
    (program, "_programs"): lambda: SingleFlight(program._PROGRAMS_KEPT),
    (program, "_held"): WeakValueDictionary,
    (program, "_marks"): dict,
    (plan_cache, "_plans"): lambda: LastUsed(plan_cache._plans._most),
}


def as_in_a_new_process(patch):
    """No plan, program, verdict or detour is known, until the end of the test.

    The context is the one of all tests, since drivers of GPUs allow about a hundred on a machine.
    """
    _forget(patch, _CHECKED)
    # A test may lose what the queues and contexts hold.
    _forget(patch, {place: vars(place[0])[place[1]].copy for place in _QUEUES})
    nothing_compiled(patch)


def without_queues(patch):
    """No context and no queue is known, until the end of the test."""
    _forget(patch, _QUEUES)


def nothing_compiled(patch, **limits):
    """There is no plan and no program. *limits*: as limits.py names them."""
    limited(patch, **limits)
    _forget(patch, _COMPILED)
    release()


def pyopencls_cache(patch, is_on):
    """PyOpenCL keeps programs on disk, or does not."""
    patch.setattr(cl, "_PYOPENCL_NO_CACHE", not is_on)


def as_user(patch, number):
    """This process seems to be that user's. Files keep their owners."""
    patch.setattr(os, "geteuid", lambda: number)


def nothing_checked(patch):
    """What was checked in this process is on disk only."""
    _forget(patch, _CHECKED)


def nothing_repeated(patch):
    """No call of pyclmm.linalg is known."""
    _forget(patch, {(repeated, "_known"): dict})


def _forget(patch, remembered):
    for (module, name), new in remembered.items():
        patch.setattr(module, name, new())
