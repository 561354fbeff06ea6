"""Measures first calls in fresh processes, with empty and with filled caches of compiled kernels."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ..checks.worker import interpreter
from ..errors import UnsupportedError
from ..selection.select import KernelChoice
from .contest import Size, dtype_named, random_pair
from .steps import OnStep, Step, unheard

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
REPEATS = 3  # fresh processes for each state of the caches
_CHILD = "import time; start = time.perf_counter(); import pyclmm.tools.cold; pyclmm.tools.cold.child(start)"


@dataclass(frozen=True)
class Cold:
    """Seconds in a fresh process: importing pyclmm, the first call, the second call, the whole process."""

    imports: float
    first: float
    second: float
    process: float


@dataclass(frozen=True)
class Request:
    """The product to measure, and the device ("platform:device", or None: the default)."""

    m: int
    n: int
    k: int
    dtype: str
    kernel: KernelChoice
    device: str | None


def child(start: float) -> None:
    """Run in the measured process. *start*: the clock before the first import."""
    from .. import matmul  # noqa: PLC0415 - part of what is measured
    from ..opencl.queues import queue_on  # noqa: PLC0415

    imported = time.perf_counter()
    request = Request(**json.loads(sys.stdin.read()))
    a, b = random_pair(Size(request.m, request.n, request.k), dtype_named(request.dtype))
    ready = time.perf_counter()
    queue = None if request.device is None else queue_on(request.device)
    matmul(a, b, kernel=request.kernel, queue=queue)
    first = time.perf_counter()
    matmul(a, b, kernel=request.kernel, queue=queue)
    second = time.perf_counter()
    print(json.dumps([imported - start, first - ready, second - first]))


def measure(request: Request, on_step: OnStep = unheard) -> dict[str, Cold]:
    """Medians over REPEATS processes, with "empty" caches and with "warm" ones that the last process filled.

    Raises UnsupportedError with the child's last line if it fails.
    """
    runs: dict[str, list[Cold]] = {"empty": [], "warm": []}
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory(prefix="pyclmm-cold-") as folder:
            for state, found in runs.items():
                done = sum(map(len, runs.values()))
                on_step(Step(f"{request.kernel}, {state} caches", done, REPEATS * len(runs)))
                found.append(_process(request, Path(folder)))
    return {state: _median(found) for state, found in runs.items()}


def _median(runs: list[Cold]) -> Cold:
    return Cold(**{name: statistics.median(asdict(run)[name] for run in runs) for name in asdict(runs[0])})


def _process(request: Request, folder: Path) -> Cold:
    environment = os.environ | dict.fromkeys(CACHE_VARIABLES, str(folder))
    start = time.perf_counter()
    done = subprocess.run(
        [*interpreter(), "-c", _CHILD],
        input=json.dumps(asdict(request)),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    elapsed = time.perf_counter() - start
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UnsupportedError(f"a fresh process failed: {last}")
    imports, first, second = json.loads(done.stdout.splitlines()[-1])
    return Cold(imports, first, second, elapsed)
