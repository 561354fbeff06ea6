"""Draws measurements. matplotlib is an optional dependency: ``pip install "pyclmm[plot]"``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, unknown_name
from ..kernels.device import DeviceInfo
from ..kernels.matrix_unit import MATRIX_UNITS
from ..kernels.rates import Rates
from ..kernels.traffic import peak
from .bench import BASELINE, Row, Rung
from .road import Point, Road
from .timing import NUMPY, Terms
from .tuner import Search

MARK = "drawn by pyclmm"  # in a picture: only those are replaced
_NOTED_AS = {".png": "Software", ".svg": "Creator", ".pdf": "Creator", ".ps": "Creator", ".eps": "Creator"}
_MARKERS = "os^vDPX*<>"
_COLOURS = tuple(f"C{index}" for index in range(10))
# Colour and marker of a kernel in every picture. The colours have at least 3:1 contrast on white and on
# #131416, the dark page. Readers who cannot tell two colours apart have the marker; at most 3 share one.
KERNEL_STYLES: Mapping[str, tuple[str, str]] = {
    "sequential": ("#ca6789", "o"),
    "single_group": ("#2e823f", "s"),
    "naive": ("#866fc5", "^"),
    "flat": ("#b38309", "v"),
    "tiled": ("#007baa", "D"),
    "strip": ("#c15c65", "P"),
    "block": ("#1ea476", "X"),
    "vector": ("#8756a6", "*"),
    "double_buffer": ("#958000", "<"),
    "register": ("#3c93d6", ">"),
    "packed": ("#ad4d3a", "p"),
    "matvec": ("#009883", "o"),
    "thin": ("#b56eb5", "s"),
    "split": ("#ca713e", "D"),
    "mma_split": ("#008488", "P"),
    "mma_double_bulk": ("#709c41", "*"),
    "wgmma_bare": ("#7a78c2", "D"),
    "residues": ("#a85a9c", "o"),
    "limbs": ("#8a7a30", "h"),
    **{unit.name: unit.style for unit in MATRIX_UNITS.values()},
}


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        raise ArgumentError('plots need matplotlib: pip install "pyclmm[plot]"') from error
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Any, path: Path) -> None:
    """Write a picture, with MARK in it if its format has a place for that."""
    key = _NOTED_AS.get(path.suffix.lower())
    figure.savefig(path, dpi=150, metadata=key and {key: MARK})


def check(path: Path) -> None:
    """Raise ArgumentError if *path* has no known picture format: to be called before measuring."""
    formats = _figure(1, 1).canvas.get_supported_filetypes()
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in formats:
        raise unknown_name("picture format", path.suffix, [f".{name}" for name in sorted(formats)])


def _style(index: int, name: str) -> dict[str, Any]:
    if name == NUMPY:
        return {"color": "black", "marker": "p"}
    if name in KERNEL_STYLES:
        return dict(zip(("color", "marker"), KERNEL_STYLES[name], strict=True))
    return {"color": _COLOURS[index % len(_COLOURS)], "marker": _MARKERS[index % len(_MARKERS)]}


def bench(rung: Rung, device: str, path: Path) -> None:
    """Draw GFLOP/s at one size on a log axis, with speed-ups over the baseline."""
    rows = [row for row in rung.rows if row.gflops]
    figure = _figure(8, 1.6 + 0.4 * max(1, len(rows)))
    axes = figure.add_subplot()
    for index, row in enumerate(rows):
        style = _style(index, row.kernel)
        axes.plot(row.gflops, index, **style, markersize=8)
        axes.annotate(_label(row), (row.gflops, index), (10, -4), textcoords="offset points")
    axes.set_yticks(range(len(rows)), [row.kernel for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    rates = [row.gflops for row in rows if row.gflops] or [1.0]
    axes.set_xscale("log")
    # whole decades, and room for the labels
    axes.set_xlim(10 ** math.floor(math.log10(min(rates))), 10 ** math.ceil(math.log10(max(rates)) + 0.6))
    axes.grid(True, which="major", alpha=0.3)
    axes.tick_params(axis="x", which="minor", labelbottom=False)
    axes.set_xlabel(f"GFLOP/s, {rung.terms.clock} (speed-up over {BASELINE})")
    axes.set_title(f"{rung.title}, {device}", fontsize="medium")
    _save(figure, path)


def _label(row: Row) -> str:
    if row.speedup is None:
        return f"{row.gflops:.3g}"
    return f"{row.gflops:.3g} ({'~' if row.extrapolated else ''}{row.speedup:.3g}x)"


def ladder(rungs: Sequence[Rung], device: str, path: Path) -> None:
    """Draw time and speed-up against work, on log axes; hollow marks: the baseline is extrapolated."""
    figure = _figure(12, 5.5)
    times, speedups = figure.subplots(1, 2)
    for index, name in enumerate(row.kernel for row in rungs[0].rows):
        _line(times, rungs, name, "seconds", _style(index, name))
        _line(speedups, rungs, name, "speedup", _style(index, name))
    clock = rungs[0].terms.clock
    for axes, label in ((times, f"time, {clock}, seconds"), (speedups, f"speed-up over {BASELINE}")):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("work, M N K")
        axes.set_ylabel(label)
        axes.grid(True, which="major", alpha=0.3)
    times.legend(fontsize="small")
    if any(row.extrapolated for rung in rungs for row in rung.rows):
        speedups.set_title(f"hollow: {BASELINE} extrapolated", fontsize="small")
    figure.suptitle(f"{rungs[0].dtype} {rungs[0].layout}, {device}", fontsize="medium")
    _save(figure, path)


def tuning(searches: Sequence[Search], device: DeviceInfo, path: Path) -> None:
    """Left: each search's candidates in the order tried. Right: the winners under the roofline.

    The sloping part of the roof is the rate of the device's memory, the flat part the highest rate of the
    searches.
    """
    bandwidth = device.rates.memory
    figure = _figure(12, 5.5)
    order, roof = figure.subplots(1, 2)
    rates = [_rates(search) for search in searches]
    best = max((rate for own in rates for _, rate in own), default=1.0)
    intensities = [search.problem.flops / search.problem.nbytes for search in searches]
    for index, (search, own, intensity) in enumerate(zip(searches, rates, intensities, strict=True)):
        style = _style(index, str(search.problem))
        order.plot([x for x, _ in own], [y / 1e9 for _, y in own], **style, linestyle="none", alpha=0.5)
        if search.entry is not None:
            rate = search.problem.flops / search.entry.seconds
            label = f"{search.problem}: {search.entry.kernel}"
            order.axhline(rate / 1e9, color=style["color"], linewidth=0.8)
            roof.plot(intensity, rate / 1e9, **style, linestyle="none", markersize=8, label=label)
    ends = [min(intensities, default=1.0) / 8, max([*intensities, 2 * best / bandwidth]) * 8]
    xs = sorted([*ends, best / bandwidth])
    roof.plot(xs, [min(best, bandwidth * x) / 1e9 for x in xs], color="black", linewidth=1)
    roof.set_xscale("log")
    roof.tick_params(axis="x", which="minor", labelbottom=False)
    for axes in (order, roof):
        axes.set_yscale("log")
        axes.set_ylabel("GFLOP/s")
        axes.grid(True, which="major", alpha=0.3)
    order.set_xlabel("candidate, in the order tried (line: the winner)")
    roof.set_xlabel("operations a byte that must be moved")
    memory = f"memory, {bandwidth / 1e9:.3g} GB/s ({device.rates.source})"
    roof.set_title(f"roof: {memory}, and the best rate seen", fontsize="small")
    if any(search.entry for search in searches):
        roof.legend(fontsize="small")
    figure.suptitle(f"tuning {device.name}", fontsize="medium")
    _save(figure, path)


_LABEL = 0.045  # height of a label beside the road, as a part of the picture's
_DASHES = ("-", "-.", ":")  # of the flat roofs


def road(found: Road, rates: Rates, where: str, path: Path) -> None:
    """Draw every kernel under the device's roofs, from its slowest to its fastest sample.

    Labels stand beside the picture in the order of the rates. *where*: device and date, for the title.
    """
    flat = {_units(point): peak(point.kernel, point.problem, rates) / 1e9 for point in found.points}
    top, rows = max(flat.values()), [(point, point.traffic.intensity) for point in found.points]
    ends = min(x for _, x in rows) / 3, 3 * max(*(x for _, x in rows), 1e9 * top / rates.memory)
    figure = _figure(10, 6.5)
    axes = figure.add_subplot()
    for name, speed, line in (("cache", rates.cache, "--"), ("memory", rates.memory, "-")):
        xs = ends[0], min(1e9 * top / speed, ends[1])
        label = f"{name}, {_plain(speed / 1e9)} GB/s"
        axes.plot(xs, [speed * x / 1e9 for x in xs], line, color="0.45", label=label)
    for (name, height), line in zip(flat.items(), cycle(_DASHES), strict=False):
        label = f"{name}, {_plain(height)} GFLOP/s"
        axes.plot((1e9 * height / rates.cache, ends[1]), (height, height), line, color="black", label=label)
    axes.set(xscale="log", yscale="log", xlim=ends)
    low = min([point.rate / 1e9 for point in found.points] + [rates.memory * ends[0] / 1e9]) / 2
    high = 2 * max([top] + [point.rate / 1e9 for point in found.points])
    axes.set_ylim(low, high)
    _beside(axes, found, math.log(low), math.log(high))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.10g}")
    axes.set_xlabel("operations for each byte that the work-items load or store")
    axes.set_ylabel(f"GFLOP/s, {Terms(arrays=True).clock}")
    axes.grid(True, which="major", alpha=0.3)
    figure.legend(fontsize="small", loc="outside lower center", ncols=3)
    figure.suptitle(f"The road, N = {found.side}: {where}", fontsize="medium")
    _save(figure, path)


def _plain(value: float) -> str:
    """Three significant digits without an exponent: 344,000."""
    return f"{float(f'{value:.3g}'):,.10g}"


def _units(point: Point) -> str:
    """What multiplies, for the legend."""
    kind = "TF32" if point.problem.precision == "medium" else point.dtype
    return f"matrix units, {kind}" if point.kernel.matrix_units else f"{kind} multiply-adds"


def _beside(axes: Any, found: Road, low: float, high: float) -> None:
    """Draw the points, each with a line to its label right of the axes. Labels keep their distance."""
    points = sorted(found.points, key=lambda point: point.rate)
    heights = spread([(math.log(p.rate / 1e9) - low) / (high - low) for p in points], _LABEL)
    for point, height in zip(points, heights, strict=True):
        style, x, y = _style(0, point.kernel.name), point.traffic.intensity, point.rate / 1e9
        samples = [point.row.flops / wall / 1e9 for wall in point.row.walls]
        axes.errorbar(
            x, y, [[y - min(samples)], [max(samples) - y]], **style, linestyle="none", markersize=8, capsize=3
        )
        smaller = f" at N = {point.size.n}" if point.size.n < found.side else ""
        axes.annotate(
            f"{point.kernel.name} {_plain(y)}{smaller}", (x, y), (1.03, height),
            textcoords="axes fraction", va="center", fontsize="small",
            arrowprops={"arrowstyle": "-", "color": style["color"], "linewidth": 0.6, "alpha": 0.6},
        )  # fmt: skip


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Rising *heights* with *gap* between neighbours at least, moved no more than this takes, under 1."""
    found: list[float] = []
    for height in heights:
        found.append(max(height, found[-1] + gap) if found else height)
    ceiling = 1.0
    for index in range(len(found) - 1, -1, -1):
        found[index] = ceiling = min(found[index], ceiling)
        ceiling -= gap
    return found


def _rates(search: Search) -> list[tuple[int, float]]:
    """(number, operations/s) of the candidates that were timed."""
    timed = ((number, one.seconds) for number, one in enumerate(search.tried, 1))
    return [(number, search.problem.flops / seconds) for number, seconds in timed if seconds]


def _line(axes: Any, rungs: Sequence[Rung], name: str, value: str, style: dict[str, Any]) -> None:
    measured = [(rung.size.work, rung.row(name)) for rung in rungs]
    points = [(work, getattr(row, value), row.extrapolated) for work, row in measured if getattr(row, value)]
    if points:
        axes.plot([p[0] for p in points], [p[1] for p in points], **style, linewidth=1.2, label=name)
    hollow = [p for p in points if value == "speedup" and p[2]]
    axes.plot(
        [p[0] for p in hollow], [p[1] for p in hollow], **style, linestyle="none", markerfacecolor="white"
    )
