"""Draws results: on GPUs speed against size, and each step from naive to matrix units; memory over calls;
what verify= notices; quantised weights.

    python benchmarks/pictures.py

Reads benchmarks/results/*.json and writes a .png beside each file that it can draw; those of
memory.py have one together, and those of quantized.py. It measures nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from pyclmm.formats import format_named
from pyclmm.tools.plots import KERNEL_STYLES

RESULTS = Path(__file__).resolve().parent / "results"
OWN, PEER, LIMIT = "#4477aa", "#bbbbbb", "#aa3377"
OURS = "pyclmm"
PEERS = {"cuBLAS": "black", "CLBlast": "#999999"}
LAYOUTS = {"NN": ("o", "-"), "NT": ("^", "--"), "TN": ("D", ":")}  # marker and line
Content = dict[str, Any]
# Operations/s of a device's matrix units at full clock (NVIDIA H200: 132 compute units, 1980 MHz; the
# operations of a cycle are in "NVIDIA H100 Tensor Core GPU Architecture"), and the passes of a product of
# split operands.
UNIT_RATES = {
    "NVIDIA H200": {
        peer: 132 * 1.98e9 * each
        for peer, each in {
            "float16": 4096,
            "bfloat16": 4096,
            "tf32": 2048,
            "float64": 256,
            "int8": 8192,
        }.items()
    }
}
PARTS = {"high": ("float16", 3), "medium": ("tf32", 1)}
MODULI = {"float64": 14, "complex128": 30 / 4}  # int8 passes of "high", for each real product


def title(content: Content, what: str) -> str:
    return f"{what}: {content['device']}, driver {content['driver']}, {content['date']}"


def cube(row: Content) -> int | None:
    """N of a product of two square matrices; None for any other."""
    *stack, m, n, k = row["shape"]
    return int(m) if m == n == k and set(stack) <= {1} else None


def style(name: str) -> dict[str, Any]:
    """The look of a contestant: a kernel has its colour, a layout its marker and line."""
    kernel, _, layout = name.partition(" ")
    marker, line = LAYOUTS.get(layout, ("o" if kernel == OURS else "s", "-"))
    colour = PEERS.get(kernel) or KERNEL_STYLES.get(kernel, (OWN, ""))[0]
    return {"color": colour, "marker": marker, "linestyle": line, "markersize": 5}


def beside_a_power(size: int) -> bool:
    """Whether a size is within 5 % of a power of two and is none."""
    power = 2 ** round(math.log2(size))
    return size != power and abs(size / power - 1) < 0.05


def against_size(axes: Any, points: dict[str, dict[int, float]]) -> None:
    """TFLOP/s by size for each contestant: a line, and apart from it sizes just beside a power of two.

    Sizes are evenly spaced. Those apart are not joined: what differs between 4095 and 4096 is the alignment.
    """
    sizes = sorted({size for rates in points.values() for size in rates})
    odd = [size for size in sizes if beside_a_power(size)]
    whole = [size for size in sizes if size not in odd]
    places: dict[int, float] = {size: place for place, size in enumerate(whole)}
    places |= {size: len(whole) + 0.5 + place for place, size in enumerate(odd)}
    for number, (name, rates) in enumerate(points.items()):
        look = style(name)
        joined = [size for size in whole if size in rates]
        axes.plot([places[size] for size in joined], [rates[size] for size in joined], label=name, **look)
        apart = [size for size in odd if size in rates]
        look["linestyle"] = "none"
        aside = 0.1 * (number - (len(points) - 1) / 2)  # so that equal rates do not hide one another
        axes.plot([places[size] + aside for size in apart], [rates[size] for size in apart], **look)
    if odd:
        axes.axvline(len(whole) - 0.25, color="#bbbbbb", linestyle=":", linewidth=1)
    axes.set_xticks(list(places.values()), [str(size) for size in places], rotation=60, fontsize=8)
    axes.set_ylim(0)
    axes.set_xlabel("M = N = K" + ("; right of the dots: just beside a power of two" if odd else ""))
    axes.set_ylabel("TFLOP/s")
    axes.grid(True, alpha=0.3)


def float32(content: Content) -> Figure:
    """pyclmm, cuBLAS and CLBlast in float32, axes for each layout, with the device's limit."""
    layouts = list(dict.fromkeys(row["layout"] for row in content["rows"]))
    figure = Figure(figsize=(4.5 * len(layouts), 4.5), layout="constrained")
    for axes, layout in zip(figure.subplots(1, len(layouts), squeeze=False)[0], layouts, strict=True):
        points: dict[str, dict[int, float]] = {}
        for row in content["rows"]:
            if row["layout"] == layout and (size := cube(row)):
                for key, name in (("auto", OURS), ("cublas", "cuBLAS"), ("clblast", "CLBlast")):
                    if key in row["seconds"]:
                        points.setdefault(name, {})[size] = row["flops"] / row["seconds"][key] / 1e12
        against_size(axes, points)
        if content.get("float32_limit"):
            axes.axhline(content["float32_limit"] / 1e12, color=LIMIT, label="float32 units at full clock")
        axes.set_title(layout)
        axes.legend(fontsize="small", loc="lower right")
    figure.suptitle(title(content, "float32"))
    return figure


