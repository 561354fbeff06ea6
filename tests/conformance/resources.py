"""Registers, spills and local memory of every configuration of the GPU families for AMD and Intel, and of
every register tile of `packed` for Arm's CPUs.

    python -m tests.conformance.resources [--share N]        (`make offline`)

Writes docs/kernels/offline.md, unless only every Nth program is compiled. Exit codes: 0 success, 1 a program
does not compile or spills registers.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date

from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig

from . import newer, own
from .compilers import NOTHING
from .implementations import ROOT
from .offline import ARM, TARGETS, Compiled, Job, Target, compile_jobs, problems
from .packages import SetupError
from .prepare import prepare
from .report import markdown, most, offline_table, text

# The targets of each family, and a type for each way to store and sum elements.
_REGISTER = ("float32", "float16", "float64", "int32", "complex64")
_UNITS = ("float16", "bfloat16", "float32", "float64", "int8")
SHIPPED = {
    "register": (("gfx90a", "gfx1030"), _REGISTER),
    "mfma": (("gfx90a", "gfx942"), _UNITS),
    "wmma": (("gfx1100",), _UNITS),
    "dpas": (("dg2-g10", "pvc"), _UNITS),
}
_REALS = ("float32", "float64", "complex64")  # types for which an Arm CPU has vectors
TABLE = ROOT / "docs" / "kernels" / "offline.md"
# The same for the drivers' own compilers.
OWN = {
    "register": (("gfx90a", "gfx1030", "dg2", "bmg"), _REGISTER),
    "mfma": SHIPPED["mfma"],
    "wmma": SHIPPED["wmma"],
    "dpas": (("dg2", "pvc", "bmg", "lnl"), _UNITS),
}
# Intel's IGC spills sums of 8 bytes in tiles of 16 too, and there are no smaller ones: told, no failure.
SPILLED = ("float64", "complex64")
Shipped = Mapping[str, tuple[Sequence[str], Sequence[str]]]


def jobs(shipped: Shipped = SHIPPED, known: Sequence[Target] = TARGETS) -> Iterator[tuple[str, Job]]:
    """(configuration, what to compile) for the product with a full epilogue."""
    for name, (targets, dtypes) in shipped.items():
        family = kernel_named(name)
        for target in (t for t in known if t.name in targets):
            for dtype in dtypes:
                problem = replace(problems(dtype)[1], precision="medium")  # every type of the matrix units
                if family.refuses(problem, target.device) is not None:
                    continue
                for config in family.configs(problem, target.device):
                    if config.split_k > 1:
                        continue  # it has the same main loop and a simpler end
                    work = family.launches(problem, config, target.device)
                    yield str(config), (target, name, dtype, work.launches[0])


def register_tiles(dtype: str) -> list[TileConfig]:
    """The register tiles that `packed` offers for vectors of 128 bits, each once."""
    narrow = replace(problems(dtype)[0], n=1)  # the tiles of one vector too
    every = kernel_named("packed").candidates(narrow, ARM[0].device)
    return [replace(c, split_k=1) for c in {(c.tm, c.tn): c for c in every}.values()]


def tile_job(processor: str, dtype: str, config: TileConfig) -> Job:
    """The loop over K of `packed` in *config*, for operands that are not transposed."""
    target = next(t for t in ARM if t.name == processor)
    work = kernel_named("packed").launches(problems(dtype)[0], config, target.device)
    return target, "packed", dtype, next(x for x in work.launches if x.kernel == "packed_multiply")


def tile_jobs() -> Iterator[tuple[str, Job]]:
    """Every register tile, with both operands in place and with both packed."""
    for dtype, target, packed in itertools.product(_REALS, ARM, (0, 1)):
        for tile in register_tiles(dtype):
            config = replace(tile, options=(("pack_a", packed), ("pack_b", packed)))
            name = f"tm={tile.tm} tn={tile.tn} vec={tile.vec} {'packed' if packed else 'in place'}"
            yield name, tile_job(target.name, dtype, config)


def compile_named(named: Sequence[tuple[str, Job]], workers: int = 2) -> list[Compiled]:
    """Compile all jobs; results are in the same order."""
    rows = compile_jobs((job for _, job in named), workers)
    return [replace(row, config=config) for row, (config, _) in zip(rows, named, strict=True)]


def compile_by_drivers(share: int) -> tuple[list[Compiled], list[Compiled]]:
    """The configurations, and what else the drivers' own compilers build (own.py), which are here."""
    named, more = [*jobs(OWN, (*own.AMD, *own.INTEL))][::share], [*own.shared()][::share]
    rows = own.compile_own([*(job for _, job in named), *more])
    first = [replace(row, config=config) for row, (config, _) in zip(rows, named, strict=False)]
    return first, rows[len(named) :]


