"""Compares float64 products without cl_khr_fp64 with a `naive` kernel of Berkeley SoftFloat's operations.

    python benchmarks/soft_float.py [--device NAME] [--size 512] [--rounds 5] [--json FILE]

The results in benchmarks/results/ come from these commands, the second with rusticl as the only driver:

    export OUT=benchmarks/results/soft-float
    PYCLMM_WITHOUT=cl_khr_fp64 python benchmarks/soft_float.py --json $OUT-pocl-3.0.json
    python benchmarks/soft_float.py --rounds 3 --json $OUT-rusticl-22.3.json

soft_float.cl has the operations, multiplication and addition each rounded, or both at once. First they are
checked: the former bit for bit against NumPy, the latter against pyclmm's `naive`, which has another fused
multiply-add by integers (cl/include/soft_double.h). The products are then timed from the call to the end of
the work on the device, with Arrays in and out and normal data. Rounds are interleaved, each begins with
another product, and before each there is a pause; results are medians.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import processor
import pyopencl as cl
import pyopencl.array as cla

import pyclmm
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.opencl.queues import new_queue

SOURCE = Path(__file__).with_suffix(".cl")
GROUP = 16  # rows and columns of a work-group, as of `naive`
PAUSE = 0.2  # seconds
SOFT_FLOAT, SOFT_FUSED, AUTO = "SoftFloat, mul and add", "SoftFloat, mulAdd", "pyclmm.matmul"
SPECIAL = np.array(
    [0.0, 5e-324, 2.2e-308, 2.0**-1022, 1e-160, 1.0, 1 + 2.0**-52, 1e160, 1.7e308, np.inf, np.nan]
)
Matrix = np.ndarray[Any, np.dtype[np.float64]]


class SoftFloat:
    """A product by soft_float.cl. *fused*: multiplication and addition are rounded once."""

    def __init__(self, context: cl.Context, fused: bool = False) -> None:
        program = cl.Program(context, SOURCE.read_text(encoding="utf-8"))
        self.kernel = program.build(["-cl-std=CL1.2", f"-DFUSED={int(fused)}"]).soft_float

    def __call__(self, a: cla.Array, b: cla.Array, out: cla.Array) -> None:
        (m, k), n = a.shape, b.shape[1]
        size = (-(-n // GROUP) * GROUP, -(-m // GROUP) * GROUP)
        args = (a.data, b.data, out.data, np.int32(m), np.int32(n), np.int32(k))
        self.kernel(out.queue, size, (GROUP, GROUP), *args)


def by_numpy(a: Matrix, b: Matrix) -> Matrix:
    """The sums in the kernel's order, multiplied and then added."""
    total = np.zeros((len(a), b.shape[1]))
    with np.errstate(all="ignore"):
        for k in range(a.shape[1]):
            total = total + a[:, k, None] * b[k]
    return total


def hard_operands(rng: np.random.Generator) -> Iterator[tuple[str, Matrix, Matrix]]:
    """Pairs (A, B) by what is hard about them. Most sums are short, so that NaN does not fill them all."""
    m, k, n = 61, 3, 67
    yield "normal", rng.standard_normal((m, 40)), rng.standard_normal((40, n))

    def bits(*shape: int) -> Matrix:
        return rng.integers(0, 2**64, shape, np.uint64, endpoint=False).view(np.float64)

    yield "any bits", bits(m, k), bits(k, n)

    def special(*shape: int) -> Matrix:
        return rng.choice(SPECIAL, shape) * rng.choice([-1.0, 1.0], shape)

    yield "zeros, subnormals, infinities, NaN", special(m, k), special(k, n)

    def wide(least: int, most: int, *shape: int) -> Matrix:
        return np.ldexp(rng.uniform(-1, 1, shape), rng.integers(least, most, shape))

    yield "subnormal products", wide(-560, -480, m, k), wide(-560, -480, k, n)
    yield "subnormal factors", wide(-1074, -1000, m, k), wide(-80, 80, k, n)
    yield "overflow", wide(505, 516, m, k), wide(505, 516, k, n)
    yield "exponents about a double apart", wide(-60, 60, m, 40), wide(-60, 60, 40, n)
    x, y = wide(-40, 40, m, 1), wide(-40, 40, 1, n)
    near = 1 + rng.integers(-3, 4, (m, 1)) * 2.0**-52
    yield "cancellation", np.hstack([x, -x * near, x * 2.0**-53]), np.vstack([y, y, y])
    tiny = np.ldexp(rng.integers(-9, 10, (m, k)).astype(float), -1074)
    yield "cancellation of subnormals", tiny, rng.integers(-9, 10, (k, n)).astype(float)
    whole, few = rng.integers(2**52, 2**53, (m, 1)).astype(float), rng.integers(-9, 10, (1, n))
    yield "ties", np.hstack([whole, np.full((m, 1), 0.5)]), np.vstack([np.ones((1, n)), few])
    factors = rng.choice([1.0, 1.25, 1.5], (1, n))  # a product by them may be a tie but for what is added
    yield (
        "ties but for a little",
        np.hstack([wide(-90, -30, m, 1), whole]),
        np.vstack([np.ones((1, n)), factors]),
    )


