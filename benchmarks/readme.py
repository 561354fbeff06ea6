"""Rewrites the tables of README.md from KERNELS and from the files in benchmarks/results/.

    python benchmarks/readme.py [--check]

Everything between ``<!-- NAME -->`` and ``<!-- end NAME -->`` is replaced. No number is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyclmm

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def kernels() -> str:
    """Every kernel by name; those that "auto" may choose are marked."""
    rows = [[f"`{k.name}`", k.summary, "yes" if k.automatic else ""] for k in pyclmm.KERNELS]
    return table(["name", "what it is", "auto"], rows)


def header(content: dict[str, Any]) -> str:
    device = content["device"]
    return (
        f"{device['name']} ({device['platform']}, driver {device['driver_version']}), {content['date'][:10]}"
    )


def bench() -> str:
    """One product by every kernel, as `pyclmm bench` measured it."""
    parts = []
    for file in sorted(RESULTS.glob("bench_*.json")):
        content = json.loads(file.read_text())
        for product in content["products"]:
            size = f"{product['m']} x {product['n']} x {product['k']} {product['dtype']}"
            parts += [f"{size}; {header(content)}; NumPy {content['host']['numpy']}:", ladder(product)]
    return "\n\n".join(parts)


def ladder(product: dict[str, Any]) -> str:
    ran = [row for row in product["rows"] if row["wall_s"] is not None]
    rows = [
        [row["kernel"], f"{row['wall_s'] * 1e3:.3g}", f"{row['gflops']:.3g}", f"{row['speedup']:.3g}"]
        for row in ran
    ]
    return table(["kernel", "ms", "GFLOP/s", "times `sequential`"], rows)


def geometric(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def cpu() -> str:
    """Speed beside NumPy on CPU devices, from benchmarks/cpu.py."""
    rows = [row for file in sorted(RESULTS.glob("cpu_*.json")) for row in cpu_rows(file)]
    head = ["driver", "dtype", "geometric mean", "least", "at", "times CLBlast", "date"]
    return table(head, rows)


def cpu_rows(file: Path) -> Iterator[list[str]]:
    content = json.loads(file.read_text())
    by_dtype: dict[str, list[dict[str, Any]]] = {}
    for row in content["rows"]:
        by_dtype.setdefault(row["dtype"], []).append(row)
    for dtype, measured in by_dtype.items():
        ratios = {
            r["shape"]: r["seconds"]["numpy"] / r["seconds"]["pyclmm"]
            for r in measured
            if "numpy" in r["seconds"]
        }
        peers = [
            r["seconds"]["clblast"] / r["seconds"]["pyclmm"] for r in measured if "clblast" in r["seconds"]
        ]
        worst = min(ratios, key=lambda shape: ratios[shape])
        driver = f"{content['device']['platform']} {content['device']['driver_version']}"
        mean, least = f"{geometric(list(ratios.values())):.2f}", f"{ratios[worst]:.2f}"
        yield [
            driver,
            dtype,
            mean,
            least,
            worst,
            f"{geometric(peers):.1f}" if peers else "-",
            content["date"][:10],
        ]


PARTS = {"kernels": kernels, "bench": bench, "cpu": cpu}


def rewritten(text: str) -> str:
    for name, part in PARTS.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)"
        text = re.sub(pattern, lambda m, body=part(): f"{m[1]}{body}\n{m[2]}", text, flags=re.DOTALL)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether README.md is up to date")
    readme = ROOT / "README.md"
    old = readme.read_text()
    new = rewritten(old)
    if parser.parse_args().check:
        sys.exit(0 if new == old else "README.md is not what benchmarks/readme.py makes of the results")
    readme.write_text(new)


if __name__ == "__main__":
    main()
