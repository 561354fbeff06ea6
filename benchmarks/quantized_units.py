"""Times kernels for quantised weights that do not lie in the cache, beside PyTorch's products.

    python benchmarks/quantized_units.py [--rows 1 16 64] [--columns 8192] [--depth 8192]
        [--kernels wgmma_quantized mma_quantized] [--formats affine4_g128_float16] [--dtype float16]
        [--most 30] [--rounds 5] [--grid "bn=64,128 ahead=2,3"] [--json FILE]

Each call of a burst (burst.py) reads another copy of the weights, so many that they exceed the cache. Every
configuration is first compared with a product of some columns in float64. A kernel that only reads the
weights takes turns with them. Rounds are interleaved, and results are medians. PyTorch's are CUDA graphs:
torch.mm in bfloat16, torch._weight_int4pack_mm with groups of 128.
--grid: in place of the configurations that a kernel offers, its first one with all of these values.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from itertools import count, product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyopencl as cl
from burst import Burst
from cuda_graph import Graph

from pyclmm.errors import UnsupportedError
from pyclmm.formats import Format, format_named, ordered
from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.opencl.program import new_kernel
from pyclmm.opencl.queues import new_queue
from pyclmm.opencl.steps import enqueue_eventless, eventless
from pyclmm.problem.gemm import GemmProblem

try:
    import torch
except ImportError:
    torch = None

COLD = 256 << 20  # bytes of all copies of the weights
CALLS = 24  # of a burst
CHECKED = 97  # columns that are compared
TYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
}


READ = """
__kernel void read(__global const uint4 *p, const uint count, __global uint *out)
{
  uint4 s = 0;
  const uint step = get_global_size(0);
  uint i = get_global_id(0);
  for (; i + 3 * step < count; i += 4 * step) {
    const uint4 a = p[i], b = p[i + step], c = p[i + 2 * step], d = p[i + 3 * step];
    s ^= a ^ b ^ c ^ d;
  }
  for (; i < count; i += step) s ^= p[i];
  if ((s.x ^ s.y ^ s.z ^ s.w) == 0x5a17) out[0] = 1;
}
"""
READERS = 8 * 256  # work-items for each compute unit


def some_rows(form: Format, rng: np.random.Generator, n: int, k: int) -> np.ndarray[Any, Any]:
    """Weights as a layer has them, where the format can be made here; else random bits."""
    try:
        return form.quantize(rng.standard_normal((n, k), np.float32) * np.float32(0.02))
    except UnsupportedError:
        return form.drawn(rng, n, k)


class Case:
    """A product of M rows with weights of a format, on the device as often as the cache needs."""

    def __init__(self, queue: cl.CommandQueue, m: int, n: int, k: int, dtype: str, name: str):
        form, rng = format_named(name), np.random.default_rng(0)
        self.queue, self.device = queue, device_info(queue.device)
        ldb = form.row_nbytes(k)
        self.problem = GemmProblem(
            *(m, n, k, dtype, "uint8", dtype, "float32"), trans_b=True, b_format=name, lda=k, ldb=ldb, ldo=n,
            c_type=dtype, bias_type=dtype,
        )  # fmt: skip
        few = some_rows(form, rng, min(n, 1024), k)
        rows = np.resize(few, (n, ldb))
        x = rng.standard_normal((m, k)).astype(TYPES[dtype])
        self.columns = np.sort(rng.choice(n, min(n, CHECKED), replace=False))
        plain, lines = ordered(form, rows, k, "rows")
        weights = plain.dequantize(lines[self.columns], k).astype(TYPES[dtype]).astype(np.float64)
        self.want = x.astype(np.float64) @ weights.T
        self.out = np.empty((m, n), TYPES[dtype])
        self.nbytes = rows.nbytes
        self.kept: list[object] = []  # an argument does not keep its buffer
        self.copies = [self.buffer(rows) for _ in range(max(1, -(-COLD // rows.nbytes)))]
        self.fixed = {
            "a": self.buffer(x),
            "out": self.buffer(self.out),
            "batch_offsets": self.buffer(np.zeros(4, "i8")),
        }

    def buffer(self, x: np.ndarray[Any, Any]) -> cl.Buffer:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.queue.context, flags, hostbuf=np.ascontiguousarray(x).view(np.uint8))

    def calls(self, kernel: str, config: TileConfig) -> list[list[tuple[cl.Kernel, Any]]]:
        """For each copy of the weights, the launches of a call."""
        work = kernel_named(kernel).launches(self.problem, config, self.device)
        spaces = {w.symbol: self.buffer(np.zeros(w.nbytes, np.uint8)) for w in work.workspace}
        self.kept.append(spaces)
        found = []
        for weights in self.copies:
            known: dict[str, Any] = {
                **self.fixed,
                **spaces,
                "b": weights,
                "c": self.fixed["out"],
                "bias": self.fixed["out"],
            }
            known |= {"alpha": np.float32(1), "beta": np.float32(0)}
            call = []
            for launch in work.launches:
                made = new_kernel(self.queue.context, launch.program, launch.kernel)
                args = [known.get(x, np.int64(0)) if isinstance(x, str) else x for x in launch.args]
                made.set_args(*args)
                call.append((made, eventless(self.queue, made, launch.global_size, launch.local_size)))
            found.append(call)
        return found

    def reads(self) -> list[list[tuple[cl.Kernel, Any]]]:
        """For each copy of the weights, a launch that only reads it."""
        program, found = cl.Program(self.queue.context, READ).build(), []
        size = (self.device.compute_units * READERS,)
        for weights in self.copies:
            made = cl.Kernel(program, "read")
            made.set_args(weights, np.uint32(self.nbytes // 16), self.fixed["out"])
            found.append([(made, eventless(self.queue, made, size, (256,)))])
        return found

    def error(self, call: list[tuple[cl.Kernel, Any]]) -> float:
        """The relative error of a call, by norm."""
        cl.enqueue_copy(self.queue, self.fixed["out"], np.full_like(self.out, np.nan).view(np.uint8))
        run(call)
        cl.enqueue_copy(self.queue, self.out.view(np.uint8), self.fixed["out"])
        off = self.out[:, self.columns].astype(np.float64) - self.want
        return float(np.linalg.norm(off) / np.linalg.norm(self.want))


def run(call: list[tuple[cl.Kernel, Any]]) -> None:
    for _, launch in call:
        if not enqueue_eventless(launch):
            raise RuntimeError("the driver refused a launch")


class Side:
    """One configuration, or a read of the weights: its calls in turn, and the seconds of each round."""

    def __init__(self, case: Case, kernel: str, config: TileConfig | None = None):
        self.kernel, self.config, self.seconds = kernel, config, list[float]()
        self.estimate, self.error, self._turn = 0.0, 0.0, count()
        if config is None:
            self.calls = case.reads()
            return
        self.estimate = kernel_named(kernel).estimate(case.problem, config, case.device)
        self.calls = case.calls(kernel, config)
        self.error = case.error(self.calls[0])

    def call(self) -> None:
        run(self.calls[next(self._turn) % len(self.calls)])


def torch_graphs(m: int, n: int, k: int) -> dict[str, Graph]:
    """PyTorch's products, each call with another copy of the weights."""
    if torch is None or not torch.cuda.is_available():
        return {}
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    dense = [
        torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(max(2, COLD // (2 * n * k)))
    ]
    few = torch.randint(0, 256, (n, k // 2), device="cuda", dtype=torch.uint8)
    packed = [torch._convert_weight_to_int4pack(few, 8) for _ in range(max(2, 2 * COLD // (n * k)))]
    scales = torch.rand(k // 128, n, 2, device="cuda", dtype=torch.bfloat16)
    turn = count()

    def bfloat16() -> object:
        return torch.mm(x, dense[next(turn) % len(dense)].T)

    def int4() -> object:
        return torch._weight_int4pack_mm(x, packed[next(turn) % len(packed)], 128, scales)

    return {"torch.mm bfloat16": Graph(bfloat16, CALLS), "torch._weight_int4pack_mm": Graph(int4, CALLS)}


def varied(config: TileConfig, grid: str) -> list[TileConfig]:
    """*config* with all combinations of values, as "bn=64,128 ahead=2,3"."""
    axes = dict(axis.split("=") for axis in grid.split())
    found = []
    for values in product(*(map(int, axis.split(",")) for axis in axes.values())):
        given = dict(zip(axes, values, strict=True))
        own = {name: given.pop(name) for name in tuple(given) if name in config.named}
        found.append(replace(config, **given, options={**config.named, **own}))
    return found


def rows_of(
    case: Case, burst: Burst, options: argparse.Namespace, peers: dict[str, Graph]
) -> list[dict[str, Any]]:
    p, sides = case.problem, [Side(case, "a read of the weights")]
    for kernel in options.kernels:
        family = kernel_named(kernel)
        if why := family.refuses(p, case.device):
            print(f"  {kernel}: {why}")
            continue
        configs = family.configs(p, case.device)
        if options.grid:
            configs = [
                c for c in varied(configs[0], options.grid) if not family.violations(p, c, case.device)
            ]
        sides += [Side(case, kernel, config) for config in configs[: options.most]]
    times: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(options.rounds):
        for side in sides:
            side.seconds.append(burst.seconds(side.call, CALLS))
        for name, graph in peers.items():
            times[name].append(graph.seconds())
    found: list[dict[str, Any]] = [
        {"kernel": s.kernel, "config": str(s.config or ""), "estimate": s.estimate, "error": s.error}
        | {"seconds": statistics.median(s.seconds)}
        for s in sides
    ]
    found += [{"kernel": name, "config": "", "seconds": statistics.median(x)} for name, x in times.items()]
    about = {"m": p.m, "n": p.n, "k": p.k, "dtype": p.a_type, "format": p.b_format, "bytes": case.nbytes}
    return [about | row for row in sorted(found, key=lambda row: row["seconds"])]


def described(row: dict[str, Any]) -> str:
    if "error" not in row:
        return str(row["kernel"])
    rate = f"{row['bytes'] / row['seconds'] / 1e12:.2f} TB/s, estimate {row['estimate'] * 1e6:.1f} us"
    return f"{rate}, error {row['error']:.1e}  {row['kernel']} {row['config']}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[2, 8, 16, 32, 64, 128])
    parser.add_argument("--columns", type=int, default=8192)
    parser.add_argument("--depth", type=int, default=8192)
    parser.add_argument("--kernels", nargs="+", default=["wgmma_quantized", "mma_quantized"])
    parser.add_argument("--formats", nargs="+", default=["affine4_g128_float16"])
    parser.add_argument("--dtype", default="float16", choices=sorted(TYPES))
    parser.add_argument(
        "--most", type=int, default=30, help="configurations of a kernel, the best by its estimate"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--grid", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    queue = new_queue(find_device("nvidia"))
    burst, rows = Burst(queue), list[dict[str, Any]]()
    for m in options.rows:
        peers = torch_graphs(m, options.columns, options.depth)
        for name in options.formats:
            case = Case(queue, m, options.columns, options.depth, options.dtype, name)
            found = rows_of(case, burst, options, peers)
            print(f"M {m}, {name}, {case.nbytes / 1e6:.1f} MB")
            for row in found:
                print(f"  {row['seconds'] * 1e6:8.2f} us  {described(row)}", flush=True)
            rows += found
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
