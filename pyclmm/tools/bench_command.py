"""`pyclmm bench`: kernels and NumPy side by side, at one size or on the ladder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import click
import numpy as np

from ..kernels.device import DeviceInfo
from ..opencl.devices import device_info, find_device
from ..opencl.queues import new_queue
from ..problem.canonical import LAYOUTS
from ..problem.settings import PRECISIONS
from . import output, plots, report
from .bench import Rung, Track, kernel_names
from .terminal import OnStage, Screen, Stage, duration, significant
from .timing import NUMPY, Size, Terms, check_memory, dtype_named, ladder, random_pair


def _sizes(asked: SimpleNamespace) -> list[Size]:
    """The size, or those of the ladder. Raises click.UsageError where both or none are asked for."""
    if asked.climb and asked.product is not None:
        raise click.UsageError("--ladder has its own sizes and goes without M N K")
    if asked.climb:
        return [replace(cube, batch=asked.batch) for cube in ladder(asked.max_work)]
    if asked.product is None:
        raise click.UsageError("Give M N K (rows of A, columns of B, columns of A), or --ladder.")
    output.unused("M N K", "max_work")
    m, n, k = asked.product
    return [Size(m, n, k, asked.batch)]


@click.command("bench")
@click.argument("product", nargs=-1, metavar="M N K", callback=output.one_shape)
@click.option("--ladder", "climb", is_flag=True, help="Cubes of 10^3, 10^4, ... multiply-adds.")
@click.option(
    "--max-work",
    type=click.FloatRange(1e3, 1e18),
    callback=output.finite,
    default=1e10,
    show_default=False,
    help="Largest product of the ladder, multiply-adds [10^10].",
)
@click.option("--kernel", "kernels", multiple=True, help="Kernel to run; repeatable [all].")
@click.option("--dtype", default="float32", help="Element type of both matrices.")
@click.option("--layout", type=click.Choice(LAYOUTS), default="NN", help="T: A, or B, is stored transposed.")
@click.option(
    "--precision", type=click.Choice(PRECISIONS), default="highest", help="Of float32 and complex64."
)
@click.option("--batch", type=output.length_type, default=1, help="Products in a stack.")
@click.option(
    "--arrays", is_flag=True, help="Operands are Arrays: wall time from device to device, without NumPy."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the random numbers.")
@output.device_option
@click.option("--rounds", type=click.IntRange(1, 1000), default=7)
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    callback=output.finite,
    default=10.0,
    help="Seconds; kernels that would take longer are left out.",
)
@output.reasons_option
@output.json_option()
@output.plot_option
def bench_command(**options: Any) -> None:
    """Time kernels and NumPy on random matrices, M x K times K x N. MxNxK is the same as M N K.

    Ctrl-C ends it and shows what was measured.
    """
    asked = SimpleNamespace(**options)
    terms = Terms(asked.precision, asked.arrays, asked.rounds, asked.limit)
    sizes, dtype, names = _sizes(asked), dtype_named(asked.dtype), kernel_names(asked.kernels)
    output.check_plot(asked.plot_file)
    out = output.Output("bench", asked.json_target)
    queue = new_queue(find_device(asked.device), profiling=True)
    device = device_info(queue.device)
    check_memory(sizes[-1], dtype, device, terms)
    track = Track(queue, names, terms)
    rungs: list[Rung] = []
    with out.measuring() as on_stage:
        rungs.extend(_climb(track, sizes, asked, on_stage))
    out.interrupted |= track.interrupted
    out.save(report.bench_json(track, rungs, asked.seed))
    if rungs:
        _tell(out, device, rungs, asked)
    if (line := track.others.warning()) is not None:
        out.warn(line)
    wrong = dict.fromkeys(row.kernel for rung in rungs for row in rung.wrong)
    if wrong:
        out.finish(f"wrong results from {', '.join(wrong)}", output.WRONG_RESULT)
    out.finish(_none_ran(rungs, asked.kernels), output.FAILED, rungs)


def _climb(track: Track, sizes: Sequence[Size], asked: SimpleNamespace, on_stage: OnStage) -> Iterator[Rung]:
    """Run each size in turn, until every kernel is too slow or Ctrl-C was pressed."""
    dtype = dtype_named(asked.dtype)
    for number, size in enumerate(sizes):
        if len(sizes) == 1:
            track.on_stage = on_stage
            track.probe(size, dtype, asked.layout)
        if track.interrupted:
            return
        track.on_stage = _with_time_left(track, sizes[number:], on_stage)
        on_stage(Stage(f"{size} {asked.dtype}: random numbers"))
        yield track.race(*random_pair(size, dtype, asked.seed, asked.layout))
        expected = [track.expected(name, size.work) for name in track.kernels]
        if track.interrupted or all(seconds is None or seconds > track.terms.limit for seconds in expected):
            return


def _with_time_left(track: Track, sizes: Sequence[Size], on_stage: OnStage) -> OnStage:
    """Adds the time left to each step: that of *sizes*, less what has passed at the first of them."""
    times = [track.forecast(size) for size in sizes]
    if None in times:
        return on_stage
    total = sum(time or 0.0 for time in times)
    return lambda step: on_stage(
        replace(step, seconds_left=total * (1 - (step.done / step.total if step.total else 0.0)))
    )


def _tell(out: output.Output, device: DeviceInfo, rungs: Sequence[Rung], asked: SimpleNamespace) -> None:
    """The picture, if one is asked for, the tables, and what they cannot say."""
    draw: Any = plots.ladder if len(rungs) > 1 else lambda rungs, *rest: plots.bench(rungs[0], *rest)
    out.draw(asked.plot_file, lambda path: draw(rungs, device.name, path))
    _show(out.screen, device, rungs, asked.climb)
    told = kernel_names(asked.kernels) if asked.reasons else asked.kernels  # whose reasons are told
    for line in report.notes(rungs, told):
        out.warn(line) if line.startswith("WARNING") else out.screen.lines(line)
    if refused := report.refused(rungs, told):
        out.screen.lines(f"cannot compute this here: {', '.join(refused)} (--reasons says why)")


def _show(screen: Screen, device: DeviceInfo, rungs: Sequence[Rung], climb: bool) -> None:
    first = rungs[0]
    of_numpy = [] if first.terms.arrays else [f"NumPy {np.__version__} on the host"]
    screen.lines(report.device_line(device), *of_numpy, *report.clock(first.terms), "")
    if climb:
        for title, what in (("median time", "time"), (f"speed-up over {first.baseline}", "speed-up")):
            screen.lines(f"{title}, {first.dtype} {first.layout}, by M N K")
            screen.table(report.ladder_table(rungs, what))
            screen.lines("")
        return
    screen.lines(first.title)
    screen.table(report.bench_table(first))
    screen.lines("", *report.configurations(first), "")


def _none_ran(rungs: Sequence[Rung], asked: Sequence[str]) -> str | None:
    """What is wrong if kernels were named and none of them could run."""
    rows = [rung.row(name) for rung in rungs for name in asked]
    if rows and all(row.reason is not None and not row.too_slow for row in rows):
        return f"{', '.join(asked)} could not run here: {rows[0].reason}"
    return None


_SAME = 1.1  # times as fast; what is less may be noise


@click.command("compare")
@click.argument("product", nargs=-1, required=True, metavar="M N K", callback=output.one_shape)
@click.option("--dtype", default="float32", help="Element type of both matrices.")
@output.device_option
@output.json_option()
def compare_command(
    product: tuple[int, int, int], dtype: str, device: str | None, json_target: str | None
) -> None:
    """Say in one line whether pyclmm or NumPy is faster for M x K times K x N. MxNxK is the same as M N K.

    NumPy arrays in and out, after the first call.
    """
    out = output.Output("compare", json_target)
    queue = new_queue(find_device(device), profiling=True)
    size, element, own = Size(*product), dtype_named(dtype), device_info(queue.device)
    check_memory(size, element, own, Terms())
    track, rungs = Track(queue, ["auto"]), []
    with out.measuring() as track.on_stage:
        track.probe(size, element)
        rungs.append(track.race(*random_pair(size, element)))
    out.interrupted |= track.interrupted
    out.save(report.bench_json(track, rungs))
    if (busy := track.others.warning()) is not None:
        out.warn(busy)
    for rung in () if out.interrupted else rungs:
        out.screen.lines(_verdict(track, rung, busy is not None))
    wrong = any(rung.wrong for rung in rungs)
    out.finish("wrong results from auto" if wrong else None, output.WRONG_RESULT, measured=False)


def _verdict(track: Track, rung: Rung, busy: bool) -> str:
    """Which to use, and both times; that of one that is too slow to run follows from smaller products."""
    ours, numpy = (rung.row(name) for name in ("auto", NUMPY))
    own, its = (row.seconds or track.expected(row.kernel, rung.size.work) for row in (ours, numpy))
    if own is None or its is None:
        return f"Use NumPy here: pyclmm cannot compute {rung.title}: {ours.reason or numpy.reason}"
    ahead = max(own, its) / min(own, its)
    winner, other = ("NumPy", "pyclmm") if its < own else ("pyclmm", "NumPy")
    said = report.doubted(
        f"use {winner} here: {significant(ahead)} times as fast as {other}", busy, ours, numpy
    )
    said = said[0].upper() + said[1:]
    if ahead < _SAME:
        said = "Use NumPy here: both are as fast"
    by = f"`{ours.chosen}` on {track.device.name}" if ours.chosen else track.device.name
    return f"{said} ({rung.title}: pyclmm {duration(own)} by {by}, NumPy {duration(its)})"
