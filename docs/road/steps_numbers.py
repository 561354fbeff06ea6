"""Frames for pages 10 to 15 of the road: which element a work-item loads, reads or multiplies when.

These kernels move elements through tiles, panels, rings and registers, where an index says little. So each
element of A and B has a value of its own, its number, and what a kernel holds says which element it is. The
simulator of the tests runs the kernel as it stands, but for a printf behind the lines of `SAID`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from steps_frames import Cells, Event, cells, frame, item_of, merged, own_words, said_of

from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.opencl import compiler
from pyclmm.problem.canonical import problem_of
from tests.simulators import interleaved
from tests.support.made_up import H200

simulate: Any = interleaved.run
SAY = """#ifndef SAY
#define SAY(what, number) \\
  printf(what " %d %d %d %d\\n", \\
         (int)get_group_id(0), (int)get_group_id(1), (int)get_local_id(0), (int)(number))
#define SAY_ALL(what, count, each) for (int e_ = 0; e_ < (count); ++e_) SAY(what, each)
#endif
"""
Said = dict[str, dict[str, str]]
NOBODY = SimpleNamespace(item=-1)
MOST_CELLS = 32  # along a side, if each is shown
RANGE_SAYS = ("load", "use", "done", "begun")
# Files of cl/, their lines, and what is said behind each.
STORES: Said = {"include/gemm.h": {"STORE_OUT(out, at, value_);": 'SAY("out", at);'}}
REGISTER: Said = STORES | {
    "gpu/register_held.h": {
        "READ((held) + pass * vec, (w)->at, inside(w, x, k, width, pass_x));": (
            'SAY_ALL("load", vec, ((held) + pass * vec)[e_]);'
        ),
    },
    "gpu/register_nvidia.h": {
        "fill_async(local_address(to), w->at, bytes, inside(w, x, k, width, pass_x) ? bytes : 0);": (
            'if (inside(w, x, k, width, pass_x)) SAY_ALL("load", vec, ((__global const ACC_T *)w->at)[e_]);'
        ),
    },
    "gpu/register_loop.h": {
        "SPREAD(fa + r, v);": 'SAY_ALL("read", CHUNK, fa[r + e_]);',
        "SPREAD(fb + c, v);": 'SAY_ALL("read", CHUNK, fb[c + e_]);',
        "now = 0, filled = LEAD * STAGE;": 'SAY("begun", filled / STAGE);',
        "if (kk == FETCH_STEP_A) fetch_a(stream, tiles + filled);": (
            'if (kk == FETCH_STEP_A) SAY("fill", filled / STAGE);'
        ),
        "multiply(acc, fa[kk % 2], fb[kk % 2]);": (
            'SAY_ALL("use", TM, fa[kk % 2][e_]); SAY_ALL("use", TN, fb[kk % 2][e_]); '
            'if (kk == 0) SAY("stage", now / STAGE); SAY("done", kk);'
        ),
    },
}
PACKED: Said = {
    "cpu/packed_store.h": {
        "store_vectors(acc, out + OUT_INDEX(ti, tj, ldo), ldo, alpha, width);": (
            'for (int r_ = 0; r_ < MR; ++r_) SAY_ALL("out", NR, OUT_INDEX(ti + r_, tj + e_, ldo));'
        ),
    },
    "cpu/packed_panels.h": {
        "to[u * NR + j] = j < cols ? LOAD_B(b, B_INDEX(k + u, j0 + j, ldb)) : ACC_ZERO;": (
            'SAY("place", u * NR + j); SAY("pack", to[u * NR + j]);'
        ),
    },
    "cpu/packed_tile.h": {
        "row[v] = LOAD_ROW(b + v * LANES);": 'SAY_ALL("use", LANES, ((REAL *)&row[v])[e_]);',
        "const VEC x = (VEC)(a[A_AT(r, u, lda)]);": (
            'SAY("use", ((REAL *)&x)[0]); if (r == ROWS - 1) SAY("done", u);'
        ),
    },
}
UNITS: Said = {
    "nvidia/fragment.h": {
        "return finished(sum, alpha, beta, c, (long)i * c_rs + (long)j * c_cs, bias, "
        "(long)(BIAS == 1 ? j : i) * bias_stride);": ('if (i < M && j < N) SAY("out", i * ldo + j);'),
    },
    "nvidia/mma_ring.h": {
        "mma(sum[i] + 4 * j, fa[step % 2][i], fb[step % 2][j]);": (
            "if (block + step + i + j == 0 && get_local_id(0) < 32) {"
            ' SAY_ALL("a", 8, ((ushort *)fa[0][0])[e_]); SAY_ALL("b", 4, ((ushort *)fb[0][0])[e_]); }'
        ),
    },
}
HOPPER: Said = STORES | {
    "nvidia/wgmma_bare.cl": {
        "tile[place(line, k)] = line < lines && k < depth ? from[line * line_step + k * k_step] : 0;": (
            'SAY("load", tile[place(line, k)]); if (n == AT_ONCE - 1) SAY("done", first);'
        ),
        "wgmma(acc, descriptor(tile_a + k), descriptor(tile_b + k));": (
            "for (int line = 0; line < TILE && get_local_id(0) == 0; ++line) {"
            ' SAY_ALL("use", STEP_K, tile_a[place(line, k + e_)]);'
            ' SAY_ALL("use", STEP_K, tile_b[place(line, k + e_)]); }'
            ' SAY("done", k);'
        ),
    },
}
SPLIT_K: Said = REGISTER | {
    "gpu/register.cl": {
        "partial[ROW_OF(p, r) * BN + COL_OF(p, t)] = acc[r][t];": (
            'SAY("sum", (i0 + ROW_OF(p, r)) * N + j0 + COL_OF(p, t));'
        ),
    },
    "split_k.cl": {
        "const int range = first + n * TEAMS;": 'if (range < split_k) SAY("add", range);',
    },
}


@dataclass(frozen=True)
class Walk:
    """A kernel, its configuration (None: its smallest), what it says, its frames, the followed work-item."""

    kernel: str
    config: TileConfig | None
    said: Said
    frames: Callable[[Walk, list[Spoken]], Iterable[dict[str, Any]]]
    sides: tuple[int, int, int] = (8, 8, 8)  # M, N, K
    item: int = 6
    dtype: str = "float32"


class Spoken(NamedTuple):
    """What was printed once: a number of an element, or another one, and where."""

    what: str
    group: int
    line: int  # the work-group's place in dimension 1
    item: int
    number: int


def instrumented(name: str, text: str, said: Said) -> str:
    """A file of cl/ with its printf. Raises ValueError where a line that it must have is not there."""
    for line, spoken in said.get(name, {}).items():
        if text.count(line) != 1:
            raise ValueError(f"{name} has no single line {line}")
        kept = f"{spoken} {line}" if line.startswith("return ") else f"{line} {spoken}"
        text = text.replace(line, kept if line.startswith(("const ", "now = ")) else f"{{ {kept} }}")
    return SAY + text if name in said else text


def run(name: str) -> None:
    """Multiply numbers with the instrumented kernel, which prints."""
    walk = WALKS[name]
    m, n, k = walk.sides
    problem = replace(problem_of(m, n, k, np.dtype(walk.dtype)), out_align=4)
    family, shipped = kernel_named(walk.kernel), compiler.read_source
    config = walk.config or min(family.configs(problem, H200), key=lambda c: (c.bm * c.bn, c.stages))
    numbers = np.arange(1, m * k + k * n + 1)
    stored = numbers.astype(np.float32) if walk.dtype == "float32" else numbers.astype(np.uint16)
    arrays: dict[str, Any] = {"a": stored[: m * k], "b": stored[m * k :], "out": np.zeros(m * n, walk.dtype)}
    arrays |= {"batch_offsets": np.zeros((1, 4), np.int64)}
    arrays |= {"alpha": np.ones(1, np.float32), "beta": np.zeros(1, np.float32)}

    def read(file: str) -> str:
        return instrumented(file, shipped(file), walk.said)

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(interleaved, "_shipped", read):
        simulate(family.launches(problem, config, H200), arrays, Path(folder))


def spoken(name: str) -> list[Spoken]:
    """What all work-items said. Only what one of them said is in order. Another process says it."""
    command = [sys.executable, __file__, name]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    words = re.findall(r"^(\w+) (\d+) (\d+) (\d+) (\d+)$", said, re.M)
    found = [Spoken(what, *map(int, numbers)) for what, *numbers in words]
    alone = not any(each.item for each in found)  # a work-group is one work-item: follow the work-groups
    return [each._replace(item=each.group + each.line) for each in found] if alone else found


def steps(name: str) -> dict[str, Any]:
    """The sides, the elements that the followed work-group stores, and its frames."""
    walk, found = WALKS[name], spoken(name)
    stored = elements(walk, found, "out")
    small = merged if max(walk.sides) > MOST_CELLS else list
    own = NOBODY if walk.frames is by_panel else walk  # its work-items store one tile after another
    frames = [each | {"cells": small(each["cells"])} for each in walk.frames(walk, found)]
    return {"sides": walk.sides, "out": small(cells(own, stored)), "frames": frames}


def elements(walk: Walk, found: Iterable[Spoken], *what: str) -> list[Event]:
    """The elements of A, B and out whose numbers were said."""
    m, n, k = walk.sides
    events = []
    for said in found:
        if said.what not in what:
            continue
        if said.what in ("out", "sum"):
            events.append(Event("out", said.item, *divmod(said.number, n)))
        elif 0 < said.number <= m * k:
            events.append(Event("A", said.item, *divmod(said.number - 1, k)))
        elif said.number:
            events.append(Event("B", said.item, *divmod(said.number - m * k - 1, n)))
    return events


def phases(found: Iterable[Spoken], *ends: str) -> list[list[Spoken]]:
    """What was said, cut where each work-item said one of *ends*, which belong to what is before."""
    parts: list[list[Spoken]] = []
    at: dict[tuple[int, int, int], int] = {}
    for said in found:
        number = at.setdefault(said[1:4], 0)
        parts += [[]] * (number + 1 - len(parts))
        parts[number] = [*parts[number], said]
        at[said[1:4]] += said.what in ends
    return parts


def by_fragment(walk: Walk, found: list[Spoken]) -> Iterator[dict[str, Any]]:
    """Page 10: a frame before the loop, and one for each k. Pale: what is read or loaded meanwhile."""
    before, *rest = phases(found, "begun", "done")
    loads = elements(walk, before, "load")
    yield frame(walk, f"Before the loop: work-item {walk.item} loads", loads, cells(walk, loads, item_of))
    for k, part in enumerate(rest[: walk.sides[2]]):
        uses, reads, loads = (elements(walk, part, what) for what in ("use", "read", "load"))
        ahead = cells(NOBODY, reads, more=" pale") + cells(walk, loads, item_of, " pale")
        shown = frame(walk, f"k = {k}: work-item {walk.item} multiplies", uses, cells(walk, uses) + ahead)
        shown["words"][1] += "."
        for doing, events in (("reads", reads), ("loads", loads)):
            own = own_words(walk, events)
            shown["words"] += [f"It {doing} {own}."] if own else []
        yield shown


def by_stage(walk: Walk, found: list[Spoken]) -> Iterator[dict[str, Any]]:
    """Page 13: a frame before the loop, and one for each step. Pale: what is copied meanwhile."""
    bk = walk.config.bk if walk.config else 1
    before, *each_k = phases(found, "begun", "done")
    ahead = elements(walk, before, "load")
    title = "Before the loop: stages 0 and 1 are filled."
    own = own_words(walk, ahead)
    shown = cells(walk, ahead, item_of, " pale")
    yield {"words": [title, f"Work-item {walk.item} copies {own}."], "cells": shown}
    for step in range(walk.sides[2] // bk):
        part = [said for k in each_k[step * bk : (step + 1) * bk] for said in k]
        uses, loads = elements(walk, part, "use"), elements(walk, part, "load")
        (now,), (filled,) = ({s.number for s in part if s.what == what} for what in ("stage", "fill"))
        on_the_way = [e for e in ahead if e not in loads and not _before(e, (step + 1) * bk)]
        shown = cells(walk, uses) + cells(NOBODY, on_the_way, more=" pale")
        title, own = f"Step {step}: stage {now} is multiplied", "Nothing is left to copy."
        if loads:
            title += f", stage {filled} is filled"
            own = own_words(walk, loads)
            own = f"Work-item {walk.item} copies {own}."
        ahead += loads
        yield {"words": [f"{title}.", own], "cells": shown + cells(walk, loads, item_of, " pale")}


def _before(event: Event, k: int) -> bool:
    return {"A": event.column, "B": event.row}[event.what] < k


def by_panel(walk: Walk, found: list[Spoken]) -> Iterator[dict[str, Any]]:
    """Page 11: a frame for each panel of B, with places in memory, and one for each k of each tile."""
    assert walk.config
    wide, depth = walk.config.tn, walk.sides[2]
    places = [said.number for said in found if said.what == "place"]
    elements_of_b = zip(elements(walk, found, "pack"), places, strict=True)
    packed = [event._replace(item=place) for event, place in elements_of_b]
    for panel in range(walk.sides[1] // wide):
        in_panel = packed[panel * wide * depth : (panel + 1) * wide * depth]
        title = f"Panel {panel} of B. A number is a place in the panel:"
        yield {"words": [title, said_of(in_panel)], "cells": cells(NOBODY, in_panel, item_of)}
    ends = phases([said for said in found if said.what in ("use", "done", "out")], "done")
    for number in range(0, len(ends) - 1, depth):
        stored = elements(walk, ends[number + depth], "out")
        for k, part in enumerate(ends[number : number + depth]):
            uses = elements(walk, part, "use")
            title = f"Tile {number // depth}, k = {k}: work-group {walk.item} reads"
            yield frame(walk, title, uses, cells(walk, uses + stored))


def by_range(walk: Walk, found: list[Spoken]) -> Iterator[dict[str, Any]]:
    """Page 12: a frame for each step of both ranges, then the second launch. A number is a range's."""
    ranges = [phases((s for s in found if s.line == r and s.what in RANGE_SAYS), "done") for r in (0, 1)]
    for step, parts in enumerate(zip(*ranges, strict=True)):
        shown: Cells = []
        uses = [elements(walk, part, "use") for part in parts]
        if not any(uses):
            break
        for number, each in enumerate(uses):
            shown += cells(walk, each, partial(_named, str(number)))
        depths = [{e.column for e in each if e.what == "A"} for each in uses]
        title = ", ".join(f"range {r} is at k = {min(k)}" for r, k in enumerate(depths))
        own = own_words(walk, uses[0])
        words = [f"Step {step}: {title}.", f"Work-item {walk.item} of range 0 reads {own}."]
        yield {"words": words, "cells": shown + cells(walk, elements(walk, found, "sum"))}
    added = sorted({said.number for said in found if said.what == "add" and said.item == walk.item})
    stored = elements(walk, found, "out")
    title = f"The second launch: work-item {walk.item} adds ranges {' and '.join(map(str, added))} of"
    yield frame(walk, title, stored, cells(walk, stored, item_of))


