"""Who loads and reads which element when: frames for the road, from the kernels.

python docs/road/steps.py        writes steps.json beside it; then run drawing_steps.py

Here are those of pages 1 to 9. A kernel is compiled as it stands, but for a printf beside each load, each
read of a tile and each store. So the indices are the kernel's own. steps_numbers.py has the later pages.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import steps_numbers
from steps_frames import Event, cells, frame, item_of, own_words

import pyclmm
from pyclmm.kernels.interface import gemm_args
from pyclmm.opencl import compiler
from pyclmm.opencl.devices import device_info
from pyclmm.opencl.program import build_options
from pyclmm.problem.canonical import problem_of

FOLDER = Path(__file__).parent
Said = tuple[tuple[str, ...], ...]
# The lines of cl/textbook/, and what is printed beside them: A and B are reads of global memory, x and y
# those of the tiles, and out is a store: row, column, and how many elements side by side, if not one.
ELEMENTS: dict[str, Said] = {
    "const ACC_T x = LOAD_A(a, A_INDEX(i, k, lda));": (("A", "i", "k"),),
    "const ACC_T y = LOAD_B(b, B_INDEX(k, j, ldb));": (("B", "k", "j"),),
    "STORE_RESULT(i, j, acc, RESULT);": (("out", "i", "j"),),
}
LOADS: dict[str, Said] = {
    "tile[row][col] = GUARDED_A(a, i0 + row, t + col, lda, M, K);": (("A", "i0 + row", "t + col"),),
    "tile[row][col] = GUARDED_B(b, t + row, j0 + col, ldb, K, N);": (("B", "t + row", "j0 + col"),),
}
BLOCK: dict[str, Said] = LOADS | {
    "x[m] = tile_a[li + m][k];": (("x", "li + m", "k"),),
    "y[n] = tile_b[k][lj + n * ITEMS_X];": (("y", "k", "lj + n * ITEMS_X"),),
    "STORE_RESULT(i0 + li + m, j0 + lj + n * ITEMS_X, acc[m][n], RESULT);": (
        ("out", "i0 + li + m", "j0 + lj + n * ITEMS_X"),
    ),
}
LINES: dict[str, dict[str, Said]] = {
    "sequential": ELEMENTS,
    "single_group": ELEMENTS,
    "naive": ELEMENTS,
    "flat": ELEMENTS,
    "tiled": LOADS
    | {
        "acc = MAC(acc, tile_a[li][k], tile_b[k][lj]);": (("x", "li", "k"), ("y", "k", "lj")),
        "STORE_RESULT(i0 + li, j0 + lj, acc, RESULT);": (("out", "i0 + li", "j0 + lj"),),
    },
    "strip": LOADS
    | {
        "const ACC_T y = tile_b[k][lj];": (("y", "k", "lj"),),
        "acc[m] = MAC(acc[m], tile_a[li + m][k], y);": (("x", "li + m", "k"),),
        "STORE_RESULT(i0 + li + m, j0 + lj, acc[m], RESULT);": (("out", "i0 + li + m", "j0 + lj"),),
    },
    "block": BLOCK,
    "vector": LOADS
    | {
        "VSTORE(VLOAD(0, b + B_INDEX(t + row, j0 + col, ldb)), 0, &tile[row][col]);": (
            ("B", "t + row", "j0 + col", "TN"),
        ),
        "const VECTOR y = VLOAD(0, &tile_b[k][lj]);": (("y", "k", "lj", "TN"),),
        "acc[m] += (VECTOR)(tile_a[li + m][k]) * y;": (("x", "li + m", "k"),),
        "STORE_RESULT(i0 + li + m, j0 + lj + n, row[n], RESULT);": (("out", "i0 + li + m", "j0 + lj + n"),),
    },
    # And of a pair of tiles: its t, its number, and the step in which it is filled, or used.
    "double_buffer": BLOCK
    | {
        "load_tile_a(tile_a[0], a, lda, M, K, i0, 0, id);": (("fill", "0", "0", "-1"),),
        "load_tile_a(tile_a[1 - now], a, lda, M, K, i0, t + BK, id);": (("fill", "t + BK", "1 - now", "t"),),
        "multiply_tiles(tile_a[now], tile_b[now], acc, li, lj);": (("use", "t", "now", "t"),),
    },
}


def instrumented(source: str, kernel: str) -> str:
    """The source with its printf. Raises ValueError where a line that it must have is not there."""
    macros = (
        "#define GROUP (int)get_group_id(0), (int)get_group_id(1)\n"
        "#define ITEM (int)(get_local_id(1) * get_local_size(0) + get_local_id(0))\n"
    )
    for line, events in LINES[kernel].items():
        if source.count(line) != 1:
            raise ValueError(f"the source has no single line {line}")
        numbers = [(what, *numbers, "1")[:4] for what, *numbers in events]
        said = " ".join(
            f'printf("{what} %d %d %d %d %d %d\\n", GROUP, ITEM, {row}, {column}, {more});'
            for what, row, column, more in numbers
        )
        both = f"{line} {said}"
        source = source.replace(line, both if line.startswith("const ") else f"{{ {both} }}")
    return macros + source


@dataclass(frozen=True)
class Walk:
    """A kernel, its frames and configuration, the shown work-group, the followed work-item."""

    kernel: str
    frames: Callable[[Walk, list[Event]], Iterable[dict[str, Any]]]
    config: pyclmm.TileConfig
    group: tuple[int, int] = (0, 0)
    item: int = 6
    sides: tuple[int, int, int] = (8, 8, 8)  # M, N, K


def run(walk: Walk) -> None:
    """Multiply with the instrumented kernel on the default device, which prints."""
    queue = pyclmm.default_queue()
    # A reproducible product has sums of float32 in each kernel, on each device.
    problem = problem_of(*walk.sides, np.dtype("float32"), reproducible=True)
    family = next(kernel for kernel in pyclmm.KERNELS if kernel.name == walk.kernel)
    launch: Any = family.launches(problem, walk.config, device_info(queue.device)).launches[0]
    source = instrumented(compiler.expanded(launch.program.source), walk.kernel)
    program = cl.Program(queue.context, source).build(list(build_options(launch.program)))
    arrays = {name: cla.zeros(queue, (max(walk.sides),) * 2, np.float32) for name in ("a", "b", "out")}
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
    """What the shown work-group did. Only what one work-item did is in order. Another process prints it."""
    command = [sys.executable, __file__, name]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    group = "{} {}".format(*WALKS[name].group)
    found = re.findall(rf"^(\w+) {group} (\d+) (\d+) (\d+) (-?\d+)$", said, re.M)
    return [Event(what, *map(int, numbers)) for what, *numbers in found]


def steps(name: str) -> dict[str, Any]:
    """The sides, the elements that the work-group stores, and its frames: words, and the touched elements."""
    if name in steps_numbers.WALKS:
        return steps_numbers.steps(name)
    walk, found = WALKS[name], events(name)
    stored = [event for event in found if event.what == "out"]
    return {"sides": walk.sides, "out": cells(walk, stored), "frames": list(walk.frames(walk, found))}


def by_read(walk: Walk, found: list[Event]) -> Iterator[dict[str, Any]]:
    """A frame for each read of A and of B by the only work-item. A number is an element's place in memory."""
    _, columns, depth = walk.sides
    places = {"A": depth, "B": columns}

    def label(event: Event) -> str:
        return str(event.row * places[event.what] + event.column) if event.what in places else ""

    while found:
        end = next(at for at, event in enumerate(found) if event.what == "out")
        reads, out, found = found[:end], found[end], found[end + 1 :]
        for at in range(0, end, 2):
            now = [event._replace(item=walk.item) for event in (*reads[at : at + 2], out)]
            title = f"out({out.row}, {out.column}), k = {at // 2}: the work-item reads"
            yield frame(walk, title, now[:2], cells(walk, [*reads[:at], *now], label))


