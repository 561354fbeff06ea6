"""What a process of pyclmm remembers, forgotten: tests see what a new process would do."""

from __future__ import annotations

from collections import OrderedDict

from pyclmm import plan_cache
from pyclmm.checks import selfcheck
from pyclmm.opencl import crash_marks, queues
from pyclmm.opencl.single_flight import SingleFlight


def as_in_a_new_process(patch):
    """No plan, verdict, detour, context or queue is known, until the end of the test."""
    patch.setattr(selfcheck, "_verdicts", SingleFlight())
    patch.setattr(selfcheck, "_run_here", set())
    patch.setattr(crash_marks, "_detours", {})
    for name in ("_default", "_contexts", "_chosen"):
        patch.setattr(queues, name, {})
    patch.setattr(plan_cache, "_plans", OrderedDict())
