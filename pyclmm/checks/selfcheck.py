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
import itertools
import logging
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

from .. import environment
from ..errors import DeviceLostError
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..kernels.interface import Kernel, Program, Work
from ..opencl.devices import device_info
from ..opencl.program import source_hash
from ..problem.gemm import GemmProblem
from ..selection import store
from . import isolation
from .known_answers import outcome, resized

_log = logging.getLogger(__name__)

_SCHEMA = 1
_LONGEST = 300  # characters of a reason
_LARGEST = 300  # M and N of the check: past the edge of a few work-groups of any tile
_LONGEST_STEP = 64  # of BK that counts there: K costs time, and blocks of it are all alike
_ALWAYS = 6  # small problems that are run in any case; more only until each program has run
_CAPS = (160, 1200, 5000, 40000)  # of M, N and K where programs depend on sizes, within:
_MAX_ELEMENTS, _MAX_WORK = 1 << 25, 1 << 28
_known: dict[str, str | None] = {}
_checking: dict[str, threading.Lock] = {}
_lock = threading.Lock()


def refusal(queue: cl.CommandQueue, problem: GemmProblem, kernel: Kernel, config: TileConfig) -> str | None:
    """Why *kernel* must not be used for *problem* on the queue's device, or None if it is right."""
    if environment.SELFCHECK.is_off:
        return None
    device = device_info(queue.device)
    digest = _digest(device, kernel.launches(problem, config, device))
    with _lock:
        if digest in _known:
            return _known[digest]
        mine = _checking.setdefault(digest, threading.Lock())
    with mine:  # one thread checks, the others wait for its verdict
        try:
            with _lock:
                if digest in _known:
                    return _known[digest]
            return _verdict(digest, queue, problem, kernel, config)
        finally:
            with _lock:
                _checking.pop(digest, None)


def _verdict(
    digest: str, queue: cl.CommandQueue, problem: GemmProblem, kernel: Kernel, config: TileConfig
) -> str | None:
    """The verdict on disk, or a new one."""
    device = device_info(queue.device)
    kept = store.read_json(_path(digest), partial(_fault, device=device.name, kernel=kernel.name))
    if kept is not None:
        _log.debug("self-check of %s on %s, kept: %s", kernel.name, device.name, kept["reason"] or "right")
        return _remember(digest, kept["reason"])
    if kernel.risky and isolation.is_on():
        tried = isolation.survived(device, problem, kernel, config)
        if tried.reason is not None:
            return _keep(digest, device, kernel, _plain(tried.reason), on_disk=tried.lasting)
    try:
        verdict = _plain(found_wrong(queue, problem, kernel, config))
    except DeviceLostError as error:  # not on disk: it need not have been the kernel
        _remember(digest, _plain(f"the device was lost in the self-check: {error}"))
        raise
    return _keep(digest, device, kernel, verdict, on_disk=True)


def _keep(digest: str, device: DeviceInfo, kernel: Kernel, verdict: str | None, on_disk: bool) -> str | None:
    _log.info("self-check of %s on %s: %s", kernel.name, device.name, verdict or "right")
    if on_disk:
        record = {"schema": _SCHEMA, "device": device.name, "kernel": kernel.name, "reason": verdict}
        store.write_json(_path(digest), record)
    return _remember(digest, verdict)


def _remember(digest: str, verdict: str | None) -> str | None:
    with _lock:
        _known[digest] = verdict
    return verdict


def _digest(device: DeviceInfo, work: Work) -> str:
    parts = [str(_SCHEMA), device.platform, device.platform_version, device.name, device.driver_version]
    parts += [f"{source_hash(launch.program)} {launch.kernel}" for launch in work.launches]
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


# (small integers?, exponent that operands are spread around along K, if they are). Products of split
# operands take another way on such data, and a third where it is large besides.
_DATA: dict[str, tuple[tuple[bool, int | None], ...]] = {
    "highest": ((True, None), (False, None)),
    "high": ((True, None), (False, None), (False, 0), (False, 50)),
}


def found_wrong(
    queue: cl.CommandQueue, problem: GemmProblem, kernel: Kernel, config: TileConfig
) -> str | None:
    """Run small problems with the programs of *problem*; the first wrong answer in words, or None."""
    device = device_info(queue.device)
    rng = np.random.default_rng(20)
    missing = _programs(kernel.launches(problem, config, device))
    for small, work in _cases(problem, kernel, config, device):
        for exact, spread in _DATA.get(problem.precision, _DATA["highest"]):
            reason = outcome(queue, small, work, device, rng, exact, spread).reason
            if reason is not None:
                return f"wrong result in the self-check, {small}: {reason}"
        missing -= _programs(work)
    return "no small problem runs all of its programs, so it cannot be checked" if missing else None


def _programs(work: Work) -> set[Program]:
    return {launch.program for launch in work.launches}


def _cases(
    problem: GemmProblem, kernel: Kernel, config: TileConfig, device: DeviceInfo
) -> Iterator[tuple[GemmProblem, Work]]:
    """Small problems that run no other programs than *problem*, until each of its programs was run."""
    wanted = _programs(kernel.launches(problem, config, device))
    missing = set(wanted)
    # A family that decides by size whether to cut K would not cut such small ones: it is asked to.
    ways = (config, replace(config, split_k=2)) if config.split_k == 0 else (config,)
    for number, small in enumerate(_small_problems(problem, config)):
        if number >= _ALWAYS and not missing:
            return
        for way in ways:
            if kernel.supports(small, device) is not None or kernel.violations(small, way, device):
                continue
            work = kernel.launches(small, way, device)
            if _programs(work) <= wanted:  # others are for other sizes, and not going to be used
                missing -= _programs(work)
                yield small, work


def _small_problems(problem: GemmProblem, config: TileConfig) -> Iterator[GemmProblem]:
    """Problems that differ from *problem* in sizes only: past a tile by a few, exact tiles, tiny.

    After the first few come larger ones, for kernels whose programs depend on sizes.
    """
    bm, bn = (min(size, _LARGEST // 2) for size in (config.bm, config.bn))
    bk = min(config.bk, _LONGEST_STEP)
    sizes = [(bm + 3, bn + 5, 2 * bk + 1), (bm, bn, 2 * bk), (2 * bm, 2 * bn, 4 * bk), (3, 2, 5), (1, 1, 1)]
    for m, n, k in sizes:
        yield resized(problem, m, n, k if problem.k else 0)
    own = (problem.m, problem.n, problem.k)
    near = {tuple(map(min, own, caps)) for caps in itertools.product(_CAPS, repeat=3)}
    for m, n, k in sorted(near, key=lambda size: (size[0] * size[1] * (size[2] + 1), size)):
        if max(m * n, m * k, k * n) <= _MAX_ELEMENTS and m * n * k <= _MAX_WORK:
            yield resized(problem, m, n, k)