def by_k(walk: Walk, found: list[Event]) -> Iterator[dict[str, Any]]:
    """A frame for the reads of each k. A number says how many work-items read the element."""
    for k in range(walk.sides[2]):
        reads = [e for e in found if k == {"A": e.column, "B": e.row}.get(e.what)]

        def label(event: Event, reads: list[Event] = reads) -> str:
            return str(sum(event.what == e.what and event[2:] == e[2:] for e in reads))

        yield frame(walk, f"k = {k}: work-item {walk.item} reads", reads, cells(walk, reads, label))


def by_tile(walk: Walk, found: list[Event]) -> Iterator[dict[str, Any]]:
    """A frame for the loads of each pair of tiles, with the work-items' numbers, and one for each k of it."""
    for t in range(0, walk.sides[2], walk.config.bk):
        loads = _loads(walk, found, t)
        yield frame(walk, f"t = {t}: work-item {walk.item} loads", loads, cells(walk, loads, item_of))
        for k in range(walk.config.bk):
            reads = _reads(walk, found, t, k)
            title = f"t = {t}, k = {k}: work-item {walk.item} multiplies"
            yield frame(walk, title, reads, cells(walk, reads))


def by_pair(walk: Walk, found: list[Event]) -> Iterator[dict[str, Any]]:
    """A frame before the loop, and one for each step: the pair that is multiplied, the one that is loaded.
    A number is that of the work-item that loads.
    """
    used = {event.more: event for event in found if event.what == "use"}
    filled = {event.more: event for event in found if event.what == "fill"}
    for step in sorted({*used, *filled}):
        reads, loads, said = [], [], []
        if step in used:
            said.append(f"pair {used[step].column} is multiplied")
            for k in range(walk.config.bk):
                reads += _reads(walk, found, used[step].row, k)
        if step in filled:
            said.append(f"pair {filled[step].column} is loaded")
            loads = _loads(walk, found, filled[step].row)
        shown = cells(walk, reads) + cells(walk, loads, item_of, " pale")
        when = f"t = {step}" if step in used else "Before the loop"
        own = own_words(walk, loads)
        own = f"Work-item {walk.item} loads {own}." if own else "Nothing is left to load."
        yield {"words": [f"{when}: {', '.join(said)}.", own], "cells": shown}


