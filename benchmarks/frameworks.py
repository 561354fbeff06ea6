"""Products of PyTorch's, CuPy's and JAX's own arrays on an NVIDIA GPU, beside the library's own.

    python benchmarks/frameworks.py SEED [--kinds highest] [--products 150] [--limit 300] [--json FILE]

Three tables, each of interleaved rounds with a pause before each side. Large products: device time of eager
calls between two events. Host time: of a call on the arrays of last time, which the device does not hold up.
Drawn products (products.py, float32 "highest" or other kinds in turn): both sides in a CUDA graph of
PyTorch's, beside "medium" in TF32. Each drawn result is compared with a float64 product. JAX's own time is
of its jnp.matmul in float32.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from cuda_graph import Graph, on_device
from products import KINDS, Product, drawn
from ratios import by_kind
from sampled import TOLERANCE, Random, to_torch

import pyclmm
from pyclmm.opencl.clock import elapsed

_PAUSE = 0.02  # seconds before each side
_ROUNDS = 7
_BURST = 0.25e-3  # seconds of calls in a graph
_CALLS = 400  # of which the host's time is taken

Sides = dict[str, Callable[[], float]]


def medians(sides: Sides, rounds: int = _ROUNDS) -> dict[str, float]:
    """Each side's median over interleaved rounds, without the first."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            time.sleep(_PAUSE)
            seconds = side()
            if number:
                found[name].append(seconds)
    return {name: statistics.median(times) for name, times in found.items()}


def on_host(call: Callable[[], object]) -> float:
    """Host seconds of a call: the device ends the calls of a burst sooner than the host makes them."""
    torch.cuda.synchronize()
    taken = elapsed(call, _CALLS)
    torch.cuda.synchronize()
    return taken


def large() -> Iterator[dict[str, Any]]:
    """Products of the sizes that people know, by PyTorch, and by each kernel that may be the fastest."""
    for dtype, n, kernels in (
        (torch.float32, 4096, ("auto",)),
        (torch.float32, 8192, ("auto",)),
        (torch.float64, 4096, ("auto", "residues")),
        (torch.float64, 8192, ("auto", "residues", "mma_double_bulk")),
    ):
        yield _large(dtype, n, kernels)


def _large(dtype: torch.dtype, n: int, kernels: tuple[Any, ...]) -> dict[str, Any]:
    a, b = torch.randn(2, n, n, device="cuda", dtype=dtype)

    def by(kernel: Any) -> Callable[[], float]:
        return lambda: on_device(lambda: pyclmm.matmul(a, b, precision="high", kernel=kernel), 5)

    sides: Sides = {"torch.mm": lambda: on_device(lambda: torch.mm(a, b), 5)}
    sides |= {kernel: by(kernel) for kernel in kernels}
    plan = pyclmm.Matmul(a, b, precision="high")
    return {"dtype": str(dtype), "n": n, "seconds": medians(sides, 5), "kernel": plan.kernel}


def host() -> Iterator[dict[str, Any]]:
    """What a call costs the host: 64 cubed float32, on the arrays of last time."""
    x, w, y = torch.randn(3, 64, 64, device="cuda")
    others, number = [torch.randn(64, 64, device="cuda") for _ in range(7)], iter(range(1 << 60))
    plan = pyclmm.Matmul(x, w, out=y)
    sides: Sides = {
        "torch.mm(out=)": lambda: on_host(lambda: torch.mm(x, w, out=y)),
        "pyclmm.matmul(out=)": lambda: on_host(lambda: pyclmm.matmul(x, w, out=y)),
        "plan(out=)": lambda: on_host(lambda: plan(x, w, out=y)),
        "pyclmm.matmul(out=), others": lambda: on_host(
            lambda: pyclmm.matmul(others[next(number) % 7], w, out=y)
        ),
        "torch.mm": lambda: on_host(lambda: torch.mm(x, w)),
        "pyclmm.matmul": lambda: on_host(lambda: pyclmm.matmul(x, w)),
    }
    yield {"library": "PyTorch", "seconds": medians(sides)}
    try:
        import cupy  # noqa: PLC0415 - it need not be there
    except ImportError:
        return
    p, q, r = (cupy.asarray(t) for t in (x, w, y))
    sides = {
        "cupy.matmul(out=)": lambda: on_host(lambda: cupy.matmul(p, q, out=r)),
        "pyclmm.matmul(out=)": lambda: on_host(lambda: pyclmm.matmul(p, q, out=r)),
    }
    yield {"library": "CuPy", "seconds": medians(sides)}


