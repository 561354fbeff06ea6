"""The conformance table: text for the terminal, and docs/conformance.md."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date

from .compilers import Resources
from .offline import Compiled
from .run import Outcome, Run

INTERFACE = "(interface)"
_SHORT = 160
_REASONS = 3  # most reasons shown for a kernel on an implementation


def verdict(outcomes: Iterable[Outcome]) -> str:
    """One word for a group of tests: FAILED if any failed, else passed if any passed, else refused."""
    found = {o.verdict for o in outcomes}
    return next((v for v in ("FAILED", "passed", "refused") if v in found), "-")


def cells(run: Run) -> dict[tuple[str, str], list[Outcome]]:
    """The outcomes of a run by (kernel, dtype). Tests without a kernel count for the interface."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in run.outcomes:
        key = (outcome.kernel or INTERFACE, outcome.dtype if outcome.kernel else "")
        groups.setdefault(key, []).append(outcome)
    return groups


def kernel_table(runs: Sequence[Run]) -> list[list[str]]:
    """A row for each kernel and each group of dtypes with the same verdicts."""
    by_run = [cells(run) for run in runs]
    keys = list(dict.fromkeys(key for groups in by_run for key in groups))
    merged: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for kernel, dtype in keys:
        words = tuple(verdict(groups.get((kernel, dtype), ())) for groups in by_run)
        merged.setdefault((kernel, words), []).append(dtype)
    head = ["kernel", "dtypes", *(run.implementation.name for run in runs)]
    return [head, *([kernel, " ".join(d), *words] for (kernel, words), d in merged.items())]


def reasons(runs: Sequence[Run]) -> list[list[str]]:
    """Refusals and failures as rows of (implementation, kernel, dtypes, verdict, reason)."""
    merged: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for run in runs:
        for o in run.outcomes:
            if o.verdict != "passed":
                key = (run.implementation.name, o.kernel or INTERFACE, o.verdict, short(o))
                merged.setdefault(key, {})[o.dtype or o.test] = None
    rows = [["implementation", "kernel", "what", "verdict", "reason"]]
    shown: Counter[tuple[str, str]] = Counter()
    for (name, kernel, word, why), what in merged.items():
        shown[name, kernel] += 1
        if shown[name, kernel] <= _REASONS:
            rows.append([name, kernel, _few(list(what)), word, why])
    return rows


def _few(names: Sequence[str]) -> str:
    return " ".join(names[:16]) + (f" and {len(names) - 16} more" if len(names) > 16 else "")


def short(outcome: Outcome) -> str:
    """One line: a refusal without its problem, or the first line of a failure."""
    text = " ".join(outcome.reason.split())
    return text.rsplit(": ", 1)[-1] if outcome.verdict == "refused" else text[:_SHORT]


def summary_table(runs: Sequence[Run]) -> list[list[str]]:
    rows = [["implementation", "passed", "refused", "failed", "seconds", "trouble"]]
    for run in runs:
        counts = [sum(o.verdict == v for o in run.outcomes) for v in ("passed", "refused", "FAILED")]
        rows.append([run.implementation.title, *map(str, counts), f"{run.seconds:.0f}", run.trouble or "-"])
    return rows


def offline_table(compiled: Sequence[Compiled]) -> list[list[str]]:
    """The most registers, spills and local memory of each kernel function, over all its programs."""
    groups: dict[tuple[str, str], list[Compiled]] = {}
    for c in compiled:
        groups.setdefault((c.kernel, c.target), []).append(c)
    rows = [["kernel", "target", "programs", "failed", "registers", "spilled", "local bytes"]]
    for (kernel, target), group in groups.items():
        failed = sum(bool(c.error) for c in group)
        rows.append([kernel, target, str(len(group)), str(failed), *most(c.resources for c in group)])
    return rows


def most(needs: Iterable[Resources]) -> list[str]:
    """The most registers, spills and local memory; "-" where a compiler does not report it."""
    found = list(needs)
    local = [n.local_bytes for n in found if n.local_bytes is not None]
    sums = (max(n.registers for n in found), max(n.spilled for n in found), max(local, default="-"))
    return list(map(str, sums))


def markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in lines)


def text(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def document(runs: Sequence[Run], compiled: Sequence[Compiled]) -> str:
    """docs/conformance.md."""
    return f"""# Conformance

Written by `make conformance` on {date.today()} ({platform.machine()}). Each implementation runs in a
process of its own. *refused*: the kernel does not support the case; the last table has the reasons.

## Runs

{markdown(summary_table(runs))}

## Kernels

{markdown(kernel_table(runs))}

## Compiled for devices that we do not have

clang 19 for AMD, Intel's ocloc (22.43) for Intel, clang 15 to PTX and ptxas for NVIDIA; warnings are errors,
except for Intel. For gfx942, gfx1100 and pvc only the kernels for matrix units are compiled. The numbers are
the largest over all dtypes of an entry; an Intel thread always has 128 registers.
[kernels/offline.md](kernels/offline.md), written by `make offline`, has every configuration of the kernels
for GPUs and the register tiles for Arm's CPUs. `make offline` also runs `packed` and `matvec` on an emulated
Arm processor. `make emulator` executes the machine code of the kernels for AMD's GPUs in an emulator of their
instructions: [what it ran](kernels/emulated.md), [what that shows and what not](emulator.md).

{markdown(offline_table(compiled))}

## Refusals

{markdown(reasons(runs))}
"""
