"""Compares two versions of pyclmm in one run: the times and the bits of the same products.

    git worktree add ../old COMMIT
    python benchmarks/versions.py ../old . [--json FILE] [--types float16,medium] [--only "NT 1024"]

Each version runs in its own process (versions_worker.py). The two take turns: old new, new old, old new.

On a GPU the products are those of gpu.py, 16 shapes in three layouts, for each type. Calls are timed in
bursts of launches without events, by the device's clock on NVIDIA's devices (burst.py) and by the host's on
others. The programs are built first, by many processes at once, as drivers and PyOpenCL keep them on disk.

On a CPU the products are those of cpu.py, on host arrays and timed as there.

All times are medians. A ratio is the old time over the new one: below 1 the new version is slower.
``fastest_ratio`` compares each side's fastest call, which other work on the machine disturbs less. ``high``
and ``medium`` are float32 at that precision. The file counts the products that --budget left no time for.

Exit codes: 0 success, 1 a wrong result or a product that failed, 2 invalid arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import math
import os
import queue
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("versions_worker.py")
Shape = tuple[int, ...]  # M, N, K; for a stack the number of products comes first
GPU_SHAPES: tuple[Shape, ...] = (
    *((n, n, n) for n in (512, 1024, 2048, 4096, 8192, 1000, 4095, 4097)),
    (16, 4096, 4096), (4096, 16, 4096), (4096, 4096, 16), (1, 8192, 8192),
    (256, 256, 65536), (65536, 256, 256), (64, 512, 512, 512), (1024, 128, 128, 128),
)  # fmt: skip
CPU_SHAPES: tuple[Shape, ...] = (
    *((n, n, n) for n in (128, 256, 512, 1000, 1023, 1024, 1025, 2048, 4096)),
    (16, 2048, 2048), (2048, 16, 2048), (2048, 2048, 16), (1, 4096, 4096),
    (256, 256, 16384), (8192, 128, 128), (64, 128, 128, 128),
)  # fmt: skip
GPU_TYPES = ("float32", "float16", "bfloat16", "medium", "float64", "high")
CPU_TYPES = ("float32", "float64", "complex64", "float16")
# The largest error of a right product, relative in the norm; 1e-5 for other types.
TOLERANCE = {"float16": 1e-3, "bfloat16": 5e-3, "medium": 1e-3, "float64": 1e-13, "complex128": 1e-13}
BURST = 0.4e-3  # seconds of calls in a burst
MOST_CALLS = 12  # most calls in a burst: see burst.py about launches in flight
OPEN = {"do": "about"}


@dataclass(frozen=True)
class Product:
    """A product that is timed. *type* is an element type, or a precision of float32."""

    type: str
    shape: Shape
    layout: str

    def __str__(self) -> str:
        return f"{self.type} {self.layout} {'x'.join(map(str, self.shape))}"


def products(gpu: bool, types: list[str], shapes: list[Shape] | None, only: str) -> list[Product]:
    """The products of gpu.py or of cpu.py; where *shapes* are given, these in every layout."""
    found = []
    for kind in types or (GPU_TYPES if gpu else CPU_TYPES):
        for shape in shapes or (GPU_SHAPES if gpu else CPU_SHAPES):
            all_layouts = gpu or shapes or shape == (1024, 1024, 1024)
            found += [Product(kind, shape, x) for x in (("NN", "NT", "TN") if all_layouts else ("NN",))]
    return [product for product in found if re.search(only, str(product))]


class Side:
    """A version of pyclmm: its tree and its worker process, which starts when it is needed."""

    def __init__(self, tree: Path, device: str | None, cache: str) -> None:
        self.tree, self._cache = tree, cache
        self._command = [sys.executable, str(WORKER), str(tree)] + (["--device", device] if device else [])
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The worker's answer. Raises RuntimeError if the worker reports a failure or has ended."""
        if self._process is None:
            own = {"PYCLMM_TRIAL": "off", "PYCLMM_SELFCHECK": "off", "PYCLMM_CACHE_DIR": self._cache}
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, text=True, env=os.environ | own
            )
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.tree}: the worker ended with {self.close()}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise RuntimeError(f"{self.tree}: {answer['failed']}")
        return answer

    def close(self) -> int | None:
        """End the process; returns its exit status."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.communicate()
        return process.returncode


def request_of(product: Product, host: bool, build: bool = False) -> dict[str, Any]:
    return {"do": "hold", **asdict(product), "host": host, "build": build}


def build_all(sides: list[list[Side]], todo: list[Product], host: bool, until: float) -> None:
    """Run every product once in each version. *sides* has several processes of each."""

    def work(side: Side, waiting: queue.SimpleQueue[Product]) -> None:
        with contextlib.suppress(queue.Empty):
            while time.perf_counter() < until:
                product = waiting.get_nowait()
                try:
                    side.ask(request_of(product, host, build=True))
                except RuntimeError as error:
                    print(f"{product}: not built beforehand: {error}", file=sys.stderr)
        side.close()

    with ThreadPoolExecutor(sum(map(len, sides))) as pool:
        for several in sides:
            waiting: queue.SimpleQueue[Product] = queue.SimpleQueue()
            for product in todo:
                waiting.put(product)
            for side in several:
                pool.submit(work, side, waiting)


def timed(pair: list[Side], product: Product, host: bool, rounds: int) -> dict[str, Any]:
    """A row of the file: medians over rounds in which the versions take turns."""
    with ThreadPoolExecutor(2) as pool:  # both prepare at once; while one is timed the other waits
        held = list(pool.map(lambda side: side.ask(request_of(product, host)), pair))
        judged = list(pool.map(lambda side: side.ask({"do": "judge"}), pair))
    about = min(answer["seconds"] for answer in held)
    turn = {"do": "turn", "calls": max(1, min(MOST_CALLS, math.ceil(BURST / about)))}
    turns: list[list[list[float]]] = [[], []]  # by side, then by round
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            turns[which].append(pair[which].ask(turn)["times"])
    for side in pair:
        side.ask({"do": "drop"})
    times = [list(itertools.chain.from_iterable(side)) for side in turns]
    (old, new), fastest = map(statistics.median, times), [min(side) for side in times]
    return {
        "seconds": {"old": old, "new": new},
        "ratio": old / new,
        "fastest_ratio": fastest[0] / fastest[1],
        "ratio_by_round": [statistics.median(x) / statistics.median(y) for x, y in zip(*turns, strict=True)],
        "first_seconds": {"old": held[0]["first"], "new": held[1]["first"]},
        "old": held[0]["plan"],
        "new": held[1]["plan"],
        "bits_equal": judged[0]["digest"] == judged[1]["digest"],
        "error": {"old": judged[0]["error"], "new": judged[1]["error"]},
        "right": all(x["error"] <= TOLERANCE.get(product.type, 1e-5) for x in judged),
    }


def measured(pair: list[Side], product: Product, host: bool, rounds: int) -> dict[str, Any]:
    """A row of timed(), or one that says why the product failed. The next product gets new processes."""
    about = {"name": str(product), "type": product.type, "shape": product.shape, "layout": product.layout}
    try:
        return about | timed(pair, product, host, rounds)
    except RuntimeError as error:
        for side in pair:
            side.close()
        return about | {"failed": str(error)}


def shown(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['name']:28} FAILED: {row['failed']}"
    old, new = (row["seconds"][x] * 1e6 for x in ("old", "new"))
    other = "" if row["old"] == row["new"] else f"  {row['old']['kernel']} -> {row['new']['kernel']}"
    bits = "same bits" if row["bits_equal"] else "OTHER BITS"
    wrong = "" if row["right"] else f"  WRONG {row['error']}"
    return f"{row['name']:28} {old:10.1f} us {new:10.1f} us  {row['ratio']:6.3f}  {bits}{other}{wrong}"


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By type: geometric mean and least ratio, the five worst products, counts of right and equal ones."""
    found: dict[str, dict[str, Any]] = {}
    for kind in dict.fromkeys(row["type"] for row in rows):
        own = [row for row in rows if row["type"] == kind]
        good = sorted((row for row in own if "failed" not in row), key=lambda row: row["ratio"])
        found[kind] = {"products": len(own), "failed": len(own) - len(good)}
        if good:
            found[kind] |= {
                "mean": round(statistics.geometric_mean(row["ratio"] for row in good), 4),
                "least": round(good[0]["ratio"], 4),
                "fastest_mean": round(statistics.geometric_mean(row["fastest_ratio"] for row in good), 4),
                "fastest_least": round(min(row["fastest_ratio"] for row in good), 4),
                "worst": {row["name"]: round(row["ratio"], 4) for row in good[:5]},
                "bits_equal": sum(row["bits_equal"] for row in good),
                "right": sum(row["right"] for row in good),
            }
    return found


