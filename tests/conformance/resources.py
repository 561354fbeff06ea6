"""Registers, spills and local memory of every configuration of the GPU families for AMD and Intel, and of
every register tile of `packed` for Arm's CPUs.

    python -m tests.conformance.resources        (`make offline`)

Writes docs/kernels/offline.md. Exit codes: 0 success, 1 a program does not compile or spills registers.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date

from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.kernels.interface import Launch

from .implementations import ROOT
from .offline import ARM, TARGETS, Compiled, Target, compile_jobs, problems
from .prepare import SetupError, prepare
from .report import markdown, most, text

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
Job = tuple[Target, str, str, Launch]


def jobs() -> Iterator[tuple[str, Job]]:
    """(configuration, what to compile) for the product with a full epilogue."""
    for name, (targets, dtypes) in SHIPPED.items():
        family = kernel_named(name)
        for target in (t for t in TARGETS if t.name in targets):
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


def table(rows: Sequence[Compiled]) -> list[list[str]]:
    """A row for each family, type and configuration; a column for each target."""
    targets = [t.name for t in (*TARGETS, *ARM) if any(r.target == t.name for r in rows)]
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


def document(rows: Sequence[Compiled], tiles: Sequence[Compiled]) -> str:
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
    try:
        prepare()
    except SetupError as error:
        print(error, file=sys.stderr)
        return 2
    rows, tiles = compile_named(list(jobs())), compile_named(list(tile_jobs()))
    TABLE.write_text(document(rows, tiles), encoding="utf-8")
    print(text(table(tiles)))
    rows += tiles
    bad = [r for r in rows if r.error or r.resources.spilled]
    for row in bad:
        print(f"{row.kernel} {row.dtype} {row.config} on {row.target}: {row.error or row.resources}")
    print(f"{len(rows)} programs, {len(bad)} spill or fail")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
