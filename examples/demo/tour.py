"""What `make demo` prints: which driver, is it right, how it becomes fast, what it is good for, what next."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyopencl as cl

import pyclmm
from pyclmm.opencl.devices import device_info
from pyclmm.tools.bench import Row, Rung, Track
from pyclmm.tools.report import REASONS, device_line, doubted, steps_back
from pyclmm.tools.terminal import Screen, duration, significant
from pyclmm.tools.timing import NUMPY, Size, Terms, random_pair, seconds_of

from . import digits, image
from .workloads import Array

PICTURE = Path("out") / "demo.png"
# Six steps of the road (docs/road/), the slowest first. A GPU has no patience for a single work-item.
STEPS = {
    "cpu": ("sequential", "naive", "tiled", "block", "register", "packed"),
    "gpu": ("naive", "tiled", "strip", "block", "vector", "register"),
}
SIDES = (2048, 1024, 512, 256)
PROBED = Size(128, 128, 128)
PATIENCE = 0.3  # seconds that the slowest step may take for the product by which the steps are compared
TERMS = Terms(rounds=3)
_BAR = 44  # columns of the longest bar


def run(screen: Screen, queue: cl.CommandQueue, data: Path | None, asked: str | None) -> bool:
    """Print the tour, and return whether every product was right. *asked*: --device, as it was given.

    Raises ArgumentError if *data* does not have MNIST's files.
    """
    pictures = None if data is None else digits.load(data)
    screen.lines(f"{device_line(device_info(queue.device))}: {why(queue.device, asked)}.")
    parts: dict[str, Callable[[], bool]] = {
        "Is it right?": lambda: _is_right(screen, queue, pictures),
        "How does it become fast?": lambda: _steps(screen, queue),
        "What is it good for?": lambda: _uses(screen, queue),
    }
    found = []
    for title, part in parts.items():
        screen.lines("", title)
        found.append(part())
    _next(screen)
    return all(found)


def why(device: cl.Device, asked: str | None) -> str:
    """Why this device is the one that is used."""
    if asked is not None:
        return f"asked for by --device {asked}"
    if os.environ.get("PYOPENCL_CTX"):
        return "PYOPENCL_CTX names it"
    found = len(pyclmm.devices())
    kind = "the largest GPU" if device_info(device).kind == "gpu" else "no GPU driver was found"
    return kind + f"; {found} devices are here" * (found > 1)


def _is_right(screen: Screen, queue: cl.CommandQueue, pictures: digits.Digits | None) -> bool:
    """An image before and after four products, each compared with float64."""
    shares = []

    def product(a: Array, b: Array) -> Array:
        c = pyclmm.matmul(a, b, queue=queue)
        shares.append(pyclmm.reference.error_ratio(c, a, b) / pyclmm.reference.limit(a.shape[1]))
        return c

    before = image.image(pictures)
    after = image.without_details(before, product)
    right = max(shares) < 1
    rows, columns = before.shape
    screen.lines(
        f"  An image of {rows} x {columns} loses 15 of 16 of its frequencies and comes back, by "
        f"{len(shares)} products. Compared with float64, the worst error is {max(shares):.1%} of "
        f"what float32 may have: {'right' if right else 'WRONG'}."
    )
    try:
        image.write_png(PICTURE, np.hstack([before, after]))
        screen.lines(f"  Before and after, side by side: {PICTURE}")
    except OSError as error:
        screen.lines(f"  {PICTURE} cannot be written: {error.strerror}")
    return right


def _steps(screen: Screen, queue: cl.CommandQueue) -> bool:
    """Six kernels and NumPy on one product, as bars."""
    kind = "gpu" if device_info(queue.device).kind == "gpu" else "cpu"
    track = Track(queue, STEPS[kind], TERMS)
    track.race(*random_pair(PROBED, np.dtype(np.float32)), rounds=1)
    side = next((n for n in SIDES if _slowest(track, n) < PATIENCE), SIDES[-1])
    a, b = random_pair(Size(side, side, side), np.dtype(np.float32))
    chosen = str(pyclmm.Matmul(a, b, queue=queue).kernel)
    if chosen not in track.kernels:
        track.kernels[-1] = chosen
    rung = track.race(a, b)
    screen.lines(f"  {rung.size} float32, GFLOP/s in the device's own time, NumPy's in a call.")
    most, back = max(_gflops(row) for row in rung.rows), steps_back(rung.rows[:-1])  # the last is NumPy's
    for row in rung.rows:
        if row.samples:
            bar = "#" * max(1, round(_BAR * _gflops(row) / most))
            auto = "  <- auto" if row.kernel == chosen else ""
            why_back = f"  (a step back: {REASONS})" if row.kernel in back else ""
            screen.lines(f"  {row.kernel:14}{bar} {significant(_gflops(row))}{auto}{why_back}")
        else:
            screen.lines(f"  {row.kernel:14}{row.reason}")
    if warning := track.others.warning():
        screen.lines(f"  {warning}")
    screen.lines(f"  {_verdict(rung, chosen, bool(warning))}")
    return not rung.wrong


def _slowest(track: Track, side: int) -> float:
    """Seconds that the slowest kernel should take for a product of that side."""
    return max(track.expected(name, side**3) or 0 for name in track.kernels)


def _gflops(row: Row) -> float:
    """The rate by the device's own time of the launches, where it has one."""
    return row.flops / (row.device or row.seconds or np.inf) / 1e9


