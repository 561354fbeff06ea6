"""The error of float32 products, and of cuBLAS's, for several kinds of data and each precision.

    python benchmarks/accuracy.py [--json FILE] [--size 4096]

Two errors against a float64 product on the device: relative by norm, and the largest of an element divided
by sum_k |a_ik b_kj|. For "high" docs/kernels/matrix_units/high.md bounds the second by 2^-20 (plus the error
of a float32 sum of K / 64 terms). Needs an NVIDIA device, and PyTorch for cuBLAS and the float64 product.
"""

from __future__ import annotations

import argparse
import datetime
import json
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
from pyclmm.problem.words import Precision

Array = np.ndarray[Any, np.dtype[np.float32]]
PRECISIONS: tuple[Precision, ...] = ("highest", "high", "medium")


def classes(n: int) -> Iterator[tuple[str, Array, Array]]:
    """Operands, each kind with another difficulty."""
    rng = np.random.default_rng(11)
    a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in "ab")

    def powers(least: int, most: int, shape: tuple[int, ...]) -> Array:
        return np.exp2(rng.integers(least, most + 1, shape)).astype(np.float32)

    yield "normal", a, b
    yield "uniform [0, 1)", rng.random((n, n), dtype=np.float32), rng.random((n, n), dtype=np.float32)
    yield "half of both zeros", np.maximum(a, 0), np.maximum(b, 0)
    yield "each element x 2^+-20", a * powers(-20, 20, a.shape), b * powers(-20, 20, b.shape)
    yield "rows of A, columns of B x 2^+-30", a * powers(-30, 30, (n, 1)), b * powers(-30, 30, (1, n))
    scale = powers(0, 30, (n,))
    yield "K index 2^s in A, 2^-s in B, s up to 30", a * scale, b / scale[:, None]
    half = a[:, : n // 2]
    cancelling = np.concatenate([half, -np.float32(1 + 2.0**-12) * half], axis=1)
    yield "cancelling, A = [X, -(1 + 2^-12) X], B = [Y; Y]", cancelling, np.tile(b[: n // 2], (2, 1))


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--size", type=int, default=4096)
    options = parser.parse_args()
    queue = new_queue(find_device("nvidia"))
    about = {"device": queue.device.name, "driver": queue.device.driver_version, "pyclmm": pyclmm.__version__}
    about["date"] = datetime.date.today().isoformat()
    rows = []
    for name, a, b in classes(options.size):
        rows.append(measured(queue, name, a, b))
        print(rows[-1], flush=True)
        if options.json:
            content = {**about, "size": options.size, "rows": rows}
            options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
