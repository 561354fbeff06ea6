"""Measures first calls: the product that compiles, checks and runs a kernel for the first time.

    python benchmarks/first_call.py [--device NAME] [--shape M N K] [--types NAME ...] [--repeats COUNT]
                                    [--log] [--json FILE]

Operands are NumPy arrays. Every process is new and has caches of its own in a temporary folder; a driver that
keeps compiled programs elsewhere starts warm. Times are the least of the repeats, because other work on the
machine only adds to them; the file has all of them.

    driver   making the first queue: the driver starts
    cold     the first product of a process, with empty caches
    warm     the first product of the next process, with the caches that the last one filled
    further  the first product of its type in a process that has multiplied other types, with empty caches
    again    the second product, in the same process

A type may be followed by a precision: float32:high. With --log each process writes pyclmm's log to the error
stream: what the child process and this one compile, and how long that takes.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyclmm.opencl.devices import device_info, find_device
from pyclmm.tools.report import header_json

TYPES = ("float32", "float64", "float16", "complex64", "int8", "float32:high", "float32:medium")
STEPS = ("driver", "cold", "warm", "further", "again")
CHILD = "--child"
# Where PyOpenCL, pyclmm and drivers keep compiled kernels. A fresh folder makes the caches empty.
# A driver that keeps them elsewhere starts warm.
CACHE_VARIABLES = (
    "PYCLMM_CACHE_DIR",
    "XDG_CACHE_HOME",
    "POCL_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "NEO_CACHE_DIR",
    "MESA_SHADER_CACHE_DIR",
    "AMD_COMGR_CACHE_DIR",
)


def child(device: str | None, shape: Sequence[int], log: bool, types: Sequence[str]) -> None:
    """Multiply each of *types* twice. Prints [kernel, first, second] of each, after the driver's seconds."""
    import numpy as np  # noqa: PLC0415 - in the measured process

    import pyclmm  # noqa: PLC0415
    from pyclmm.opencl.queues import queue_on  # noqa: PLC0415
    from pyclmm.tools.timing import Size, dtype_named, random_pair  # noqa: PLC0415

    if log:
        logging.basicConfig(format="%(relativeCreated)6.0f ms  %(message)s", level=logging.INFO)
    start = time.perf_counter()
    queue = pyclmm.default_queue() if device is None else queue_on(device)
    found: list[Any] = [time.perf_counter() - start]
    for wanted in types:
        name, _, precision = wanted.partition(":")
        a, b = random_pair(Size(*shape), dtype_named(name))
        moments = [time.perf_counter()]
        with pyclmm.default_precision(precision or "highest"):
            for _ in range(2):
                pyclmm.matmul(a, b, queue=queue)
                moments.append(time.perf_counter())
            found.append([pyclmm.Matmul(a, b, queue=queue).kernel, *np.diff(moments)])
    print(json.dumps(found))


def process(options: argparse.Namespace, types: Sequence[str], caches: str) -> Any:
    """What :func:`child` prints in a new process."""
    request = json.dumps([options.device, options.shape, options.log, types])
    done = subprocess.run(
        [sys.executable, __file__, CHILD, request],
        env=os.environ | dict.fromkeys(CACHE_VARIABLES, caches),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The kernel of each type, and the seconds of STEPS in all repeats."""
    rows: dict[str, dict[str, Any]] = {name: {step: [] for step in STEPS} for name in options.types}
    for _ in range(options.repeats):
        for name, row in rows.items():
            with tempfile.TemporaryDirectory(prefix="pyclmm-first-") as caches:
                _, (row["kernel"], cold, again) = process(options, [name], caches)
                driver, (_, warm, _) = process(options, [name], caches)
            for step, seconds in (("driver", driver), ("cold", cold), ("warm", warm), ("again", again)):
                row[step].append(seconds)
        with tempfile.TemporaryDirectory(prefix="pyclmm-first-") as caches:
            others = process(options, [options.types[-1], *options.types[:-1]], caches)[2:]
        for name, (_, further, _) in zip(options.types[:-1], others, strict=True):
            rows[name]["further"].append(further)
    return [{"type": name, **row} for name, row in rows.items()]


def main() -> None:
    """Print and write what was measured."""
    if sys.argv[1:2] == [CHILD]:
        child(*json.loads(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device")
    parser.add_argument("--shape", type=int, nargs=3, default=(300, 300, 300), metavar=("M", "N", "K"))
    parser.add_argument("--types", nargs="+", default=TYPES, metavar="NAME")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--log", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = device_info(find_device(options.device))
    print(f"{device.name} ({device.platform}, driver {device.driver_version})")
    print(f"{' x '.join(map(str, options.shape))}; seconds, the least of {options.repeats}")
    print(f"{'type':16}{'kernel':16}" + "".join(f"{step:>9}" for step in STEPS))
    rows = measure(options)
    for row in rows:
        times = "".join(f"{min(row[step]):9.4f}" if row[step] else "        -" for step in STEPS)
        print(f"{row['type']:16}{row['kernel']:16}{times}")
    if options.json:
        content = header_json(device) | {"shape": list(options.shape), "first_calls": rows}
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
