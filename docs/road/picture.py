"""What the drawings of the road share: colours for light and for dark screens, boxes, words and arrows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent
STYLE = """
svg { --back: #ffffff; --ink: #1f2328; --line: #57606a; --a: #bcd7f5; --b: #ffdfa8; --out: #c5e8c4;
  --hot: #f4b6c2; --rest: #eef1f4 }
@media (prefers-color-scheme: dark) {
  svg { --back: #16191d; --ink: #e6edf3; --line: #9aa4af; --a: #1f4e85; --b: #7a5200; --out: #1f6130;
    --hot: #8a2c44; --rest: #262c33 }
}
text { fill: var(--ink); font: 13px sans-serif } .small { font-size: 11px }
.title { font-weight: bold } .middle { text-anchor: middle } .end { text-anchor: end }
rect, line { stroke: var(--line) } .back { fill: var(--back); stroke: none } .tip { fill: var(--line) }
.a { fill: var(--a) } .b { fill: var(--b) } .out { fill: var(--out) } .hot { fill: var(--hot) }
.rest { fill: var(--rest) }
.pale { fill-opacity: 0.35 } .none { fill: none; stroke-width: 0.5 } .wide { stroke-width: 2.5; fill: none }
line { stroke-width: 1.5 }
"""


class Picture:
    """An SVG that is put together from boxes, words and arrows. Lengths are pixels.

    `cuts` are the places along x where a narrow screen may cut it, and put the parts below each other.
    """

    def __init__(self, width: int, height: int, title: str, *cuts: int) -> None:
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" data-cuts="{" ".join(map(str, cuts))}" role="img"><title>{title}</title>'
            f"<style>{STYLE}</style>",
            '<defs><marker id="tip" markerWidth="9" markerHeight="9" refX="8" refY="4" orient="auto">'
            '<path class="tip" d="M0,0 L8,4 L0,8 z"/></marker></defs>',
            f'<rect class="back" width="{width}" height="{height}" rx="8"/>',
        ]

    def box(self, x: float, y: float, width: float, height: float, kind: str, label: str = "") -> None:
        """A rectangle with a label in its middle."""
        self.lines.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>')
        if label:
            size = " small" if height < 24 or len(label) * 8 > width else ""
            self.text(x + width / 2, y + height / 2 + 4, label, "middle" + size)

    def grid(self, x: float, y: float, columns: int, rows: int, side: tuple[float, float], kind: str) -> None:
        """Boxes of `side` side by side."""
        for row in range(rows):
            for column in range(columns):
                self.box(x + column * side[0], y + row * side[1], *side, kind)

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        """Words from (x, y) on, or around it."""
        safe = words.replace("&", "&amp;").replace("<", "&lt;")
        self.lines.append(f'<text class="{kind}" x="{x:g}" y="{y:g}">{safe}</text>')

    def arrow(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """An arrow."""
        (x0, y0), (x1, y1) = start, end
        self.lines.append(f'<line x1="{x0:g}" y1="{y0:g}" x2="{x1:g}" y2="{y1:g}" marker-end="url(#tip)"/>')

    def svg(self) -> str:
        """The text of the file."""
        return "\n".join([*self.lines, "</svg>", ""])


def write(drawings: Mapping[str, Callable[[], str]]) -> None:
    """Writes each drawing under its name, beside this file."""
    for name, draw in drawings.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
