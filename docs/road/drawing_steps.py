"""Draws two steps of a work-group of pages 1 to 9 of the road, for light and for dark screens.

python docs/road/drawing_steps.py        writes the drawings beside it

The built site shows all steps of steps.json, which steps.py takes from the kernels.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial

from picture import FOLDER, Picture, write

CELL, GAP = 18, 24
READS = "Which elements the work-items of a work-group read in two steps of k"
LOADS = "Which element each work-item loads, and what one of them then reads"
# Each drawing: what it shows, and its two frames.
STILLS = {
    "01_sequential_steps": ("Two reads of the only work-item", 2, 5),
    "02_single_group_steps": (READS, 0, 1),
    "03_naive_steps": (READS, 0, 1),
    "04_flat_steps": (READS, 0, 1),
    "05_tiled_steps": (LOADS, 0, 1),
    "06_strip_steps": (LOADS, 0, 1),
    "07_block_steps": (LOADS, 0, 1),
    "08_vector_steps": (LOADS, 0, 1),
    "09_double_buffer_steps": ("Which pair of tiles is multiplied while the other is loaded", 1, 2),
}


def steps(name: str) -> str:
    """Two frames side by side."""
    title, *stills = STILLS[name]
    found = json.loads((FOLDER / "steps.json").read_text(encoding="utf-8"))[name]
    rows, columns, depth = found["sides"]
    p = Picture(760, 100 + GAP + (depth + rows) * CELL, title, 390)
    for x, number in zip((20, 400), stills, strict=True):
        frame = found["frames"][number]
        for at, words in enumerate(frame["words"]):
            p.text(x, 26 + 18 * at, words, "" if at else "title")
        right, below = x + depth * CELL + GAP, 80 + depth * CELL + GAP
        places = {"A": (x, below, depth, rows), "B": (right, 80, columns, depth)}
        places["out"] = (right, below, columns, rows)
        for matrix, (left, top, wide, high) in places.items():
            p.grid(left, top, wide, high, (CELL, CELL), "rest")
            p.text(left, top - 6, matrix)
        for matrix, row, column, kind, label in (*found["out"], *frame["cells"]):
            left, top, *_ = places[matrix]
            p.box(left + column * CELL, top + row * CELL, CELL, CELL, kind, label)
    return p.svg()


DRAWINGS: dict[str, Callable[[], str]] = {f"{name}.svg": partial(steps, name) for name in STILLS}

if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    write(DRAWINGS)
