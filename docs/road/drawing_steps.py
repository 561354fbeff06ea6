"""Draws two steps of a work-group of the pages of the road, for light and for dark screens.

python docs/road/drawing_steps.py        writes the drawings beside it

The built site shows all steps of steps.json, which steps.py takes from the kernels.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial

from picture import FOLDER, Picture, write

CELL, GAP, PART = 18, 24, 350  # the largest cell, between two matrices, and how wide a frame is
READS = "Which elements the work-items of a work-group read in two steps of k"
LOADS = "Which element each work-item loads, and what one of them then reads"
SMALLEST = 6  # cells are drawn each
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
    "10_register_steps": ("Who loads the first tiles, and which fragments are multiplied and read", 0, 2),
    "11_packed_steps": ("The order of a panel of B, and what a work-group reads for one k", 0, 3),
    "12_split_k_steps": ("Two ranges of K at the same time, and who adds them", 1, 4),
    "13_pipelining_steps": ("Which stage is multiplied while another one is filled", 1, 2),
    "14_matrix_units_steps": ("Which work-item has which elements of A and of the sums", 0, 6),
    "15_hopper_steps": ("What work-items load, and what one instruction multiplies", 0, 5),
}


def steps(name: str) -> str:
    """Two frames side by side."""
    title, *stills = STILLS[name]
    found = json.loads((FOLDER / "steps.json").read_text(encoding="utf-8"))[name]
    rows, columns, depth = found["sides"]
    cell = min(CELL, (PART - GAP) / (depth + columns))
    frames = [found["frames"][number] for number in stills]
    top = 44 + 18 * max(len(frame["words"]) for frame in frames)
    p = Picture(760, round(top + 20 + GAP + (depth + rows) * cell), title, 390)
    if cell < SMALLEST:
        p.lines.append("<style>.hot { stroke: none }</style>")
    for x, frame in zip((20, 400), frames, strict=True):
        for at, words in enumerate(frame["words"]):
            p.text(x, 26 + 18 * at, words, "" if at else "title")
        right, below = x + depth * cell + GAP, top + depth * cell + GAP
        places = {"A": (x, below, depth, rows), "B": (right, top, columns, depth)}
        places["out"] = (right, below, columns, rows)
        for matrix, (left, upper, wide, high) in places.items():
            if cell < SMALLEST:
                p.box(left, upper, wide * cell, high * cell, "rest")
            else:
                p.grid(left, upper, wide, high, (cell, cell), "rest")
            p.text(left, upper - 6, matrix)
        for matrix, row, column, kind, label, *size in (*found["out"], *frame["cells"]):
            left, upper, *_ = places[matrix]
            high, wide = size or (1, 1)
            p.box(left + column * cell, upper + row * cell, wide * cell, high * cell, kind, label)
    return p.svg()


DRAWINGS: dict[str, Callable[[], str]] = {f"{name}.svg": partial(steps, name) for name in STILLS}

if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    write(DRAWINGS)
