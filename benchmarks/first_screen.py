"""The README's first table: what a reader wants, what does it, and one number each from results/."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import framework_tables
import peers

RESULTS = Path(__file__).resolve().parent / "results"
BEST = peers.read()
SIDE = 8192


def rows() -> list[list[str]]:
    """A row for each wish: what for, what does it, what was measured."""
    return [
        ["fast float32 on a GPU", "`matmul(a, b)`", gpu()],
        ["float32's accuracy, faster", '`matmul(a, b, precision="high")`, on matrix units', high()],
        [
            "PyTorch's, CuPy's or JAX's arrays",
            "the same calls, where they lie: on NVIDIA GPUs in their stream",
            framework_tables.first_screen(),
        ],
        ["products on a CPU", "the same calls", cpu()],
        ["matrices larger than the device's memory", '`matmul(a, b, memory_limit="8 GiB")`', larger()],
        ["the same bits on every device", "`matmul(a, b, reproducible=True)`", same_bits()],
        ["a result that is checked, and repaired", '`matmul(a, b, verify="repair")`', checked()],
    ]


def checked() -> str:
    """What it costs, and the page that says what it finds."""
    page = "[what it finds](docs/verification.md)"
    contents = [read(file.name) for file in sorted(RESULTS.glob("verification-[!f]*.json"))]  # not the flips
    measured = [
        (content, [r["ratio"] - 1 for r in content["rows"] if r["n"] == SIDE]) for content in contents
    ]
    content, more = next((one for one in measured if one[1]), ({}, []))
    if not more:
        return page
    where = f"{content['device']}, {content['date'][:10]}"
    return f"{min(more):.1%} to {max(more):.1%} more time at {SIDE} cubed ({where}); {page}"


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return content


def beside_cublas(content: dict[str, Any], product: peers.Product, seconds: float) -> str:
    """The rate of a product and its ratio to cuBLAS's best time in the same layout."""
    ratio = BEST.seconds(content["device"], product) / seconds
    rate = product.flops / seconds / 1e12
    where = f"{content['device']}, {content['date'][:10]}"
    return f"{rate:.0f} TFLOP/s at {SIDE} cubed, {ratio:.2f} x cuBLAS float32 ({where})"


def gpu() -> str:
    content = read("h200-float32.json")
    row = next(r for r in content["rows"] if r["shape"] == [1, SIDE, SIDE, SIDE] and r["layout"] == "NN")
    return beside_cublas(content, peers.of_gpu_row(row, content["dtype"]), row["seconds"]["auto"])


def high() -> str:
    content = read("h200-matrix-units.json")
    row = next(
        r
        for r in content["rows"]
        if (r["kernel"], r["dtype"], r["precision"], r["layout"]) == ("split", "float32", "high", "NN")
        and r["shape"] == [SIDE] * 3
    )
    return beside_cublas(content, peers.of_units_row(row), row["seconds"])


def cpu() -> str:
    """The range of the mean ratios to NumPy over processors and drivers, and the worst product of all."""
    newest: dict[tuple[str, str, str], dict[str, Any]] = {}
    contents = [json.loads(file.read_text(encoding="utf-8")) for file in RESULTS.glob("cpu-*.json")]
    for content in sorted((c for c in contents if "summary" in c), key=lambda c: str(c["date"])):
        device = content["device"]
        if found := content["summary"].get("float32 / numpy"):
            newest[content["processor"], device["platform"], device["driver_version"]] = found
    means = sorted(found["mean"] for found in newest.values())
    worst = min(found["least"] for found in newest.values())
    return (
        f"float32: {means[0]:.2f} to {means[-1]:.2f} x NumPy's speed on average, by processor and driver; "
        f"the worst product {worst:.2f} x ([{len(means)} pairs](docs/measured.md#cpus))"
    )


def larger() -> str:
    content = read("scale-h200.json")
    (row,) = content["limit"]
    seconds = row["seconds"]["in tiles"]["median"]
    size = f"{row['m']:,} x {row['n']:,} x {row['k']:,}"
    where = f"{content['device']['name']}, {content['date'][:10]}"
    return f"float32 {size}: {seconds:.2f} s, {row['of_in_core']:.0%} of the device's own rate ({where})"


def same_bits() -> str:
    found = {}
    for name in ("h200-reproducible.json", "reproducible-intel-2026.2-zen4.json"):
        content = read(name)
        ratios = [row["ratio"] for row in content["rows"] if row["kind"] == "highest"]
        found[content["device"]] = f"{statistics.geometric_mean(ratios):.2f} x on {content['device']}"
    return f"usual float32 speed on average: {', '.join(found.values())} ({content['date']})"