def _loads(walk: Walk, found: list[Event], t: int) -> list[Event]:
    """Those of the tiles of t."""
    places = [(e, {"A": e.column, "B": e.row}.get(e.what, -1)) for e in found]
    return [event for event, place in places if t <= place < t + walk.config.bk]


def _reads(walk: Walk, found: list[Event], t: int, k: int) -> list[Event]:
    """Those of the tiles of t, as elements of the matrices. They are the same for each t."""
    i0, j0 = walk.group[1] * walk.config.bm, walk.group[0] * walk.config.bn
    reads = [e._replace(what="A", row=i0 + e.row, column=t + k) for e in found if e[0::3] == ("x", k)]
    reads += [
        e._replace(what="B", row=t + k, column=j0 + e.column) for e in found if (e.what, e.row) == ("y", k)
    ]
    return list(set(reads))


WALKS = {
    # No work-item is followed, for all are those of the only one: what it reads now is.
    "01_sequential_steps": Walk("sequential", by_read, pyclmm.TileConfig(), item=-1, sides=(3, 3, 4)),
    "02_single_group_steps": Walk("single_group", by_k, pyclmm.TileConfig(), item=19),
    "03_naive_steps": Walk("naive", by_k, pyclmm.TileConfig(bm=4, bn=4), (1, 0)),
    "04_flat_steps": Walk("flat", by_k, pyclmm.TileConfig(bn=12), (1, 0)),
    "05_tiled_steps": Walk("tiled", by_tile, pyclmm.TileConfig.square(4), (1, 0)),
    "06_strip_steps": Walk("strip", by_tile, pyclmm.TileConfig(bm=8, bn=4, bk=4, tm=4), (1, 0)),
    "07_block_steps": Walk("block", by_tile, pyclmm.TileConfig(bm=8, bn=8, bk=4, tm=2, tn=2)),
    "08_vector_steps": Walk("vector", by_tile, pyclmm.TileConfig(bm=8, bn=8, bk=4, tm=2, tn=4)),
    "09_double_buffer_steps": Walk("double_buffer", by_pair, pyclmm.TileConfig(bm=8, bn=8, bk=2, tm=2, tn=2)),
}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(WALKS[sys.argv[1]])
    else:
        text = json.dumps(
            {name: steps(name) for name in (*WALKS, *steps_numbers.WALKS)}, separators=(",", ":")
        )
        (FOLDER / "steps.json").write_text(text.replace('{"words"', '\n{"words"') + "\n", encoding="utf-8")
