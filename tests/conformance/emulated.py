"""Runs the kernels that AMD's GPUs are offered in an emulator of their instructions.

    python -m tests.conformance.emulated [--share N]        (`make emulator`)

Writes docs/kernels/emulated.md, unless only one of N tests is run. Exit codes: 0 success, 1 a test fails,
2 a tool cannot be fetched.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from .implementations import ROOT
from .packages import SetupError
from .prepare import prepare
from .report import markdown, text

TABLE = ROOT / "docs" / "kernels" / "emulated.md"
TESTS = ("amd_products.py", "amd_emulator.py")


@dataclass(frozen=True)
class Ran:
    """What a test ran: a kernel on a processor."""

    kernel: str
    processor: str
    products: int
    instructions: int
    seconds: float


def ran(report: Path) -> list[Ran]:
    """The tests of a JUnit report that ran a kernel and passed."""
    found = []
    for case in ET.parse(report).iter("testcase"):
        noted = {x.get("name"): str(x.get("value")) for x in case.iter("property")}
        if "kernel" in noted and case.find("failure") is None and case.find("error") is None:
            counts = (int(noted["products"]), int(noted["instructions"]))
            found.append(Ran(noted["kernel"], noted["processor"], *counts, float(case.get("time", 0))))
    return found


def table(rows: Iterable[Ran]) -> list[list[str]]:
    """Products of each kernel on each processor, and all of them with their instructions and time."""
    rows = list(rows)
    processors = list(dict.fromkeys(row.processor for row in rows))
    products: Counter[tuple[str, str]] = Counter()
    for row in rows:
        products[row.kernel, row.processor] += row.products
        products["", row.processor] += row.products
    kernels = list(dict.fromkeys(row.kernel for row in rows))
    lines = [[name, *(str(products[name, p] or "") for p in processors)] for name in kernels]
    thousands = [sum(r.instructions for r in rows if r.processor == p) // 1000 for p in processors]
    return [
        ["kernel", *processors],
        *lines,
        ["all", *(str(products["", p]) for p in processors)],
        ["thousands of instructions", *map(str, thousands)],
    ]


def document(rows: list[Ran]) -> str:
    """docs/kernels/emulated.md."""
    seconds = sum(row.seconds for row in rows)
    return f"""# Executed in an emulator

Written by `make emulator` on {date.today()}: products that machine code for AMD's GPUs computed in an
emulator of their instructions, by kernel and processor. All were right. An instruction counts once for all
wavefronts that execute it together. The tests took {seconds:.0f} s, all processes together.

[emulator.md](../emulator.md) says how it works, and what this shows and what it does not.

{markdown(table(rows))}
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.emulated")
    parser.add_argument("--share", type=int, default=1, metavar="N", help="run one of N tests")
    share = parser.parse_args().share
    try:
        prepare()
    except SetupError as error:
        print(error, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        files = [Path(__file__).with_name(name) for name in TESTS]
        pytest = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", f"--share={share}"]
        done = subprocess.run([*pytest, f"--junitxml={report}", *files], cwd=ROOT, check=False)
        if done.returncode:
            return 1
        rows = ran(report)
    if share == 1:
        TABLE.write_text(document(rows), encoding="utf-8")
    print(text(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
