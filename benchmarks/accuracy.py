"""The error of float32 and float64 products, and of cuBLAS's, for several kinds of data and each precision.

    python benchmarks/accuracy.py [--json FILE] [--size 4096]

float32: two errors against a float64 product on the device: relative by norm, and the largest of an
element divided by sum_k |a_ik b_kj|. For "high" docs/kernels/matrix_units/high.md bounds the second by 2^-20
(plus the error of a float32 sum of K / 64 terms). float64: the same two for 16 rows and columns, against sums
that are exact but for their last rounding. cl/residues/residues.h bounds the second by
(max(8, K / 4) + 1) 2^-53.
Needs an NVIDIA device, and PyTorch for cuBLAS and the float64 product.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import torch

import pyclmm
from pyclmm.opencl.devices import find_device
from pyclmm.opencl.queues import new_queue
from pyclmm.problem.literals import Precision

Array = np.ndarray[Any, np.dtype[np.float32]]
PRECISIONS: tuple[Precision, ...] = ("highest", "high", "medium")


def classes(n: int, dtype: Any = np.float32) -> Iterator[tuple[str, Any, Any]]:
    """Operands, each kind with another difficulty. Lines of float64 are scaled by 2^+-300."""
    rng = np.random.default_rng(11)
    a, b = (rng.standard_normal((n, n), dtype=dtype) for _ in "ab")
    most_line, part = (30, 12) if dtype == np.float32 else (300, 40)

    def powers(least: int, most: int, shape: tuple[int, ...]) -> Array:
        return np.asarray(np.exp2(rng.integers(least, most + 1, shape)).astype(dtype))

    yield "normal", a, b
    yield "uniform [0, 1)", rng.random((n, n), dtype=dtype), rng.random((n, n), dtype=dtype)
    yield "half of both zeros", np.maximum(a, 0), np.maximum(b, 0)
    yield "each element x 2^+-20", a * powers(-20, 20, a.shape), b * powers(-20, 20, b.shape)
    rows, columns = powers(-most_line, most_line, (n, 1)), powers(-most_line, most_line, (1, n))
    yield f"rows of A, columns of B x 2^+-{most_line}", a * rows, b * columns
    scale = powers(0, 30, (n,))
    yield "K index 2^s in A, 2^-s in B, s up to 30", a * scale, b / scale[:, None]
    half = a[:, : n // 2]
    cancelling = np.concatenate([half, -half.dtype.type(1 + 2.0**-part) * half], axis=1)
    yield f"cancelling, A = [X, -(1 + 2^-{part}) X], B = [Y; Y]", cancelling, np.tile(b[: n // 2], (2, 1))


def errors(got: Any, exact: Any, scale: Any) -> list[float]:
    """The relative error by norm, and the largest error of an element divided by *scale*."""
    off = (got.double() - exact).abs()
    return [float(off.norm() / exact.norm()), float((off / scale.clamp_min(1e-300)).max())]


def measured(queue: cl.CommandQueue, about: str, a: Array, b: Array) -> dict[str, Any]:
    """A row of the table."""
    left, right = (torch.from_numpy(x).cuda() for x in (a, b))
    exact, scale = left.double() @ right.double(), left.double().abs() @ right.double().abs()
    torch.backends.cuda.matmul.allow_tf32 = False
    row: dict[str, Any] = {"data": about, "cublas": errors(left @ right, exact, scale)}
    operands = [cla.to_device(queue, x) for x in (a, b)]
    for precision in PRECISIONS:
        plan = pyclmm.Matmul(*operands, precision=precision)
        got = torch.from_numpy(plan(*operands).get()).cuda()
        row[precision] = errors(got, exact, scale)
        row[f"{precision} kernel"] = plan.kernel
    return row


def split(x: Any) -> tuple[Any, Any]:
    """x as the sum of two numbers of 26 bits (Veltkamp)."""
    high = x * (2.0**27 + 1)
    high = high - (high - x)
    return high, x - high


def exact_sum(x: Any, y: Any) -> float:
    """The sum of x y, rounded once: each product as two doubles (Dekker), added by math.fsum."""
    (x_high, x_low), (y_high, y_low) = split(x), split(y)
    product = x * y
    rest = x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)
    return math.fsum([*product.tolist(), *rest.tolist()])


def measured_wide(queue: cl.CommandQueue, about: str, a: Any, b: Any) -> dict[str, Any]:
    """A row of the table of float64."""
    some = np.linspace(0, len(a) - 1, 16).astype(int)
    exact = np.array([[exact_sum(a[i], b[:, j]) for j in some] for i in some])
    scale = np.abs(a[some]) @ np.abs(b[:, some])
    least = scale.min()  # the norm of results of like sizes only

    def found(x: Any) -> list[float]:
        off = np.abs(x[np.ix_(some, some)] - exact)
        near = scale < least * 2.0**40
        return [float(np.linalg.norm(off[near]) / np.linalg.norm(exact[near])), float((off / scale).max())]

    left, right = (torch.from_numpy(x).cuda() for x in (a, b))
    row: dict[str, Any] = {"data": about, "cublas": found((left @ right).cpu().numpy())}
    operands = [cla.to_device(queue, x) for x in (a, b)]
    for precision in ("highest", "high"):
        plan = pyclmm.Matmul(
            *operands, precision=precision, kernel="residues" if precision == "high" else "auto"
        )
        row[precision] = found(plan(*operands).get())
        row[f"{precision} kernel"] = plan.kernel
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--size", type=int, default=4096)
    options = parser.parse_args()
    queue = new_queue(find_device("nvidia"))
    about = {"device": queue.device.name, "driver": queue.device.driver_version, "pyclmm": pyclmm.__version__}
    about["date"] = datetime.date.today().isoformat()
    rows: list[dict[str, Any]] = []
    wide: list[dict[str, Any]] = []
    for dtype, found, row_of in ((np.float32, rows, measured), (np.float64, wide, measured_wide)):
        for name, a, b in classes(options.size, dtype):
            found.append(row_of(queue, name, a, b))
            print(found[-1], flush=True)
        if options.json:
            content = {**about, "size": options.size, "rows": rows, "float64": wide}
            options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
