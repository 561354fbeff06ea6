"""The speed of float64 products by residues against the number of moduli, and where its time goes.

    python benchmarks/moduli.py [--json FILE] [--picture FILE.png] [--sizes 4096 8192]

Operands are whole numbers of ever more bits, so that the device chooses ever more moduli; the last are
normally distributed. Times are medians of 5 from the start of the first launch to the end of the last. Needs
a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm
from pyclmm.kernels.residues.moduli import MOST, REAL
from pyclmm.opencl.devices import find_device

ROUNDS = 5


def spans(events: list[cl.Event]) -> list[float]:
    """Seconds of each launch, and of all of them."""
    each = [(event.profile.end - event.profile.start) * 1e-9 for event in events]
    return [*each, (events[-1].profile.end - events[0].profile.start) * 1e-9]


def timed(queue: cl.CommandQueue, x: Any, y: Any) -> dict[str, Any]:
    """Medians in seconds of a product by residues: in all, and of each launch."""
    a, b = (cla.to_device(queue, z) for z in (x, y))
    out = cla.empty(queue, (len(x), len(x)), x.dtype)
    plan = pyclmm.Matmul(a, b, out=out, kernel="residues", precision="high")
    plan.enqueue(a, b, out=out)[-1].wait()
    found = []
    for _ in range(ROUNDS):
        events = plan.enqueue(a, b, out=out)
        events[-1].wait()
        found.append(spans(events))
    *each, whole = (statistics.median(column) for column in zip(*found, strict=True))
    names = [name.removeprefix("residues_") for name in plan.explain().launches]
    parts: dict[str, float] = {}
    for name, seconds in zip(names, each, strict=True):
        parts[name] = parts.get(name, 0.0) + seconds
    return {"seconds": whole, "parts": parts}


def needed(bits: int, k: int) -> int:
    """Moduli for whole numbers of *bits* bits."""
    return next((n for n in range(1, MOST) if REAL.half_bits[n - 1] >= 2 * bits + np.log2(k / 3)), MOST)


def rows_of(queue: cl.CommandQueue, n: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(4)
    rows, seen = [], set()
    for bits in range(1, 49):
        if needed(bits, n) in seen:
            continue
        seen.add(needed(bits, n))
        x, y = (rng.integers(-(2**bits) + 1, 2**bits, (n, n)).astype(np.float64) for _ in "xy")
        rows.append(
            {
                "size": n,
                "data": f"whole numbers of {bits} bits",
                "moduli": needed(bits, n),
                **timed(queue, x, y),
            }
        )
        print(rows[-1], flush=True)
    x, y = (rng.standard_normal((n, n)) for _ in "xy")
    rows.append({"size": n, "data": "normal", "moduli": None, **timed(queue, x, y)})
    print(rows[-1], flush=True)
    return rows


def drawn(rows: list[dict[str, Any]], path: Path, title: str) -> None:
    figure, axes = plt.subplots(figsize=(7, 4))
    for size in sorted({row["size"] for row in rows}):
        own = [row for row in rows if row["size"] == size and row["moduli"]]
        rates = [2e-12 * size**3 / row["seconds"] for row in own]
        axes.plot([row["moduli"] for row in own], rates, marker="o", label=f"{size} cubed, whole numbers")
        normal = next(row for row in rows if row["size"] == size and not row["moduli"])
        axes.axhline(2e-12 * size**3 / normal["seconds"], linestyle=":", color=axes.lines[-1].get_color(),
                     label=f"{size} cubed, normal data")  # fmt: skip
    axes.set(xlabel="moduli", ylabel="TFLOP/s of the float64 product", ylim=(0, None), title=title)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192])
    options = parser.parse_args()
    context = cl.Context([find_device("gpu")])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    about = {"device": queue.device.name, "driver": queue.device.driver_version, "pyclmm": pyclmm.__version__}
    about["date"] = datetime.date.today().isoformat()
    rows = [row for size in options.sizes for row in rows_of(queue, size)]
    if options.json:
        options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    if options.picture:
        drawn(rows, options.picture, f"{about['device']}, {about['date']}")


if __name__ == "__main__":
    main()
