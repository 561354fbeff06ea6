"""The plans that are kept: matmul, gemm and streamed products look here before they make one."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from .errors import DeviceLostError
from .execution.operands import Operands, Signature
from .execution.options import Options, zeros_of
from .execution.prepared import Prepared
from .kernels import Program
from .opencl import program, queues
from .opencl.steps import Scales
from .raising import raise_of_system

T = TypeVar("T")
_PLANS_KEPT = 256
_PROGRAMS_KEPT = 128  # the most programs that these plans have together
_plans: OrderedDict[Any, Prepared] = OrderedDict()
_lock = threading.RLock()  # a signal handler or a finalizer may call within


def plan_for(
    operands: Operands, layouts: Signature, options: Options, queue: Any, scales: Scales
) -> Prepared:
    """The plan that is kept for operands of these *layouts*, or a new one, which is kept then.

    Raises as :class:`pyclmm.Matmul` does.
    """
    key = (queue.context, queue.device, type(queue), options.key, zeros_of(scales), layouts)
    make = partial(Prepared, operands, layouts, options, queue, scales)
    return kept(_plans, key, make, _PLANS_KEPT, _bound_programs)


def kept(
    plans: OrderedDict[Any, T],
    key: Any,
    make: Callable[[], T],
    most: int,
    drop_more: Callable[[], object] = lambda: None,
) -> T:
    """The one of *plans* with this *key*; else what *make* gives, which is kept, as the *most* that were used
    last are. *drop_more* then drops others."""
    with _lock:
        plan = plans.get(key)
        if plan is not None:
            with contextlib.suppress(KeyError):  # a call within this one has dropped it
                plans.move_to_end(key)
            return plan
    plan = make()
    with _lock:
        plans[key] = plan
        while len(plans) > most:
            plans.popitem(last=False)
        drop_more()
    return plan


def _bound_programs() -> None:
    """Keep only as many plans, those used last, as have _PROGRAMS_KEPT programs together; at least one."""
    programs: set[tuple[Any, Program]] = set()  # each context has its own
    if program.count() <= _PROGRAMS_KEPT:
        return
    for number, (key, plan) in enumerate(reversed(list(_plans.items()))):
        programs |= {(key[0], one) for one in plan.programs}
        if number and len(programs) > _PROGRAMS_KEPT:
            _plans.pop(key, None)


@queues.at_release
def release() -> None:
    """Drop every plan."""
    clear(_plans)


def clear(plans: OrderedDict[Any, Any]) -> None:
    """Drop all of *plans*, which :func:`kept` may be looking at in another thread."""
    with _lock:
        plans.clear()


@queues.at_loss
def _forget(context: Any) -> None:
    """Drop the plans of a lost context."""
    with _lock:
        for key in [key for key in _plans if key[0] == context]:
            del _plans[key]


def failed(error: DeviceLostError | MemoryError, context: Any, *operands: Any) -> None:
    """After a call on *operands* that failed: drop what was lost, or raise pyclmm's error if the host had no
    memory."""
    if isinstance(error, DeviceLostError):
        queues.forget(context)
    else:
        raise_of_system(error, "the product", *operands)
