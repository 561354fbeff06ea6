"""The tables of docs/road/, from benchmarks/results/: readme.py writes them into the pages."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import peers

from pyclmm.tools.terminal import significant

RESULTS = Path(__file__).resolve().parent / "results"
# Page of the step, its kernel in `pyclmm road`, and its idea. Two steps are parts of other kernels.
STEPS = (
    ("01_sequential", "sequential", "three loops, one work-item"),
    ("02_single_group", "single_group", "one work-item for each element"),
    ("03_naive", "naive", "work-groups for all compute units"),
    ("04_flat", "flat", "one dimension, nobody is idle"),
    ("05_tiled", "tiled", "shared tiles in local memory"),
    ("06_strip", "strip", "several elements of a column"),
    ("07_block", "block", "a small block in registers"),
    ("08_vector", "vector", "columns are one OpenCL vector"),
    ("09_double_buffer", "double_buffer", "load the next tiles early"),
    ("10_register", "register", "three levels of tiles, fitted"),
    ("11_packed", "packed", "panels for registers and caches"),
    ("12_split_k", "", "cut a long K too"),
    ("13_pipelining", "", "copies that nobody waits for"),
    ("14_matrix_units", "mma", "one instruction multiplies small matrices"),
    ("15_hopper", "wgmma_bare", "one Hopper instruction, nothing else"),
    ("15_hopper", "wgmma", "that one, with everything before"),
)
HEAD = (
    "step",
    "idea",
    *("CPU GFLOP/s", "x above", "limit", "NumPy", "GPU GFLOP/s", "x above", "limit", "cuBLAS"),
)


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return content


CPU, GPU = read("road-pocl-3.0-zen4"), read("road-h200")
CPU_STEPS = "road-steps-pocl-3.0-zen4"  # the least times of this run are those of the pages
CPU_SMALL = "road-steps-small-pocl-3.0-zen4"  # for what cannot run at that size


def lines(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ("---",) * len(head), *rows))


def gained(rates: dict[str, float]) -> dict[str, str]:
    """Of each kernel of one run and one size: times the rate of the one before."""
    return {kernel: significant(rates[kernel] / rates[before]) for before, kernel in pairwise(rates)}


def share(part: float) -> str:
    return "passed" if part > 1 else f"{100 * part:.2g} %"


def cpu_cells() -> dict[str, tuple[str, ...]]:
    """GFLOP/s, times the row above, percent of the limit and of NumPy, by kernel."""
    limits = {point["kernel"]: point["operations_per_s"] / point["limit_per_s"] for point in CPU["points"]}
    found: dict[str, tuple[str, ...]] = {}
    for name in (CPU_STEPS, CPU_SMALL):
        (product,) = read(name)["products"]
        size = [product[letter] for letter in "mnk"]
        times = {r["kernel"]: min(r["wall_samples_s"]) for r in product["rows"] if r["wall_samples_s"]}
        rates = {kernel: 2 * product["work"] / seconds for kernel, seconds in times.items()}
        numpy, where = rates.pop("numpy"), "" if name == CPU_STEPS else f" ({' x '.join(map(str, size))})"
        gains = gained({kernel: rates[kernel] for _, kernel, _ in STEPS if kernel in rates})
        for kernel, rate in rates.items():
            numbers = gains.get(kernel, ""), share(limits[kernel]), share(rate / numpy)
            found.setdefault(kernel, (significant(rate / 1e9) + where, *numbers))
    return found


def gpu_cells() -> dict[str, tuple[str, ...]]:
    """The same on the GPU, with percent of cuBLAS."""
    side = GPU["side"]
    gains = gained({p["kernel"]: p["operations_per_s"] for p in GPU["points"] if p["n"] == side})
    found: dict[str, tuple[str, ...]] = {}
    for point in GPU["points"]:
        rate, where = point["operations_per_s"], "" if point["n"] == side else f" (N = {point['n']})"
        product = peers.Product.of(point["dtype"], "NN", (side,) * 3)
        theirs = 2 * side**3 / peers.read().seconds(GPU["device"]["name"], product)
        numbers = gains.get(point["kernel"], ""), share(rate / point["limit_per_s"]), share(rate / theirs)
        found[point["kernel"]] = (significant(rate / 1e9) + where, *numbers)
    return found


def about(where: str, content: dict[str, Any]) -> str:
    device = content["device"]
    driver = f"{device['platform']}, driver {device['driver_version']}"
    return f"{where}: {device['name']} ({driver}), {content['side']} cubed, {content['date'][:10]}."


def road() -> str:
    """Every step on a CPU and on a GPU."""
    rows, cpu, gpu, blank = [], cpu_cells(), gpu_cells(), ("",) * 4
    for page, kernel, idea in STEPS:
        name = f"`{kernel}`" if kernel else page[3:].replace("_", "-")
        step = f"{int(page[:2])}. [{name}]({page}.md)"
        rows.append((step, idea, *cpu.get(kernel, blank), *gpu.get(kernel, blank)))
    by_pages = about("CPU", read(CPU_STEPS) | {"side": CPU["side"]}).removesuffix(".")
    by_pages += (
        ", least times, host to host: the run of the pages. Its limits: `pyclmm road` of the same day."
    )
    return "\n".join((lines(HEAD, rows), "", by_pages, about("GPU", GPU)))


def gpu_step(before: str, kernel: str) -> str:
    """The median times of *kernel* and of the one *before* on the GPU, device to device."""
    found = {point["kernel"]: point for point in GPU["points"]}
    rows = []
    for name in (before, kernel):
        seconds, rate = found[name]["median_s"], found[name]["operations_per_s"]
        rows.append((f"`{name}`", significant(seconds * 1e3), significant(rate / 1e9)))
    times = significant(found[before]["median_s"] / found[kernel]["median_s"])
    table = lines(("kernel", "ms", "GFLOP/s"), rows)
    return (
        f"{about('float32', GPU)}\n\n{table}\n\n`{kernel}` has {times} times the speed of `{before}` there."
    )