def _named(name: str, _event: Event) -> str:
    return name


def by_register(walk: Walk, found: list[Spoken]) -> Iterator[dict[str, Any]]:
    """Page 14: a frame for each register of one instruction. A number is the work-item that has it."""
    stored = elements(walk, found, "out")
    for name, registers in (("a", 4), ("b", 2), ("d", 2)):
        events = stored if name == "d" else elements(walk, found, name)
        of_item = [[event for event in events if event.item == item] for item in range(32)]
        for at in range(registers):
            part = [event for own in of_item for event in own[2 * at : 2 * at + 2]]
            register = f"Sums d[{2 * at}] and d[{2 * at + 1}]" if name == "d" else f"Register {name}[{at}]"
            title = f"{register}: work-item {walk.item} has"
            yield frame(walk, title, part, cells(walk, part, item_of))


def by_fence(walk: Walk, found: list[Spoken]) -> Iterator[dict[str, Any]]:
    """Page 15: frames that fill both tiles, one for each instruction, and what a work-item stores."""
    *parts, last = phases(found, "done")
    for part in parts:
        loads, uses = elements(walk, part, "load"), elements(walk, part, "use")
        if loads:
            title = f"Work-items load {said_of(loads)}. Work-item {walk.item}:"
            yield frame(walk, title, loads, cells(walk, loads))
        else:
            title = "All work-items together, by one instruction:"
            yield {"words": [title, said_of(uses)], "cells": cells(NOBODY, uses)}
    stored = elements(walk, last, "out")
    yield frame(walk, f"After the wait work-item {walk.item} stores", stored, cells(walk, stored))


