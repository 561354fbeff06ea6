"""`make conformance`: prepares, runs every implementation, compiles offline and writes the table.

    python -m tests.conformance [--only NAME ...] [--no-offline] [--tests PATH ...] [--share N]

Exit codes: 0 success, 1 a wrong answer, a crash, an unexplained skip or a failed compilation, 2 the
implementations could not be set up.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from . import newer, offline, report
from .implementations import HOME, IMPLEMENTATIONS, NEWER_IMPLEMENTATIONS, ROOT, Implementation
from .packages import SetupError
from .prepare import prepare
from .run import Run, run

GRID = "tests/conformance/grid.py"
CHECKER = "tests/conformance/checker.py"
# The laws on which implementations can differ. The others are about our own index arithmetic, which the
# grid covers. All kernels share the epilogue.
SUITE = (
    "tests/kernels/test_every_kernel.py",
    "-k",
    "test_exact or test_bits or test_weights or test_lists or "
    "(error_bound or nan_and_infinity or denormals or sign_of_zero or beta_zero or nothing_but or "
    "(extreme_values and naive)) and not (wgmma or split- or mma or mfma or wmma or dpas)",
)
# For drivers that share the grid: what depends on the driver's arithmetic, by kernels of three kinds.
SHARED = (
    "tests/kernels/test_every_kernel.py",
    "-k",
    "test_exact or test_bits or test_weights or test_lists or "
    "(denormals or sign_of_zero or nan_and_infinity) and (naive or packed or tiled)",
)
LIMIT_S = 25 * 60
AT_ONCE = 2


def tests_of(implementation: Implementation) -> tuple[str, ...]:
    """The simulator is slow: it gets small sizes only, and shows that it sees seeded faults."""
    if implementation.shares:
        return (GRID, *SHARED)
    return (CHECKER, GRID) if implementation.checked else (GRID, *SUITE)


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    names = [i.name for i in (*IMPLEMENTATIONS, *NEWER_IMPLEMENTATIONS)]
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--no-offline", action="store_true", help="leave out AMD and NVIDIA compiles")
    parser.add_argument("--tests", nargs="+", help="other tests than the usual ones")
    parser.add_argument("--share", type=int, default=1, metavar="N", help="one of N tests and compiles")
    return parser.parse_args(words)


def newer_ones(names: Sequence[str]) -> list[Implementation]:
    """Those of *names* that run in the system of newer.py, with their versions, if it can be had."""
    wanted = [i for i in NEWER_IMPLEMENTATIONS if i.name in names]
    if wanted and (reason := newer.missing()):
        print(f"left out: {', '.join(i.name for i in wanted)}: {reason}")
        return []
    return [replace(i, title=i.title.format(newer.version(i.newer))) for i in wanted]


def run_all(chosen: Sequence[Implementation], tests: Sequence[str] | None, share: int) -> list[Run]:
    """The simulator first: it takes longest."""
    more = (f"--share={share}",) if share > 1 else ()
    order = sorted(chosen, key=lambda i: not i.checked)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = {i.name: pool.submit(run, i, (*(tests or tests_of(i)), *more), LIMIT_S) for i in order}
        return [jobs[i.name].result() for i in chosen]


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    try:
        prepare()
    except SetupError as error:
        print(error, file=sys.stderr)
        return 2
    chosen = [i for i in IMPLEMENTATIONS if i.name in options.only]
    chosen += newer_ones(options.only)
    runs = run_all(chosen, options.tests, options.share)
    for each in runs if not options.tests else ():
        each.demand_every_kernel()
    compiled = [] if options.no_offline else offline.compile_all(AT_ONCE, options.share)
    tables = [report.kernel_table(runs), report.reasons(runs)]
    tables += [report.offline_table(compiled), report.summary_table(runs)]
    print("\n\n".join(map(report.text, tables)))
    for failure in (c for c in compiled if c.error):
        print(f"\n{failure.kernel} {failure.dtype} for {failure.target}:\n{failure.error[:600]}")
    every = len(IMPLEMENTATIONS) + len(NEWER_IMPLEMENTATIONS)
    whole = len(chosen) == every and compiled and not options.tests and options.share == 1
    target = ROOT / "docs" if whole else HOME
    (target / "conformance.md").write_text(report.document(runs, compiled))
    return 0 if all(r.good for r in runs) and not any(c.error for c in compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
