"""The tables of docs/road/, from benchmarks/results/: readme.py writes them into the pages."""

from __future__ import annotations

import json
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


CPU, GPU, CPU_STEPS = read("road-pocl-3.0-zen4"), read("road-h200"), read("road-steps-pocl-3.0-zen4")


def lines(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ("---",) * len(head), *rows))


def numpy_seconds() -> float:
    """NumPy's least time for the product of the CPU's table."""
    (product,) = CPU_STEPS["products"]
    (row,) = (row for row in product["rows"] if row["kernel"] == "numpy")
    return float(min(row["wall_samples_s"]))


def vendor_rate(content: dict[str, Any], dtype: str) -> float:
    """Operations a second of NumPy on the CPU, of cuBLAS on the GPU, for that type and the table's size."""
    n = content["side"]
    if content is CPU:
        return 2 * n**3 / numpy_seconds()
    product = peers.Product.of(dtype, "NN", (n, n, n))
    return 2 * n**3 / peers.read().seconds(content["device"]["name"], product)


def cells(content: dict[str, Any], kernel: str) -> tuple[str, ...]:
    """GFLOP/s, times the row above, percent of the limit and of the vendor; blank where it did not run."""
    for point in content["points"]:
        if point["kernel"] == kernel:
            rate = point["operations_per_s"]
            share, theirs = rate / point["limit_per_s"], rate / vendor_rate(content, point["dtype"])
            gain = "" if point["gain"] is None else significant(point["gain"])
            size = "" if point["n"] == content["side"] else f" (N = {point['n']})"
            shown = "passed" if share > 1 else f"{100 * share:.2g} %"
            return significant(rate / 1e9) + size, gain, shown, f"{100 * theirs:.2g} %"
    return ("",) * 4


def about(where: str, content: dict[str, Any]) -> str:
    device = content["device"]
    driver = f"{device['platform']}, driver {device['driver_version']}"
    return f"{where}: {device['name']} ({driver}), {content['side']} cubed, {content['date'][:10]}."


def road() -> str:
    """Every step on a CPU and on a GPU."""
    rows = []
    for page, kernel, idea in STEPS:
        name = f"`{kernel}`" if kernel else page[3:].replace("_", "-")
        step = f"{int(page[:2])}. [{name}]({page}.md)"
        rows.append((step, idea, *cells(CPU, kernel), *cells(GPU, kernel)))
    return "\n".join((lines(HEAD, rows), "", about("CPU", CPU), about("GPU", GPU)))


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
