"""Draws two steps of a work-group of docs/road/05_tiled.md and 07_block.md, for light and for dark screens.

python docs/road/drawing_steps.py        writes the drawings beside it

The built site shows all steps of steps.json, which steps.py takes from the kernels.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial

from picture import FOLDER, Picture, write

CELL, SIDE, GAP = 18, 8, 24
NAMES = ("05_tiled_steps", "07_block_steps")


def steps(name: str) -> str:
    """The first load and the first multiplication."""
    found = json.loads((FOLDER / "steps.json").read_text(encoding="utf-8"))[name]
    p = Picture(760, 412, "Which element each work-item loads, and what one of them then reads", 390)
    for x, frame in ((20, found["frames"][0]), (400, found["frames"][1])):
        for at, words in enumerate(frame["words"]):
            p.text(x, 26 + 18 * at, words, "" if at else "title")
        right, below = x + SIDE * CELL + GAP, 80 + SIDE * CELL + GAP
        places = {"A": (x, below), "B": (right, 80), "out": (right, below)}
        for matrix, (left, top) in places.items():
            p.grid(left, top, SIDE, SIDE, (CELL, CELL), "rest")
            p.text(left, top - 6, matrix)
        for matrix, row, column, kind, label in (*found["out"], *frame["cells"]):
            left, top = places[matrix]
            p.box(left + column * CELL, top + row * CELL, CELL, CELL, kind, label)
    return p.svg()


DRAWINGS: dict[str, Callable[[], str]] = {f"{name}.svg": partial(steps, name) for name in NAMES}

if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    write(DRAWINGS)
