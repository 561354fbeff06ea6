"""Draws the tiles of docs/road/10_register.md to 14_matrix_units.md, for light and for dark screens.

python docs/road/drawing_units.py        writes the drawings beside it
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from picture import Picture, write


def register() -> str:
    """Three levels of tiles, and the outer product of a work-item."""
    p = Picture(760, 400, "Tiles of a work-group, a sub-group and a work-item", 260, 522)
    p.text(20, 26, "A work-group: local memory", "title")
    p.box(80, 56, 132, 32, "b", "B: BK x BN")
    p.box(20, 98, 50, 192, "a")
    p.text(45, 190, "A:", "middle")
    p.text(45, 206, "BM x BK", "middle small")
    p.grid(80, 98, 2, 3, (66, 64), "rest")
    p.box(146, 162, 66, 64, "out")
    p.text(179, 192, "a sub-", "middle small")
    p.text(179, 206, "group", "middle small")
    p.box(80, 98, 132, 192, "wide")
    p.text(20, 318, "out: BM x BN, cut into")
    p.text(20, 336, "sub-groups' tiles, SGM x SGN")
    p.arrow((216, 194), (258, 194))

    p.text(264, 26, "A sub-group: 4 x 8 work-items", "title")
    side = 14
    p.grid(264, 98, 16, 8, (side, 24), "none")
    for row in (0, 4):
        for column in (0, 8):
            for at, kind in enumerate(("out", "hot")):
                p.box(264 + side * (column + at), 98 + 24 * row, side, 24, kind)
    p.box(264, 98, 224, 192, "wide")
    p.text(264, 318, "Each cell is 4 x 4 elements.")
    p.text(264, 336, "Green: the 8 x 8 of work-item 0.")
    p.text(264, 354, "Red: those of its neighbour.")
    p.arrow((492, 194), (520, 194))

    p.text(528, 26, "Work-item 0, one k: registers", "title")
    side = 22

    def apart(place: int) -> int:
        return side * place + 10 * (place // 4)

    for k in range(8):
        p.box(554 + apart(k), 56, side, 32, "b")
        p.box(528, 98 + apart(k), 20, side, "a")
        for column in range(8):
            p.box(554 + apart(column), 98 + apart(k), side, side, "out")
    p.text(554, 50, "8 elements of B: 2 chunks", "small")
    p.text(528, 318, "4 reads of 16 bytes,")
    p.text(528, 336, "64 multiply-adds. In the gaps lie")
    p.text(528, 354, "the chunks of other work-items.")
    p.text(20, 372, "A chunk: 16 bytes, 4 of float32.")
    return p.svg()


def packed() -> str:
    """Panels of B, the macro-tile, and a panel's order in memory."""
    p = Picture(
        760, 390, "Panels of B, a macro-tile of register tiles, and the order in memory of a panel", 430
    )
    p.text(20, 26, "A macro-tile, mc x nc, and one step of kc", "title")
    for at in range(6):
        p.box(150 + 44 * at, 60, 44, 90, "hot" if at == 1 else "b")
    p.text(282, 52, "B in panels of NR columns", "middle")
    p.box(30, 170, 100, 160, "a", "A: mc x kc")
    p.grid(150, 170, 6, 5, (44, 32), "rest")
    for at in range(5):
        p.box(194, 170 + 32 * at, 44, 32, "out")
    p.box(150, 170, 264, 160, "wide")
    p.text(282, 352, "the five register tiles use the same panel,", "middle")
    p.text(282, 370, "which stays in the cache", "middle")
    p.text(470, 26, "The panel in memory (NR = 4)", "title")
    for k in range(4):
        for j in range(4):
            p.box(470 + 66 * j, 60 + 34 * k, 66, 34, "hot", f"k{k} j{j}")
    for k in range(3):
        p.arrow((746, 77 + 34 * k), (746, 77 + 34 * (k + 1)))
    p.text(470, 226, "read from left to right, row after row:")
    p.text(470, 246, "one stream, each vector aligned")
    p.text(470, 286, "A register tile holds MR x NR sums", "title")
    p.text(470, 308, "for each k: NR / lanes vectors of B,")
    p.text(470, 328, "MR numbers of A, each in all lanes")
    return p.svg()


