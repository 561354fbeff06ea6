"""The child's side of a trial: what it is asked to compile is checked first, then built, run and judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import BuildError, DeviceLostError, DeviceMemoryError, LaunchError
from ..kernels import kernel_named
from ..opencl import queues
from ..opencl.devices import device_info
from ..selection import schema
from . import isolation, selfcheck


def answers(request: Any) -> Iterator[dict[str, str | None]]:
    """``{"reason": None}`` where the driver survives and the results are right.

    An error that the driver raises is survived too: the parent gets the same one, with its log.
    """
    device = isolation.device_of(request["device"])
    problem, config = schema.problem_from(request["problem"]), schema.config_from(request["config"])
    kernel, info = kernel_named(request["kernel"]), device_info(device)
    against = kernel.supports(problem, info) or "; ".join(kernel.violations(problem, config, info))
    if against:
        yield {"reason": against}
        return
    try:
        yield {"reason": selfcheck.found_wrong(queues.new_queue(device), problem, kernel, config)}
    except DeviceLostError as error:
        yield {"reason": str(error)}
    except (BuildError, LaunchError, DeviceMemoryError):
        yield {"reason": None}