def of_jax() -> Iterator[dict[str, Any]]:
    """The host's part with JAX's arrays. JAX comes last, and takes no memory that it does not need."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax  # noqa: PLC0415
    except ImportError:
        return
    u, v = (jax.dlpack.from_dlpack(t) for t in torch.randn(2, 64, 64, device="cuda"))
    sides = {
        "jax.numpy.matmul": lambda: on_host(lambda: jax.numpy.matmul(u, v)),
        "pyclmm.matmul": lambda: on_host(lambda: pyclmm.matmul(u, v)),
    }
    yield {"library": "JAX", "seconds": medians(sides)}


def in_graphs(seed: int, count: int, kinds: list[str], limit: float) -> Iterator[dict[str, Any]]:
    """Drawn products, each side in a CUDA graph."""
    random, started = Random(), time.perf_counter()
    for product in drawn(seed, count, kinds):
        if time.perf_counter() - started > limit:
            print("out of time before", product)
            return
        yield _in_graphs(product, random)


def _in_graphs(product: Product, random: Random) -> dict[str, Any]:
    host = [random.operand(s, product.dtype, 777 * i) for i, s in enumerate(product.stored)]
    a, b = (
        x.transpose(-1, -2) if trans == "T" else x
        for x, trans in zip(map(to_torch, host), product.layout, strict=True)
    )
    calls = max(2, int(_BURST / max(product.flops / 700e12, product.nbytes / 4e12, 2e-6)))
    want = torch.matmul(a.double(), b.double())
    torch.backends.cuda.matmul.allow_tf32 = product.kind == "medium"
    precision = product.precision
    error = float((pyclmm.matmul(a, b, precision=precision).double() - want).norm() / want.norm())
    if not error <= TOLERANCE[product.kind]:
        raise ArithmeticError(f"{product}: error {error}")
    del want
    sides: Sides = {
        "torch.matmul": Graph(lambda: torch.matmul(a, b), calls).seconds,
        "pyclmm.matmul": Graph(lambda: pyclmm.matmul(a, b, precision=precision), calls).seconds,
    }
    row = {"kind": product.kind, "shape": product.shape, "layout": product.layout, "error": error}
    kernel = pyclmm.Matmul(a, b, precision=precision).kernel
    return row | {"seconds": medians(sides, 5), "kernel": kernel}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["highest"])
    parser.add_argument("--products", type=int, default=150)
    parser.add_argument("--limit", type=float, default=300, help="seconds for the drawn products")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "pyclmm": pyclmm.__version__, "torch": torch.__version__,
        "cuda": torch.version.cuda, "seed": options.seed, "date": datetime.date.today().isoformat(),
    }  # fmt: skip
    print(found)
    tables = {"host": host, "large": large}
    tables |= {
        "graphs": lambda: in_graphs(options.seed, options.products, options.kinds, options.limit),
        "jax": of_jax,
    }
    for name, rows in tables.items():
        found[name] = []
        for row in rows():
            found[name].append(row)
            print(name, row, flush=True)
            if options.json:
                options.json.write_text(json.dumps(found, indent=1) + "\n")
    times = [(row["kind"], row["seconds"]) for row in found["graphs"]]
    print("PyTorch over pyclmm:")
    print(by_kind((kind, its["torch.matmul"] / its["pyclmm.matmul"]) for kind, its in times))


if __name__ == "__main__":
    main()
