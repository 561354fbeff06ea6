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
from ..kernels.traffic import Traffic, peak
from ..problem.gemm import GemmProblem
from .bench import Point, Row, Rung
from .timing import NUMPY, Sample
from .tuner import Search, Tried

MARK = "drawn by pyclmm"  # in a picture: only those are replaced
_NOTED_AS = {".png": "Software", ".svg": "Creator", ".pdf": "Creator", ".ps": "Creator", ".eps": "Creator"}
_LABEL = 0.045  # height of a label beside a picture, as a part of the picture's
_DASHES = ("-", "-.", ":")  # of flat roofs
_MARKERS = "os^vDPX*<>"
_COLOURS = tuple(f"C{index}" for index in range(10))
# Colour and marker of a kernel in every picture. The colours have at least 3:1 contrast on white and on
# #131416, the dark page. Readers who cannot tell two colours apart have the marker; at most 3 share one.
KERNEL_STYLES: Mapping[str, tuple[str, str]] = {
    "sequential": ("#ca6789", "o"), "single_group": ("#2e823f", "s"), "naive": ("#866fc5", "^"),
    "flat": ("#b38309", "v"), "tiled": ("#007baa", "D"), "strip": ("#c15c65", "P"),
    "block": ("#1ea476", "X"), "vector": ("#8756a6", "*"), "double_buffer": ("#958000", "<"),
    "register": ("#3c93d6", ">"), "packed": ("#ad4d3a", "p"), "matvec": ("#009883", "o"),
    "small": ("#6f7f2a", "h"), "thin": ("#b56eb5", "s"), "split": ("#ca713e", "D"),
    "mma_split": ("#008488", "P"), "mma_double_bulk": ("#709c41", "*"), "wgmma_bare": ("#7a78c2", "D"),
    "residues": ("#a85a9c", "o"), "limbs": ("#8a7a30", "h"), "mma_quantized": ("#7d8a1f", "<"),
    "int8_quantized": ("#b0793a", "X"), "int8_tile": ("#9a5a78", "P"),
    "wgmma_quantized": ("#3f7f8d", ">"), "wgmma_fragments": ("#8466c0", "s"),
    "quantized": ("#4d8f3f", "v"), "dequantized": ("#a0619b", "^"),
    **{unit.name: unit.style for unit in MATRIX_UNITS.values()},
}  # fmt: skip