def _verdict(rung: Rung, chosen: str, busy: bool) -> str:
    """The whole call beside NumPy's, and whether all results were right."""
    own, its = rung.row(chosen), rung.row(NUMPY)
    ours, theirs = own.seconds, its.seconds
    wrong = ", ".join(row.kernel for row in rung.wrong)
    checked = f"WRONG: {wrong}." if wrong else "All results are right."
    if not ours or not theirs:
        return checked
    faster, factor = ("pyclmm", theirs / ours) if ours < theirs else ("NumPy", ours / theirs)
    said = doubted(f"{faster} is {significant(factor)} times as fast here.", busy, own, its)
    took = f"From NumPy arrays to a NumPy array: auto {duration(ours)}, NumPy {duration(theirs)}."
    return f"{took} {said} {checked}"


def _uses(screen: Screen, queue: cl.CommandQueue) -> bool:
    """Three things that NumPy lacks, each checked."""
    a, b = random_pair(Size(256, 256, 256), np.dtype(np.float16))
    plan = pyclmm.Matmul(a, b, queue=queue)
    half = pyclmm.reference.error_ratio(plan(a, b), a, b) < pyclmm.reference.limit(256)
    ratio = seconds_of(lambda: a @ b) / seconds_of(lambda: plan(a, b))
    screen.lines(f"  float16: 256 cubed is {significant(ratio)} times as fast as NumPy's.{_mark(half)}")

    a, b = random_pair(Size(60, 50, 40), np.dtype(np.float32))
    c = pyclmm.matmul(a, b, queue=queue, reproducible=True)
    same = np.array_equal(c, pyclmm.reference.chain(a, b))
    screen.lines(
        f"  The same bits everywhere: reproducible=True has every bit of the reference.{_mark(same)}"
    )

    a, b = random_pair(Size(700, 600, 500), np.dtype(np.float32))
    device = pyclmm.devices().index(next(d for d in pyclmm.devices() if d.device == queue.device))
    c = pyclmm.matmul(a, b, memory_limit="1 MiB", device=device)
    tiles = pyclmm.reference.error_ratio(c, a, b) < pyclmm.reference.limit(500)
    nbytes = a.nbytes + b.nbytes + c.nbytes
    screen.lines(f"  Larger than memory: {nbytes / 2**20:.1f} MiB of matrices within 1 MiB.{_mark(tiles)}")
    return half and same and tiles


def _mark(right: bool) -> str:
    return "" if right else " WRONG"


def _next(screen: Screen) -> None:
    folder = Path(sys.executable).parent
    folder = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else Path()
    screen.lines("")
    screen.lines("Try next")
    commands = {
        f"{folder / 'pyclmm'} road": "every step beside its limit",
        f"{folder / 'python'} examples/tiled.py": "one step, a screenful of code",
        "make demo-all": "five products by every kernel, as tables",
    }
    width = max(map(len, commands)) + 2
    for command, about in commands.items():
        screen.lines(f"  {command:{width}}{about}")
