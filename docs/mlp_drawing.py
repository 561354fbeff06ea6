"""Draws the launches of a training step of examples/mlp with three hidden layers.

    python docs/mlp_drawing.py > docs/mlp_step.svg

A column is a layer's weights. An arrow says which launch reads what another one wrote. Numbers are the
order in the queue.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

WIDTH, HEIGHT = 1010, 560
BOX_HEIGHT, COLUMN, LEFT = 46, 190, 150
FILL = {"gemm": "#cfe0f3", "own": "#f6e3c5"}


@dataclass(frozen=True)
class Box:
    """A launch: its place in columns and pixels, and its two lines of text."""

    number: int
    column: float
    y: int
    title: str
    what: str
    kind: str
    columns: float = 1

    @property
    def left(self) -> float:
        return LEFT + self.column * COLUMN

    @property
    def width(self) -> float:
        return self.columns * COLUMN - 40

    @property
    def middle(self) -> tuple[float, float]:
        return self.left + self.width / 2, self.y + BOX_HEIGHT / 2


LAUNCHES = [
    Box(1, 0, 40, "gather", "x = images[order]", "own"),
    Box(2, 0, 120, "product", "h0 = relu(x W0 + b0)", "gemm"),
    Box(3, 1, 120, "product", "h1 = relu(h0 W1 + b1)", "gemm"),
    Box(4, 2, 120, "product", "h2 = relu(h1 W2 + b2)", "gemm"),
    Box(5, 3, 120, "product", "logits = h2 W3 + b3", "gemm"),
    Box(6, 3, 210, "cross_entropy", "softmax: d, loss, b3", "own"),
    Box(7, 2, 210, "product", "d2 = d W3^T", "gemm"),
    Box(8, 2, 290, "backward", "d2 where h2 > 0, b2", "own"),
    Box(9, 1, 290, "product", "d1 = d2 W2^T", "gemm"),
    Box(10, 1, 370, "backward", "d1 where h1 > 0, b1", "own"),
    Box(11, 0, 370, "product", "d0 = d1 W1^T", "gemm"),
    Box(12, 0, 430, "backward", "d0 where h0 > 0, b0", "own"),
    Box(13, 0, 500, "product", "W0 -= rate x^T d0", "gemm"),
    Box(14, 1, 500, "product of stacks", "W1 -= rate h0^T d1,  W2 -= rate h1^T d2", "gemm", 2),
    Box(15, 3, 500, "product", "W3 -= rate h2^T d", "gemm"),
]
CHAIN = [(n, n + 1) for n in range(1, 13)] + [(10, 14), (8, 14), (6, 15)]
ROWS = [(63, "read a batch"), (143, "forward"), (233, "loss"), (313, "backward"), (523, "update")]


def drawn(box: Box) -> list[str]:
    """The rectangle of a launch, and its text."""
    x, y = box.left, box.y
    return [
        f'<rect x="{x}" y="{y}" width="{box.width}" height="{BOX_HEIGHT}" rx="6" fill="{FILL[box.kind]}" '
        'stroke="#555"/>',
        f'<text x="{x + 8}" y="{y + 18}" font-weight="bold">{box.number}  {box.title}</text>',
        f'<text x="{x + 8}" y="{y + 36}">{box.what.replace(">", "&gt;")}</text>',
    ]


def arrow(start: Box, end: Box) -> str:
    """A line from the edge of one box to the edge of another."""
    (x0, y0), (x1, y1) = start.middle, end.middle
    half = BOX_HEIGHT / 2
    if start.y == end.y:
        x0, x1 = (start.left + start.width, end.left) if x1 > x0 else (start.left, end.left + end.width)
    elif end.columns > 1 or start.column == end.column:
        x1 = x0
        y0, y1 = y0 + half, y1 - half
    return f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" stroke="#333" marker-end="url(#tip)"/>'


def picture() -> str:
    """The whole drawing as SVG."""
    by_number = {box.number: box for box in LAUNCHES}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<defs><marker id="tip" markerWidth="9" markerHeight="9" refX="8" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#333"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24">blue: a product of pyclmm; yellow: a kernel of examples/mlp/layers.cl; '
        "an arrow: waits for</text>",
    ]
    lines += [f'<text x="14" y="{y}" font-weight="bold">{name}</text>' for y, name in ROWS]
    lines += [arrow(by_number[start], by_number[end]) for start, end in CHAIN]
    for box in LAUNCHES:
        lines += drawn(box)
    return "\n".join([*lines, "</svg>"])


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    print(picture())
