"""The plans that are kept: matmul, gemm and streamed products look here before they make one."""

from __future__ import annotations

from typing import Any

from .errors import DeviceLostError
from .execution.operands import Operands, Signature
from .execution.options import Options, zeros_of
from .execution.prepared import Prepared
from .kernels import Program
from .opencl import program, queues
from .opencl.single_flight import LastUsed
from .opencl.steps import Scales
from .raising import raise_of_system

_PROGRAMS_KEPT = 128  # the most programs that these plans have together
_plans: LastUsed[Any, Prepared] = LastUsed(256)


def plan_for(
    operands: Operands, layouts: Signature, options: Options, queue: Any, scales: Scales
) -> Prepared:
    """The plan that is kept for operands of these *layouts*, or a new one, which is kept then.

    Raises as :class:`pyclmm.Matmul` does.
    """
    key = (queue.context, queue.device, type(queue), options.key, zeros_of(scales), layouts)
    plan = _plans.find(key)
    if plan is None:
        plan = _plans.put(key, Prepared(operands, layouts, options, queue, scales))
        _bound_programs()
    return plan


def _bound_programs() -> None:
    """Keep only as many plans, those used last, as have _PROGRAMS_KEPT programs together; at least one."""
    if program.count() <= _PROGRAMS_KEPT:
        return
    programs: set[tuple[Any, Program]] = set()  # each context has its own
    dropped = set()
    for number, (key, plan) in enumerate(reversed(_plans.items())):
        programs |= {(key[0], one) for one in plan.programs}
        if number and len(programs) > _PROGRAMS_KEPT:
            dropped.add(key)
    _plans.forget(dropped.__contains__)


@queues.at_release
def release() -> None:
    """Drop every plan."""
    _plans.forget()


@queues.at_loss
def _forget(context: Any) -> None:
    """Drop the plans of a lost context."""
    _plans.forget(lambda key: key[0] == context)


def failed(error: DeviceLostError | MemoryError, context: Any, *operands: Any) -> None:
    """After a call on *operands* that failed: drop what was lost, or raise pyclmm's error if the host had no
    memory."""
    if isinstance(error, DeviceLostError):
        queues.forget(context)
    else:
        raise_of_system(error, "the product", *operands)
