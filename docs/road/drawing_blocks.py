"""Draws the tiles of docs/road/06_strip.md to 09_double_buffer.md, for light and for dark screens.

python docs/road/drawing_blocks.py        writes the drawings beside it
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from picture import Picture, write


def _tiles(p: Picture, rows: int, columns: int, apart: bool) -> None:
    """A row of B above, columns of A on the left, and one work-item's elements of the result."""
    side = 26.0
    p.grid(150, 60, 8, 1, (side, side), "rest")
    p.grid(60, 120, 1, 8, (side, side), "rest")
    p.grid(150, 120, 8, 8, (side, side), "rest")
    places = [1 + 4 * c for c in range(columns)] if apart else list(range(columns))
    for column in places:
        p.box(150 + column * side, 60, side, side, "b")
        p.grid(150 + column * side, 120, 1, rows, (side, side), "out")
    p.grid(60, 120, 1, rows, (side, side), "a")
    p.text(254, 52, "row k of tile_b", "middle")
    p.text(73, 112, "tile_a", "middle")
    p.text(254, 350, "out, the work-group's tile", "middle")


def strip() -> str:
    """A work-item's elements of one column."""
    p = Picture(760, 370, "A work-item computes several elements of one column", 410)
    p.text(20, 26, "One step of k", "title")
    _tiles(p, 4, 1, apart=False)
    p.text(430, 26, "One work-item, TM = 4", "title")
    p.box(430, 60, 60, 28, "b", "y")
    p.text(504, 79, "one element of B, read once")
    for at in range(4):
        p.box(430, 120 + 40 * at, 60, 32, "a", f"x{at}")
        p.arrow((494, 136 + 40 * at), (524, 136 + 40 * at))
        p.box(528, 120 + 40 * at, 150, 32, "out", f"acc[{at}] += x{at} y")
    p.text(430, 312, "5 reads, 4 multiply-adds.")
    p.text(430, 334, "tiled would read 8 elements.")
    return p.svg()


def block() -> str:
    """A work-item's elements lie apart, so that neighbours read neighbouring columns."""
    p = Picture(760, 370, "A work-item computes a block of elements in registers", 410)
    p.text(20, 26, "One step of k", "title")
    _tiles(p, 2, 2, apart=True)
    p.text(430, 26, "One work-item, TM = 2, TN = 2", "title")
    for at in range(2):
        p.box(500 + 96 * at, 60, 90, 32, "b", f"y{at}")
        p.box(430, 104 + 48 * at, 60, 42, "a", f"x{at}")
        for column in range(2):
            p.box(500 + 96 * column, 104 + 48 * at, 90, 42, "out", f"x{at} y{column}")
    p.text(430, 230, "4 reads, 4 multiply-adds.")
    p.text(430, 252, "With 4 x 4: 8 reads, 16 multiply-adds.")
    p.text(430, 290, "Its columns are ITEMS_X = 4 apart:")
    p.text(430, 312, "the work-items beside it have the")
    p.text(430, 334, "columns between.")
    return p.svg()


def vector() -> str:
    """The elements of a row are one vector."""
    p = Picture(760, 370, "The columns of a work-item are one OpenCL vector", 410)
    p.text(20, 26, "One step of k", "title")
    _tiles(p, 2, 4, apart=False)
    p.text(430, 26, "One work-item, TM = 2, TN = 4", "title")
    p.grid(500, 60, 4, 1, (30, 32), "b")
    p.box(500, 60, 120, 32, "wide")
    p.text(632, 81, "y: one vector")
    for at in range(2):
        p.box(430, 110 + 52 * at, 60, 42, "a", f"x{at}")
        p.grid(500, 110 + 52 * at, 4, 1, (30, 42), "out")
        p.box(500, 110 + 52 * at, 120, 42, "wide")
        p.text(632, 136 + 52 * at, f"acc[{at}] += x{at} * y")
    p.text(430, 250, "One read for four elements of B,")
    p.text(430, 272, "one expression for four multiply-adds.")
    p.text(430, 310, "Its columns lie side by side:")
    p.text(430, 332, "a vector has no gaps.")
    return p.svg()


def double_buffer() -> str:
    """What one pair of tiles and two pairs do, step after step."""
    p = Picture(760, 212, "Two pairs of tiles: loads beside multiply-adds", 388)
    p.text(20, 26, "block: one pair of tiles, two barriers a step", "title")
    for at in range(6):
        kind, word = (("b", "load"), ("out", "multiply"))[at % 2]
        p.box(20 + 58 * at, 44, 56, 36, kind, f"{word} {at // 2}")
    p.text(20, 108, "Nothing is loaded while it multiplies.")
    p.text(400, 26, "double_buffer: two pairs, one barrier a step", "title")
    for at in range(3):
        p.box(400 + 58 * at, 44, 56, 36, "b", f"load {at}")
        p.box(458 + 58 * at, 84, 56, 36, "out", f"multiply {at}")
    p.text(584, 66, "pairs 0, 1, 0 in turn")
    p.text(642, 106, "the pair before")
    for left in (20, 400):
        p.arrow((left, 144), (left + 346, 144))
        p.text(left + 346, 164, "time", "end")
    p.text(20, 188, "A load is drawn as long as the multiply-adds of a")
    p.text(20, 204, "step: the best case for double_buffer.")
    return p.svg()


DRAWINGS: dict[str, Callable[[], str]] = {
    "06_strip.svg": strip,
    "07_block.svg": block,
    "08_vector.svg": vector,
    "09_double_buffer.svg": double_buffer,
}

if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    write(DRAWINGS)
