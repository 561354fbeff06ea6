"""Self-check: a kernel is used on a device only after it gave right answers there.

The check runs the same programs that the product will run, on small operands (see small_problems.py). The
verdict is kept, in the process and on disk, under a digest of device, driver, sources and macros, so that a
new driver or a changed kernel is checked again.

``PYCLMM_SELFCHECK=off`` skips the check, for fixed deployments where it has passed before. Nothing then
notices a driver that gives wrong products.
"""

from __future__ import annotations

import hashlib
import logging
import re
from functools import partial
from pathlib import Path
from typing import Any

import pyopencl as cl

from .. import environment
from ..errors import DeviceLostError
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..kernels.interface import Kernel, Work
from ..opencl.devices import device_info
from ..opencl.program import source_hash
from ..opencl.single_flight import SingleFlight
from ..problem.gemm import GemmProblem
from ..selection import store
from . import isolation
from .small_problems import first_wrong_result

_log = logging.getLogger(__name__)

_SCHEMA = 2
_LONGEST = 300  # characters of a reason
_verdicts: SingleFlight[str, str | None] = SingleFlight()


def verdict(
    queue: cl.CommandQueue, problem: GemmProblem, kernel: Kernel, config: TileConfig, work: Work
) -> str | None:
    """Why *kernel* must not compute *problem* by *work* on this device; None if its results are right."""
    if environment.SELFCHECK.is_off:
        return None
    digest = _digest(device_info(queue.device), work)
    return _verdicts.get(digest, lambda: _kept_or_new(digest, queue, problem, kernel, config, work))


def _kept_or_new(
    digest: str,
    queue: cl.CommandQueue,
    problem: GemmProblem,
    kernel: Kernel,
    config: TileConfig,
    work: Work,
) -> str | None:
    """The verdict that is kept on disk, or a new one."""
    device = device_info(queue.device)
    kept = store.read_json(_path(digest), partial(_fault, device=device.name, kernel=kernel.name))
    if kept is not None:
        reason: str | None = kept["reason"]
        _log.debug("self-check of %s on %s, from disk: %s", kernel.name, device.name, reason or "right")
        return reason
    if kernel.risky and isolation.is_on():
        tried = isolation.trial(device, problem, kernel, config)
        if tried.reason is not None:
            return _keep(digest, device, kernel, _plain(tried.reason), on_disk=tried.lasting)
    try:
        verdict = _plain(first_wrong_result(queue, problem, kernel, config, work))
    except DeviceLostError as error:  # not kept on disk: the cause may not be the kernel
        _verdicts.put(digest, _plain(f"the device was lost in the self-check: {error}"))
        raise
    return _keep(digest, device, kernel, verdict, on_disk=True)


def _keep(digest: str, device: DeviceInfo, kernel: Kernel, verdict: str | None, on_disk: bool) -> str | None:
    _log.info("self-check of %s on %s: %s", kernel.name, device.name, verdict or "right")
    if on_disk:
        record = {"schema": _SCHEMA, "device": device.name, "kernel": kernel.name, "reason": verdict}
        store.write_json(_path(digest), record)
    return verdict


def _digest(device: DeviceInfo, work: Work) -> str:
    """A digest of everything that a verdict depends on, work-group sizes included."""
    texts = [str(_SCHEMA), *device.identity.values(), device.platform_version]
    texts += [f"{source_hash(x.program)} {x.kernel} {x.local_size}" for x in work.launches]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _path(digest: str) -> Path:
    return store.folder("selfcheck", f"{digest}.json")


def _plain(reason: str | None) -> str | None:
    """*reason* as one line of printable ASCII, which is how a verdict is kept."""
    return None if reason is None else re.sub(r"[^ -~]+", " ", reason)[:_LONGEST]


def _fault(content: Any, device: str, kernel: str) -> str | None:
    """What is wrong with a verdict from disk for this device and kernel, or None."""
    if not isinstance(content, dict) or set(content) != {"schema", "device", "kernel", "reason"}:
        return "it does not have a verdict's keys"
    if type(content["schema"]) is not int or content["schema"] != _SCHEMA:
        return f"its schema is not {_SCHEMA}"
    if content["device"] != device or content["kernel"] != kernel:
        return "it is for another device or kernel"
    reason = content["reason"]
    if reason is not None and not (isinstance(reason, str) and 0 < len(reason) <= _LONGEST):
        return "its reason is not a short text"
    if reason is not None and reason != _plain(reason):
        return "its reason is not printable ASCII"
    return None
