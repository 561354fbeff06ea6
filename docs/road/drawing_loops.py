"""Draws the tiles of docs/road/01_sequential.md to 05_tiled.md, for light and for dark screens.

python docs/road/drawing_loops.py        writes the drawings beside it
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from picture import Picture, write


def sequential() -> str:
    """One work-item walks over the elements of the result; each is a row of A times a column of B."""
    p = Picture(760, 410, "One work-item computes the elements of the result one after another", 400)
    p.text(20, 26, "One work-item: element after element", "title")
    side, i, j = 24.0, 2, 3
    p.grid(40, 226, 6, 6, (side, side), "rest")
    p.grid(40, 226 + i * side, 6, 1, (side, side), "a")
    p.grid(240, 64, 5, 6, (side, side), "rest")
    p.grid(240 + j * side, 64, 1, 6, (side, side), "b")
    p.grid(240, 226, 5, 6, (side, side), "rest")
    p.grid(240, 226, 5, i, (side, side), "out")
    p.grid(240, 226 + i * side, j, 1, (side, side), "out")
    p.box(240 + j * side, 226 + i * side, side, side, "hot")
    p.text(112, 218, "A: row i", "middle")
    p.text(226, 130, "k", "middle")
    p.arrow((226, 140), (226, 190))
    p.text(66, 392, "k")
    p.arrow((80, 388), (150, 388))
    p.text(300, 56, "B: column j", "middle")
    p.text(300, 392, "out", "middle")
    p.text(430, 70, "The three loops", "title")
    p.text(430, 96, "for each row i of out")
    p.text(450, 118, "for each column j of out")
    p.text(470, 140, "for each k: multiply, add")
    p.box(430, 188, side, side, "out")
    p.text(464, 205, "done: the rows above, and left of j")
    p.box(430, 222, side, side, "hot")
    p.text(464, 239, "now: the sum of K products")
    p.box(430, 256, side, side, "rest")
    p.text(464, 273, "in out: later. In A and B: not read now")
    return p.svg()


def single_group() -> str:
    """A device's compute units, one of them busy, and the work-items of its work-group."""
    p = Picture(760, 330, "One work-group keeps one compute unit busy", 392)
    p.text(20, 26, "The device: compute units", "title")
    for at in range(12):
        x, y = 20 + 76 * (at % 4), 48 + 76 * (at // 4)
        p.box(x, y, 66, 66, "out" if at == 3 else "rest", "busy" if at == 3 else "idle")
    p.arrow((318, 70), (388, 70))
    p.text(396, 26, "The only work-group: N x M work-items", "title")
    for row in range(4):
        for column in range(4):
            p.box(396 + 62 * column, 48 + 44 * row, 62, 44, "hot" if (row, column) == (1, 2) else "out")
            p.text(427 + 62 * column, 74 + 44 * row, f"({column}, {row})", "middle")
    p.text(666, 74, "li = 0")
    p.text(666, 118, "li = 1")
    p.text(396, 250, "Work-item (lj, li) computes out(li, lj).")
    p.text(396, 270, "Red: (2, 1), the sum of row 1 of A")
    p.text(396, 290, "times column 2 of B.")
    p.text(20, 306, "A work-group never leaves its compute unit.")
    return p.svg()


def naive() -> str:
    """Work-groups over the result, an element with its row and column, and what neighbours read."""
    p = Picture(760, 400, "A work-item for each element; neighbours read neighbouring elements of B", 396)
    p.text(20, 26, "A work-item for each element of out", "title")
    side = 14.0
    p.box(48, 190, 112, 168, "rest")
    p.box(48, 190 + 5 * side, 112, side, "a")
    p.text(104, 182, "A", "middle")
    p.box(190, 50, 168, 112, "rest")
    p.box(190 + 4 * side, 50, 4 * side, 112, "b")
    p.text(274, 42, "B", "middle")
    p.grid(190, 190, 12, 12, (side, side), "none")
    p.grid(190 + 4 * side, 190 + 5 * side, 4, 1, (side, side), "hot")
    for row in range(3):
        for column in range(3):
            p.box(190 + 56 * column, 190 + 56 * row, 56, 56, "wide")
    p.text(274, 378, "out, in work-groups of 4 x 4", "middle")
    p.text(410, 26, "Four neighbours, one step of k", "title")
    p.text(410, 62, "A: all four read the same element")
    p.grid(410, 72, 8, 1, (40, 30), "rest")
    p.box(490, 72, 40, 30, "a", "k")
    p.text(410, 150, "B: they read four neighbouring elements")
    p.grid(410, 160, 8, 1, (40, 30), "rest")
    for at in range(4):
        p.box(490 + 40 * at, 160, 40, 30, "b", f"j+{at}" if at else "j")
        p.arrow((510 + 40 * at, 254), (510 + 40 * at, 194))
        p.arrow((510 + 40 * at, 288), (510 + 40 * at, 318))
        p.box(490 + 40 * at, 256, 40, 30, "hot", f"{at}")
    p.text(410, 275, "work-items")
    p.grid(410, 320, 8, 1, (40, 30), "rest")
    for at in range(4):
        p.box(490 + 40 * at, 320, 40, 30, "out")
    p.text(410, 372, "out: they write four neighbouring elements")
    return p.svg()


def flat() -> str:
    """Numbers of work-items in a result with short rows, and a 2-D NDRange over the same result."""
    p = Picture(760, 330, "Work-items in one row, and the work-items that a 2-D NDRange wastes", 420)
    p.text(20, 26, "flat: row = id / 5, column = id % 5", "title")
    kinds = ("a", "b", "out", "hot")
    for at in range(30):
        p.box(40 + 44 * (at % 5), 50 + 34 * (at // 5), 44, 34, kinds[at // 8], str(at))
    for at in range(30, 32):
        p.box(280 + 44 * (at - 30), 220, 44, 34, "none", str(at))
    p.text(280, 210, "beyond the end:")
    p.text(280, 274, "they do nothing")
    p.text(40, 288, "out has 6 rows of 5 columns.")
    p.text(40, 308, "A colour is a work-group of 8 work-items.")
    p.text(450, 26, "naive: work-groups of 4 x 4", "title")
    for row in range(8):
        for column in range(8):
            inside = row < 6 and column < 5
            p.box(450 + 26 * column, 50 + 26 * row, 26, 26, "out" if inside else "none")
    for row in range(2):
        for column in range(2):
            p.box(450 + 104 * column, 50 + 104 * row, 104, 104, "wide")
    p.text(450, 288, "64 work-items; 34 of them, the empty")
    p.text(450, 308, "boxes, lie outside and do nothing.")
    return p.svg()


def tiled() -> str:
    """A tile of the result, the tiles of A and B of one step, and local memory."""
    p = Picture(760, 400, "A work-group walks along K, one tile of A and one of B at a time", 400)
    p.text(20, 26, "A work-group's walk along K", "title")
    for at in range(4):
        kind = "hot" if at == 1 else "rest"
        p.box(30 + 40 * at, 272, 40, 40, kind, "t" if at == 1 else "")
        p.box(268, 44 + 40 * at, 40, 40, kind, "t" if at == 1 else "")
    p.box(30, 232, 160, 120, "wide")
    p.box(228, 44, 120, 160, "wide")
    p.grid(228, 232, 3, 3, (40, 40), "rest")
    p.box(268, 272, 40, 40, "out", "out")
    p.text(110, 372, "A: the tiles of one row", "middle")
    p.text(288, 372, "TW x TW elements", "middle")
    p.text(356, 100, "B")
    p.arrow((30, 328), (190, 328))
    p.arrow((320, 50), (320, 200))
    p.text(430, 26, "Local memory, in each step t", "title")
    p.grid(430, 60, 4, 4, (28, 28), "rest")
    p.grid(430, 60 + 28, 4, 1, (28, 28), "a")
    p.grid(600, 60, 4, 4, (28, 28), "rest")
    p.grid(600 + 56, 60, 1, 4, (28, 28), "b")
    p.text(486, 192, "tile_a", "middle")
    p.text(656, 192, "tile_b", "middle")
    p.text(430, 230, "1. Each work-item loads one element of")
    p.text(448, 250, "each tile.")
    p.text(430, 274, "2. Barrier: both tiles are complete.")
    p.text(430, 298, "3. Work-item (lj, li) multiplies row li by")
    p.text(448, 318, "column lj: TW multiply-adds.")
    p.text(430, 342, "4. Barrier: nobody reads the tiles any more.")
    p.text(430, 372, "Each loaded element is used TW times.")
    return p.svg()


DRAWINGS: dict[str, Callable[[], str]] = {
    "01_sequential.svg": sequential,
    "02_single_group.svg": single_group,
    "03_naive.svg": naive,
    "04_flat.svg": flat,
    "05_tiled.svg": tiled,
}

if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    write(DRAWINGS)
