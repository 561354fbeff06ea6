"""Draws the tiles of docs/road/15_hopper.md, for light and for dark screens.

python docs/road/drawing_hopper.py        writes the drawing beside it
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from picture import Picture, write


def hopper() -> str:
    """The order of chunks in a tile, and one step of K."""
    p = Picture(760, 474, "The order of a tile's chunks in local memory, and the parts of one step of K", 388)
    p.text(20, 26, "Chunks of lines 0 to 7 in local memory", "title")
    for line in range(8):
        p.text(20, 70 + 30 * line, f"line {line}")
        for at in range(8):
            chunk = at ^ line % 8
            p.box(80 + 32 * at, 50 + 30 * line, 32, 30, "hot" if chunk == 2 else "a", str(chunk))
    p.text(20, 314, "A line: 64 of K, 8 chunks of 16 bytes. Chunk c lies")
    p.text(20, 332, "at place c ^ line. Red: chunk 2 of eight lines, which")
    p.text(20, 350, "are read together: each in other memory banks.")
    p.text(400, 26, "One step: 64 of K", "title")
    p.box(520, 50, 200, 130, "b")
    p.box(400, 196, 104, 130, "a")
    p.box(520, 196, 200, 130, "out", "out: 64 x 64")
    for at in range(4):
        p.box(520, 50 + 32.5 * at, 200, 32.5, "none", f"B, k {16 * at} to {16 * at + 15}")
        p.box(400 + 26 * at, 196, 26, 130, "none", f"{16 * at}")
    p.text(452, 346, "A, from k =", "middle")
    p.text(620, 346, "32 sums a work-item", "middle")
    names = ("fill", "stores_fence", "barrier", "wgmma_fence", "4 x wgmma", "wait", "barrier")
    x = 20.0
    for at, name in enumerate(names):
        width = 7.0 * len(name) + 10
        p.box(x, 388, width, 34, "out" if name == "4 x wgmma" else "rest", name)
        if at + 1 < len(names):
            p.arrow((x + width, 405), (x + width + 20, 405))
        x += width + (40 if name == "wgmma_fence" else 20)  # the cut
    p.text(20, 444, "In a work-group nothing overlaps:")
    p.text(20, 462, "while it fills its tiles, it multiplies nothing.")
    return p.svg()


DRAWINGS: dict[str, Callable[[], str]] = {"15_hopper.svg": hopper}

if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    write(DRAWINGS)
