"""Measurements as tables for people and as JSON for programs."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

import numpy as np
import pyopencl as cl

from ..kernels.device import DeviceInfo
from ..kernels.rates import MEANINGS, as_numbers
from ..version import __version__
from .bench import SCATTER, Row, Rung, Track
from .terminal import TextTable, duration, significant
from .timing import Terms
from .tuner import TUNED, Search, Tuning

JSON_FORMAT = 2
REASONS = "docs/road/index.md"  # why steps of the road can be steps back


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else significant(seconds * 1e3)


def _verdict(row: Row) -> str:
    if row.error_ratio is None or row.error_limit is None:
        return "-"
    if not row.correct:
        return "WRONG"
    share = 100 * row.error_ratio / row.error_limit
    return "<0.1%" if 0 < share < 0.1 else f"{share:.2g}%"


def _speedup(row: Row) -> str:
    if row.speedup is None:
        return "-"
    return f"{'~' if row.extrapolated else ''}{significant(row.speedup)}"


def clock(terms: Terms) -> list[str]:
    """What the tables' times are, in two lines."""
    data = "Arrays in and out, and the wait" if terms.arrays else "NumPy arrays in and out"
    return [
        f"Wall time of a call, {terms.clock} ({data}).",
        "\"device ms\": the device's own time, of the kernel's launches alone.",
    ]


def doubted(said: str, busy: bool, one: Row, other: Row) -> str:
    """What is *said* of two rows, marked as uncertain if the machine was *busy* or their times overlap."""
    if busy or one.overlaps(other):
        return f"Not certain, as {'the machine was busy' if busy else 'the times overlap'}: {said}"
    return said


def steps_back(rows: Sequence[Row]) -> list[str]:
    """The kernels of the road whose fastest sample is slower than the median of the row above."""
    return [
        own.kernel
        for before, own in pairwise(rows)
        if before.seconds and own.walls and own.flops / own.walls[0] < before.flops / before.seconds
    ]


def device_line(device: DeviceInfo) -> str:
    """The device, its platform and its driver."""
    return f"{device.name} ({device.platform}, driver {device.driver_version})"


def bench_table(rung: Rung) -> TextTable:
    """One size: a line for each kernel that ran. GFLOP/s and speed-up follow from the median."""
    head = ("kernel", "min ms", "median", "max", "GFLOP/s", "speed-up", "device\nms", "error\n/bound")
    rows = []
    for row in rung.rows:
        if row.seconds is not None and row.gflops is not None:
            spread = (_milliseconds(x) for x in (row.walls[0], row.seconds, row.walls[-1]))
            numbers = (significant(row.gflops), _speedup(row), _milliseconds(row.device), _verdict(row))
            rows.append((row.kernel, *spread, *numbers))
    return TextTable(head, tuple(rows), text=("kernel",))


def rates_table(rates: Mapping[str, float]) -> TextTable:
    """A line for each of a device's rates."""
    head = ("rate", "value", "unit", "meaning")
    rows = ((name, f"{value:.3g}" if value else "-", *MEANINGS[name]) for name, value in rates.items())
    return TextTable(head, tuple(rows), text=("rate", "unit", "meaning"))


def unchecked(device: DeviceInfo) -> list[str]:
    """That rates of multiply-adds were not compared with what the units can do, and why, where it is so."""
    if device.most("float32") is not None:
        return []
    known = (
        "a CPU's clock may rise over what it reports" if device.is_cpu else "its clock or width is unknown"
    )
    return [f"No limit of this device's multiply-adds is known ({known}): their rates are unchecked."]


def configurations(rung: Rung) -> list[str]:
    """A line for each kernel with tile sizes: those it was built with, and what "auto" has chosen."""
    lines = []
    for row in rung.rows:
        if row.samples and row.config is not None:
            sizes = " ".join(f"{name}={value}" for name, value in row.config.as_dict().items())
            words = ", ".join(filter(None, (row.chosen, sizes)))
            lines += [f"{row.kernel}: {words}"] if words else []
    return lines


