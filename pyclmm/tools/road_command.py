"""`pyclmm road`: every step from the triple loop to the matrix unit, on this device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
import pyopencl as cl

from ..kernels.rates import Rates, as_numbers
from ..opencl.devices import device_info, find_device
from ..opencl.queues import new_queue
from . import plots, probes, report
from .contest import Size, Terms, check_memory
from .endings import WRONG_RESULT
from .options import check_plot, device_option, json_option, length_type, plot_option
from .output import Output
from .road import Point, Road, walk
from .steps import OnStep
from .terminal import Grid

_ON_CPU, _ON_OTHERS = 512, 2048  # side of the matrices, if none is asked for
_HEAD = ("kernel", "N", "type", "ops/byte", "GFLOP/s", "step", "limit", "of it", "by")


@click.command("road")
@click.option("--size", "side", type=length_type, help=f"M = N = K [{_ON_CPU} on CPUs, else {_ON_OTHERS}].")
@device_option
@json_option()
@plot_option
def road_command(
    side: int | None, device: str | None, json_target: str | None, plot_file: Path | None
) -> None:
    """Run each kernel from the triple loop to the matrix unit, and compare it with its own limit.

    First the device's rates are measured. Ctrl-C ends it and shows what was measured.
    """
    check_plot(plot_file)
    found = find_device(device)
    own = device_info(found)
    road = Road(side or (_ON_CPU if own.is_cpu else _ON_OTHERS))
    check_memory(Size(*(road.side,) * 3), np.dtype(np.float32), own, Terms(arrays=True))
    out = Output("road", json_target)
    rates: Rates | None = None
    with out.measuring() as on_step:
        rates = _rates(found, on_step)
        walk(new_queue(found, profiling=True), road, rates, on_step)
    out.save(report.header_json(own) | _as_json(road, rates))
    if rates is None or not road.points:
        out.warn("Nothing was measured yet.")
        out.finish("no kernel of the road could run here")
        return
    if plot_file is not None and out.write(plot_file, lambda path: plots.road(road, rates, own.name, path)):
        out.screen.line(f"drawn to {plot_file}")
    out.screen.line(report.device_line(own))
    for line in _heading(rates):
        out.screen.line(line)
    out.screen.table(_table(road))
    out.screen.line()
    for line in _notes(road):
        out.screen.line(line)
    busy = road.others.warning()
    if busy is not None:
        out.warn(busy)
    if road.wrong:
        out.finish(f"wrong results from {', '.join(road.wrong)}", WRONG_RESULT)
    out.finish()


def _rates(device: cl.Device, on_step: OnStep) -> Rates:
    """The rates of *device*, measured now. They are not kept: `pyclmm tune --device` does that."""
    found: dict[str, float] = {}
    for group in probes.measure(device, on_step):
        found |= group
    return device_info(device).rates.with_measured(found, "measured here")


def _heading(rates: Rates) -> list[str]:
    billions = {name: report.significant(value / 1e9) for name, value in as_numbers(rates).items()}
    return [
        f"measured: memory {billions['memory']} GB/s, "
        f"cache {billions['cache']} GB/s up to {rates.cache_size / 1e6:.3g} MB, "
        f"float32 {report.significant(2 * rates.float32 / 1e9)} GFLOP/s"
        + (f", 16-bit matrix units {report.significant(2 * rates.matrix16 / 1e9)}" if rates.matrix16 else ""),
        "step: times faster than the row above. limit: GFLOP/s that the bytes of its tiles and the "
        "arithmetic allow; over 100% of it, nearer caches served reads, or the machine was busy before",
    ]


def _table(road: Road) -> Grid:
    rows = tuple(
        _cells(point, gain) for point, gain in zip(road.points, road.gains(), strict=True) if point.rate
    )
    return Grid(_HEAD, rows, text=("kernel", "type", "by"))


def _cells(point: Point, gain: float | None) -> tuple[str, ...]:
    word = "" if point.precision == "highest" else f' "{point.precision}"'
    return (
        point.kernel,
        str(point.size.n),
        point.dtype + word,
        report.significant(point.traffic.intensity),
        report.significant((point.rate or 0.0) / 1e9),
        "-" if gain is None else f"{report.significant(gain)}x",
        report.significant(point.limit.rate / 1e9),
        _percent(point.share or 0.0),
        point.limit.by,
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%" if share < 1 else f"{100 * share:.0f}%"


def _notes(road: Road) -> list[str]:
    """What the table cannot say: who ran at a smaller size or a few times only, who cannot run here."""
    smaller = [point.kernel for point in road.points if point.size.n < road.side]
    few = [point.kernel for point in road.points if len(point.row.samples) < 3]
    notes = [_checked(road)]
    if smaller:
        notes.append(f"too slow or too small for {road.side}, so at a smaller N: {', '.join(smaller)}")
    if few:
        notes.append(f"timed once or twice only: {', '.join(few)}")
    if road.absent:
        notes.append(f"cannot run here: {', '.join(road.absent)}")
    return notes


def _checked(road: Road) -> str:
    if road.wrong:
        return f"WRONG results: {', '.join(road.wrong)}"
    shares = [(p.row.error_ratio or 0.0) / p.row.error_limit for p in road.points if p.row.error_limit]
    return f"every result was checked; errors are at most {_percent(max(shares, default=0.0))} of their bound"


def _as_json(road: Road, rates: Rates | None) -> dict[str, Any]:
    return {
        "side": road.side,
        "rates": None if rates is None else as_numbers(rates),
        "points": [_point_json(point, gain) for point, gain in zip(road.points, road.gains(), strict=True)],
        "absent": road.absent,
        "others_processors": road.others.processors,
    }


def _point_json(point: Point, gain: float | None) -> dict[str, Any]:
    return {
        "kernel": point.kernel,
        "n": point.size.n,
        "dtype": point.dtype,
        "precision": point.precision,
        "config": None if point.row.config is None else point.row.config.as_dict(),
        "walls_s": point.row.walls,
        "median_s": point.row.seconds,
        "operations": point.traffic.operations,
        "nbytes": point.traffic.nbytes,
        "operations_per_s": point.rate,
        "gain": gain,
        "limit_per_s": point.limit.rate,
        "limited_by": point.limit.by,
        "correct": point.row.correct,
    }
