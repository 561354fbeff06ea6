"""Placement: whether a product of NumPy arrays is so small that the caller's own thread computes it sooner.

On PoCL's usual device a call wakes threads that sleep, on `basic` (`cpu-minimal` since PoCL 4) it does not.
Intel's runtime has queues that do not. Where a platform shows both devices, or the device has such queues,
and the caller has chosen no device, the estimates decide (docs/decisions/0010).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from .. import environment
from ..errors import ArgumentError, UnsupportedError
from ..kernels.device import DeviceInfo
from ..opencl.devices import device_info
from ..opencl.queues import FreeQueue, OwnThreadQueue
from ..problem.gemm import Gemm
from ..selection import select
from ..selection.explanation import Elsewhere
from .options import Options

# Seconds to wake a sleeping thread, beside the launch, in the time of estimates at the clock that PoCL tells.
# On Zen 5 with two virtual cores, which run at nearly twice that, both devices take as long from 180 cubed to
# 220 cubed.
_WAKING = 40e-6
# The same of Intel's runtime, whose threads spin for a while: what they take to begin and end together. On
# Zen 5 with two cores one is as fast as both from 90 cubed to 100 cubed.
_MEETING = 4e-6


class Placement(NamedTuple):
    """The queue that computes a product, and the estimate for the device that could have; None if none."""

    queue: Any
    elsewhere: Elsewhere | None = None


def placed(queue: Any, gemm: Gemm, options: Options) -> Placement:
    """Where to compute *gemm*: on *queue*, or on the device without threads that it may be left for."""
    if not isinstance(queue, FreeQueue) or environment.THREADLESS.is_off or gemm.is_empty:
        return Placement(queue)
    usual, threadless = device_info(queue.device), device_info(queue.threadless.device)
    if isinstance(queue.threadless, OwnThreadQueue):
        return _by_thread(queue, gemm, usual, options)
    # One thread is counted with its share of the memory's speed: else what no cache holds would all go there.
    memory = min(threadless.rates.memory, usual.rates.memory / usual.units)
    rates = replace(threadless.rates, memory=memory)
    there = _seconds(gemm, threadless, options, replace(threadless, user_rates=rates))
    if there is None:
        return Placement(queue)
    here = _seconds(gemm, usual, options, usual)
    if here is None or there < here + _WAKING:
        return Placement(queue.threadless, Elsewhere(usual.name, here and here + _WAKING))
    return Placement(queue, Elsewhere(threadless.name, there))


def _by_thread(queue: FreeQueue, gemm: Gemm, device: DeviceInfo, options: Options) -> Placement:
    """Where on one device: by all its threads, or by the caller's, with the same kernel and so the same bits.

    The caller takes part in both, so that no thread has to be woken.
    """
    choice = _first(gemm, device, options)
    if choice is None:
        return Placement(queue)
    asked = gemm.problem, choice.config
    every, alone = (choice.kernel.estimate(*asked, its) for its in (device, device.alone))
    every += _MEETING
    if alone < every:
        return Placement(queue.threadless, Elsewhere(f"{device.name}, by its own threads", every))
    return Placement(queue, Elsewhere(f"{device.name}, by the caller's thread", alone))


def _seconds(gemm: Gemm, device: DeviceInfo, options: Options, rated: DeviceInfo) -> float | None:
    """The estimate, with the rates of *rated*, of the first choice for *gemm* on *device*; None if there is
    none."""
    choice = _first(gemm, device, options)
    return None if choice is None else choice.kernel.estimate(gemm.problem, choice.config, rated)


def _first(gemm: Gemm, device: DeviceInfo, options: Options) -> select.Choice | None:
    try:
        return next(select.candidates(gemm.problem, device, options.kernel, has_constant=options.constant_b))
    except (UnsupportedError, ArgumentError):
        return None
