"""Measurements as tables for people and as JSON for programs.

Text is plain ASCII and tables keep their natural width, so nothing is cut in a pipe or a file.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyopencl as cl
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ..kernels.device import DeviceInfo
from ..kernels.rates import MEANINGS, Rates, as_numbers
from ..version import __version__
from .bench import BASELINE, Row, Rules, Rung
from .tuner import Search

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
JSON_FORMAT = 1
_WIDTH = 1000  # wider than any table: rich would cut numbers to fit a narrow terminal or a pipe


def new_console() -> Console:
    """A console that prints what it is given: no markup, no wrapping, and tables as wide as they are."""
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=True, width=_WIDTH)


def significant(value: float, digits: int = 3) -> str:
    """*value* with that many significant digits and no exponent."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def duration(seconds: float) -> str:
    """Seconds with a unit that suits them."""
    scale, unit = next((u for u in _UNITS if seconds >= u[0]), _UNITS[-1])
    return f"{significant(seconds / scale)} {unit}"


def new_table(*columns: str, text: Iterable[str] = ()) -> Table:
    """A table whose columns are numbers, set right, but for those named in *text*."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in text else "right", no_wrap=True)
    return table


def _config(row: Row) -> str:
    sizes = row.config.as_dict() if row.config else {}
    return " ".join(f"{name}={value}" for name, value in sizes.items())


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else significant(seconds * 1e3)


def _verdict(row: Row) -> str:
    if row.error_ratio is None or row.error_limit is None:
        return "-"
    share = row.error_ratio / row.error_limit
    return f"{'ok' if row.correct else 'WRONG'} ({share:.2g})"


def _speedup(row: Row) -> str:
    if row.speedup is None:
        return "-"
    return f"{'~' if row.extrapolated else ''}{significant(row.speedup)}"


def measurements(row: Row) -> list[str]:
    """The cells of one row after its kernel's name: see :data:`MEASUREMENTS`."""
    gflops = "-" if row.gflops is None else significant(row.gflops)
    return [_milliseconds(row.device), _milliseconds(row.wall), gflops, _speedup(row), _verdict(row)]


MEASUREMENTS = ("device ms", "wall ms", "GFLOP/s", "speed-up", "error/bound")


def bench_table(rung: Rung) -> Table:
    """One size: a line for each kernel that ran."""
    table = new_table("kernel", "tile", *MEASUREMENTS, text=("kernel", "tile"))
    for row in rung.rows:
        if row.reason is None:
            table.add_row(row.kernel, _config(row), *measurements(row))
    return table


def rates_table(rates: Rates) -> Table:
    """A line for each of a device's rates."""
    table = new_table("rate", "value", "unit", "meaning", text=("rate", "unit", "meaning"))
    for name, value in as_numbers(rates).items():
        unit, meaning = MEANINGS[name]
        table.add_row(name, f"{value:.3g}" if value else "-", unit, meaning)
    return table


def tuning_table(searches: Sequence[Search]) -> Table:
    """A line for each product: what was taken before, what won, and by how much."""
    columns = ("product", "tried", "kernel", "tile", "ms", "GFLOP/s", "speed-up")
    table = new_table(*columns, text=("product", "kernel", "tile"))
    for search in searches:
        tried = f"{len(search.tried)} of {search.total}"
        if search.entry is None:
            table.add_row(str(search.problem), tried, "-", search.reason or "nothing ran", "-", "-", "-")
            continue
        entry, seconds = search.entry, search.entry.seconds
        rate = significant(search.problem.flops / seconds / 1e9)
        numbers = (_milliseconds(seconds), rate, significant(search.gain))
        table.add_row(str(search.problem), tried, entry.kernel, str(entry.config), *numbers)
    return table


def tuning_notes(searches: Sequence[Search]) -> list[str]:
    """Which candidates were left behind, and why."""
    return [
        f"{search.problem}: {one.choice.kernel.name} {one.choice.config}: {one.reason}"
        for search in searches
        for one in search.tried
        if one.reason is not None
    ]


