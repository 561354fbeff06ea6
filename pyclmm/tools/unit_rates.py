"""Solves for the rates of a device's units: those that multiply, by element type. Pure, but for the timer.

A rate is the one at which the estimate of a product equals its time, so it is whatever the constants of that
family are fractions of. Two products are timed, which differ in K alone:

    estimate(long K, rate) - estimate(short K, rate) = seconds(long K) - seconds(short K)

Both have the same tiles. So the launch, the start and the end of work-groups and the stores are in both and
cancel, and with a long K reading the operands is hidden behind the multiply-adds. The equation is solved by
bisection, as an estimate falls with the rate but is no fraction of it: it is a maximum, or a sum of cubes, of
what goes on at the same time. Where multiply-adds are not the longest of these, the time says little about
the rate. Then the rate is the one at which the multiply-adds alone take the time: the unit does that at
least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
import pyopencl as cl

from ..errors import PyclmmError, in_short
from ..kernels import KERNELS, Kernel
from ..kernels.config import TileConfig
from ..kernels.device import DeviceInfo
from ..kernels.rates import BOUNDS
from ..problem.canonical import problem_of
from ..problem.gemm import GemmProblem
from ..problem.literals import Precision
from ..selection.select import offer

Pair = tuple[GemmProblem, GemmProblem]  # with a short and a long K
# Seconds that the second product of a pair takes more than the first, by a family with a configuration
Timer = Callable[[str, TileConfig, Pair], float]

_SIDES = (4096, 2048, 1024, 512)
_LONGEST = 0.05  # seconds: a product that is estimated to take longer is cut to a smaller side
_MEMORY_PART = 8  # of the device's memory may be taken by a product
_FALLBACK = 4.0  # times the least estimate: a family that is estimated to be slower shows no rate
_SLOWEST, _FASTEST = BOUNDS["1/s"]
_NEAR = 1.1  # at a rate so much higher a product must be faster by half of that, or the time says too little


@dataclass(frozen=True)
class Unit:
    """A unit by the name of its rate, and the product that shows it."""

    rate: str
    dtype: str
    precision: Precision = "highest"
    matrix: bool = False

    def suits(self, kernel: Kernel, problem: GemmProblem) -> bool:
        """Whether *kernel* multiplies the product on this unit, as it is."""
        return kernel.automatic and kernel.matrix_units == self.matrix and not kernel.in_parts(problem)


UNITS = (
    Unit("float32", "float32"),
    Unit("float64", "float64"),
    Unit("int32", "int32"),
    Unit("matrix16", "float16", matrix=True),
    Unit("matrix32", "float32", "medium", matrix=True),
    Unit("matrix64", "float64", matrix=True),
    Unit("matrix8", "int8", matrix=True),
)


def measured(
    device: DeviceInfo, others: Mapping[str, float], timer: Timer, on_refusal: Callable[[str], object]
) -> dict[str, float]:
    """The rates of all units of *device*, whose other rates are *others*; 0 where there is none.

    *on_refusal* is told of each rate that cannot be: that of before stays.
    """
    found: dict[str, float] = {}
    for unit in UNITS:
        rates = device.rates.with_measured({**others, **found}, "measured here")
        found[unit.rate] = _of(unit, replace(device, user_rates=rates), timer, on_refusal)
    return found


def checked(name: str, rate: float, device: DeviceInfo, on_refusal: Callable[[str], object]) -> float:
    """*rate* if the unit can do that, else what *device* had before. 0 or less: no time was measured."""
    most, before = device.most(name), float(getattr(device.rates, name))
    if rate <= 0:
        wrong = "more work took no longer, so others disturbed the measurement"
    elif most is not None and rate > most:
        wrong = (
            f"{rate:.3g} multiply-adds a second were measured, but {device.units} compute units at"
            f" {device.max_clock_mhz} MHz do {most:.3g} at most; the driver reports too low a clock, or"
            f" others disturbed the measurement"
        )
    else:
        return rate
    on_refusal(f"{name}: {wrong}. {before:.3g} stays.")
    return before


def solved(change: Callable[[float], float], seconds: float) -> float:
    """The rate at which *change*, the difference of two estimates by rate, is *seconds*, which are over 0."""
    alone = _SLOWEST * change(_SLOWEST) / seconds
    if change(_FASTEST) >= seconds:
        return alone
    low, high = alone / _NEAR, _FASTEST
    while high > low * (1 + 1e-6):
        middle = sqrt(low * high)
        low, high = (middle, high) if change(middle) > seconds else (low, middle)
    return low if change(_NEAR * low) < seconds / sqrt(_NEAR) else alone


def _of(unit: Unit, device: DeviceInfo, timer: Timer, on_refusal: Callable[[str], object]) -> float:
    failures = []
    for family, config, pair in _ways(unit, device):
        try:
            seconds = timer(family.name, config, pair)
        except (PyclmmError, cl.Error) as error:
            failures.append(f"{family.name}: {in_short(error)}")
            continue
        rate = solved(_change(unit, device, family, config, pair), seconds) if seconds > 0 else 0.0
        return checked(unit.rate, rate, device, on_refusal)
    if unit.matrix or not failures:
        return 0.0
    before = float(getattr(device.rates, unit.rate))
    on_refusal(f"{unit.rate}: no kernel ran ({'; '.join(failures)}). {before:.3g} stays.")
    return before


def _change(
    unit: Unit, device: DeviceInfo, family: Kernel, config: TileConfig, pair: Pair
) -> Callable[[float], float]:
    """By the unit's rate, the seconds that the second product of *pair* is estimated to take more."""

    def change(rate: float) -> float:
        own = replace(device, user_rates=device.rates.with_measured({unit.rate: rate}, ""))
        short, long = (family.estimate(one, config, own) for one in pair)
        return long - short

    return change


def _ways(unit: Unit, device: DeviceInfo) -> Iterator[tuple[Kernel, TileConfig, Pair]]:
    """The families on *unit*, the fastest by its estimate first, each with its best configuration."""
    for side in _SIDES:
        short, long = (
            problem_of(side, side, k, np.dtype(unit.dtype), "NT", unit.precision)
            for k in (side // 2, 2 * side)
        )
        if device.missing_type(long.types):
            return
        ways = sorted(_offers(unit, device, short, long), key=lambda one: one[0])
        room = min(device.max_mem_alloc_size, device.global_mem_size // _MEMORY_PART)
        if side == _SIDES[-1] or (ways and ways[0][0] <= _LONGEST and long.nbytes <= room):
            break
    for seconds, family, config in ways:
        if seconds <= _FALLBACK * ways[0][0]:
            yield family, config, (short, long)


def _offers(
    unit: Unit, device: DeviceInfo, short: GemmProblem, long: GemmProblem
) -> Iterator[tuple[float, Kernel, TileConfig]]:
    """The best configuration of each family for the long product that is one for the short product too."""
    for family in (k for k in KERNELS if unit.suits(k, long)):
        found = offer(family, long, device)
        if isinstance(found, str) or family.refuses(short, device):
            continue
        for seconds, config in found:
            if not family.violations(short, config, device):
                yield seconds, family, config
                break
