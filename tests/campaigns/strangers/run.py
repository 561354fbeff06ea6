"""Runs pytest on foreign tests in a process of its own, and judges what it wrote."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...conformance.implementations import IMPLEMENTATIONS
from ...conformance.prepare import prepare
from ...conformance.run import environment
from .differences import Difference
from .plugin import LISTED, LOG, SOURCES, SUITE
from .suites import HOME, ROOT

LIMIT_S = 60 * 60
PLUGIN = "tests.campaigns.strangers.plugin"


@dataclass
class Run:
    """What became of the tests of one suite. ``trouble`` is what else went wrong."""

    driver: str = "no driver"
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    def count(self, outcome: str) -> int:
        return Counter(each["outcome"] for each in self.outcomes)[outcome]

    @property
    def products(self) -> int:
        return sum(each["products"] for each in self.outcomes)

    @property
    def failures(self) -> list[str]:
        failed = (each for each in self.outcomes if each["outcome"] == "failed")
        return [f"{each['test']}: {each['reason'].splitlines()[0]}" for each in failed] + self.trouble


def driver_environment(name: str | None) -> dict[str, str]:
    """The environment of a driver of `make conformance`, or of the default device."""
    if name is None:
        return os.environ | {"PYCLMM_SELFCHECK": "off", "PYCLMM_CACHE_DIR": str(HOME / "cache")}
    prepare()
    return environment(next(each for each in IMPLEMENTATIONS if each.name == name))


def run(
    suite: str,
    python: Path,
    sources: Path,
    tests: Sequence[str],
    env: Mapping[str, str],
    differences: Sequence[Difference],
    log: Path,
) -> Run:
    """Run *tests* of *suite* in *sources*, of which those of *differences* must fail.

    What pytest says goes beside *log*. A process that dies or hangs is trouble in the result.
    """
    log.unlink(missing_ok=True)
    # Zarr's plugin asks the module cupy, for which suites have a stand-in, about its devices.
    plugins = ("-p", "no:cacheprovider", "-p", "no:zarr", "-p", PLUGIN)
    command = [python, "-m", "pytest", "-q", *plugins, *tests]
    told = {
        SUITE: suite,
        LISTED: json.dumps([asdict(each) for each in differences if each.suite == suite]),
        SOURCES: str(sources),
        LOG: str(log),
        "PYTHONPATH": str(ROOT),
        "PYCLMM_TRIAL": "off",  # a child process for each program takes too long
    }
    with log.with_suffix(".txt").open("w") as output:
        try:
            done = subprocess.run(
                command,
                cwd=sources,
                env={**env, **told},
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return Run(trouble=[f"not finished after {LIMIT_S} s; see {output.name}"])
    return _judged(log, done.returncode)


def _judged(log: Path, status: int) -> Run:
    said = f"see {log.with_suffix('.txt')}"
    if status < 0:
        return Run(trouble=[f"the process died: {signal.Signals(-status).name}; {said}"])
    if status not in (0, 1) or not log.exists():
        return Run(trouble=[f"pytest ended with status {status}; {said}"])
    content = json.loads(log.read_text())
    result = Run(content["driver"], content["outcomes"])
    result.trouble += [f"a listed difference names no test: {name}" for name in content["not_found"]]
    if not result.count("passed"):
        result.trouble.append(f"no test passed that multiplies; {said}")
    return result