def tuning_table(searches: Sequence[Search]) -> TextTable:
    """A line for each product: what was taken before, what won, and by how much."""
    return TextTable(TUNED, tuple(search.row() for search in searches), text=("product", "kernel", "tile"))


def tuning_notes(tuning: Tuning) -> list[str]:
    """Which candidates were left behind, and why; what became of those that were not tried."""
    lines = [
        f"{search.problem}: {one.choice.kernel.name} {one.choice.config}: {one.reason}"
        for search in tuning.searches
        for one in search.tried
        if one.reason is not None
    ]
    lines += [f"{search.problem}: {search.untried}" for search in tuning.searches if search.untried]
    missed = tuning.total - len(tuning.searches)
    why = "interrupted" if tuning.interrupted else "time was up; give a longer --budget"
    return lines + [f"{missed} of {tuning.total} products not begun: {why}"] * (missed > 0)


def notes(rungs: Sequence[Rung], asked: Collection[str] = ()) -> list[str]:
    """What the tables cannot say: times that scatter, who did not run and why (not :func:`refused`)."""
    lines = []
    for rung in (rung for rung in rungs if rung.scattered):
        worst = ", ".join(f"{row.kernel} {significant(row.scatter, 2)}" for row in rung.scattered)
        lines.append(
            f"WARNING: times at {rung.size} scatter by more than {SCATTER:g} (max/min): {worst}. "
            "Repeat with nothing else running, or with more --rounds."
        )
    never = refused(rungs, asked)
    lines += [
        line for row in rungs[0].rows if row.kernel not in never for line in _absences(rungs, row.kernel)
    ]
    for rung in rungs:
        for row in rung.wrong:
            ratio = f"{row.error_ratio:.3g}, the bound is {row.error_limit:g}"
            lines.append(f"{row.kernel}: WRONG RESULT at {rung.size}: error {ratio}")
        if 0 < rung.checked_rows < rung.size.m:
            lines.append(f"checked at {rung.size}: {rung.checked_rows} of {rung.size.m} rows of the result")
    if any(row.extrapolated for rung in rungs for row in rung.rows):
        lines.append(
            f"~: {rungs[0].baseline} was too slow to run; its time is extrapolated from a smaller product"
        )
    return lines


def refused(rungs: Sequence[Rung], asked: Collection[str] = ()) -> list[str]:
    """The kernels that can run at no size, but for those that were *asked* for, whose reasons are told."""
    names = [row.kernel for row in rungs[0].rows if row.kernel not in asked]
    return [name for name in names if all(rung.row(name).refused for rung in rungs)]


def _absences(rungs: Sequence[Rung], kernel: str) -> list[str]:
    """Where *kernel* did not run: one line from where on it never does, one for each size before."""
    reasons = [rung.row(kernel).reason for rung in rungs]
    end = len(rungs)
    while end > 0 and reasons[end - 1] is not None:
        end -= 1
    lines = [
        f"{kernel}: not run at {rung.size}: {reason}"
        for rung, reason in zip(rungs[:end], reasons, strict=False)
        if reason is not None
    ]
    if end < len(rungs):
        where = f" from {rungs[end].size} on" if end else ""
        lines.append(f"{kernel}: not run{where}: {reasons[end]}")
    return lines


def ladder_table(rungs: Sequence[Rung], what: str) -> TextTable:
    """All sizes: *what* ("time" or "speed-up") by work and kernel, for the kernels that ran."""
    ran = [row.kernel for row in rungs[0].rows if any(r.row(row.kernel).reason is None for r in rungs)]
    rows = (
        (str(r.size.m), f"{r.size.work:.2e}", *(_cell(r.row(kernel), what) for kernel in ran)) for r in rungs
    )
    return TextTable(("M = N = K", "M N K", *ran), tuple(rows), keys=2)


