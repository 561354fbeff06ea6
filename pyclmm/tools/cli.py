"""The command line: ``pyclmm`` and ``python -m pyclmm``. Output is the same in a pipe.

Exit codes: 0: success; 1: wrong result; 2: invalid arguments, or a product that cannot be computed here.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..errors import PyclmmError
from ..kernels.device import DeviceInfo
from ..opencl import user_rates
from ..opencl.devices import device_info, device_labels, find_device
from ..opencl.queues import new_queue
from ..problem.canonical import LAYOUTS
from ..problem.precision import PRECISIONS
from ..problem.words import Precision
from ..selection import tables
from ..version import __version__
from . import cold, info, plots, probes, report, selftest, tuner
from .bench import Rules, Rung, Track, kernel_names
from .contest import Size, Terms, check_memory, dtype_named, ladder, random_pair

Step = Callable[[str], None]
_WRONG_RESULT = 1
_INTERRUPTED = 130


class _Failure(click.ClickException):
    """An error of pyclmm as one line and exit code 2."""

    exit_code = 2


class _Group(click.Group):
    """Turns pyclmm's errors into messages, and suggests the nearest command for a misspelt one."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (PyclmmError, MemoryError) as error:
            raise _Failure(str(error) or "out of memory") from error
        except click.NoSuchOption as error:
            if re.match(r"-\d", error.option_name):
                raise _Failure(f"{error.option_name}: M, N and K are whole numbers of 1 or more") from error
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            near = difflib.get_close_matches(args[0], self.commands, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            ctx.fail(f"No such command {args[0]!r}: {hint}There are {', '.join(sorted(self.commands))}.")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pyclmm")
def main() -> None:
    """Matrix multiplication for every OpenCL device."""


@main.command("info")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info_command(as_json: bool) -> None:
    """Platforms, devices, their limits, and the kernels each can run."""
    if as_json:
        click.echo(json.dumps(info.as_json(), indent=2))
    else:
        info.show(report.new_console())


_device_option = click.option(
    "--device", help='"cpu", "gpu", a number as `pyclmm info` lists it ("0:1"), or part of a name.'
)
_size = click.IntRange(min=1)
_file = click.Path(dir_okay=False, path_type=Path)


@main.command("bench")
@click.argument("m", type=_size, required=False)
@click.argument("n", type=_size, required=False)
@click.argument("k", type=_size, required=False)
@click.option("--ladder", "climb", is_flag=True, help="Cubes of 10^3, 10^4, ... multiply-adds.")
@click.option(
    "--max-work",
    type=click.FloatRange(min=1e3),
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
@click.option("--batch", type=_size, default=1, show_default=True, help="Products in a stack.")
@click.option(
    "--arrays", is_flag=True, help="Operands are Arrays: wall time from device to device, without NumPy."
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random numbers."
)
@_device_option
@click.option("--rounds", type=click.IntRange(1, 1000), default=7, show_default=True)
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds; kernels that would take longer are left out.",
)
@click.option("--json", "json_file", type=_file, help="Write all measurements to this file.")
@click.option("--plot", "plot_file", type=_file, help="Draw to this file (.png, .svg, .pdf).")
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
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Time kernels and NumPy on random matrices, M x K times K x N."""
    size = None if m is None or n is None or k is None else Size(m, n, k, batch)
    drawn = _Drawn(dtype_named(dtype), layout, seed)
    terms = Terms(precision, arrays)
    _check_call(ctx, size, m is not None, climb, plot_file)
    kernel_names(kernels)
    _check_files(json_file, plot_file)
    console = report.new_console()
    if first_calls and size is not None:
        measured = _cold(console, size, kernels or ("auto",), dtype, device)
        _write(json_file, measured)
        return
    sizes = [size] if size is not None else [replace(cube, batch=batch) for cube in ladder(max_work)]
    rules = Rules(rounds, limit)
    queue = new_queue(find_device(device), profiling=True)
    own = device_info(queue.device)
    check_memory(sizes[-1], drawn.dtype, own, terms)
    with _progress() as on_step:
        track = Track(queue, kernel_names(kernels), rules, on_step, terms)
        rungs = list(_climb(track, sizes, drawn, on_step))
    _show(console, own, rungs, climb)
    _write(json_file, report.bench_json(own, rules, rungs, seed))
    if plot_file is not None:
        draw: Any = plots.ladder if climb else lambda rungs, *rest: plots.bench(rungs[0], *rest)
        draw(rungs, own.name, plot_file)
        console.print(f"drawn to {plot_file}")
    _exit_if_wrong(rungs)
    _exit_if_none(rungs, kernels)


@main.command("selftest")
@_device_option
@click.option(
    "--quick/--full", default=True, help="About a minute, or all sizes and configurations [--quick]."
)
@click.option("--report", "report_file", type=_file, help="Write a report for a bug report (JSON).")
def selftest_command(device: str | None, quick: bool, report_file: Path | None) -> None:
    """Test every kernel against every law on this device, each in a child process."""
    _check_files(report_file, None)
    own = device_info(find_device(device))
    with _progress() as on_step:
        tested = selftest.run(own, not quick, on_step)
    console = report.new_console()
    console.print(f"{own.name} ({own.platform}, driver {own.driver_version})")
    console.print(selftest.table(tested))
    console.print()
    console.print(selftest.digest_line(tested), soft_wrap=True)
    for line in selftest.notes(tested):
        console.print(line)
    _write(report_file, selftest.as_json(own, not quick, tested))
    bad = [one.kernel for one in tested if one.is_bad]
    if bad:
        click.echo(f"Error: {', '.join(bad)} did not pass; please report it with --report's file", err=True)
        raise SystemExit(_WRONG_RESULT)


def _names(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in value.split(",") if name.strip()]


def _shapes(ctx: click.Context, param: click.Parameter, value: str) -> list[tuple[int, int, int]]:
    """ "1024x1024x64,..." as M, N and K."""
    found = []
    for name in _names(ctx, param, value):
        lengths = re.fullmatch(r"([1-9][0-9]{0,9})x([1-9][0-9]{0,9})x([1-9][0-9]{0,9})", name, re.ASCII)
        if lengths is None:
            raise click.BadParameter(f"{name!r} is no MxNxK, such as 1024x1024x64")
        m, n, k = map(int, lengths.groups())
        found.append((m, n, k))
    return found


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """ "120", "120s" or "2m" in seconds."""
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([sm]?)", value, re.ASCII)
    if match is None or float(match[1]) == 0:
        raise click.BadParameter(f"{value!r} is no time, such as 120s or 2m")
    return float(match[1]) * (60 if match[2] == "m" else 1)


@main.command("tune")
@click.option(
    "--shapes",
    callback=_shapes,
    default=",".join("x".join(map(str, shape)) for shape in tuner.SHAPES),
    show_default=True,
    help="M, N and K of each product.",
)
@click.option("--dtype", "dtypes", callback=_names, default="float32", show_default=True)
@click.option("--layout", "layouts", callback=_names, default="NN,NT,TN", show_default=True)
@click.option("--precision", "precisions", callback=_names, default="highest", show_default=True)
@click.option("--budget", callback=_seconds, default="120s", show_default=True, help="Time for all products.")
@click.option(
    "--device",
    is_flag=False,
    flag_value="",
    help="As for bench. Without a name: measure the default device's rates only, in under a minute.",
)
@click.option("--rates", "only_rates", is_flag=True, help="Measure the device's rates only.")
@click.option("--export", "export_file", type=_file, help="Write the results as a table to contribute.")
@click.option("--plot", "plot_file", type=_file, help="Draw to this file (.png, .svg, .pdf).")
def tune_command(
    shapes: list[tuple[int, int, int]],
    dtypes: list[str],
    layouts: list[str],
    precisions: list[Precision],
    budget: float,
    device: str | None,
    only_rates: bool,
    export_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Find the fastest kernel for products like these on this device, and keep it for later calls.

    Ctrl-C ends the search and keeps what was found. With --rates, or --device without a name, measure what
    the device does in a second; every later choice starts from these rates.
    """
    if only_rates or device == "":
        _tune_rates(device or None)
        return
    _check_files(export_file, plot_file)
    found = find_device(device)
    console = report.new_console()
    with _progress() as on_step:
        tuning = tuner.tune(
            shapes, dtypes, layouts, budget, found, lambda at: on_step(_tuning_step(at)), precisions
        )
    own = tuning.device
    console.print(f"{own.name} ({own.platform}, driver {own.driver_version})")
    console.print(report.tuning_table(tuning.searches))
    for line in report.tuning_notes(tuning.searches):
        console.print(line)
    _write(export_file, tables.table_json(own, tuning.entries))
    if plot_file is not None:
        bandwidth = tuner.copy_bandwidth(new_queue(found, profiling=True))
        plots.tuning(tuning.searches, bandwidth, own.name, plot_file)
        console.print(f"drawn to {plot_file}")
    if not tuning.stored:
        raise _Failure(f"cannot write {tables.own_path(own)}; nothing is kept")
    if tuning.interrupted:
        raise SystemExit(_INTERRUPTED)


def _tune_rates(device: str | None) -> None:
    """Measure the rates of a device, keep and show them."""
    found = find_device(device)
    own = device_info(found)
    with _progress() as on_step:
        rates, kept = probes.measure(found, on_step)
    console = report.new_console()
    console.print(f"{own.name} ({own.platform}, driver {own.driver_version})")
    console.print(report.rates_table(rates))
    if not kept:
        raise _Failure(f"cannot write {user_rates.path_of(own.identity)}; nothing is kept")


def _tuning_step(at: tuner.Progress) -> str:
    best = "" if at.best is None else f", best {report.duration(at.best.seconds or 0)}"
    return f"{at.problem}: {at.tried} of {at.total}{best}; {at.seconds_left:.0f} s left"


# What --cold cannot measure: it times plain calls, NumPy arrays in and out, in a fresh process.
_WARM_ONLY = ("layout", "precision", "batch", "arrays", "seed", "rounds", "limit")


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


def _check_files(json_file: Path | None, plot_file: Path | None) -> None:
    """Fail before measuring if a file could not be written after it."""
    for path in (json_file, plot_file):
        if path is None:
            continue
        folder = path.absolute().parent
        if not folder.is_dir():
            raise _Failure(f"{path}: there is no folder {folder}")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise _Failure(f"{path}: it cannot be written; name another file")
    if plot_file is not None:
        plots.check(plot_file)


@dataclass(frozen=True)
class _Drawn:
    """How operands are drawn."""

    dtype: np.dtype[Any]
    layout: str
    seed: int


def _climb(track: Track, sizes: Sequence[Size], drawn: _Drawn, on_step: Step) -> Iterator[Rung]:
    """Run each size in turn, until every kernel is too slow."""
    for size in sizes:
        if len(sizes) == 1:
            track.probe(size, drawn.dtype, drawn.layout)
        on_step(f"{size} {drawn.dtype}")
        yield track.race(*random_pair(size, drawn.dtype, drawn.seed, drawn.layout))
        expected = [track.expected(name, size.work) for name in track.kernels]
        if all(seconds is None or seconds > track.rules.limit for seconds in expected):
            return


def _show(console: Console, device: DeviceInfo, rungs: Sequence[Rung], climb: bool) -> None:
    first = rungs[0]
    console.print(report.broken(f"{device.name} ({device.platform}, driver {device.driver_version})"))
    if not first.terms.arrays:
        console.print(f"NumPy {np.__version__} on the host")
    for line in report.clock(first.terms):
        console.print(line)
    console.print()
    if climb:
        what_of = f"{first.dtype} {first.layout}, by M N K"
        for title, what in (
            (f"median time, {what_of}", "time"),
            (f"speed-up over sequential, {what_of}", "speed-up"),
        ):
            console.print(title)
            for table in report.ladder_tables(rungs, what):
                console.print(table)
                console.print()
    else:
        console.print(first.title)
        console.print(report.bench_table(first))
        console.print()
        for line in report.configurations(first):
            console.print(report.broken(line))
        console.print()
    for line in report.notes(rungs):
        console.print(report.broken(line))


def _cold(
    console: Console, size: Size, kernels: Sequence[str], dtype: str, device: str | None
) -> dict[str, Any]:
    """Measure first calls, print them as a table, and return them for JSON."""
    chosen = find_device(device)
    label = None if device is None else next(x for x, d in device_labels().items() if d == chosen)
    own = device_info(chosen)
    table = report.new_table(
        "kernel", "caches", "import", "first call", "second call", "process", text=("kernel", "caches")
    )
    found: list[dict[str, Any]] = []
    with _progress() as on_step:
        for kernel in kernels:
            request = cold.Request(size.m, size.n, size.k, dtype, kernel, label)
            for state, run in cold.measure(request, on_step=on_step).items():
                times = vars(run)
                table.add_row(kernel, state, *map(report.duration, times.values()))
                found.append({"kernel": kernel, "caches": state, **{f"{x}_s": t for x, t in times.items()}})
    console.print(f"{own.name} ({own.platform}, driver {own.driver_version})")
    console.print(f"{size} {dtype}, NumPy arrays in and out; medians of {cold.REPEATS} fresh processes")
    console.print(table)
    host = report.host_json()
    where = {"m": size.m, "n": size.n, "k": size.k, "dtype": dtype}
    return {
        "format": report.JSON_FORMAT,
        "host": host,
        "device": report.device_json(own),
        **where,
        "cold": found,
    }


def _write(path: Path | None, measured: dict[str, Any]) -> None:
    if path is None:
        return
    text = json.dumps(measured, indent=2, allow_nan=False)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise _Failure(f"cannot write {path}: {error.strerror}") from error


def _exit_if_wrong(rungs: Sequence[Rung]) -> None:
    wrong = dict.fromkeys(row.kernel for rung in rungs for row in rung.wrong)
    if wrong:
        click.echo(f"Error: wrong results from {', '.join(wrong)}", err=True)
        raise SystemExit(_WRONG_RESULT)


def _exit_if_none(rungs: Sequence[Rung], asked: Sequence[str]) -> None:
    """Exit code 2 if kernels were named and none of them could run."""
    rows = [rung.row(name) for rung in rungs for name in asked]
    if rows and all(row.reason is not None and not row.too_slow for row in rows):
        raise _Failure(f"{', '.join(asked)} could not run here: {rows[0].reason}")


@contextmanager
def _progress() -> Iterator[Step]:
    """A line on the error stream that says what runs; nothing if that is not a terminal."""
    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting")
        yield lambda text: progress.update(task, description=text)