def figure_of(width: float, height: float) -> Any:
    """An empty picture of that size in inches. Raises ArgumentError without matplotlib."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        raise ArgumentError('plots need matplotlib: pip install "pyclmm[plot]"') from error
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, path: Path) -> None:
    """Write a picture, with MARK in it if its format has a place for that."""
    key = _NOTED_AS.get(path.suffix.lower())
    figure.savefig(path, dpi=150, metadata=key and {key: MARK})


def check(path: Path) -> None:
    """Raise ArgumentError if *path* has no known picture format: to be called before measuring."""
    formats = figure_of(1, 1).canvas.get_supported_filetypes()
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in formats:
        raise unknown_name("picture format", path.suffix, [f".{name}" for name in sorted(formats)])


def _set(axes: Any, **properties: Any) -> None:
    """Set scales, labels and limits, and draw a grid."""
    axes.set(**properties)
    axes.grid(True, which="major", alpha=0.3)


def style_of(index: int, name: str) -> dict[str, Any]:
    """Colour and marker of the kernel called *name*, or of line *index* of other names."""
    if name == NUMPY:
        return {"color": "black", "marker": "p"}
    if name in KERNEL_STYLES:
        return dict(zip(("color", "marker"), KERNEL_STYLES[name], strict=True))
    return {"color": _COLOURS[index % len(_COLOURS)], "marker": _MARKERS[index % len(_MARKERS)]}


def bench(rung: Rung, device: str, path: Path) -> None:
    """Draw GFLOP/s at one size on a log axis, with speed-ups over the baseline."""
    rows = [row for row in rung.rows if row.gflops]
    figure = figure_of(8, 1.6 + 0.4 * max(1, len(rows)))
    axes = figure.add_subplot()
    for index, row in enumerate(rows):
        axes.plot([row.gflops], [row.kernel], **style_of(index, row.kernel), markersize=8)
        axes.annotate(_label(row), (row.gflops, row.kernel), (10, -4), textcoords="offset points")
    axes.invert_yaxis()
    _set(axes, xscale="log", xlabel=f"GFLOP/s, {rung.terms.clock} (speed-up over {rung.baseline})")
    axes.margins(x=0.25)  # room for the labels
    axes.tick_params(axis="x", which="minor", labelbottom=False)
    axes.set_title(f"{rung.title}, {device}", fontsize="medium")
    save(figure, path)


def _label(row: Row) -> str:
    if row.speedup is None:
        return f"{row.gflops:.3g}"
    return f"{row.gflops:.3g} ({'~' if row.extrapolated else ''}{row.speedup:.3g}x)"


def ladder(rungs: Sequence[Rung], device: str, path: Path) -> None:
    """Draw time and speed-up against work, on log axes; hollow marks: the baseline is extrapolated."""
    figure = figure_of(12, 5.5)
    times, speedups = figure.subplots(1, 2)
    for index, name in enumerate(row.kernel for row in rungs[0].rows):
        _line(times, rungs, name, "seconds", style_of(index, name))
        _line(speedups, rungs, name, "speedup", style_of(index, name))
    clock = rungs[0].terms.clock
    for axes, label in ((times, f"time, {clock}, seconds"), (speedups, f"speed-up over {rungs[0].baseline}")):
        _set(axes, xscale="log", yscale="log", xlabel="work, M N K", ylabel=label)
    times.legend(fontsize="small")
    if any(row.extrapolated for rung in rungs for row in rung.rows):
        speedups.set_title(f"hollow: {rungs[0].baseline} extrapolated", fontsize="small")
    figure.suptitle(f"{rungs[0].dtype} {rungs[0].layout}, {device}", fontsize="medium")
    save(figure, path)


def tuning(searches: Sequence[Search], device: DeviceInfo, path: Path) -> None:
    """Left: the candidates of all searches, in the order tried. Right: the winners under the roofline."""
    figure = figure_of(12, 5.5)
    order, roof = figure.subplots(1, 2)
    _set(order, yscale="log", ylabel="GFLOP/s")
    _candidates(order, searches)
    points = [_winner(search.problem, search.best) for search in searches if search.best is not None]
    if points:
        _roofs(roof, points, device.rates, [str(point.problem) for point in points])
        _set(roof, xlabel="operations a byte that must be moved", ylabel="GFLOP/s")
        roof.legend(fontsize="small", loc="lower right")
    roof.set_title(f"rates: {device.rates.source}", fontsize="small")
    figure.suptitle(f"tuning {device.name}", fontsize="medium")
    save(figure, path)


def _candidates(axes: Any, searches: Sequence[Search]) -> None:
    points: dict[str, list[tuple[int, float]]] = {}
    for search in searches:
        for number, tried in enumerate(search.tried, 1):
            if tried.seconds:
                rate = search.problem.flops / tried.seconds / 1e9
                points.setdefault(tried.choice.kernel.name, []).append((number, rate))
        if search.entry is not None:
            colour = style_of(0, search.entry.kernel)["color"]
            axes.axhline(search.problem.flops / search.entry.seconds / 1e9, color=colour, linewidth=0.8)
    for index, (name, own) in enumerate(points.items()):
        axes.plot(*zip(*own, strict=True), **style_of(index, name), linestyle="none", alpha=0.5, label=name)
    axes.set_xlabel("candidate, in the order tried (line: a winner)")
    if points:
        axes.legend(fontsize="small")


def _winner(problem: GemmProblem, best: Tried) -> Point:
    """A winner, which moves at least what the product must."""
    kernel, samples = best.choice.kernel, (Sample(best.seconds or math.inf),)
    row = Row(kernel.name, samples=samples, flops=problem.flops)
    return Point(kernel, problem, row, Traffic(problem.nbytes, problem.flops))


def _line(axes: Any, rungs: Sequence[Rung], name: str, value: str, style: dict[str, Any]) -> None:
    measured = [(rung.size.work, rung.row(name)) for rung in rungs]
    points = [(work, getattr(row, value), row.extrapolated) for work, row in measured if getattr(row, value)]
    if points:
        axes.plot([p[0] for p in points], [p[1] for p in points], **style, linewidth=1.2, label=name)
    hollow = [p for p in points if value == "speedup" and p[2]]
    axes.plot(
        [p[0] for p in hollow], [p[1] for p in hollow], **style, linestyle="none", markerfacecolor="white"
    )


def under_roofs(points: Sequence[Point], rates: Rates, side: int, title: str, path: Path) -> None:
    """Draw kernels under the roofs of *rates*, each from its slowest to its fastest sample. Labels stand
    beside the picture in the order of the rates; those of kernels that ran at less than *side* say so.
    """
    figure, labels = figure_of(10, 6.5), list[str]()
    for point in points:
        where = f" at N = {point.problem.n}" if point.problem.n < side else ""
        labels.append(f"{point.kernel.name} {_plain(point.rate / 1e9)}{where}")
    axes = figure.add_subplot()
    _roofs(axes, points, rates, labels)
    words = "operations for each byte that the work-items load or store", "GFLOP/s, device to device"
    _set(axes, xlabel=words[0], ylabel=words[1])
    figure.legend(fontsize="small", loc="outside lower center", ncols=3)
    figure.suptitle(title, fontsize="medium")
    save(figure, path)


def _roofs(axes: Any, points: Sequence[Point], rates: Rates, labels: Sequence[str]) -> None:
    """Draw the roofs: of memory and cache, which slope, and of what multiplies; the points with *labels*."""
    flat = {_units(point): peak(point.kernel, point.problem, rates) / 1e9 for point in points}
    top, xs = max(flat.values()), [point.traffic.intensity for point in points]
    ends = min(xs) / 3, 3 * max(*xs, 1e9 * top / rates.memory)
    for name, speed, line in (("cache", rates.cache, "--"), ("memory", rates.memory, "-")):
        slope = ends[0], min(1e9 * top / speed, ends[1])
        label = f"{name}, {_plain(speed / 1e9)} GB/s"
        axes.plot(slope, [speed * x / 1e9 for x in slope], line, color="0.45", label=label)
    for (name, height), line in zip(flat.items(), cycle(_DASHES), strict=False):
        label = f"{name}, {_plain(height)} GFLOP/s"
        axes.plot((1e9 * height / rates.cache, ends[1]), (height, height), line, color="black", label=label)
    low = min([point.rate / 1e9 for point in points] + [rates.memory * ends[0] / 1e9]) / 2
    high = 2 * max([top] + [point.rate / 1e9 for point in points])
    _set(axes, xscale="log", yscale="log", xlim=ends, ylim=(low, high))
    _beside(axes, points, labels, math.log(low), math.log(high))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.10g}")


def _units(point: Point) -> str:
    """What multiplies, for the legend."""
    kind = "TF32" if point.problem.precision == "medium" else point.problem.a_type
    return f"matrix units, {kind}" if point.kernel.matrix_units else f"{kind} multiply-adds"


def _plain(value: float) -> str:
    """Three significant digits without an exponent: 344,000."""
    return f"{float(f'{value:.3g}'):,.10g}"


def _beside(axes: Any, points: Sequence[Point], labels: Sequence[str], low: float, high: float) -> None:
    """Draw the points, each with a line to its label right of the axes. Labels keep their distance."""
    rising = sorted(zip(points, labels, strict=True), key=lambda each: each[0].rate)
    heights = spread([(math.log(p.rate / 1e9) - low) / (high - low) for p, _ in rising], _LABEL)
    for (point, label), height in zip(rising, heights, strict=True):
        style, x, y = style_of(0, point.kernel.name), point.traffic.intensity, point.rate / 1e9
        rates = [point.row.flops / wall / 1e9 for wall in point.row.walls]
        below, above = y - min(rates), max(rates) - y
        axes.errorbar(x, y, [[below], [above]], **style, linestyle="none", markersize=8, capsize=3)
        axes.annotate(
            label, (x, y), (1.03, height),
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
