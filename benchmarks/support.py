"""What pyclmm was tested on, for the README: a row for each kind of device.

A kind is measured if the comparisons with NumPy and cuBLAS in benchmarks/results/ have a device of it,
emulated if docs/kernels/emulated.md has executed its machine code, compiled if only a compiler of
docs/conformance.md or docs/kernels/offline.md has, and never run otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFORMANCE = ROOT / "docs" / "conformance.md"
OFFLINE = ROOT / "docs" / "kernels" / "offline.md"
EMULATED = ROOT / "docs" / "kernels" / "emulated.md"
RESULTS = ROOT / "benchmarks" / "results"
COMPARISONS = ("cpu-*.json", "*-float32.json", "*-sampled*.json")  # with NumPy, cuBLAS and CLBlast
STATES = ("measured", "machine code executed in an emulator", "compiled offline only", "never run")


@dataclass(frozen=True)
class Kind:
    """A kind of device. *devices* matches its names in results, *targets* what its compiler is called for."""

    name: str
    devices: str
    targets: str


KINDS = (
    Kind("CPUs, x86-64, Linux", r"EPYC|Ryzen|Xeon|Core", r"(?!)"),
    Kind("NVIDIA GPUs", r"NVIDIA", r"sm_\d+a?"),
    Kind("AMD GPUs", r"gfx|Radeon|Instinct", r"gfx\w+"),
    Kind("Intel GPUs", r"Arc|Iris|Data Center GPU", r"dg2\S*|pvc"),
    Kind("Arm CPUs", r"Cortex|Neoverse", r"armv\S+|neoverse\S+"),
    Kind("Apple, Mali and Adreno GPUs", r"Apple|Mali|Adreno", r"(?!)"),
)


def measured(results: Path = RESULTS) -> dict[str, str]:
    """Processor or GPU of the comparisons with NumPy and cuBLAS -> the newest date."""
    found: dict[str, str] = {}
    for file in sorted(file for name in COMPARISONS for file in results.glob(name)):
        content = json.loads(file.read_text(encoding="utf-8"))
        name = content.get("processor") if file.name.startswith("cpu-") else content["device"]
        if name:
            found[name] = max(str(content["date"])[:10], found.get(name, ""))
    return found


def runs(page: str) -> list[str]:
    """The implementations with a row under "Runs" of docs/conformance.md that passed everything."""
    table = page.partition("## Runs")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| \d+ \| \d+ \| 0 \| \d+ \| - \|$", table, re.MULTILINE)
    return [row.strip() for row in rows]


def targets(page: str) -> list[str]:
    """What docs/conformance.md compiled without a failure, by the compiler's name of the device."""
    table = page.partition("## Compiled for")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \w+: \w+ \| (\S+) \| \d+ \| (\d+) \|", table, re.MULTILINE)
    failed = {target for target, number in rows if number != "0"}
    return [target for target in dict.fromkeys(target for target, _ in rows) if target not in failed]


def arm_targets(page: str) -> list[str]:
    """What docs/kernels/offline.md compiled for Arm's CPUs: the columns of its table, if nothing failed."""
    section = page.partition("## Arm's CPUs")[2].partition("\n## ")[0]
    head = re.search(r"^\| kernel \| type \| configuration \| (.*) \|$", section, re.MULTILINE)
    return head[1].split(" | ") if head and "programs, 0 of them spill or fail." in section else []


def emulated(page: str) -> list[str]:
    """The columns of docs/kernels/emulated.md: processors. It is written if all products were right."""
    head = re.search(r"^\| kernel \| (.*) \|$", page, re.MULTILINE)
    return head[1].split(" | ") if head else []


def status(
    kind: Kind, seen: dict[str, str], compiled: list[str], executed: Sequence[str] = ()
) -> tuple[str, str]:
    """What is known of a kind of device, a word of STATES; and on what."""
    own = {name: date for name, date in seen.items() if re.search(kind.devices, name)}
    if own:
        return STATES[0], "; ".join(f"{name} ({date})" for name, date in sorted(own.items()))
    for state, names in zip(STATES[1:], (executed, compiled), strict=False):
        if own_names := [name for name in names if re.fullmatch(kind.targets, name)]:
            return state, ", ".join(own_names)
    return STATES[-1], ""


def rows() -> list[list[str]]:
    """A row for each kind of device: its name, its status, on what."""
    page = CONFORMANCE.read_text(encoding="utf-8")
    compiled = targets(page) + arm_targets(OFFLINE.read_text(encoding="utf-8"))
    seen = measured()
    executed = emulated(EMULATED.read_text(encoding="utf-8")) if EMULATED.exists() else []
    found = [[kind.name, *status(kind, seen, compiled, executed)] for kind in KINDS]
    return [*found, ["OpenCL drivers", "every kernel checked", "; ".join(runs(page))]]
