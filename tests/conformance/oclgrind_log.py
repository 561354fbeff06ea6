"""Reads Oclgrind's log: each finding with its kernel function, file and line."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

_KINDS = (
    ("race", re.compile(r"data race")),
    ("invalid access", re.compile(r"^Invalid (read|write)|out of bounds|out-of-bounds")),
    ("uninitialized read", re.compile(r"[Uu]ninitiali[sz]ed")),
)
_KERNEL = re.compile(r"^\s*Kernel:\s*(\S+)", re.M)
_PLACE = re.compile(r"^\s*At line (\d+) (?:\(column \d+\) )?of (\S+?):?$", re.M)
# Oclgrind 21.10 reads the double of vstore_half as two floats and so reads past its own record of it: at
# random it reports the value as uninitialized.
_FALSE_ALARMS = re.compile(r"@_Z\d+vstore_half(_rt[enzp])?d")


@dataclass(frozen=True)
class Finding:
    kind: str
    kernel: str
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.kernel} at {self.place}: {self.text}"


def findings(log: str) -> list[Finding]:
    """Every report in *log* except known false alarms. A report of an unknown kind is "other"."""
    found = []
    for report in re.split(r"\n(?=\S)", "\n" + log):
        if not report.strip() or _FALSE_ALARMS.search(report):
            continue
        first = report.strip().splitlines()[0].strip()
        kind = next((name for name, words in _KINDS if words.search(first)), "other")
        kernel, place = _KERNEL.search(report), _PLACE.search(report)
        found.append(
            Finding(kind, kernel[1] if kernel else "?", f"{place[2]}:{place[1]}" if place else "?", first)
        )
    return found


class Log:
    """The part of this process's log that is written from now on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = path.stat().st_size if path.exists() else 0

    def findings(self) -> list[Finding]:
        return findings(self.path.read_bytes()[self._start :].decode()) if self.path.exists() else []


def summary(found: list[Finding]) -> str:
    """The findings with their counts, most frequent first."""
    counts = Counter((f.kind, f.kernel, f.place) for f in found)
    return "; ".join(f"{n} x {kind} in {k} at {p}" for (kind, k, p), n in counts.most_common(8))
