"""The command line: ``pyclmm`` and ``python -m pyclmm``. output.py has the exit codes.

A new command takes its options from options.py, and tells what it finds through output.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..opencl import user_rates
from ..opencl.devices import device_info, find_device
from ..selection import tables
from ..version import __version__
from . import info, laws, options, plots, probes, report, selftest, tuner
from .bench_command import bench_command
from .multiply_command import multiply_command
from .output import FAILED, WRONG_RESULT, Group, Output
from .road_command import road_command
from .terminal import OnStage, Stage, duration


@click.group(cls=Group, context_settings={"help_option_names": ["--help", "-h"]})
@click.version_option(__version__, prog_name="pyclmm")
def main() -> None:
    """Matrix multiplication for every OpenCL device."""


main.add_command(multiply_command)
main.add_command(bench_command)
main.add_command(road_command)


@main.command("info")
@click.option("--reasons", is_flag=True, help="Say of each kernel that cannot run why.")
@options.json_option()
def info_command(reasons: bool, json_target: str | None) -> None:
    """Platforms, devices, their limits, and the kernels each can run."""
    out = Output("info", json_target)
    everything = info.as_json()
    out.save(everything)
    info.show(out.screen, everything, reasons)
    out.finish()


@main.command("selftest")
@options.device_option
@click.option(
    "--quick/--full", default=True, help="About a minute, or all sizes and configurations [--quick]."
)
@click.option("--kernel", "kernels", multiple=True, help="Kernel to test; repeatable [all].")
@click.option("--reasons", is_flag=True, help="Say of each kernel that cannot run why.")
@options.json_option("--report")
def selftest_command(
    device: str | None, quick: bool, kernels: tuple[str, ...], reasons: bool, json_target: str | None
) -> None:
    """Test every kernel against every law on this device, each in a child process.

    Attach the file of --json to a bug report: it names no user, host or path. Ctrl-C ends the test, and
    shows the kernels tested until then.
    """
    out = Output("selftest", json_target)
    own = device_info(find_device(device))
    tested: list[selftest.Tested] = []
    with out.measuring() as on_stage:
        for one in selftest.run(own, not quick, on_stage, asked=kernels):
            tested.append(one)
    out.save(selftest.as_json(own, not quick, tested))
    out.screen.line(report.device_line(own))
    out.screen.table(selftest.table(tested))
    out.screen.line()
    if tested:
        out.screen.line(selftest.digest_line(tested))
        for line in laws.coverage(not quick):
            out.screen.line(f"covered: {line}")
    for line in selftest.notes(tested) + (selftest.reasons(tested) if reasons else []):
        out.screen.line(line)
    bad = [one.kernel for one in tested if one.is_bad]
    out.finish(
        f"{', '.join(bad)} did not pass; please report it with --json's file" if bad else None, WRONG_RESULT
    )


@main.command("tune")
@click.option(
    "--shapes",
    callback=options.shapes,
    default=",".join("x".join(map(str, shape)) for shape in tuner.SHAPES),
    show_default=True,
    help="M, N and K of each product.",
)
@click.option("--dtype", "dtypes", callback=options.names, default="float32", show_default=True)
@click.option("--layout", "layouts", callback=options.names, default="NN,NT,TN", show_default=True)
@click.option("--precision", "precisions", callback=options.names, default="highest", show_default=True)
@click.option(
    "--budget", callback=options.seconds, default="120s", show_default=True, help="Time for all products."
)
@click.option(
    "--device",
    is_flag=False,
    flag_value="",
    help="As for bench. Without a name: measure the default device's rates only, in under a minute.",
)
@click.option("--rates", "only_rates", is_flag=True, help="Measure the device's rates only.")
@click.option(
    "--export", "export_file", type=options.file_type, help="Write the results as a table to contribute."
)
@options.json_option()
@options.plot_option
def tune_command(
    device: str | None,
    only_rates: bool,
    export_file: Path | None,
    json_target: str | None,
    plot_file: Path | None,
    **wanted: Any,
) -> None:
    """Find the fastest kernel for products like these on this device, and keep it for later calls.

    Ctrl-C ends the search and keeps what was found. With --rates, or --device without a name, measure what
    the device does in a second; every later choice starts from these rates.
    """
    out = Output("tune", json_target)
    if only_rates or device == "":
        _tune_rates(out, device or None)
        return
    options.check_file(export_file, options.TABLE)
    options.check_plot(plot_file)
    found = find_device(device)
    with out.measuring() as on_stage:
        tuning = tuner.tune(device=found, on_progress=_listener(on_stage), **wanted)
    out.interrupted |= tuning.interrupted
    own = tuning.device
    out.save(report.tuning_json(tuning, wanted["budget"]))
    if export_file is not None:
        text = json.dumps(tables.table_json(own, tuning.entries), indent=2)
        out.write(export_file, lambda path: path.write_text(f"{text}\n", encoding="utf-8"))
    out.screen.line(report.device_line(own))
    out.screen.table(report.tuning_table(tuning.searches))
    for line in report.tuning_notes(tuning):
        out.screen.line(line)
    out.draw(plot_file, lambda path: plots.tuning(tuning.searches, own, path))
    out.finish(None if tuning.stored else f"cannot write {tables.own_path(own)}; nothing is kept", FAILED)


def _listener(on_stage: OnStage) -> tuner.OnProgress:
    """Makes a step of the tuner's progress. The time left is what is left of the budget."""

    def on_progress(at: tuner.Progress) -> None:
        best = "" if at.best is None else f", best {duration(at.best.seconds or 0)}"
        on_stage(Stage(f"{at.problem}{best}", at.tried, at.total, at.seconds_left))

    return on_progress


def _tune_rates(out: Output, device: str | None) -> None:
    """Measure the rates of a device, keep and show them."""
    found = find_device(device)
    own = device_info(found)
    rates: dict[str, float] = {}
    with out.measuring() as on_stage:
        for group in probes.measure(found, on_stage):
            rates |= group
    kept = not out.interrupted and probes.keep(found, rates)
    out.save(report.header_json(own) | {"kept": kept, "rates": rates})
    out.screen.line(report.device_line(own))
    out.screen.table(report.rates_table(rates))
    if out.interrupted:
        out.screen.line("These rates are not kept for later calls: a choice needs all of them.")
    out.finish(None if kept else f"cannot write {user_rates.path_of(own.identity)}; nothing is kept", FAILED)
