"""The command line: ``pyclmm`` and ``python -m pyclmm``. output.py has the exit codes.

A new command takes its options from output.py, and tells there what it finds.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyopencl as cl

from .. import store
from ..ahead import warm
from ..byte_sizes import format_bytes
from ..errors import NoDeviceError
from ..kernels import KERNELS, Kernel
from ..kernels.device import DeviceInfo
from ..opencl import user_rates
from ..opencl.devices import all_devices, default_device, device_info, device_labels, find_device
from ..plan import failures_of
from ..problem.canonical import LAYOUTS, problem_of
from ..problem.settings import PRECISIONS
from ..selection import tables
from ..selection.select import refusal
from ..version import __version__
from . import laws, output, plots, probes, report, selftest, tuner
from .bench_command import bench_command, compare_command
from .multiply_command import multiply_command
from .output import FAILED, WRONG_RESULT, Group, Output
from .road import road_command
from .terminal import Screen, progress
from .timing import dtype_named

# What kernels are asked about: a product that fits a work-group of any device, one that fits none, a thin one
# and a matrix times a vector, which some kernels are for.
SIZES = ((16, 16, 16), (1024, 1024, 1024), (1024, 4, 1024), (1024, 1, 1024))
DTYPES = ("float32", "float64")
_YES = {True: "yes", False: "no"}


@click.group(cls=Group, context_settings={"help_option_names": ["--help", "-h"], "show_default": True})
@click.version_option(__version__, prog_name="pyclmm")
def main() -> None:
    """Matrix multiplication for every OpenCL device."""


main.add_command(multiply_command)
main.add_command(bench_command)
main.add_command(compare_command)
main.add_command(road_command)


@main.command("info")
@output.reasons_option
@output.json_option()
def info_command(reasons: bool, json_target: str | None) -> None:
    """Platforms, devices, their limits, and the kernels each can run."""
    out = Output("info", json_target)
    everything = _info_json()
    out.save(everything)
    _show_info(out.screen, everything, reasons)
    out.finish()


def answers(kernel: Kernel, device: DeviceInfo) -> list[dict[str, Any]]:
    """What *kernel* says to every size and dtype: the reason why it cannot compute that, or its tile."""
    found = []
    for (m, n, k), dtype in product(SIZES, DTYPES):
        problem = problem_of(m, n, k, np.dtype(dtype))
        reason = refusal(kernel, problem, device)
        config = {} if reason else kernel.configs(problem, device)[0].as_dict()
        found.append({"m": m, "n": n, "k": k, "dtype": dtype, "refusal": reason, "config": config})
    return found


def _info_json() -> dict[str, Any]:
    """Everything, for programs. Raises NoDeviceError."""
    all_devices()
    default, problem = None, None
    try:
        default = default_device()
    except NoDeviceError as error:  # PYOPENCL_CTX names none
        problem = str(error)
    labels = device_labels()
    platforms = []
    for index, platform in enumerate(cl.get_platforms()):
        about = {name: getattr(platform, name).strip() for name in ("name", "vendor", "version")}
        own = {label: x for label, x in labels.items() if label.startswith(f"{index}:")}
        devices = [_device_json(label, device, device == default) for label, device in own.items()]
        platforms.append(about | {"devices": devices})
    return report.header_json(None) | {"platforms": platforms, "default_problem": problem}


def _device_json(label: str, device: cl.Device, default: bool) -> dict[str, Any]:
    info = device_info(device)
    kernels = [
        {"name": k.name, "summary": k.summary, "automatic": k.automatic, "problems": answers(k, info)}
        for k in KERNELS
    ]
    return {"label": label, "default": default} | report.device_json(info) | {"kernels": kernels}


def _show_info(screen: Screen, everything: dict[str, Any], reasons: bool) -> None:
    """*everything* of :func:`_info_json`, for people. *reasons*: say why kernels cannot run."""
    for platform in everything["platforms"]:
        screen.lines(f"{platform['name']} ({platform['version']})")
        if not platform["devices"]:
            screen.lines("  no device")
        for device in platform["devices"]:
            _show_device(screen, device, reasons)
    if everything["default_problem"]:
        screen.lines(f"no default device: {everything['default_problem']}")


def _caches(caches: dict[str, int]) -> str:
    """A CPU's caches: one compute unit's share of the first two levels."""
    third = f", third level {format_bytes(caches['l3'])}" if caches["l3"] else ""
    levels = f"first level {format_bytes(caches['l1'])}, second {format_bytes(caches['l2'])}{third}"
    tlb = f", TLB of {caches['tlb']} pages" if caches["tlb"] else ""
    return f"{levels}, lines of {caches['line']} bytes{tlb}"


def _show_device(screen: Screen, d: dict[str, Any], reasons: bool) -> None:
    capability, target = d["compute_capability"], d["target"]  # what a CPU is compiled for
    version, sizes = d["opencl_version"], " x ".join(map(str, d["max_work_item_sizes"]))
    local, whole, most = (
        format_bytes(d[name]) for name in ("local_mem_size", "global_mem_size", "max_mem_alloc_size")
    )
    compute = f", compute capability {'.'.join(map(str, capability))}" if capability else ""
    clock = f" at {d['max_clock_mhz']} MHz"  # Intel's CPU runtime tells none of AMD's processors
    compiled = f", compiled for {target['vector_bits']} bits ({' '.join(target['features'])})"
    amx, has = d["amx"]["types"], {name: _YES[d[f"has_{name}"]] for name in ("fp64", "fp16")}
    lines = {
        "kind": f"{d['kind']}, vendor {d['vendor']}{compute}",
        "driver": f"{d['driver_version']}, OpenCL {version[0]}.{version[1]}",
        "compute units": f"{d['compute_units']}{clock * bool(d['max_clock_mhz'])}",
        "work-group": f"{d['max_work_group_size']} work-items, {sizes} at most",
        "memory": f"local {local}, global {whole}, one buffer {most}"
        + ", shared with the host" * d["unified_memory"],
        "vector width": f"{d['float_vector_width']} floats{compiled * bool(target['vector_bits'])}",
        "types": f"float64 {has['fp64']}, float16 arithmetic {has['fp16']}"
        + f", AMX for {' and '.join(amx)}" * bool(amx),
    }
    if d["kind"] == "cpu":
        lines["caches"] = _caches(d["caches"])
    screen.lines(f"  {d['label']}  {d['name']}{'  (default)' if d['default'] else ''}", indent=7)
    for name, text in lines.items():
        _show_fact(screen, name, text)
    able = [k for k in d["kernels"] if not all(p["refusal"] for p in k["problems"])]
    unable = [k for k in d["kernels"] if k not in able]
    for kernel in able:
        _show_kernel(screen, kernel, reasons)
    if unable:
        names = ", ".join(kernel["name"] for kernel in unable)
        _show_fact(screen, "cannot run", names + ("" if reasons else " (--reasons says why)"))
    for kernel in unable if reasons else []:
        _show_fact(screen, "", f"{kernel['name']}: {kernel['problems'][0]['refusal']}")
    screen.lines("")


def _show_fact(screen: Screen, name: str, text: str) -> None:
    screen.lines(f"{' ' * 7}{name:14} {text}", indent=22)


def _show_kernel(screen: Screen, kernel: dict[str, Any], reasons: bool) -> None:
    """A line for a kernel that can run, and with *reasons* one for each thing it refuses."""
    refused = [p for p in kernel["problems"] if p["refusal"]]
    some = " (some shapes)" if refused else ""
    _show_fact(screen, "kernel", f"{kernel['name']}{some}: {kernel['summary']}")
    by_reason: dict[str, list[str]] = {}
    for p in refused if reasons else []:
        by_reason.setdefault(p["refusal"], []).append(f"{p['m']} x {p['n']} x {p['k']} {p['dtype']}")
    for reason, which in by_reason.items():
        _show_fact(screen, "", f"not {', '.join(which)}: {reason}")


@main.command("selftest")
@output.device_option
@click.option(
    "--quick/--full",
    default=True,
    show_default=False,
    help="The laws, or the laws and drawn products [--quick].",
)
@click.option("--kernel", "kernels", multiple=True, help="Kernel to test; repeatable [all].")
@click.option(
    "--budget",
    callback=output.seconds,
    help="Time in all; a law that has begun may take a minute more "
    f"[{selftest.QUICK_BUDGET:g}s, with --full {selftest.BUDGET:g}s].",
)
@click.option("--case", type=click.IntRange(0), help="Of the drawn products only this one, and no law.")
@output.reasons_option
@output.json_option("--report")
def selftest_command(
    device: str | None,
    quick: bool,
    kernels: tuple[str, ...],
    budget: float | None,
    case: int | None,
    reasons: bool,
    json_target: str | None,
) -> None:
    """Test every kernel against every law on this device, each in a child process.

    Attach the file of --json to a bug report: it names no user, host or path. Ctrl-C ends the test, and
    shows what was tested until then.
    """
    out = Output("selftest", json_target)
    own, full = device_info(find_device(device)), not quick or case is not None
    budget = budget or (selftest.BUDGET if full else selftest.QUICK_BUDGET)
    tested: list[selftest.Tested] = []
    with out.measuring() as on_stage:
        tested.extend(selftest.run(own, budget, on_stage, full, kernels, case))
    out.save(selftest.as_json(own, budget, full, tested))
    out.screen.lines(report.device_line(own))
    out.screen.table(selftest.table(tested))
    covered = [f"covered: {line}" for line in laws.coverage()] if tested and case is None else []
    out.screen.lines("", *covered, *selftest.notes(tested, own))
    out.screen.lines(*(selftest.reasons(tested) if reasons else []))
    bad = ", ".join(one.kernel for one in tested if one.is_bad)
    if bad:
        out.finish(f"{bad} did not pass; please report it with --json's file", WRONG_RESULT, tested)
    nothing = case is not None and all(one.verdict == selftest.REFUSED for one in tested)
    lost = f"--case {case}: no kernel that was asked for has such a product here; --full names what failed"
    out.finish(lost if nothing else None, FAILED, tested)


@main.command("warm")
@click.argument("shapes", nargs=-1, required=True, metavar="SHAPES", callback=output.shapes)
@click.option("--dtype", "dtypes", callback=output.names, default="float32")
@click.option("--layout", type=click.Choice(LAYOUTS), default="NN")
@click.option("--precision", type=click.Choice(PRECISIONS), default="highest")
@click.option("--arrays", is_flag=True, help="Operands will be Arrays, which may need other programs.")
@click.option("--strict", is_flag=True, help="Exit code 1 if a kernel failed and another is used instead.")
@output.device_option
@output.json_option()
def warm_command(
    shapes: list[tuple[int, int, int]],
    dtypes: list[str],
    layout: str,
    precision: Any,
    arrays: bool,
    strict: bool,
    device: str | None,
    json_target: str | None,
) -> None:
    """Compile and check the kernels of products ahead, for a container's image or before a service starts.

    SHAPES: M, N and K of each product, such as 64x100x512,128x100x512, or 64 100 512.
    """
    out = Output("warm", json_target)
    found, orders = find_device(device), ["F" if letter == "T" else "C" for letter in layout]
    operands = [
        (((m, k), dtype_named(dtype), orders[0]), ((k, n), dtype_named(dtype), orders[1]))
        for dtype, (m, n, k) in product(dtypes, shapes)
    ]
    store.unwritten.clear()
    plans = warm(*operands, device=found, precision=precision, on_device=arrays)
    told = [repr(plan).splitlines()[0].strip("<>") for plan in plans]
    folder = store.folder()
    failed = list(dict.fromkeys(failure for plan in plans for failure in failures_of(plan)))
    out.save(
        report.header_json(device_info(found)) | {"plans": told, "failed": failed, "folder": str(folder)}
    )
    lost = [f"not all is kept: cannot write {place}: {reason}" for place, reason in store.unwritten.items()]
    out.screen.lines(*told, *([] if lost else [f"kept in {folder}"]))
    if strict and failed:
        out.finish(f"another kernel is used instead: {'; '.join(failed)}", WRONG_RESULT)
    out.finish(lost[0] if lost else None, FAILED)


@main.command("tune")
@click.option(
    "--shapes",
    callback=output.shapes,
    default=",".join("x".join(map(str, shape)) for shape in tuner.SHAPES),
    help="M, N and K of each product.",
)
@click.option("--dtype", "dtypes", callback=output.names, default="float32")
@click.option("--layout", "layouts", callback=output.names, default="NN,NT,TN")
@click.option("--precision", "precisions", callback=output.names, default="highest")
@click.option("--budget", callback=output.seconds, default="120s", help="Time for all products.")
@click.option(
    "--device",
    is_flag=False,
    flag_value="",
    help="As for bench. Without a name: measure the default device's rates only, in under a minute.",
)
@click.option("--rates", "only_rates", is_flag=True, help="Measure the device's rates only.")
@click.option(
    "--export", "export_file", type=output.file_type, help="Write the results as a table to contribute."
)
@output.json_option()
@output.plot_option
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
        output.unused("to measure rates only", *wanted, "export_file", "plot_file")
        _tune_rates(out, device or None)
        return
    output.check_file(export_file, output.TABLE)
    output.check_plot(plot_file)
    found = find_device(device)
    with progress() as on_stage:  # the tuner hears Ctrl-C itself
        tuning = tuner.tune(device=found, on_progress=on_stage, **wanted)
    out.interrupted = tuning.interrupted
    own = tuning.device
    out.save(report.tuning_json(tuning, wanted["budget"]))
    if export_file is not None:
        text = json.dumps(tables.table_json(own, tuning.entries), indent=2)
        out.write_text(export_file, f"{text}\n")
    out.screen.lines(report.device_line(own))
    out.screen.table(report.tuning_table(tuning.searches))
    out.screen.lines(*report.tuning_notes(tuning))
    out.draw(plot_file, lambda path: plots.tuning(tuning.searches, own, path))
    lost = None if tuning.stored else f"cannot write {tables.own_path(own)}; nothing is kept"
    out.finish(lost, FAILED, [search for search in tuning.searches if search.tried])


def _tune_rates(out: Output, device: str | None) -> None:
    """Measure the rates of a device, keep and show them."""
    found = find_device(device)
    own = device_info(found)
    rates: dict[str, float] = {}
    refused: list[str] = []
    with out.measuring() as on_stage:
        for group in probes.measure(found, on_stage, refused.append):
            rates |= group
    kept = not out.interrupted and probes.keep(found, rates)
    out.save(report.header_json(own) | {"kept": kept, "rates": rates, "refused": refused})
    out.screen.lines(report.device_line(own))
    out.screen.table(report.rates_table(rates))
    out.screen.lines(*refused, *report.unchecked(own))
    if out.interrupted:
        out.screen.lines("These rates are not kept for later calls: a choice needs all of them.")
    path = user_rates.file_of(own.identity).path
    lost = f"nothing is kept: {path} cannot be written, or others disturbed the measurement; run it again"
    out.finish(None if kept else lost, FAILED, rates)
