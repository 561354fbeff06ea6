"""`pyclmm road`: every step from the triple loop to the matrix unit, on this device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from ..kernels.device import DeviceInfo
from ..kernels.rates import Rates, as_numbers
from ..opencl.devices import device_info, find_device
from ..opencl.queues import new_queue
from . import plots, report
from .options import check_plot, device_option, json_option, length_type, plot_option
from .output import FAILED, WRONG_RESULT, Output
from .road import Point, Road, walk
from .terminal import TextTable, significant
from .timing import Size, Terms, check_memory

_ON_CPU, _ON_OTHERS = 512, 2048  # side of the matrices, if none is asked for
_HEAD = ("kernel", "N", "type", "ops/byte", "GFLOP/s", "step", "limit", "of it", "by")
_FEW = 3  # samples; a line names the kernels that have fewer


@click.command("road")
@click.option("--size", "side", type=length_type, help=f"M = N = K [{_ON_CPU} on CPUs, else {_ON_OTHERS}].")
@device_option
@json_option()
@plot_option
def road_command(
    side: int | None, device: str | None, json_target: str | None, plot_file: Path | None
) -> None:
    """Run each kernel from the triple loop to the matrix unit on this device: what each step gains, and how
    far it is from its own limit.

    The limit is the device's rate of multiply-adds, or what its last-level cache (its memory, if the operands
    are larger) can deliver for the bytes that the kernel's work-items load, if that is less. Both rates are
    measured first. Every product is checked. Ctrl-C ends the measuring and shows what was measured.
    """
    check_plot(plot_file)
    found = find_device(device)
    own = device_info(found)
    road = Road(side or (_ON_CPU if own.is_cpu else _ON_OTHERS))
    check_memory(Size(*(road.side,) * 3), np.dtype(np.float32), own, Terms(arrays=True))
    out = Output("road", json_target)
    with out.measuring() as on_stage:
        walk(new_queue(found, profiling=True), road, on_stage)
    header, rates = report.header_json(own), road.rates
    out.save(header | _as_json(road))
    if rates is not None and road.points:
        where = f"{report.device_line(own)}, {header['date'][:10]}"
        out.draw(plot_file, lambda path: plots.road(road, rates, where, path))
        _show(out, own, road, rates)
    elif out.interrupted:
        out.warn("Nothing was measured yet.")
    for name, reason in road.failed.items():
        out.warn(f"WARNING: {name} failed: {reason}")
    if (busy := road.others.warning()) is not None:
        out.warn(busy)
    if road.wrong:
        out.finish(f"wrong results from {', '.join(road.wrong)}", WRONG_RESULT)
    out.finish(None if road.points else "no kernel of the road could run here", FAILED)


def _show(out: Output, device: DeviceInfo, road: Road, rates: Rates) -> None:
    out.screen.line(report.device_line(device))
    for line in _heading(rates):
        out.screen.line(line)
    out.screen.line()
    out.screen.table(_table(road, rates))
    out.screen.line()
    for line in _notes(road):
        out.screen.line(line)


def _heading(rates: Rates) -> list[str]:
    billions = {name: significant(value / 1e9) for name, value in as_numbers(rates).items()}
    return [
        f"measured: memory {billions['memory']} GB/s, "
        f"cache {billions['cache']} GB/s up to {rates.cache_size / 1e6:.3g} MB, "
        f"float32 {significant(2 * rates.float32 / 1e9)} GFLOP/s"
        + (f", 16-bit matrix units {significant(2 * rates.matrix16 / 1e9)}" if rates.matrix16 else ""),
        "step: times faster than the row above. limit: the most GFLOP/s that these rates allow for the "
        "bytes that its work-items load (ops/byte) and for its multiply-adds; over 100% of it, nearer caches "
        "served loads that several work-items share",
    ]


def _table(road: Road, rates: Rates) -> TextTable:
    gains = road.gains()
    rows = tuple(_cells(point, gain, rates) for point, gain in zip(road.points, gains, strict=True))
    return TextTable(_HEAD, rows, text=("kernel", "type", "by"))


def _cells(point: Point, gain: float | None, rates: Rates) -> tuple[str, ...]:
    precision, limit = point.problem.precision, point.limit(rates)
    word = "" if precision == "highest" else f' "{precision}"'
    return (
        point.kernel.name,
        str(point.size.n),
        point.dtype + word,
        significant(point.traffic.intensity),
        significant(point.rate / 1e9),
        "-" if gain is None else f"{significant(gain)}x",
        significant(limit.rate / 1e9),
        _percent(point.rate / limit.rate),
        limit.by,
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%" if share < 1 else f"{100 * share:.0f}%"


def _notes(road: Road) -> list[str]:
    """What the table cannot say: who ran at a smaller size or a few times only, who cannot run here."""
    smaller = [point.kernel.name for point in road.points if point.size.n < road.side]
    few = [point.kernel.name for point in road.points if len(point.row.samples) < _FEW]
    notes = [_checked(road)]
    if smaller:
        notes.append(f"too slow at {road.side}, or made for less, so at a smaller N: {', '.join(smaller)}")
    if few:
        notes.append(f"slow, so fewer than {_FEW} samples: {', '.join(few)}")
    if road.absent:
        notes.append(f"cannot run here: {', '.join(road.absent)} (`pyclmm info --reasons` says why)")
    return notes


def _checked(road: Road) -> str:
    if road.wrong:
        return f"WRONG results: {', '.join(road.wrong)}"
    shares = [(p.row.error_ratio or 0.0) / p.row.error_limit for p in road.points if p.row.error_limit]
    return f"every result was checked; errors are at most {_percent(max(shares, default=0.0))} of their bound"


def _as_json(road: Road) -> dict[str, Any]:
    rates, gains = road.rates, road.gains()
    points = () if rates is None else zip(road.points, gains, strict=True)
    return {
        "side": road.side,
        "rates": None if rates is None else as_numbers(rates),
        "points": [_point_json(point, gain, rates) for point, gain in points if rates is not None],
        "absent": road.absent,
        "failed": road.failed,
        "others_processors": road.others.processors,
    }


def _point_json(point: Point, gain: float | None, rates: Rates) -> dict[str, Any]:
    limit = point.limit(rates)
    return {
        "kernel": point.kernel.name,
        "n": point.size.n,
        "dtype": point.dtype,
        "precision": point.problem.precision,
        "config": None if point.row.config is None else point.row.config.as_dict(),
        "walls_s": point.row.walls,
        "median_s": point.row.seconds,
        "operations": point.traffic.operations,
        "nbytes": point.traffic.nbytes,
        "operations_per_s": point.rate,
        "gain": gain,
        "limit_per_s": limit.rate,
        "limited_by": limit.by,
        "correct": point.row.correct,
    }
