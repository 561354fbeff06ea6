"""Tests the tests: puts one fault at a time into a copy of the project, where the tests must then fail.

    python -m tests.campaigns.seeded_faults [NAME ...] [--list] [--check]      or: make faults

A fault (faults.py) is data: a file, the occurrence of a text in it, the text that replaces it, and the tests
that must notice: those of them that `make test` runs, or else those that `make test-all` adds. Exit codes: 0
success, 1 if a fault was not noticed, fewer than LEAST of all are noticed by `make test`, a fault's text no
longer exists, or the tests fail without a fault.

With --check the faults are those of check_faults.py, each with a product that it makes wrong. The self-check
alone must notice them when a user multiplies on a fresh cache, or else `pyclmm selftest --full`. Exit code 1:
one was noticed by neither, or less than 95 % by the check.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..conformance.implementations import HOME, IMPLEMENTATIONS
from ..conformance.prepare import prepare
from ..conformance.run import environment
from .check_faults import CHECK_FAULTS, CheckFault
from .faults import ARM, FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
TABLE, CHECK_TABLE = ROOT / "docs" / "seeded_faults.md", ROOT / "docs" / "check_faults.md"
COPIED = ("pyclmm", "cl", "tests", "setup.cfg", "pyproject.toml")
LIMIT_S = 600
TESTS_FAILED = 1  # pytest's exit status; others but 0 mean that no test was run
LEAST = 110  # faults that `make test` notices
LEAST_CHECKED = 0.95  # of the faults for it that the self-check notices
FAST, ALL, MISSED = "make test", "make test-all", "MISSED"
CHECK, SELFTEST = "self-check", "selftest"


@dataclass(frozen=True)
class Result:
    fault: Fault
    by: str  # FAST, ALL, CHECK, SELFTEST or MISSED
    said: str
    seconds: float


def run_pytest(tree: Path, tests: Sequence[str], on: str, which: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of *tree* with the marker *which* on its sources, up to the first failure."""
    seen = [environment(i) for i in IMPLEMENTATIONS if i.name == on]
    env = (seen[0] if seen else dict(os.environ)) | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=line", "-m", which]
    return subprocess.run(
        [*command, *tests], cwd=tree, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def copy_tree(target: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    (target / HOME.name).symlink_to(HOME)


def seed(fault: Fault) -> Result:
    """Run the fault's tests with the fault in place."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_tree(tree)
        try:
            fault.apply(tree)
            by, said = checked(fault, tree) if isinstance(fault, CheckFault) else noticed(fault, tree)
        except (LookupError, subprocess.SubprocessError) as error:
            by, said = MISSED, str(error)
    return Result(fault, by, " ".join(said.split())[:200], time.monotonic() - started)


def noticed(fault: Fault, tree: Path) -> tuple[str, str]:
    """By what the fault in *tree* is noticed, and what the test said."""
    for by, which in ((FAST, "not slow"), (ALL, "slow or hypothesis or rounds")):
        done = run_pytest(tree, fault.tests, fault.on, which)
        # A fault may end the process: one that overwrites memory, one that a simulator refuses.
        if done.returncode == TESTS_FAILED or done.returncode < 0:
            lines = [line for line in done.stdout.splitlines() if line.startswith(("E ", "/", "FAILED"))]
            return by, lines[0] if lines else done.stdout[-300:]
    return MISSED, done.stdout[-300:]


def checked(fault: CheckFault, tree: Path) -> tuple[str, str]:
    """Whether the self-check or selftest notices the fault in *tree*, and what it said."""
    answer = asked(tree, json.dumps(fault.product))
    if not answer["wrong"]:
        return MISSED, f"its product is right; the self-check said {answer['reason']}"
    if answer["reason"]:
        return CHECK, answer["reason"]
    found = asked(tree, fault.product["kernel"])
    return (SELFTEST, found) if found else (MISSED, "neither the self-check nor selftest says anything")


def asked(tree: Path, what: str) -> Any:
    """The answer of checked_product.py, run on the sources of *tree* with an empty cache."""
    own = {"PYTHONPATH": str(tree), "PYCLMM_CACHE_DIR": str(tree / "cache"), "PYCLMM_TRIAL": "off"}
    env = {name: x for name, x in os.environ.items() if name != "PYCLMM_SELFCHECK"} | own
    command = [sys.executable, "-B", "-m", "tests.campaigns.checked_product", what]
    seen: Any = {"cwd": tree, "env": env, "capture_output": True, "text": True, "timeout": LIMIT_S}
    done = subprocess.run(command, check=False, **seen)
    if done.returncode:
        raise subprocess.SubprocessError(done.stderr[-400:])
    return json.loads(done.stdout.splitlines()[-1])


def healthy(chosen: Sequence[Fault]) -> str:
    """The output of these faults' tests if they fail without a fault; empty if they pass."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_tree(tree)
        where = "import pyclmm, sys; sys.exit(0 if pyclmm.__file__.startswith(sys.argv[1]) else 3)"
        env = os.environ | {"PYTHONPATH": folder}
        subprocess.run([sys.executable, "-c", where, folder], cwd=tree, env=env, check=True)
        for tests, on in dict.fromkeys((f.tests, f.on) for f in chosen):
            done = run_pytest(tree, tests, on, "slow or not slow")
            if done.returncode:
                return done.stdout[-2000:]
    return ""


def table(results: Sequence[Result], head: str) -> str:
    rows = ["| fault | file | what it breaks | noticed |", "| --- | --- | --- | --- |"]
    for r in results:
        f = r.fault
        rows.append(f"| {f.name} | `{f.file}` | {f.breaks} | {'**no**' if r.by == MISSED else r.by} |")
    return f"{head} {counted(results)}.\n\n" + "\n".join(rows) + "\n"


def counted(results: Sequence[Result]) -> str:
    """How many faults each noticed."""
    by = Counter(r.by for r in results)
    parts = [f"{by[name]} by {name}" for name in (FAST, ALL, CHECK, SELFTEST) if by[name]]
    return f"{len(results)} faults: {', '.join(parts)}, {by[MISSED]} by none"


TESTS_HEAD = (
    "# Seeded faults\n\nWritten by `make faults`: each fault is put into a copy of the project, "
    "and the tests must turn red."
)
CHECK_HEAD = (
    "# Faults for the self-check\n\nWritten by `python -m tests.campaigns.seeded_faults --check`: each fault "
    "is put into a copy of the project, where a\nuser's product is then wrong. On a fresh cache the "
    "[self-check](design.md#self-check-before-use) must refuse the kernel,\nor else `pyclmm selftest --full` "
    "must say so. Faults of the programs that check results, which have a self-check of their own,\nare in "
    "`tests/checks/test_checked_results.py`."
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.seeded_faults")
    parser.add_argument("names", nargs="*", help="faults to seed; all of them by default")
    parser.add_argument("--list", action="store_true", help="only list the faults")
    parser.add_argument("--check", action="store_true", help="the faults that the self-check must notice")
    options = parser.parse_args()
    faults: Sequence[Fault] = CHECK_FAULTS if options.check else FAULTS
    chosen = [f for f in faults if not options.names or f.name in options.names]
    if options.list:
        print("\n".join(f"{f.name:24} {f.breaks}" for f in chosen))
        return 0
    if any(f.on or ARM in f.tests for f in chosen):
        prepare()
    if not options.check and (trouble := healthy(chosen)):
        print(f"The tests are red without a fault:\n{trouble}", file=sys.stderr)
        return 1
    results = []
    with ThreadPoolExecutor(2) as pool:
        for result in pool.map(seed, chosen):
            results.append(result)
            print(f"{result.by:13} {result.fault.name:24} {result.seconds:5.1f} s  {result.said}", flush=True)
    if not options.names:
        target, head = (CHECK_TABLE, CHECK_HEAD) if options.check else (TABLE, TESTS_HEAD)
        target.write_text(table(results, head), encoding="utf-8")
    print(counted(results))
    by = Counter(r.by for r in results)
    enough = by[CHECK] >= LEAST_CHECKED * len(results) if options.check else by[FAST] >= LEAST
    return 0 if (enough or len(chosen) < len(faults)) and not by[MISSED] else 1


if __name__ == "__main__":
    sys.exit(main())
