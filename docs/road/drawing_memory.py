"""Draws the memories of docs/road/index.md, for light and for dark screens. The rates are measured.

python docs/road/drawing_memory.py        writes the drawing beside it
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from picture import FOLDER, Picture, write

RESULTS = FOLDER.parents[1] / "benchmarks/results"


def _measured(name: str) -> tuple[dict[str, str], dict[str, Any]]:
    """What each memory gives to all compute units together, in words, and the device's facts."""
    content = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    rates = {key: content["rates"][key] for key in ("memory", "cache", "local")}
    words = {
        key: f"{rate / 1e12:.1f} TB/s" if rate > 1e12 else f"{rate / 1e9:.0f} GB/s"
        for key, rate in rates.items()
    }
    return words, content["device"]


# Name, its word in CUDA, who sees it, what the road does with it, and the kind of its box.
LEVELS = (
    ("registers: private memory", "registers", "a work-item", "steps 6 to 10 keep their sums here", "out"),
    ("local memory", "shared memory", "a work-group", "steps 5 to 10 keep tiles here", "hot"),
    (
        "caches",
        "caches",
        "no program: the device chooses",
        "they serve what neighbours ask for again",
        "rest",
    ),
    ("global memory", "global memory", "all work-items", "A, B and the result lie here", "a"),
)


def memory() -> str:
    """Each memory of a GPU and of a CPU, with who sees it and how fast it was measured to be."""
    p = Picture(760, 430, "The memories of a GPU and of a CPU, the nearest and fastest above", 392)
    rates, device = _measured("road-h200")
    p.text(20, 26, f"A GPU: {device['name']}", "title")
    sizes = (
        "",
        f"{device['local_mem_size'] >> 10} KiB each, {rates['local']}",
        rates["cache"],
        rates["memory"],
    )
    for at, ((name, cuda, who, use, kind), size) in enumerate(zip(LEVELS, sizes, strict=True)):
        y = 44 + 82 * at
        p.box(20, y, 354, 74, kind)
        p.text(30, y + 20, name, "title")
        p.text(364, y + 20, size, "end")
        p.text(30, y + 40, f"seen by {who}" if who[0] == "a" else who)
        p.text(364, y + 40, f"CUDA: {cuda}" if cuda != name else "", "end")
        p.text(30, y + 60, use)
    p.text(20, 392, "TB/s and GB/s: what all compute units together")
    p.text(20, 410, "were measured to read.")
    rates, device = _measured("road-pocl-3.0-zen4")
    p.text(400, 26, f"A CPU: {device['compute_units']} cores of an AMD EPYC, PoCL", "title")
    p.box(400, 44, 340, 74, "out")
    p.text(410, 64, "vector registers", "title")
    p.text(410, 84, "steps 6 to 11 keep their sums here,")
    p.text(410, 104, "if the compiler can")
    p.box(400, 126, 340, 156, "rest")
    p.text(410, 146, "caches", "title")
    p.text(730, 146, rates["cache"], "end")
    p.text(410, 166, "step 11 cuts blocks that fit")
    p.box(420, 182, 310, 88, "hot")
    p.text(430, 202, "local memory", "title")
    p.text(720, 202, rates["local"], "end")
    p.text(430, 222, "ordinary memory: nothing of its own.")
    p.text(430, 242, "It stays in a cache, if it is small.")
    p.box(400, 290, 340, 74, "a")
    p.text(410, 310, "global memory", "title")
    p.text(730, 310, rates["memory"], "end")
    p.text(410, 330, "the memory of the host: NumPy's arrays lie")
    p.text(410, 350, "here already, and nothing is copied")
    return p.svg()


DRAWINGS: dict[str, Callable[[], str]] = {"memory.svg": memory}

if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    write(DRAWINGS)
