"""Draws the bits of quantised weights of docs/quantised.md, for light and for dark screens.

python docs/road/drawing_formats.py        writes the drawing beside it
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from picture import Picture, write

from pyclmm.formats import format_named

LEFT, WIDTH = 20, 350
Field = tuple[str, int, str]  # its label, its share of the width, and the kind of its box


def _strip(p: Picture, y: int, fields: Sequence[Field]) -> None:
    """Bytes side by side, the first one on the left."""
    x, shares = float(LEFT), sum(share for _, share, _ in fields)
    for label, share, kind in fields:
        width = WIDTH * share / shares
        p.box(x, y, width, 30, kind, label)
        x += width


def _byte(p: Picture, y: int, which: str, fields: Sequence[Field]) -> None:
    """The bits of a byte, the highest one on the left: each a cell below."""
    p.text(LEFT, y - 6, which, "small")
    _strip(p, y, fields)
    p.grid(LEFT, y + 30, 8, 1, (WIDTH / 8, 5), "none")


def _size(name: str, k: int) -> str:
    nbytes = format_named(name).row_nbytes(k)
    return f"{k} weights in {nbytes} bytes, {8 * nbytes / k:g} bits each"


def formats() -> str:
    """A block of q4_0, one of q4_k, and a row of affine weights of 4 bits."""
    p = Picture(390, 838, "The bits of q4_0, q4_k and affine weights of 4 bits")
    p.text(LEFT, 28, "q4_0: a block", "title")
    p.text(LEFT, 48, _size("q4_0", 32))
    _strip(p, 60, [("d", 2, "b"), ("16 bytes: q of 32 weights", 16, "a")])
    _byte(
        p, 116, "the first of the 16, its highest bit on the left", [("q of 16", 4, "a"), ("q of 0", 4, "a")]
    )
    p.text(LEFT, 168, "weight = d (q - 8), d a float16")
    p.text(LEFT, 186, "The next byte has 17 and 1, the last 31 and 15.")

    p.text(LEFT, 228, "q4_k: a block", "title")
    p.text(LEFT, 248, _size("q4_k", 256))
    sizes = [("d", 3, "b"), ("dmin", 4, "b"), ("12 bytes", 7, "hot"), ("128 bytes: q", 16, "a")]
    _strip(p, 260, sizes)
    p.text(LEFT, 308, "8 runs of 32 weights have a scale and a least value")
    p.text(LEFT, 326, "each, of 6 bits. The 12 bytes have these:")
    _byte(p, 352, "byte 0; 1 to 3 alike", [("of scale 4", 2, "hot"), ("scale 0", 6, "out")])
    _byte(p, 408, "byte 4; 5 to 7 alike", [("of least 4", 2, "hot"), ("least 0", 6, "out")])
    _byte(p, 464, "byte 8; 9 to 11 alike", [("rest of least 4", 4, "hot"), ("rest of scale 4", 4, "hot")])
    _byte(
        p, 520, "the first of the 128; 31 more, then the next 64", [("q of 32", 4, "a"), ("q of 0", 4, "a")]
    )
    p.text(LEFT, 572, "weight = d scale q - dmin least, d and dmin float16")

    p.text(LEFT, 614, "affine4: a row", "title")
    p.text(LEFT, 634, _size("affine4_g64_float16", 4096))
    p.text(LEFT, 652, "with float16 scales and groups of 64:")
    parts = [("2048 bytes: q", 15, "a"), ("128: scales", 8, "b"), ("128: biases", 8, "out")]
    _strip(p, 662, parts)
    _byte(p, 718, "the first byte; the next has 3 and 2", [("q of 1", 4, "a"), ("q of 0", 4, "a")])
    p.text(LEFT, 770, "weight = scale q + bias, those of its group")
    p.text(LEFT, 796, "Zeros fill a row to a multiple of 16 bytes, which")
    p.text(LEFT, 814, "a kernel reads at once.")
    return p.svg()


DRAWINGS: dict[str, Callable[[], str]] = {"formats.svg": formats}

if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    write(DRAWINGS)
