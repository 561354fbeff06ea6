"""Runs pytest on one implementation in a new process and reads the outcomes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyclmm.kernels import KERNELS

from . import newer
from .implementations import EVERYWHERE, HOME, MATRIX_UNITS, ROOT, Implementation
from .recorder import LOG

PACKAGE = __package__ or "tests.conformance"


@dataclass(frozen=True)
class Outcome:
    """The verdict of a test: "passed", "refused" (a skip with a known reason) or "FAILED"."""

    kernel: str
    dtype: str
    test: str
    verdict: str
    reason: str = ""


@dataclass
class Run:
    """The run of one implementation: the outcomes of its tests, and what went wrong besides (``trouble``)."""

    implementation: Implementation
    outcomes: list[Outcome] = field(default_factory=list)
    trouble: str = ""
    seconds: float = 0.0

    def demand_every_kernel(self) -> None:
        """A kernel that must pass here at least once and never did is trouble."""
        passed = {o.kernel for o in self.outcomes if o.verdict == "passed"}
        excused = {*MATRIX_UNITS, *self.implementation.without}
        missing = [k.name for k in KERNELS if k.name not in passed | excused]
        if missing and not self.trouble:
            self.trouble = f"never passed: {', '.join(missing)}"

    @property
    def good(self) -> bool:
        return not self.trouble and all(o.verdict != "FAILED" for o in self.outcomes)


def environment(implementation: Implementation) -> dict[str, str]:
    """An environment in which a process sees only this implementation."""
    icd = HOME / f"{implementation.name}.icd"
    icd.write_text(f"{_library(implementation)}\n")
    paths = [*map(str, implementation.library_path), os.environ.get("LD_LIBRARY_PATH", "")]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OCL", "PYOPENCL", "POCL"))}
    return kept | {
        "OCL_ICD_VENDORS": str(icd),
        "LD_LIBRARY_PATH": ":".join(filter(None, paths)),
        "PYOPENCL_NO_CACHE": "1",
        "XDG_CACHE_HOME": str(HOME / "cache" / implementation.name),
        "PYCLMM_SELFCHECK": "off",  # kernels are tested here, not the self-check and the trial
        LOG: str(HOME / f"{implementation.name}.jsonl"),
        **({"CONFORMANCE_FEW": "1"} if implementation.shares else {}),
        **implementation.env,
    }


def _library(implementation: Implementation) -> Path:
    if implementation.newer:
        return Path(implementation.library)
    libraries = sorted(implementation.home.glob(implementation.library))
    if not libraries:
        raise FileNotFoundError(f"no {implementation.library} below {implementation.home}")
    return libraries[0]


def _command(implementation: Implementation, tests: Sequence[str]) -> list[str]:
    pytest = ["-m", "pytest", "-q", "-p", f"{PACKAGE}.recorder", *tests]
    if not implementation.newer:
        return [sys.executable, *pytest]
    path = f"PYTHONPATH={newer.SITE}{os.pathsep}{ROOT}"
    return newer.inside(["env", path, newer.PYTHON, *pytest, "-p", "no:cacheprovider"])


def run(implementation: Implementation, tests: Sequence[str], limit_s: float) -> Run:
    """Run *tests*. A process that dies or hangs is trouble in the result and raises nothing."""
    result = Run(implementation)
    started = time.monotonic()
    log = HOME / f"{implementation.name}.jsonl"
    log.unlink(missing_ok=True)
    command = _command(implementation, tests)
    try:
        env = environment(implementation)
        with (HOME / f"{implementation.name}.txt").open("w") as output:
            done = subprocess.run(
                command,
                check=False,
                cwd=ROOT,
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=limit_s,
            )
        status = done.returncode
        if status < 0:
            result.trouble = f"the process died: {signal.Signals(-status).name}"
        elif status not in (0, 1):
            result.trouble = f"pytest ended with status {status}; see {log.with_suffix('.txt')}"
    except subprocess.TimeoutExpired:
        result.trouble = f"not finished after {limit_s:.0f} s"
    except FileNotFoundError as error:
        result.trouble = str(error)
    result.seconds = time.monotonic() - started
    _read(log, result)
    return result


def _read(log: Path, result: Run) -> None:
    """Add to *result* the outcomes of the recorder and the test that was running at the end."""
    running: dict[str, dict[str, str]] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        event = json.loads(line)
        if event["event"] == "start":
            running = {event["test"]: event}
            last = event
        elif event["event"] == "end":
            running.clear()
            result.outcomes.append(_outcome(last, event, result.implementation))
    if not result.outcomes and not result.trouble:
        result.trouble = "no test ran"
    for event in running.values() if result.trouble else ():
        what = Outcome(event["kernel"], event["dtype"], event["test"], "FAILED", result.trouble)
        result.outcomes.append(what)


def _outcome(start: dict[str, str], end: dict[str, str], implementation: Implementation) -> Outcome:
    verdict = {"passed": "passed", "skipped": "refused"}.get(end["outcome"], "FAILED")
    if verdict == "refused" and not _explained(end["reason"], implementation):
        verdict = "FAILED"
    return Outcome(start["kernel"], start["dtype"], start["test"], verdict, end["reason"])


def _explained(reason: str, implementation: Implementation) -> bool:
    return any(re.search(known, reason) for known in (*EVERYWHERE, *implementation.refusals))