def same(x: Matrix, y: Matrix) -> bool:
    """Whether all bits are equal, but for those of NaN."""
    return bool(np.all((x.view(np.uint64) == y.view(np.uint64)) | (np.isnan(x) & np.isnan(y))))


def check(queue: cl.CommandQueue, seed: int = 1) -> int:
    """Number of elements that were compared. Raises SystemExit for a wrong one."""
    separate, fused = SoftFloat(queue.context), SoftFloat(queue.context, fused=True)
    count = 0
    for name, x, y in hard_operands(np.random.default_rng(seed)):
        a, b = cla.to_device(queue, x), cla.to_device(queue, y)
        out = cla.empty(queue, (len(x), y.shape[1]), np.float64)
        separate(a, b, out)
        if not same(out.get(), by_numpy(x, y)):
            raise SystemExit(f"SoftFloat's product differs from NumPy's: {name}")
        fused(a, b, out)
        if not same(out.get(), pyclmm.matmul(a, b, kernel="naive").get()):
            raise SystemExit(f"SoftFloat's fused product differs from that of `naive`: {name}")
        count += 2 * out.size
    return count


def medians(
    calls: dict[str, Callable[[], object]], finish: Callable[[], None], rounds: int
) -> dict[str, float]:
    """Seconds of each call."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        names = list(calls)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            time.sleep(PAUSE)
            start = time.perf_counter()
            calls[name]()
            finish()
            if number:  # the first round compiles
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(spent) for name, spent in times.items()}


def measured(queue: cl.CommandQueue, size: int, rounds: int) -> dict[str, Any]:
    """Seconds of each product of size cubed, and the kernel that was chosen."""
    rng = np.random.default_rng(1)
    a, b = (cla.to_device(queue, rng.standard_normal((size, size))) for _ in "ab")
    out = cla.empty(queue, (size, size), np.float64)
    calls: dict[str, Callable[[], object]] = {
        SOFT_FLOAT: partial(SoftFloat(queue.context), a, b, out),
        SOFT_FUSED: partial(SoftFloat(queue.context, fused=True), a, b, out),
    }
    for name in ("naive", "residues", "limbs"):
        try:
            pyclmm.Matmul(a, b, out=out, kernel=name)
            calls[name] = partial(pyclmm.matmul, a, b, out=out, kernel=name)
        except pyclmm.UnsupportedError as error:
            print(error)
    calls[AUTO] = partial(pyclmm.matmul, a, b, out=out)
    chosen = pyclmm.Matmul(a, b, out=out).kernel
    return {"chosen": chosen, "seconds": medians(calls, queue.finish, rounds)}


def table(found: dict[str, Any]) -> str:
    """A line for each product: its milliseconds, and how often it fits into SoftFloat's time."""
    seconds = found["seconds"]
    lines = [f"{'':28}{'ms':>10}{'SoftFloat / it':>16}"]
    for name, spent in seconds.items():
        label = f"{name} ({found['chosen']})" if name == AUTO else name
        lines.append(f"{label:28}{1e3 * spent:10.1f}{seconds[SOFT_FLOAT] / spent:16.2f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--size", type=int, default=512, help="rows and columns of the matrices")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    queue = new_queue(find_device(options.device))
    info = device_info(queue.device)
    if info.has_fp64:
        raise SystemExit(f"{info.name} has cl_khr_fp64; PYCLMM_WITHOUT=cl_khr_fp64 hides it")
    about = {
        "device": info.name,
        "driver": f"{info.platform} {info.driver_version}",
        "processor": processor.described(),
        "pyclmm": pyclmm.__version__,
        "date": datetime.date.today().isoformat(),
        "size": options.size,
        "rounds": options.rounds,
    }
    print(f"{about['device']}, {about['driver']}, {about['date']}, {options.size} cubed, float64")
    about["elements_checked"] = check(queue)
    print(f"{about['elements_checked']} elements are right, bit for bit")
    found = measured(queue, options.size, options.rounds)
    print(table(found))
    if options.json:
        ratio = found["seconds"][SOFT_FLOAT] / found["seconds"][AUTO]
        options.json.write_text(json.dumps({**about, **found, "ratio": ratio}, indent=1) + "\n")


if __name__ == "__main__":
    main()
