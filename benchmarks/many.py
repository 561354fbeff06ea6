"""Many products: lists of them in few launches, and rows that are divided among products.

    python benchmarks/many.py [--device NAME] [--counts 10,100,1000] [--low 8] [--high 128]
        [--dtypes float32,float64] [--experts 8,64,256] [--json FILE] [--picture FILE]

Lists of sides drawn from LOW to HIGH. `plan`: a call of a ManyMatmul, complete, with out of Arrays in one
buffer, or of NumPy arrays on a CPU, where `out` is the call with out; `device`: its launches alone, one call
behind the other; `each`: a call of matmul for each product, of plans that are there; `numpy`: NumPy's loop;
`cublas`: cuBLAS's grouped product, one call behind the other, with its pointers on the device, where PyTorch
brings the library.

With PyTorch and a CUDA device also mixtures of EXPERTS: 8,192 rows of bfloat16, divided by Zipf's law in
multiples of 16, against torch._grouped_mm and, as a bound, one torch.mm of all rows.

Medians of rounds in turn, with a pause before each side; seconds.
"""

from __future__ import annotations

import argparse
import ctypes
import glob
import json
import statistics
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.opencl.steps import scalars_of

try:
    import torch
except ImportError:
    torch = None

ROUNDS, IN_A_ROW, PAUSE = 15, 8, 0.01
MIXTURES = {8: (4096, 7168), 64: (2048, 7168), 256: (7168, 2048)}  # experts: K and N, with 8,192 rows
Side = Callable[[], Any]


def in_turn(sides: dict[str, Side], finish: Side, calls: int = 1) -> dict[str, float]:
    """Median seconds of a call of each side, *calls* behind each other, complete."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(ROUNDS + 1):
        for name, side in sides.items():
            time.sleep(PAUSE)
            side()
            finish()
            start = time.perf_counter()
            for _ in range(calls):
                side()
            finish()
            if turn:
                taken[name].append((time.perf_counter() - start) / calls)
    return {name: statistics.median(all_) for name, all_ in taken.items()}


def packed(queue: cl.CommandQueue, given: list[Any]) -> list[cla.Array]:
    """Copies of arrays as slices of one Array."""
    whole, found, at = cla.to_device(queue, np.concatenate([x.ravel() for x in given])), [], 0
    for x in given:
        found.append(whole[at : at + x.size].reshape(x.shape))
        at += x.size
    return found


def a_list(queue: cl.CommandQueue, sizes: list[tuple[int, ...]], dtype: str) -> dict[str, Any]:
    """One list on a device: as called, on the device, one call each, by NumPy, by cuBLAS."""
    rng = np.random.default_rng(0)
    a, b = (
        [rng.standard_normal((size[i], size[j])).astype(dtype) for size in sizes] for i, j in ((0, 2), (2, 1))
    )
    on_host = bool(queue.device.type & cl.device_type.CPU)
    out: list[Any] = [np.empty((m, n), dtype) for m, n, _ in sizes]
    pairs, outs = (list(zip(a, b, strict=True)), out) if on_host else (
        list(zip(packed(queue, a), packed(queue, b), strict=True)), packed(queue, out)
    )  # fmt: skip
    plan = pyclmm.ManyMatmul(pairs, None if on_host else outs, queue=queue)
    results = plan(pairs, *([] if on_host else [outs]))
    worst = max(
        float(abs((mine if on_host else mine.get()) - x @ y).max()) / np.sqrt(x.shape[1])
        for mine, x, y in zip(results, a, b, strict=True)
    )
    single = pairs[: 256 if len(pairs) > 256 else None]  # as many plans as matmul keeps
    sides: dict[str, Side] = {
        "plan": lambda: plan(pairs, *([] if on_host else [outs])),
        "each": lambda: [pyclmm.matmul(x, y, queue=queue) for x, y in single],
        "numpy": lambda: [x @ y for x, y in zip(a, b, strict=True)],
    }
    if on_host:
        writes = pyclmm.ManyMatmul(pairs, outs, queue=queue)
        sides["out"] = lambda: writes(pairs, outs)
    taken = in_turn(sides, queue.finish)
    taken["each"] *= len(pairs) / len(single)
    if not on_host:
        taken |= in_turn({"device": launches_of(plan, pairs, outs, queue)}, queue.finish, IN_A_ROW)
        taken |= cublas(a, b, dtype)
    flops = 2.0 * sum(m * n * k for m, n, k in sizes)
    return {"count": len(sizes), "dtype": dtype, "flops": flops, "error": worst, "kernels": plan.kernels,
            "seconds": taken}  # fmt: skip


def launches_of(plan: Any, pairs: list[Any], outs: list[Any], queue: cl.CommandQueue) -> Side:
    """The plan's launches on the buffers of these Arrays."""
    buffers = {"a": pairs[0][0].base_data, "b": pairs[0][1].base_data, "out": outs[0].base_data}
    bindings = [group.executable.binding(queue) for group in plan._many.groups]
    return lambda: [one.enqueue(buffers, scalars_of(1.0, 0.0), [], None, False) for one in bindings]


