"""The import graph of pyclmm/ as a drawing: a box for each folder and each module beside them.

    python docs/drawing.py [--tree FOLDER]        prints it in Graphviz's language; `make drawing` draws it

An arrow points from who imports to what is imported; it is as wide as there are imports.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import grimp

ROOT = "pyclmm"
# The public names and the way in import from everywhere; the others are data.
LEFT_OUT = {"__init__", "__main__", "cl", "tuned"}


def box(module: str) -> str:
    """The folder that *module* is in, or the module itself: the first name below the package."""
    return module.split(".")[1] if "." in module else "__init__"


def arrows(tree: Path) -> tuple[set[str], Counter[tuple[str, str]]]:
    """Every box, and how many imports go from one to another."""
    sys.path.insert(0, str(tree))
    graph = grimp.build_graph(ROOT, cache_dir=None)
    found: Counter[tuple[str, str]] = Counter()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            if box(module) != box(imported) and not {box(module), box(imported)} & LEFT_OUT:
                found[box(module), box(imported)] += 1
    return {box(module) for module in graph.modules} - LEFT_OUT, found


def floors(found: Counter[tuple[str, str]]) -> int:
    """How many boxes the longest way down passes."""

    @cache
    def below(name: str) -> int:
        return 1 + max((below(b) for a, b in found if a == name), default=0)

    return max(below(a) for a, _ in found)


def dot(tree: Path) -> str:
    """The graph in Graphviz's language."""
    boxes, found = arrows(tree)
    title = f"{len(boxes)} boxes, {len(found)} arrows, {floors(found)} floors"
    lines = [f'digraph {{ label="{title}"; labelloc=t; fontname=Helvetica; ranksep=0.35; nodesep=0.25']
    lines += ["node [shape=box, fontname=Helvetica, fontsize=11, height=0.3]"]
    lines += ['edge [color="#4477aa", arrowsize=0.6]']
    lines += [f'"{name}"' for name in sorted(boxes)]
    lines += [
        f'"{a}" -> "{b}" [penwidth={0.5 + math.log2(n) / 2:.2g}]' for (a, b), n in sorted(found.items())
    ]
    return "\n".join([*lines, "}"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tree", type=Path, default=Path(), help="where pyclmm/ is [here]")
    print(dot(parser.parse_args().tree))