def beside(row: Content) -> str:
    """The title of the axes on which a product is drawn."""
    if row["dtype"] in ("complex64", "complex128", "float64") and row["precision"] != "highest":
        return f'{row["dtype"]} "{row["precision"]}", beside cuBLAS'
    return f'"high", beside cuBLAS {row["peer"]}' if row["precision"] == "high" else str(row["peer"])


def limit(device: str, row: Content) -> float | None:
    """Operations/s at full clock of the matrix units that compute a product."""
    passes: float
    peer, passes = PARTS.get(row["precision"], (row["peer"], 1))
    if row["precision"] == "high" and row.get("dtype") in MODULI:
        peer, passes = "int8", MODULI[row["dtype"]]
    rate = UNIT_RATES.get(device, {}).get(peer)
    return rate / passes if rate else None


def matrix_units(content: Content) -> Figure:
    """pyclmm's kernels and cuBLAS by size, axes for each peer, with the limit. cuBLAS's is its best in any
    row and layout."""
    titles = list(dict.fromkeys(map(beside, content["rows"])))
    figure = Figure(figsize=(13, 4.8 * -(-len(titles) // 3)), layout="constrained")
    for number, name in enumerate(titles, 1):
        axes = figure.add_subplot(-(-len(titles) // 3), 3, number)
        points: dict[str, dict[int, float]] = {}
        for row in content["rows"]:
            if beside(row) == name and (size := cube(row)):
                flops = (8.0 if row["dtype"].startswith("complex") else 2.0) * size**3
                own = f"{row['kernel']} {row['layout']}"
                points.setdefault(own, {})[size] = flops / row["seconds"] / 1e12
                theirs = points.setdefault("cuBLAS", {})
                theirs[size] = max(theirs.get(size, 0.0), flops / row["cublas_seconds"] / 1e12)
        against_size(axes, points)
        most = limit(content["device"], next(row for row in content["rows"] if beside(row) == name))
        if most:
            axes.axhline(most / 1e12, color=LIMIT, label="units at full clock")
            axes.set_ylim(0, 1.05 * most / 1e12)
        axes.set_title(name)
        axes.legend(fontsize="x-small", ncol=3, loc="upper center", bbox_to_anchor=(0.5, -0.28))
    figure.suptitle(title(content, "matrix units"))
    return figure


def ladder(content: Content) -> Figure:
    """Bars on a log axis, from naive to matrix units, and cuBLAS."""
    own = {step["label"]: KERNEL_STYLES.get(step["kernel"], (OWN, ""))[0] for step in content["steps"]}
    rates = {name: content["flops"] / s / 1e12 for name, s in content["seconds"].items()}
    figure = Figure(figsize=(10, 1.2 + 0.38 * len(rates)), layout="constrained")
    axes = figure.add_subplot()
    bars = axes.barh(
        list(rates), list(rates.values()), color=[own.get(name, PEER) for name in rates], zorder=2
    )
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # the line of the limit ends at a label
    axes.bar_label(bars, [f"{rate:.3g}" for rate in rates.values()], padding=4, bbox=paper, zorder=3)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(min(rates.values()) / 2, max(rates.values()) * 2.5)
    if content.get("float32_limit"):
        axes.axvline(content["float32_limit"] / 1e12, color=LIMIT, linewidth=1, zorder=1)
        axes.set_title("line: float32 units at full clock", fontsize="small")
    axes.set_xlabel("TFLOP/s")
    figure.suptitle(title(content, f"{content['n']} cubed"))
    return figure


def flips(content: Content) -> Figure:
    """The share of flipped bits that verify= notices, by size of the error; a line for each type."""
    figure = Figure(figsize=(8, 7.5), layout="constrained")
    places = {"out": "of out", "tile": "of A in local memory", "sum": "of a sum, in a register"}
    every = figure.subplots(len(places), sharex=True, sharey=True)
    for axes, (place, words) in zip(every, places.items(), strict=True):
        for row in content["rows"]:
            if row["where"] == place:
                shares = [share for share in row["shares"] if share["flipped"]]
                noticed = [100 * share["noticed"] / share["flipped"] for share in shares]
                axes.plot([x["power"] for x in shares], noticed, "o-", markersize=4, label=row["dtype"])
        axes.axvline(0, color=LIMIT, linewidth=1, label="limit of a row's sum")
        axes.set_ylabel(f"bits {words},\nnoticed, %", fontsize="small")
        axes.set_ylim(-3, 103)
        axes.grid(True, alpha=0.3)
    ends = f"{content['low']}: or less, {content['high']}: or more"
    every[-1].set_xlabel(f"n, of a greatest error between 2^n and 2^(n + 1) limits of its row; {ends}")
    every[0].legend(fontsize="small")
    figure.suptitle(title(content, "verify=True"))
    return figure


DRAWN: dict[str, Callable[[Content], Figure]] = {
    "*-float32.json": float32,
    "*-matrix-units.json": matrix_units,
    "*-ladder.json": ladder,
    "verification-flips-*.json": flips,
}


def memory(contents: list[Content]) -> Figure:
    """Resident memory and compiled programs over the calls of benchmarks/memory.py, a line for each run.

    Random calls are above, growing ones in the middle, and below is one product of much memory.
    """
    figure = Figure(figsize=(11, 12), layout="constrained")
    drivers = sorted({content["driver"] for content in contents})
    places = figure.subplot_mosaic([[0, 1], [2, 3], [4, 4]])
    _memory_bars(places[4], [content for content in contents if content.get("large")])
    contents = [content for content in contents if not content.get("large")]
    for row, growing in zip(((places[0], places[1]), (places[2], places[3])), (False, True), strict=True):
        for content in contents:
            if content.get("growing", False) == growing:
                _memory_lines(row, content, f"C{drivers.index(content['driver'])}")
        for axes, what in zip(row, ("resident memory, MB", "different programs compiled"), strict=True):
            axes.set_xlabel("calls, each of a larger shape" if growing else "random calls")
            axes.set_ylabel(what)
            axes.set_xlim(0)
            axes.set_ylim(0)
            axes.grid(True, alpha=0.3)
        if row[0].lines:
            row[0].legend(fontsize="small")
    figure.suptitle(f"{contents[0]['processor']}, {contents[0]['date']}; circles: after pyclmm.release()")
    return figure


def _memory_lines(row: Any, content: Content, colour: str) -> None:
    resident, programs = row
    readings, code = content["readings"], content["code"]
    calls = [reading["calls"] for reading in readings]
    name = ", ".join(filter(None, (content["driver"], code)))
    style = {"label": name, "linestyle": "--" if code else "-", "color": colour}
    resident.plot(calls, [reading["megabytes"] for reading in readings], **style)
    programs.plot(calls, [reading["programs"] for reading in readings], **style)
    if "released" in content:
        fill = "none" if code else colour
        resident.plot(calls[-1], content["released"], "o", color=colour, markerfacecolor=fill, clip_on=False)


def _memory_bars(axes: Any, contents: list[Content]) -> None:
    """The resident memory of one product: with its operands alone, at its peak, and after release()."""
    for place, content in enumerate(contents):
        found = {reading["what"]: reading["megabytes"] for reading in content["readings"]}
        end = content["released"]
        heights = [found["operands"], found.get("peak", 0.0), found.get("after", 0.0), end]
        axes.bar([place + 0.2 * at - 0.3 for at in range(4)], heights, 0.18, color=["C7", "C3", "C1", "C2"])
        if "refused" in found:
            axes.annotate("refused", (place - 0.1, 0), rotation=90, ha="center", va="bottom")
    names = [", ".join(filter(None, (content["driver"], content["code"]))) for content in contents]
    axes.set_xticks(range(len(names)), [textwrap.fill(name, 20) for name in names], fontsize="small")
    axes.set_ylabel("resident memory, MB")
    axes.set_title(
        "40,000 x 32,768 uint8 times 32,768 x 3: operands made (grey), most during the product (red), "
        "after it (orange), after release() (green)",
        fontsize="small",
    )
    axes.grid(True, axis="y", alpha=0.3)


def weights(contents: list[Content]) -> Figure:
    """One row times quantised weights: the fraction of the memory's rate by format, a colour for each
    device. Rows of a device that are of another type of x or shape than its first one are left out."""
    found: dict[str, dict[str, float]] = {}
    for content in contents:
        alone = [row for row in content["rows"] if row["m"] == 1]
        for row in alone:
            if (row["n"], row["k"]) == (alone[0]["n"], alone[0]["k"]):
                device = content["device"]
                where = f"{device['name']}, {device['driver_version']}"
                where += f": {row['n']} x {row['k']}, {row['dtype']}"
                share = row.get(
                    "cpu of memory", row["of memory"]
                )  # other work on a CPU does not touch the first
                found.setdefault(where, {})[row["format"]] = share
    every = {name for by_name in found.values() for name in by_name}
    size = {name: format_named(name).row_nbytes(8192) / 8192 for name in every}
    names = sorted(size, key=lambda name: (size[name], name))
    figure = Figure(figsize=(12, 6), layout="constrained")
    axes, width = figure.subplots(), 0.8 / len(found)
    for number, (where, by_name) in enumerate(found.items()):
        places = [names.index(name) + (number + 0.5) * width - 0.4 for name in by_name]
        axes.bar(places, list(by_name.values()), width * 0.95, label=where)
    labels = [f"{name}\n{size[name]:.3g} bytes" for name in names]
    axes.set_xticks(range(len(names)), labels, rotation=40, ha="right", fontsize="small")
    axes.set_ylabel("fraction of the rate at which the device reads memory")
    axes.set_ylim(0, 1)
    axes.grid(True, axis="y", alpha=0.3)
    axes.legend(fontsize="small")
    figure.suptitle("One row times quantised weights, and the bytes of a weight")
    return figure


MEMORY = "memory-*.json"
WEIGHTS = "quantized-*.json"


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    for pattern, draw in DRAWN.items():
        for file in sorted(RESULTS.glob(pattern)):
            draw(json.loads(file.read_text())).savefig(file.with_suffix(".png"), dpi=110)
            print(file.with_suffix(".png"))
    for pattern, together, name in ((MEMORY, memory, "memory.png"), (WEIGHTS, weights, "quantized.png")):
        contents = [json.loads(file.read_text()) for file in sorted(RESULTS.glob(pattern))]
        together(contents).savefig(RESULTS / name, dpi=110)
        print(RESULTS / name)


if __name__ == "__main__":
    main()