def _cell(row: Row, what: str) -> str:
    if row.reason is not None:
        return "too slow" if row.too_slow else "-"
    return duration(row.seconds) if what == "time" and row.seconds else _speedup(row)


def tuning_json(tuning: Tuning, budget: float) -> dict[str, Any]:
    """Every candidate of every product, times in seconds, and whether the winners are kept."""
    about = {"budget_s": budget, "kept": tuning.stored, "products_asked_for": tuning.total}
    return header_json(tuning.device) | about | {"products": [_search_json(x) for x in tuning.searches]}


def _search_json(search: Search) -> dict[str, Any]:
    p = search.problem
    tried = [
        {"kernel": t.choice.kernel.name, "config": t.choice.config.as_dict(), "device_s": t.seconds}
        | {"gain": t.gain, "won": t.won, "reason": t.reason}
        for t in search.tried
    ]
    about = {"m": p.m, "n": p.n, "k": p.k, "product": str(p), "candidates": search.total}
    return about | {"outclassed": search.outclassed, "reason": search.reason, "tried": tried}


def _row_json(row: Row) -> dict[str, Any]:
    ratio = row.error_ratio if math.isfinite(row.error_ratio or 0) else None  # JSON has no infinity
    return {
        "kernel": row.kernel, "config": row.config.as_dict() if row.config else None, "chosen": row.chosen,
        "wall_s": row.seconds, "device_s": row.device,
        "device_samples_s": [s.device for s in row.samples],
        "wall_samples_s": [s.wall for s in row.samples],
        "gflops": row.gflops, "speedup": row.speedup, "speedup_extrapolated": row.extrapolated,
        "error_ratio": ratio, "error_limit": row.error_limit, "correct": row.correct, "reason": row.reason,
    }  # fmt: skip


def _rung_json(rung: Rung) -> dict[str, Any]:
    terms = {"layout": rung.layout, "precision": rung.terms.precision, "wall": rung.terms.clock}
    about = asdict(rung.size) | {"work": rung.size.work, "dtype": rung.dtype} | terms
    return about | {"checked_rows": rung.checked_rows, "rows": [_row_json(row) for row in rung.rows]}


def device_json(device: DeviceInfo) -> dict[str, Any]:
    """Every field of a device, and its rates."""
    own = asdict(replace(device, user_rates=None)) | {
        "rates": as_numbers(device.rates) | {"source": device.rates.source},
        "extensions": sorted(device.extensions),
    }
    del own["user_rates"]
    return own


def host_json() -> dict[str, Any]:
    """The versions and the machine that a measurement depends on."""
    config: Any = np.show_config(mode="dicts")
    return {
        "pyclmm": __version__, "pyopencl": cl.VERSION_TEXT, "numpy": np.__version__,
        "blas": config.get("Build Dependencies", {}).get("blas", {}).get("name"),
        "python": platform.python_version(), "machine": platform.machine(),
        "system": platform.system(), "cpus": os.cpu_count(),
    }  # fmt: skip


def header_json(device: DeviceInfo | None) -> dict[str, Any]:
    """What stands at the head of every file: format, date (UTC), versions, and the device if it is one."""
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    head = {"format": JSON_FORMAT, "date": date, "host": host_json()}
    return head if device is None else head | {"device": device_json(device)}


def bench_json(track: Track, rungs: Sequence[Rung], seed: int = 0) -> dict[str, Any]:
    """Everything that was measured; times in seconds. GFLOP/s and speed-ups follow from median wall times."""
    terms = {"rounds": track.terms.rounds, "limit_s": track.terms.limit}
    about = {"baseline": rungs[0].baseline if rungs else None, "seed": seed}
    found = {"others_processors": track.others.processors, "products": [_rung_json(x) for x in rungs]}
    return header_json(track.device) | terms | about | found