def _register(
    tile: tuple[int, int, int],
    sg: tuple[int, int],
    t: tuple[int, int],
    vec: int = 1,
    stages: int = 2,
    split_k: int = 1,
    held: int = 1,
) -> TileConfig:
    """A configuration of `register`."""
    options = {"fetch_b": 1, "held": held, "slices": 1}
    return TileConfig(*tile, *sg, *t, vec, stages, split_k, options)


WALKS = {
    "10_register_steps": Walk(
        "register", _register((16, 16, 4), (8, 16), (4, 8), vec=4), REGISTER, by_fragment, (16, 16, 8)
    ),
    "11_packed_steps": Walk(
        "packed",
        TileConfig(8, 8, 4, tm=4, tn=4, vec=4, options={"pack_a": 0, "pack_b": 1}),
        *(PACKED, by_panel, (8, 8, 4), 0),
    ),
    "12_split_k_steps": Walk("register", _register((8, 8, 2), (8, 8), (2, 2), split_k=2), SPLIT_K, by_range),
    "13_pipelining_steps": Walk(
        "register",
        _register((8, 8, 2), (8, 8), (2, 2), stages=3, held=0),
        *(REGISTER, by_stage, (8, 8, 10)),
    ),
    "14_matrix_units_steps": Walk("mma", None, UNITS, by_register, (16, 8, 16), dtype="float16"),
    "15_hopper_steps": Walk("wgmma_bare", None, HOPPER, by_fence, (64, 64, 64), dtype="float16"),
}

if __name__ == "__main__":
    run(sys.argv[1])