def table(rows: Sequence[Compiled]) -> list[list[str]]:
    """A row for each family, type and configuration; a column for each target."""
    known = dict.fromkeys(t.name for t in (*TARGETS, *own.INTEL, *ARM))
    targets = [name for name in known if any(r.target == name for r in rows)]
    groups: dict[tuple[str, str, str], dict[str, Compiled]] = {}
    for row in rows:
        groups.setdefault((row.kernel, row.dtype, row.config), {})[row.target] = row
    found = [["kernel", "type", "configuration", *targets]]
    for (kernel, dtype, config), by_target in groups.items():
        found.append([kernel.split(":")[0], dtype, config, *(_cell(by_target.get(t)) for t in targets)])
    return found


def _cell(row: Compiled | None) -> str:
    if row is None:
        return ""
    return "FAILED" if row.error else " / ".join(most([row.resources]))


def is_known(row: Compiled) -> bool:
    """Whether it is known that this configuration spills."""
    return row.target in {target.name for target in own.INTEL} and row.dtype in SPILLED


def by_drivers(rows: Sequence[Compiled], more: Sequence[Compiled]) -> str:
    """The section on the drivers' own compilers: configurations, and the sample of all other programs."""
    bad = [r for r in (*rows, *more) if r.error or r.resources.spilled]
    compilers = ", ".join(dict.fromkeys(own.title(t) for t in (own.AMD[0], own.INTEL[0])))
    names = ", ".join(t.name for t in own.WHOLE)
    return f"""## By the drivers' own compilers

The same configurations, and `register` for Intel's GPUs too, by what AMD's and Intel's drivers of Debian's
newest suite compile with: {compilers}. What these say is what a user's build would say. Each cell: registers
(gfx90a and gfx942: both kinds together; Intel: of a thread), spills (AMD: registers; Intel: bytes of a
thread), bytes of local memory. Sums of 8 bytes spill on Intel's GPUs in most tiles; programs of
other kernels may spill anywhere. {len(rows) + len(more)} programs, {len(bad)} of them spill or fail.

{markdown(table(rows))}

Of the programs of all kernels, those of [conformance.md](../conformance.md), each of {names}
gets every third, so that they complement each other.

{markdown(offline_table(more))}
"""


def document(rows: Sequence[Compiled], tiles: Sequence[Compiled], drivers: str) -> str:
    """docs/kernels/offline.md, from the rows of the GPU families and of the register tiles."""
    bad = [r for r in rows if r.error or r.resources.spilled]
    return f"""# Compiled offline

Written by `make offline` on {date.today()}: every configuration that the GPU kernels ship for AMD and
Intel, compiled for a transposed stack with C, bias and an activation. Each cell: registers of a work-item
(gfx90a and gfx942: both kinds together; Intel: of a thread, always 128), spills, bytes of local memory. clang
19 for AMD, ocloc 22.43 for Intel (it does not report local memory). {len(rows)} programs, {len(bad)} of
them spill or fail.

No AMD or Intel GPU has run any of them.

{markdown(table(rows))}

{drivers}
## Arm's CPUs

The register tiles that `packed` offers for vectors of 128 bits, compiled by clang 15 for a product without
transposes and epilogue. Each cell: the vector registers of the loop over K, of 32, and the spills in that
loop; local memory is not counted.
{len(tiles)} programs, {sum(bool(r.error or r.resources.spilled) for r in tiles)} of them spill or fail.

Emulated processors of both kinds run products by `packed` and `matvec` (tests/conformance/arm_products.py).
No Arm CPU has run any.

{markdown(table(tiles))}
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.resources")
    parser.add_argument("--share", type=int, default=1, metavar="N", help="compile every Nth program")
    share = parser.parse_args().share
    try:
        prepare()
    except SetupError as error:
        print(error, file=sys.stderr)
        return 2
    rows, tiles = compile_named([*jobs()][::share]), compile_named([*tile_jobs()][::share])
    print(text(table(tiles)))
    reason = newer.missing()
    if reason:
        print(f"left out, and {TABLE.name} not written: the drivers' own compilers: {reason}")
    else:
        configurations, more = compile_by_drivers(share)
        drivers = by_drivers(configurations, more)
        if share == 1:
            TABLE.write_text(document(rows, tiles, drivers), encoding="utf-8")
        may_spill = [row for row in configurations if is_known(row)] + more
        for row in (row for row in may_spill if row.resources.spilled):
            print(f"may spill: {row.kernel} {row.dtype} {row.config} on {row.target}: {row.resources}")
        rows += [row for row in configurations if not is_known(row)]
        rows += [replace(row, resources=NOTHING) for row in may_spill]
    rows += tiles
    bad = [r for r in rows if r.error or r.resources.spilled]
    for row in bad:
        print(f"{row.kernel} {row.dtype} {row.config} on {row.target}: {row.error or row.resources}")
    print(f"{len(rows)} programs, {len(bad)} spill or fail")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
