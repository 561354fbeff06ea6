"""`pyclmm bench`: kernels and NumPy side by side, at one size, on the ladder, or in their first calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from ..kernels.device import DeviceInfo
from ..opencl.devices import device_info, device_labels, find_device
from ..opencl.queues import new_queue
from ..problem.canonical import LAYOUTS
from ..problem.precision import PRECISIONS
from ..problem.words import Precision
from . import cold, plots, report
from .bench import Rules, Rung, Track, kernel_names
from .contest import Size, Terms, check_memory, dtype_named, ladder, random_pair
from .endings import FAILED, WRONG_RESULT
from .options import Finite, check_plot, device_option, json_option, length_type, plot_option
from .output import Output
from .steps import OnStep, Step
from .terminal import Grid, Screen

# What --cold cannot measure: it times plain calls, NumPy arrays in and out, in a fresh process.
_WARM_ONLY = ("layout", "precision", "batch", "arrays", "seed", "rounds", "limit", "reasons")


@click.command("bench")
@click.argument("m", type=length_type, required=False)
@click.argument("n", type=length_type, required=False)
@click.argument("k", type=length_type, required=False)
@click.option("--ladder", "climb", is_flag=True, help="Cubes of 10^3, 10^4, ... multiply-adds.")
@click.option(
    "--max-work",
    type=Finite(1e3, 1e18),
    default=1e10,
    help="Largest product of the ladder, multiply-adds [10^10].",
)
@click.option("--cold", "first_calls", is_flag=True, help="Time first calls in fresh processes.")
@click.option("--kernel", "kernels", multiple=True, help="Kernel to run; repeatable [all].")
@click.option("--dtype", default="float32", show_default=True, help="Element type of both matrices.")
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default="NN",
    show_default=True,
    help="T: A, or B, is stored transposed.",
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="highest",
    show_default=True,
    help="Of float32 and complex64.",
)
@click.option("--batch", type=length_type, default=1, show_default=True, help="Products in a stack.")
@click.option(
    "--arrays", is_flag=True, help="Operands are Arrays: wall time from device to device, without NumPy."
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random numbers."
)
@device_option
@click.option("--rounds", type=click.IntRange(1, 1000), default=7, show_default=True)
@click.option(
    "--limit",
    type=Finite(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds; kernels that would take longer are left out.",
)
@click.option("--reasons", is_flag=True, help="Say of each kernel that cannot run why.")
@json_option()
@plot_option
@click.pass_context
def bench_command(
    ctx: click.Context,
    m: int | None,
    n: int | None,
    k: int | None,
    climb: bool,
    max_work: float,
    first_calls: bool,
    kernels: tuple[str, ...],
    dtype: str,
    layout: str,
    precision: Precision,
    batch: int,
    arrays: bool,
    seed: int,
    device: str | None,
    rounds: int,
    limit: float,
    reasons: bool,
    json_target: str | None,
    plot_file: Path | None,
) -> None:
    """Time kernels and NumPy on random matrices, M x K times K x N.

    Ctrl-C ends it and shows what was measured.
    """
    size = None if m is None or n is None or k is None else Size(m, n, k, batch)
    drawn = _Drawn(dtype_named(dtype), layout, seed)
    terms = Terms(precision, arrays)
    _check_call(ctx, size, m is not None, climb, plot_file)
    names = kernel_names(kernels)
    check_plot(plot_file)
    out = Output("bench", json_target)
    if first_calls and size is not None:
        _cold(out, size, kernels or ("auto",), dtype, device)
        return
    sizes = [size] if size is not None else [replace(cube, batch=batch) for cube in ladder(max_work)]
    rules = Rules(rounds, limit)
    queue = new_queue(find_device(device), profiling=True)
    own = device_info(queue.device)
    check_memory(sizes[-1], drawn.dtype, own, terms)
    track = Track(queue, names, rules, terms=terms)
    rungs: list[Rung] = []
    with out.measuring() as on_step:
        rungs.extend(_climb(track, sizes, drawn, on_step))
    out.interrupted |= track.interrupted
    out.save(report.bench_json(own, rules, rungs, seed, track.others.processors))
    if rungs and plot_file is not None:
        _draw(out, rungs, own, plot_file)
    if rungs:
        _show(out.screen, own, rungs, climb)
        _show_notes(out, rungs, names if reasons else kernels)
    if (line := track.others.warning()) is not None:
        out.warn(line)
    if out.interrupted and not rungs:
        out.warn("Nothing was measured yet.")
    wrong = dict.fromkeys(row.kernel for rung in rungs for row in rung.wrong)
    if wrong:
        out.finish(f"wrong results from {', '.join(wrong)}", WRONG_RESULT)
    out.finish(_none_ran(rungs, kernels), FAILED)


def _check_call(
    ctx: click.Context, size: Size | None, any_size: bool, climb: bool, plot: Path | None
) -> None:
    """Reject combinations of sizes, --ladder, --cold and others that make no sense."""
    first_calls = ctx.params["first_calls"]
    if climb and (any_size or first_calls):
        ctx.fail("--ladder has its own sizes and goes without M N K and --cold")
    if not climb and size is None:
        ctx.fail("Give M N K (rows of A, columns of B, columns of A), or --ladder.")
    if first_calls and plot:
        ctx.fail("--cold draws nothing: leave --plot out")
    given = [name for name in _WARM_ONLY if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if first_calls and given:
        ctx.fail(f"--cold times plain calls: leave --{', --'.join(given)} out")


@dataclass(frozen=True)
class _Drawn:
    """How operands are drawn."""

    dtype: np.dtype[Any]
    layout: str
    seed: int


def _climb(track: Track, sizes: Sequence[Size], drawn: _Drawn, on_step: OnStep) -> Iterator[Rung]:
    """Run each size in turn, until every kernel is too slow or Ctrl-C was pressed."""
    for number, size in enumerate(sizes):
        if len(sizes) == 1:
            track.on_step = on_step
            track.probe(size, drawn.dtype, drawn.layout)
        if track.interrupted:
            return
        track.on_step = _Ahead(track, sizes[number:], on_step)
        on_step(Step(f"{size} {drawn.dtype}: random numbers"))
        yield track.race(*random_pair(size, drawn.dtype, drawn.seed, drawn.layout))
        expected = [track.expected(name, size.work) for name in track.kernels]
        if track.interrupted or all(seconds is None or seconds > track.rules.limit for seconds in expected):
            return


class _Ahead:
    """Adds the time left to each step: that of the sizes ahead, less what has passed at the present one."""

    def __init__(self, track: Track, sizes: Sequence[Size], on_step: OnStep) -> None:
        self._on_step = on_step
        times = [track.forecast(size) for size in sizes]
        self._left = None if None in times else sum(time or 0.0 for time in times)

    def __call__(self, step: Step) -> None:
        part = step.done / step.total if step.total else 0.0
        self._on_step(step if self._left is None else replace(step, seconds_left=self._left * (1 - part)))


def _draw(out: Output, rungs: Sequence[Rung], device: DeviceInfo, path: Path) -> None:
    draw: Any = plots.ladder if len(rungs) > 1 else lambda rungs, *rest: plots.bench(rungs[0], *rest)
    if out.write(path, lambda path: draw(rungs, device.name, path)):
        out.screen.line(f"drawn to {path}")


def _show(screen: Screen, device: DeviceInfo, rungs: Sequence[Rung], climb: bool) -> None:
    first = rungs[0]
    screen.line(report.device_line(device))
    if not first.terms.arrays:
        screen.line(f"NumPy {np.__version__} on the host")
    for line in report.clock(first.terms):
        screen.line(line)
    screen.line()
    if climb:
        what_of = f"{first.dtype} {first.layout}, by M N K"
        for title, what in (
            (f"median time, {what_of}", "time"),
            (f"speed-up over sequential, {what_of}", "speed-up"),
        ):
            screen.line(title)
            screen.table(report.ladder_table(rungs, what))
            screen.line()
        return
    screen.line(first.title)
    screen.table(report.bench_table(first))
    screen.line()
    for line in report.configurations(first):
        screen.line(line)
    screen.line()


def _show_notes(out: Output, rungs: Sequence[Rung], asked: Sequence[str]) -> None:
    """What the tables cannot say. *asked*: the kernels whose reasons are told."""
    for line in report.notes(rungs, asked):
        out.warn(line) if line.startswith("WARNING") else out.screen.line(line)
    if refused := report.refused(rungs, asked):
        out.screen.line(f"cannot compute this here: {', '.join(refused)} (--reasons says why)")


def _cold(out: Output, size: Size, kernels: Sequence[str], dtype: str, device: str | None) -> None:
    """Measure first calls, and print them as a table."""
    chosen = find_device(device)
    label = None if device is None else next(x for x, d in device_labels().items() if d == chosen)
    own = device_info(chosen)
    found: list[dict[str, Any]] = []
    rows: list[tuple[str, ...]] = []
    with out.measuring() as on_step:
        for kernel in kernels:
            request = cold.Request(size.m, size.n, size.k, dtype, kernel, label)
            for state, run in cold.measure(request, on_step).items():
                times = vars(run)
                rows.append((kernel, state, *map(report.duration, times.values())))
                found.append({"kernel": kernel, "caches": state, **{f"{x}_s": t for x, t in times.items()}})
    where = {"m": size.m, "n": size.n, "k": size.k, "dtype": dtype}
    out.save(report.header_json(own) | where | {"cold": found})
    out.screen.line(report.device_line(own))
    out.screen.line(f"{size} {dtype}, NumPy arrays in and out; medians of {cold.REPEATS} fresh processes")
    head = ("kernel", "caches", "import", "first call", "second call", "process")
    out.screen.table(Grid(head, tuple(rows), text=head[:2], keys=2))
    out.finish()


def _none_ran(rungs: Sequence[Rung], asked: Sequence[str]) -> str | None:
    """What is wrong if kernels were named and none of them could run."""
    rows = [rung.row(name) for rung in rungs for name in asked]
    if rows and all(row.reason is not None and not row.too_slow for row in rows):
        return f"{', '.join(asked)} could not run here: {rows[0].reason}"
    return None
