"""The tables of `make demo-all`: real matrices multiplied by every kernel, checked and timed."""

from __future__ import annotations

from pathlib import Path

import pyopencl as cl

from pyclmm.opencl.devices import device_info, device_labels
from pyclmm.plan import Matmul
from pyclmm.tools import report
from pyclmm.tools.bench import Rung, Track, kernel_names
from pyclmm.tools.terminal import Screen
from pyclmm.tools.timing import NUMPY, Terms, size_of

from . import digits, workloads
from .workloads import Workload

# Runs of a kernel, and the most seconds for a kernel and product: a demo must be short.
TERMS = Terms(rounds=3, limit=2.0)
_KNOWN, _ASKED = 2000, 500


def products(data: Path | None) -> list[Workload]:
    """The products of the tables. *data*: a folder with MNIST's files; None: digits are drawn.

    Raises ArgumentError if the folder does not have those files.
    """
    if data is None:
        pictures, source = digits.draw(_KNOWN + _ASKED), "drawn"
    else:
        pictures, source = digits.load(data), "MNIST"
    return [
        workloads.jpeg_block(),
        workloads.dct(),
        workloads.turned_points(),
        workloads.two_steps(),
        workloads.nearest_digits(pictures, source, _KNOWN, _ASKED),
    ]


def list_devices(screen: Screen, chosen: cl.Device) -> None:
    """Print a line for each device, with a mark at the one that is used."""
    for label, device in device_labels().items():
        info = device_info(device)
        mark = "*" if device == chosen else " "
        line = f"{mark} {label}  {info.name} ({info.kind}, {info.compute_units} compute units), "
        screen.lines(line + f"{info.platform}, driver {info.driver_version}")
    screen.lines("")


def run(screen: Screen, queue: cl.CommandQueue, data: Path | None) -> list[Rung]:
    """Multiply, print each product's table, and return the measurements.

    Raises ArgumentError if *data* does not have MNIST's files.
    """
    work = products(data)
    list_devices(screen, queue.device)
    track = Track(queue, kernel_names([]), TERMS)
    screen.lines(*report.clock(track.terms), "")
    rungs = []
    for workload in work:
        track.probe(size_of(workload.a, workload.b), workload.a.dtype)
        rung = track.race(workload.a, workload.b)
        rungs.append(rung)
        screen.lines(f"{workload.title}: {rung.title}")
        screen.table(report.bench_table(rung))
        for line in report.notes([rung]):
            screen.lines(f"  {line}")
        if refused := report.refused([rung]):
            screen.lines(f"  cannot compute this here: {', '.join(refused)}")
        screen.lines(f"  {_finding(workload, queue)}", "")
    _summary(screen, rungs)
    return rungs


def _finding(workload: Workload, queue: cl.CommandQueue) -> str:
    plan = Matmul(workload.a, workload.b, queue=queue)
    found = workload.finding(plan(workload.a, workload.b))
    return f"{found} (by {plan.kernel}, which kernel='auto' picks)"


def _summary(screen: Screen, rungs: list[Rung]) -> None:
    ran = [row for rung in rungs for row in rung.rows if row.reason is None and row.kernel != NUMPY]
    wrong = [row for rung in rungs for row in rung.wrong]
    names = ", ".join(dict.fromkeys(row.kernel for row in ran))
    screen.lines(f"{len(ran)} products by {names}: {len(ran) - len(wrong)} right, {len(wrong)} wrong")
