"""New processes, and what this one remembers of pyclmm, forgotten: tests see what a new process would do."""

import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from weakref import WeakValueDictionary

import pyclmm
from pyclmm import calls, plan_cache, release, store
from pyclmm.checks import selfcheck
from pyclmm.opencl import crash_marks, program, queues
from pyclmm.opencl.single_flight import SingleFlight


def python(*arguments, timeout=600, check=False, **keywords):
    """A new interpreter with these arguments, when it has ended: what subprocess.run gives, as text."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=check, **keywords)


def with_this_package(**variables):
    """An environment in which a process finds this pyclmm, whatever folder it runs in."""
    path = os.pathsep.join([str(Path(pyclmm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path} | variables


def as_in_a_new_process(patch):
    """No plan, program, verdict or detour is known, until the end of the test.

    The context is the one of all tests, since drivers of GPUs allow about a hundred on a machine.
    """
    patch.setattr(selfcheck, "_verdicts", SingleFlight())
    patch.setattr(selfcheck, "_run_here", set())
    patch.setattr(crash_marks, "_detours", {})
    patch.setattr(store, "_refusing", {})
    for name in ("_contexts", "_queues"):  # a test may lose what they hold
        patch.setattr(queues, name, dict(getattr(queues, name)))
    nothing_compiled(patch)


def nothing_compiled(patch):
    """There is no plan and no program."""
    patch.setattr(calls, "_last", queues.PerThread())
    patch.setattr(program, "_programs", SingleFlight(program._PROGRAMS_KEPT))
    patch.setattr(program, "_held", WeakValueDictionary())
    patch.setattr(program, "_marks", {})
    patch.setattr(plan_cache, "_plans", OrderedDict())
    release()