def commit_of(tree: Path) -> str:
    """The commit checked out in *tree*, with -dirty if files differ from it; "unknown" outside git."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(tree), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    with contextlib.suppress(OSError):
        if git("rev-parse", "--show-toplevel") == str(tree.resolve()):
            return git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    return "unknown"


def shape_of(text: str) -> Shape:
    sides = tuple(int(x) for x in text.split("x"))
    if len(sides) not in (3, 4) or min(sides) < 1:
        raise ValueError(text)
    return sides


def shapes_of(text: str) -> list[Shape]:
    """Shapes such as 1024x1024x1024,64x512x512x512: M, N and K, after the number of products of a stack."""
    return [shape_of(one) for one in text.split(",")]


def types_of(text: str) -> list[str]:
    types = text.split(",")
    known = sorted({*GPU_TYPES, *CPU_TYPES, *TOLERANCE})
    unknown = [x for x in types if x not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: known are {', '.join(known)}")
    return types


def tree_of(text: str) -> Path:
    if not (Path(text) / "pyclmm" / "__init__.py").exists():
        raise argparse.ArgumentTypeError(f"{text} has no package pyclmm")
    return Path(text).resolve()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old", type=tree_of, metavar="OLD_TREE")
    parser.add_argument("new", type=tree_of, metavar="NEW_TREE")
    parser.add_argument("--device", help="text in the name of the device or its platform")
    parser.add_argument("--products", choices=("gpu", "cpu"), help="list of products; default: the device's")
    parser.add_argument("--types", type=types_of, default=[], help="such as float32,medium")
    parser.add_argument("--shapes", type=shapes_of, help="such as 512x512x512,64x128x128x128: all layouts")
    parser.add_argument("--only", default="", metavar="REGEX", help="only products whose name it matches")
    parser.add_argument("--rounds", type=int, help="default: 7 for GPUs, 5 for CPUs")
    parser.add_argument("--budget", type=float, default=math.inf, metavar="SECONDS")
    parser.add_argument(
        "--jobs", type=int, help="processes that build; default: the cores for GPUs, 0 for CPUs"
    )
    parser.add_argument("--commits", nargs=2, metavar=("OLD", "NEW"), help="where the trees are no checkouts")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


@contextlib.contextmanager
def opened(options: argparse.Namespace, cache: str) -> Iterator[list[Side]]:
    pair = [Side(tree, options.device, f"{cache}/{i}") for i, tree in enumerate((options.old, options.new))]
    try:
        yield pair
    finally:
        for side in pair:
            side.close()


def run(options: argparse.Namespace, pair: list[Side], cache: str) -> dict[str, Any]:
    """Build and time all products; returns the content of the file. It is written after each product."""
    started = time.perf_counter()
    until = started + options.budget
    device = [side.ask(OPEN) for side in pair]
    gpu = options.products == "gpu" if options.products else device[0]["gpu"]
    todo = products(gpu, options.types, options.shapes, options.only)
    commits = options.commits or [commit_of(options.old), commit_of(options.new)]
    content: dict[str, Any] = {**device[0], "date": datetime.date.today().isoformat()}
    content |= {"versions": dict(zip(("old", "new"), commits, strict=True))}
    print(content, flush=True)
    jobs = (os.cpu_count() or 1 if gpu else 0) if options.jobs is None else options.jobs
    if jobs:
        each = max(1, min(jobs // 2, len(todo)))
        builders = [
            [Side(side.tree, options.device, f"{cache}/{i}") for _ in range(each)]
            for i, side in enumerate(pair)
        ]
        build_all(builders, todo, host=not gpu, until=until)
    content |= {"build_seconds": round(time.perf_counter() - started, 1), "left_out": len(todo)}
    print(f"built after {content['build_seconds']} s", flush=True)
    rows: list[dict[str, Any]] = []
    for product in todo:
        if time.perf_counter() > until:
            print("out of time before", product)
            break
        rows.append(measured(pair, product, not gpu, options.rounds or (7 if gpu else 5)))
        print(shown(rows[-1]), flush=True)
        content |= {"left_out": len(todo) - len(rows), "seconds": round(time.perf_counter() - started, 1)}
        content |= {"summary": summary(rows), "rows": rows}
        if options.json:
            options.json.write_text(json.dumps(content, indent=1) + "\n")
    return content


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory() as cache, opened(options, cache) as pair:
        content = run(options, pair, cache)
    for kind, found in content.get("summary", {}).items():
        print(f"{kind}: {', '.join(f'{name} {value}' for name, value in found.items())}")
    print(f"{content['left_out']} products left out")
    rows = content.get("rows", [])
    return int(any("failed" in row or not row["right"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