def split_k() -> str:
    """Ranges of K of one tile, the workspace and the second launch."""
    p = Picture(760, 360, "Three work-groups sum ranges of K of one tile; a second launch adds them", 414)
    p.text(20, 26, "First launch: three work-groups for one tile", "title")
    kinds = ("a", "b", "hot")
    for at, kind in enumerate(kinds):
        p.box(30 + 70 * at, 190, 70, 60, kind, f"range {at}")
        p.box(260, 58 + 42 * at, 80, 42, kind, f"range {at}")
    p.text(135, 274, "A: BM x K", "middle")
    p.text(252, 126, "B:", "end")
    p.text(252, 144, "K x BN", "end")
    p.box(260, 190, 80, 60, "rest", "tile")
    p.text(420, 26, "Workspace", "title")
    for at, kind in enumerate(kinds):
        p.box(420, 58 + 84 * at, 80, 60, kind, f"sums {at}")
        p.arrow((344, 205 + 15 * at), (412, 88 + 84 * at))
    p.text(620, 26, "Second launch", "title")
    p.box(640, 142, 80, 60, "out", "out")
    for at in range(3):
        p.arrow((504, 88 + 84 * at), (634, 152 + 20 * at))
    p.text(620, 232, "sums 0 + sums 1")
    p.text(620, 250, "+ sums 2, always")
    p.text(620, 268, "in this order;")
    p.text(620, 286, "then the epilogue")
    p.text(20, 318, "Each range reads its own part of A and B.")
    p.text(20, 336, "Nothing is read twice, but sums are moved twice more.")
    return p.svg()


def pipelining() -> str:
    """A timetable of a ring of three stages."""
    p = Picture(760, 356, "A ring of three stages: two stages are filled while one is multiplied", 378)
    p.text(20, 26, "A ring of three stages", "title")
    step, high = 100, 44
    for at in range(6):
        left = (66, 442 - 3 * step)[at // 3]  # three steps, then three more beside them
        x = left + step * at
        p.text(x + step / 2, 52, "start" if at == 0 else f"step {at}", "middle")
        for stage in range(3):
            y = 64 + 56 * stage
            if at % 3 == 0:
                p.text(x - 50, y + 27, f"stage {stage}")
            since = (at - 1 - stage) % 3  # steps since this stage was multiplied
            coming = at + 2 - since  # the tile that was started last
            if at == 0:
                p.box(x, y, step, high, *(("rest", "empty") if stage == 2 else ("b", f"start copy {stage}")))
            elif since == 0:
                p.box(x, y, step, high, "out", f"multiply {at - 1}")
            elif since == 1:
                p.box(x, y, step, high, "b", f"start copy {coming}")
            else:
                p.box(x, y, step, high, "b pale", f"{coming} on its way")
    legend = (
        (20, "b", "copies start"),
        (160, "b pale", "on its way, or there"),
        (392, "out", "multiplied"),
        (520, "rest", "empty"),
    )
    for x, kind, words in legend:
        p.box(x, 242, 22, 16, kind)
        p.text(x + 28, 255, words)
    p.text(20, 286, "In step 1 tile 0 is multiplied, tile 1 is on its way or")
    p.text(20, 304, "there, and the copies of tile 2 start.")
    p.text(20, 326, "At the end of a step: wait for the next tile,")
    p.text(20, 344, "one barrier, go on to the next stage.")
    p.text(392, 286, "A copy has two steps' time to land;")
    p.text(392, 304, "with two stages it would have one.")
    return p.svg()


# Name, rows, columns, its size in words, elements of a work-item, row and column of element e of work-item w.
Unit = tuple[str, int, int, str, int, Callable[[int, int], tuple[int, int]]]


def matrix_units() -> str:
    """What work-item 0 and its neighbour hold of the result of five instructions."""
    p = Picture(760, 430, "What work-items 0 and 1 hold of the result of one matrix instruction", 269, 601)
    p.text(20, 26, "The result of one instruction", "title")
    p.text(280, 26, "Blue: work-item 0 holds it. Red: work-item 1.", "title")
    side = 9
    drawn: tuple[Unit, ...] = (
        ("mma", 16, 8, "16 x 8, 32", 4, lambda w, e: (e // 2 * 8, 2 * w + e % 2)),
        ("wgmma", 32, 16, "64 x 256, 128", 8, lambda w, e: (e // 2 % 2 * 8, e // 4 * 8 + 2 * w + e % 2)),
        ("mfma", 32, 16, "32 x 32, 64", 16, lambda w, e: (e // 4 * 8 + e % 4, w)),
        ("wmma", 16, 16, "16 x 16, 32", 8, lambda w, e: (2 * e, w)),
        ("dpas", 8, 16, "8 x 16, 16", 8, lambda w, e: (e, w)),
    )
    x = 20.0
    for name, rows, columns, size, elements, place in drawn:
        p.text(x, 58, name, "title")
        p.text(x, 76, size, "small")
        p.grid(x, 88, columns, rows, (side, side), "none")
        for lane, kind in enumerate(("a", "hot")):
            for e in range(elements):
                row, column = place(lane, e)
                p.box(x + column * side, 88 + row * side, side, side, kind)
        x += columns * side + 22
    p.text(20, 400, "Below each name: rows x columns,")
    p.text(20, 418, "work-items.")
    p.text(280, 400, "Of wgmma the first 32 x 16 are drawn,")
    p.text(280, 418, "of mfma 32 x 16.")
    return p.svg()


DRAWINGS: dict[str, Callable[[], str]] = {
    "10_register.svg": register,
    "11_packed.svg": packed,
    "12_split_k.svg": split_k,
    "13_pipelining.svg": pipelining,
    "14_matrix_units.svg": matrix_units,
}

if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    write(DRAWINGS)
