"""Trials: a program that is new to a driver is compiled and run in a child process first.

A compiler may abort its process or never end. In a trial this ends the child and not the user's process.
There are trials only for families that are ``risky``, for programs that a process died with, and for a second
opinion (see selfcheck.py). A program that passes is checked again in this process, from what the driver or
opencl/binaries.py has kept. ``PYCLMM_TRIAL=off`` turns trials off, and with them this protection.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyopencl as cl

from .. import fields
from ..cuda.launcher import WAYS, launcher_named
from ..errors import ArgumentError, BuildError, DeviceLostError, DeviceMemoryError, LaunchError, NoDeviceError
from ..kernels import Kernel, Work, kernel_named
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..opencl import crash_marks, devices
from ..opencl.devices import device_info
from ..problem.gemm import GemmProblem
from ..selection import schema
from . import worker
from .small_problems import first_wrong_result

_log = logging.getLogger(__name__)

LIMIT = 60.0  # seconds for one build and its check
_REASON = fields.optional(fields.matching("(?s).*", "text"))
_WAY = fields.one_of(*WAYS)
_ANSWERS = fields.list_of(fields.record({"reason": _REASON}), 1, 1)


@dataclass(frozen=True)
class TrialResult:
    """``reason``: why the program must not be used, or None. ``lasting``: a new trial would end alike.
    ``timed_out``: the child was ended at its time limit, so something else may have held it up.
    """

    reason: str | None
    lasting: bool = True
    timed_out: bool = False


def trial(
    device: DeviceInfo,
    problem: GemmProblem,
    kernel: Kernel,
    config: TileConfig,
    work: Work,
    way: str,
    apart: bool = False,
) -> TrialResult:
    """Build the kernel and check its results in a child process. *work*: the launches of *problem*. *way*:
    that of its launcher. *apart*: in a new child, which must end well too.
    """
    request: dict[str, Any] = {"device": device.identity, "kernel": kernel.name}
    request |= {"problem": schema.problem_json(problem)}
    request |= {"config": schema.config_json(config), "detour": crash_marks.detour(device), "way": way}
    sources = " ".join(dict.fromkeys(launch.program.source for launch in work.launches))
    what = f"{kernel.name} ({sources}) for {device.name}"
    _log.info("compiling and checking %s in a child process, once for this driver", what)
    start = time.perf_counter()
    answers, failure = worker.ask_waiting("checks.isolation", request, LIMIT, apart)
    _log.info("compiled and checked %s in a child process in %.3f s", what, time.perf_counter() - start)
    if failure is not None:
        advice = "" if failure.crashed or failure.hung else " (PYCLMM_TRIAL=off turns trials off)"
        text = f"tried in a child process, {failure.reason}{advice}"
        return TrialResult(text, lasting=failure.crashed or failure.hung, timed_out=failure.hung)
    return result(answers)


def result(answers: list[Any]) -> TrialResult:
    """The result that the child's answers give. Any answer that is not as expected counts as none."""
    try:
        _ANSWERS("answers", answers)
    except ArgumentError:
        return TrialResult("tried in a child process, it gave no answer", lasting=False)
    return TrialResult(answers[0]["reason"])


def device_of(wanted: Any) -> cl.Device:
    """The device whose identity is *wanted*, or of which such a device is a part: a driver compiles for a
    sub-device as for the whole. Raises NoDeviceError.

    Only the wanted driver is asked for more than its name: another one's compiler may end this process.
    """
    own = [device for device in devices.all_devices() if _of_driver(device, wanted)]
    found = {device: device_info(device).identity for device in own}
    for device, identity in found.items():
        if identity == wanted:
            return device
    for device, identity in found.items():
        if _of_any_size(identity) == _of_any_size(wanted):
            return device
    raise NoDeviceError("the child process does not find the device")


def _of_driver(device: cl.Device, wanted: Any) -> bool:
    driver = {"platform": device.platform.name.strip(), "driver_version": device.driver_version.strip()}
    return isinstance(wanted, dict) and driver.items() <= wanted.items()


def _of_any_size(identity: Any) -> Any:
    """The identity without the number of compute units."""
    try:
        return {**identity, "name": re.sub(r"\d+ units", "units", identity["name"])}
    except (TypeError, KeyError):  # a request from elsewhere
        return None


def answers(request: Any) -> Iterator[dict[str, str | None]]:
    """Answer the request in the child: ``{"reason": None}`` if the driver survives and the results are right.
    An error that the driver raises counts as None too: the parent meets the same error, and gets its log.
    """
    device = device_of(request["device"])
    problem, config = schema.problem_from(request["problem"]), schema.config_from(request["config"])
    kernel, launcher = kernel_named(request["kernel"]), launcher_named(request["way"])
    info = launcher.info(device)
    crash_marks.DETOUR("detour", request["detour"])
    _WAY("way", request["way"])
    crash_marks.take_detour(info, request["detour"])
    reasons = kernel.refuses(problem, info) or "; ".join(kernel.violations(problem, config, info))
    if not reasons and problem.reproducible:
        reasons = kernel.out_of_order(problem, config) or ""
    if reasons:
        yield {"reason": reasons}
        return
    try:
        work = kernel.launches(problem, config, info)
        queue = launcher.queue_on(device)
        yield {"reason": first_wrong_result(queue, problem, kernel, config, work)}
    except DeviceLostError as error:
        yield {"reason": str(error)}
    except (BuildError, LaunchError, DeviceMemoryError):
        yield {"reason": None}
