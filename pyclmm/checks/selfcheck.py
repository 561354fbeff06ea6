"""Self-check: a kernel is used on a device only after it gave right answers there.

What is checked is what will run: the very programs of the launches, with small operands. Integer data
must come out exactly, random data within the error bound, edges and padding included, and nothing behind
the result may be touched. The verdict is kept, in the process and on disk, under a digest of device,
driver, sources and macros, so a new driver or a changed kernel is checked again.

``PYCLMM_SELFCHECK=off`` skips the check for fixed deployments where it has passed before. That gives up
the protection from a wrong driver: products may be wrong without a word.
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
from .small_problems import found_wrong

_log = logging.getLogger(__name__)

_SCHEMA = 2
_LONGEST = 300  # characters of a reason
_verdicts: SingleFlight[str, str | None] = SingleFlight()


def refusal(
    queue: cl.CommandQueue, problem: GemmProblem, kernel: Kernel, config: TileConfig, work: Work
) -> str | None:
    """Why *kernel* must not be used for *problem*, by *work*, on the queue's device; None if it is right."""
    if environment.SELFCHECK.is_off:
        return None
    digest = _digest(device_info(queue.device), work)
    return _verdicts.get(digest, lambda: _verdict(digest, queue, problem, kernel, config, work))


def _verdict(
    digest: str,
    queue: cl.CommandQueue,
    problem: GemmProblem,
    kernel: Kernel,
    config: TileConfig,
    work: Work,
) -> str | None:
    """The verdict on disk, or a new one."""
    device = device_info(queue.device)
    kept = store.read_json(_path(digest), partial(_fault, device=device.name, kernel=kernel.name))
    if kept is not None:
        reason: str | None = kept["reason"]
        _log.debug("self-check of %s on %s, kept: %s", kernel.name, device.name, reason or "right")
        return reason
    if kernel.risky and isolation.is_on():
        tried = isolation.survived(device, problem, kernel, config)
        if tried.reason is not None:
            return _keep(digest, device, kernel, _plain(tried.reason), on_disk=tried.lasting)
    try:
        verdict = _plain(found_wrong(queue, problem, kernel, config, work))
    except DeviceLostError as error:  # not on disk: it need not have been the kernel
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
    """Everything that a verdict is about: the same programs in other work-groups have their own."""
    parts = [str(_SCHEMA), *device.identity.values(), device.platform_version]
    parts += [f"{source_hash(x.program)} {x.kernel} {x.local_size}" for x in work.launches]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _path(digest: str) -> Path:
    return store.folder("selfcheck", f"{digest}.json")


def _plain(reason: str | None) -> str | None:
    """*reason* as a verdict holds it: one line of printable ASCII."""
    return None if reason is None else re.sub(r"[^ -~]+", " ", reason)[:_LONGEST]


def _fault(content: Any, device: str, kernel: str) -> str | None:
    """What is wrong with a verdict read from disk, for that device and kernel."""
    if not isinstance(content, dict) or set(content) != {"schema", "device", "kernel", "reason"}:
        return "it does not have a verdict's keys"
    if type(content["schema"]) is not int or content["schema"] != _SCHEMA:
        return f"its schema is not {_SCHEMA}"
    if content["device"] != device or content["kernel"] != kernel:
        return "it is about another device or kernel"
    reason = content["reason"]
    if reason is not None and not (isinstance(reason, str) and 0 < len(reason) <= _LONGEST):
        return "its reason is not a short text"
    if reason is not None and reason != _plain(reason):
        return "its reason has other characters than printable ASCII"
    return None