def cublas(a: list[Any], b: list[Any], dtype: str) -> dict[str, float]:
    """Seconds of cuBLAS's grouped product of the same matrices; nothing where it is not there."""
    if torch is None or not torch.cuda.is_available() or dtype not in ("float32", "float64"):
        return {}
    folder = str(Path(torch.__file__).parents[1] / "nvidia/**/libcublas.so*")
    if not (found := sorted(glob.glob(folder, recursive=True))):
        return {}
    library, handle = ctypes.CDLL(found[0]), ctypes.c_void_p()
    assert library.cublasCreate_v2(ctypes.byref(handle)) == 0
    library.cublasSetStream_v2(handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    x, y = ([torch.tensor(one, device="cuda") for one in given] for given in (a, b))
    z = [torch.empty(len(i), j.shape[1], device="cuda", dtype=i.dtype) for i, j in zip(x, y, strict=True)]
    kept = [torch.tensor([one.data_ptr() for one in given], device="cuda") for given in (x, y, z)]
    at_x, at_y, at_z = (ctypes.c_void_p(one.data_ptr()) for one in kept)
    count, single = len(a), dtype == "float32"
    ints, reals = ctypes.c_int * count, (ctypes.c_float if single else ctypes.c_double) * count
    m, n, k = (ints(*[one.shape[i] for one in given]) for given, i in ((x, 0), (y, 1), (y, 0)))
    plain, each, alpha, beta = ints(), ints(*[1] * count), reals(*[1] * count), reals()
    function = library.cublasSgemmGroupedBatched if single else library.cublasDgemmGroupedBatched
    # Its matrices are stored by columns: z^T = y^T x^T.
    sizes, places = (plain, plain, n, m, k), (alpha, at_y, n, at_x, k, beta, at_z, n)

    def call() -> None:
        assert function(handle, *sizes, *places, count, each) == 0

    call()
    assert torch.allclose(z[0], x[0] @ y[0], rtol=1e-3, atol=1e-3)
    return in_turn({"cublas": call}, torch.cuda.synchronize, IN_A_ROW)


def a_mixture(experts: int, rows: int = 8192) -> dict[str, Any]:
    """A mixture of experts in bfloat16, and the two products of its gradient's kind."""
    k, n = MIXTURES[experts]
    shares = 1 / np.arange(1, experts + 1)
    sizes = (shares / shares.sum() * rows // 16 * 16).astype(int)
    sizes[0] += rows - sizes.sum()
    sizes = np.random.default_rng(1).permutation(sizes)
    options: Any = {"device": "cuda", "dtype": torch.bfloat16}
    x, w, g = (torch.randn(*shape, **options) / k**0.25 for shape in ((rows, k), (experts, k, n), (rows, n)))
    on_device = torch.tensor(sizes, device="cuda", dtype=torch.int32)
    ends = on_device.cumsum(0).to(torch.int32)
    taken = in_turn(
        {
            "ragged": lambda: pyclmm.ragged_matmul(x, w, on_device),
            "grouped_mm": lambda: torch._grouped_mm(x, w, offs=ends),
            "one mm": lambda: torch.mm(x, w[0]),
            "ragged, K": lambda: pyclmm.ragged_matmul(x.T, g, on_device),
            "grouped_mm, K": lambda: torch._grouped_mm(x.T, g, offs=ends),
        },
        torch.cuda.synchronize,
        IN_A_ROW,
    )
    apart = pyclmm.ragged_matmul(x, w, on_device).float() - torch._grouped_mm(x, w, offs=ends).float()
    return {"experts": experts, "rows": rows, "k": k, "n": n, "used": int((sizes > 0).sum()),
            "apart": float(apart.abs().max()), "seconds": taken}  # fmt: skip


def picture(found: list[dict[str, Any]], device: str, path: Path) -> None:
    """The number of products against the rate, for each dtype and side."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    dtypes = list(dict.fromkeys(one["dtype"] for one in found))
    figure, axes = plt.subplots(
        1, len(dtypes), figsize=(5 * len(dtypes), 4), squeeze=False, sharey=True, layout="constrained"
    )
    for axis, dtype in zip(axes[0], dtypes, strict=True):
        rows = [one for one in found if one["dtype"] == dtype]
        for side in dict.fromkeys(name for one in rows for name in one["seconds"]):
            points = [
                (one["count"], one["count"] / one["seconds"][side]) for one in rows if side in one["seconds"]
            ]
            axis.plot(*zip(*points, strict=True), marker="o", label=side)
        axis.set(xscale="log", yscale="log", xlabel="products in the list", title=dtype)
    axes[0][0].set_ylabel("products a second")
    figure.suptitle(device)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center")
    figure.savefig(path, dpi=120)


def shown(row: dict[str, Any]) -> str:
    """The times of a row."""
    return "us " + ", ".join(f"{name} {seconds * 1e6:.0f}" for name, seconds in row["seconds"].items())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device")
    parser.add_argument("--counts", default="10,100,1000")
    parser.add_argument("--low", type=int, default=8)
    parser.add_argument("--high", type=int, default=128)
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--experts", default="8,64,256")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    device = find_device(args.device)
    context = cl.Context([device])  # Intel's CPU runtime frees one that only a queue refers to
    queue, found, mixtures = cl.CommandQueue(context), [], []
    print(device_info(device).name)
    for dtype in args.dtypes.split(","):
        for count in map(int, args.counts.split(",")):
            drawn = np.random.default_rng(count).integers(args.low, args.high + 1, (count, 3)).tolist()
            found.append(a_list(queue, [tuple(size) for size in drawn], dtype))
            times = ", ".join(f"{name} {s * 1e6:.0f}" for name, s in found[-1]["seconds"].items())
            print(
                f"{count} of {args.low} to {args.high}, {dtype}: us {times}; {found[-1]['kernels']}",
                flush=True,
            )
    if torch is not None and torch.cuda.is_available():
        for experts in map(int, filter(None, args.experts.split(","))):
            mixtures.append(a_mixture(experts))
            print(f"{experts} experts: {shown(mixtures[-1])}", flush=True)
    if args.json:
        about: dict[str, Any] = {
            "device": device_info(device).identity,
            "date": datetime.now(timezone.utc).isoformat(),
        }
        about |= {"low": args.low, "high": args.high, "lists": found, "mixtures": mixtures}
        args.json.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    if args.picture:
        picture(found, device_info(device).name, args.picture)


if __name__ == "__main__":
    main()
