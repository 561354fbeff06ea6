"""Who loads and reads which element when: frames for docs/road/05_tiled.md and 07_block.md, from the kernels.

python docs/road/steps.py        writes steps.json beside it; then run drawing_steps.py

A kernel is compiled as it stands, but for a printf beside each load into a tile, each read of one and each
store. So the indices are the kernel's own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm
from pyclmm.kernels.interface import gemm_args
from pyclmm.opencl import compiler
from pyclmm.opencl.devices import device_info
from pyclmm.opencl.program import build_options
from pyclmm.problem.canonical import problem_of

FOLDER = Path(__file__).parent
SIDE = 8  # of A, B and the result
# The lines of cl/textbook/ that load and read, and what is printed beside them: matrix, row, column.
LOADS = {
    "tile[row][col] = GUARDED_A(a, i0 + row, t + col, lda, M, K);": ("A", "i0 + row", "t + col"),
    "tile[row][col] = GUARDED_B(b, t + row, j0 + col, ldb, K, N);": ("B", "t + row", "j0 + col"),
}
READS: dict[str, dict[str, tuple[tuple[str, str, str], ...]]] = {
    "tiled": {
        "acc = MAC(acc, tile_a[li][k], tile_b[k][lj]);": (("x", "li", "k"), ("y", "k", "lj")),
        "STORE_RESULT(i0 + li, j0 + lj, acc, RESULT);": (("out", "i0 + li", "j0 + lj"),),
    },
    "block": {
        "x[m] = tile_a[li + m][k];": (("x", "li + m", "k"),),
        "y[n] = tile_b[k][lj + n * ITEMS_X];": (("y", "k", "lj + n * ITEMS_X"),),
        "STORE_RESULT(i0 + li + m, j0 + lj + n * ITEMS_X, acc[m][n], RESULT);": (
            ("out", "i0 + li + m", "j0 + lj + n * ITEMS_X"),
        ),
    },
}
Event = tuple[str, int, int, int]  # matrix, work-item, row, column


@dataclass(frozen=True)
class Walk:
    """A kernel, its configuration, the work-group that is shown, and the work-item that is followed."""

    kernel: str
    config: pyclmm.TileConfig
    group: tuple[int, int]
    item: int


WALKS = {
    "05_tiled_steps": Walk("tiled", pyclmm.TileConfig.square(4), (1, 0), 6),
    "07_block_steps": Walk("block", pyclmm.TileConfig(bm=8, bn=8, bk=4, tm=2, tn=2), (0, 0), 6),
}


def instrumented(source: str, kernel: str) -> str:
    """The source with its printf. Raises ValueError where a line that it must have is not there."""
    said = 'printf("{} %d %d %d %d %d\\n", GROUP, ITEM, {}, {});'
    macros = (
        "#define GROUP (int)get_group_id(0), (int)get_group_id(1)\n"
        "#define ITEM (int)(get_local_id(1) * get_local_size(0) + get_local_id(0))\n"
    )
    for line, (matrix, row, column) in LOADS.items():
        source = _beside(source, line, said.format(matrix, row, column))
    for line, reads in READS[kernel].items():
        source = _beside(source, line, " ".join(said.format(*read) for read in reads))
    return macros + source


def _beside(source: str, line: str, said: str) -> str:
    if source.count(line) != 1:
        raise ValueError(f"the source has no single line {line}")
    return source.replace(line, f"{{ {line} {said} }}")


def run(walk: Walk) -> None:
    """Multiply with the instrumented kernel on the default device, which prints."""
    queue = pyclmm.default_queue()
    problem = problem_of(SIDE, SIDE, SIDE, np.dtype("float32"))
    family = next(kernel for kernel in pyclmm.KERNELS if kernel.name == walk.kernel)
    launch: Any = family.launches(problem, walk.config, device_info(queue.device)).launches[0]
    source = instrumented(compiler.expanded(launch.program.source), walk.kernel)
    program = cl.Program(queue.context, source).build(list(build_options(launch.program)))
    arrays = {name: cla.zeros(queue, (SIDE, SIDE), np.float32) for name in ("a", "b", "out")}
    args: list[Any] = []
    for arg in gemm_args(problem):
        if not isinstance(arg, str):
            args.append(arg)
        elif arg in ("alpha", "beta"):
            args.append(np.float32(arg == "alpha"))
        elif arg.endswith("_offset"):
            args.append(np.int64(0))
        else:
            args.append(arrays.get(arg, arrays["out"]).base_data)
    cl.Kernel(program, launch.kernel)(queue, launch.global_size, launch.local_size, *args)
    queue.finish()


def events(name: str) -> list[Event]:
    """What the shown work-group did, in no order. A process of its own prints it."""
    command = [sys.executable, __file__, name]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    group = "{} {}".format(*WALKS[name].group)
    found = re.findall(rf"^(A|B|x|y|out) {group} (\d+) (\d+) (\d+)$", said, re.M)
    return [(matrix, int(item), int(row), int(column)) for matrix, item, row, column in found]


def steps(name: str) -> dict[str, Any]:
    """The elements that the work-group stores, and its frames: words, and the elements that are touched.

    A frame is a load of a pair of tiles, or the reads of one k.
    """
    walk, found = WALKS[name], events(name)
    depth, i0, j0 = walk.config.bk, walk.group[1] * walk.config.bm, walk.group[0] * walk.config.bn
    frames = []
    for t in range(0, SIDE, depth):
        loads = [
            (m, w, i, j) for m, w, i, j in found if m in "AB" and t <= (j if m == "A" else i) < t + depth
        ]
        frames.append(_frame(walk, f"t = {t}: work-item {walk.item} loads", loads))
        for k in range(depth):
            reads = [("A", w, i0 + i, t + j) for m, w, i, j in found if m == "x" and j == k]
            reads += [("B", w, t + i, j0 + j) for m, w, i, j in found if m == "y" and i == k]
            frames.append(
                _frame(walk, f"t = {t}, k = {k}: work-item {walk.item} multiplies", list(set(reads)))
            )
    stored = [event for event in found if event[0] == "out"]
    return {"out": _cells(walk, stored, labels=False), "frames": frames}


def _frame(walk: Walk, words: str, touched: list[Event]) -> dict[str, Any]:
    own = [f"{matrix}({row}, {column})" for matrix, item, row, column in sorted(touched) if item == walk.item]
    return {"words": [words, ", ".join(own)], "cells": _cells(walk, touched, labels="loads" in words)}


def _cells(walk: Walk, touched: list[Event], labels: bool) -> list[list[Any]]:
    """Matrix, row, column, kind and label of each element. Those of the followed work-item stand last."""
    cells = {}
    for matrix, item, row, column in sorted(touched, key=lambda event: (event[1] == walk.item, event)):
        kind = "hot" if item == walk.item else matrix.lower()
        cells[matrix, row, column] = [matrix, row, column, kind, str(item) if labels else ""]
    return list(cells.values())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(WALKS[sys.argv[1]])
    else:
        text = json.dumps({name: steps(name) for name in WALKS}, separators=(",", ":"))
        (FOLDER / "steps.json").write_text(text.replace('{"words"', '\n{"words"') + "\n", encoding="utf-8")