def notes(rungs: Sequence[Rung]) -> list[str]:
    """What the tables cannot say: who did not run and why, and which speed-ups are estimates."""
    lines = [line for row in rungs[0].rows for line in _absences(rungs, row.kernel)]
    for rung in rungs:
        for row in rung.wrong:
            ratio = f"{row.error_ratio:.3g} over {row.error_limit:g}"
            lines.append(f"{row.kernel}: WRONG RESULT at {rung.size}: error {ratio}")
        if 0 < rung.checked_rows < rung.size.m:
            lines.append(f"checked at {rung.size}: {rung.checked_rows} of {rung.size.m} rows of the result")
    if any(row.extrapolated for rung in rungs for row in rung.rows):
        lines.append(f"~: {BASELINE} was too slow to run; its time is extrapolated from a smaller product")
    return lines


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
        where = f" from {rungs[end].size} on" if len(rungs) > 1 else ""
        lines.append(f"{kernel}: not run{where}: {reasons[end]}")
    return lines


def _cell(row: Row, text: str) -> str:
    if row.reason is None:
        return text
    return "too slow" if row.too_slow else "-"


def ladder_table(rungs: Sequence[Rung], what: str) -> Table:
    """All sizes: *what* ("time" or "speed-up") by work and kernel."""
    table = new_table("M = N = K", "M N K", *(row.kernel for row in rungs[0].rows))
    for rung in rungs:
        cells = []
        for row in rung.rows:
            text = duration(row.seconds) if what == "time" and row.seconds else _speedup(row)
            cells.append(_cell(row, text))
        table.add_row(str(rung.size.m), f"{rung.size.work:.2e}", *cells)
    return table


def _finite(value: float | None) -> float | None:
    """JSON has no infinity."""
    return value if value is not None and math.isfinite(value) else None


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "kernel": row.kernel,
        "config": row.config.as_dict() if row.config else None,
        "device_s": row.device,
        "wall_s": row.wall,
        "device_samples_s": [s.device for s in row.samples],
        "wall_samples_s": [s.wall for s in row.samples],
        "gflops": row.gflops,
        "speedup": row.speedup,
        "speedup_extrapolated": row.extrapolated,
        "error_ratio": _finite(row.error_ratio),
        "error_limit": row.error_limit,
        "correct": row.correct,
        "reason": row.reason,
    }


def _rung_json(rung: Rung) -> dict[str, Any]:
    size = rung.size
    return {
        "m": size.m,
        "n": size.n,
        "k": size.k,
        "work": size.work,
        "dtype": rung.dtype,
        "checked_rows": rung.checked_rows,
        "rows": [_row_json(row) for row in rung.rows],
    }


def device_json(device: DeviceInfo) -> dict[str, Any]:
    """Every field of a device, with lists where Python has sets and tuples."""
    own = dict(vars(device))
    return own | {
        "opencl_version": list(device.opencl_version),
        "max_work_item_sizes": list(device.max_work_item_sizes),
        "extensions": sorted(device.extensions),
        "compute_capability": list(device.compute_capability) if device.compute_capability else None,
    }


def host_json() -> dict[str, Any]:
    """The versions and the machine that a measurement depends on."""
    config: Any = np.show_config(mode="dicts")
    return {
        "pyclmm": __version__,
        "pyopencl": cl.VERSION_TEXT,
        "numpy": np.__version__,
        "blas": config.get("Build Dependencies", {}).get("blas", {}).get("name"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "cpus": os.cpu_count(),
    }


def header_json(device: DeviceInfo) -> dict[str, Any]:
    """What stands at the head of every file: format, date (UTC), versions, device."""
    return {
        "format": JSON_FORMAT,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "host": host_json(),
        "device": device_json(device),
    }


def bench_json(device: DeviceInfo, rules: Rules, rungs: Sequence[Rung]) -> dict[str, Any]:
    """Everything that was measured; times in seconds."""
    return header_json(device) | {
        "rounds": rules.rounds,
        "limit_s": rules.limit,
        "baseline": BASELINE,
        "products": [_rung_json(rung) for rung in rungs],
    }
