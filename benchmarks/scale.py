"""Times products in tiles: beside those in core, under a memory limit, on several devices, from a file.

    python benchmarks/scale.py [--parts overlap,limit,...] [--divide 1] [--folder F] [--save NAME]

| part | what |
|---|---|
| overlap | NumPy arrays in and out, float32 cubes: in tiles, in core, and by PyTorch if it is there |
| limit | 65,536 x 65,536 x 16,384 float32 with memory_limit="8 GiB", and the same on the device alone |
| link | products that transfers bound, from and to arrays, beside transfers of pinned memory alone |
| devices | 32,768 cubed float32 on one GPU and on all, and on one GPU with the CPU beside it |
| file | float16 from a memmap of 4 GiB times a narrow matrix, in the system's cache and not; reading alone |

Every size is divided by --divide, for smaller machines. Rounds are interleaved; times are medians, and the
least stands beside them. NAME.json has the numbers and when what happened; NAME.png draws them. A few
elements of each result are compared with sums in float64.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
from numpy.typing import NDArray
from tile_trace import Trace

import pyclmm
from pyclmm.opencl import staging
from pyclmm.opencl.clock import elapsed
from pyclmm.opencl.devices import device_info
from pyclmm.streaming import entry
from pyclmm.tools.report import header_json

_THREADS = os.cpu_count() or 1
_ROUNDS = 5
_PAUSE = 0.05  # seconds before each side
Record = dict[str, Any]


def filled(*shape: int) -> NDArray[np.float32]:
    """Numbers from -0.5 to 0.5; each block of rows has another scale, so that exchanged tiles are seen."""
    x = np.empty(shape, np.float32)
    block = np.random.default_rng(1).random((min(256, shape[0]), shape[1]), dtype=np.float32) - 0.5

    def fill(start: int) -> None:
        part = x[start : start + 256]
        np.multiply(block[: len(part)], 1 + start / 7919, out=part)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(fill, range(0, shape[0], 256)))
    return x


def error(a: Any, b: Any, c: Any) -> float:
    """The largest error of a few elements, in units of (K + 2) u |A||B|; 1 is the limit."""
    rng = np.random.default_rng(5)
    rows, columns = (np.sort(rng.choice(n, min(n, 5), replace=False)) for n in c.shape)
    few_a, few_b = np.asarray(a[rows], np.float64), np.asarray(b[:, columns], np.float64)
    unit = np.finfo(c.dtype).eps / 2
    bound = (2 if c.dtype == np.float16 else a.shape[1] + 2) * unit * (np.abs(few_a) @ np.abs(few_b))
    return float(np.max(np.abs(c[rows][:, columns] - few_a @ few_b) / bound))


def timed(sides: Mapping[str, Callable[[], object]], rounds: int = _ROUNDS) -> dict[str, dict[str, float]]:
    """Median and least seconds of each side, in turn."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        side()
    for _ in range(rounds):
        for name, side in sides.items():
            time.sleep(_PAUSE)
            found[name].append(elapsed(side))
    return {name: {"median": statistics.median(x), "least": min(x)} for name, x in found.items()}


@contextlib.contextmanager
def in_core() -> Any:
    """Calls in this block are not computed in tiles on their own."""
    before = entry.pays
    entry.pays = lambda *_: False
    try:
        yield
    finally:
        entry.pays = before


def by_torch(a: NDArray[Any], b: NDArray[Any]) -> Callable[[], object] | None:
    """The product by PyTorch, from NumPy arrays to a NumPy array; None if there is no PyTorch with a GPU."""
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    x, y = torch.from_numpy(a), torch.from_numpy(b)

    def product() -> object:
        return (x.cuda() @ y.cuda()).cpu()

    return product


def overlap(divide: int, _: Path) -> list[Record]:
    found = []
    for size in (2048, 4096, 6144, 8192, 12288, 16384):
        n = size // divide
        a, b, out = filled(n, n), filled(n, n), np.zeros((n, n), np.float32)
        plan = pyclmm.StreamedMatmul(a, b, out=out)

        def core(a: Any = a, b: Any = b, out: Any = out) -> None:
            with in_core():
                pyclmm.matmul(a, b, out=out)

        sides: dict[str, Callable[[], object]] = {
            "matmul": functools.partial(pyclmm.matmul, a, b, out=out),
            "in tiles": functools.partial(plan, a, b, out=out),
            "in core": core,
        }
        torch = by_torch(a, b)
        if torch is not None:
            sides["PyTorch"] = torch
        record: Record = {"n": n, "seconds": timed(sides), "predicted": str(plan.explain()).split("\n\n")[0]}
        out[:] = 0
        pyclmm.matmul(a, b, out=out)
        record["error"] = error(a, b, out)
        if size == 8192:
            with Trace() as trace:
                plan(a, b, out=out)
            record["spans"] = trace.spans()
        print(f"overlap {n}: {shown(record['seconds'])}, error {record['error']:.2f}", flush=True)
        found.append(record)
    return found


def shown(seconds: Mapping[str, Mapping[str, float]]) -> str:
    return ", ".join(f"{name} {x['median'] * 1e3:.1f} ms" for name, x in seconds.items())


def on_device(queue: cl.CommandQueue, a: NDArray[Any], b: NDArray[Any]) -> float:
    """The least seconds of the product of Arrays; nothing is transferred."""
    x, y = (cla.empty(queue, each.shape, each.dtype) for each in (a, b))
    for target, source in ((x, a), (y, b)):
        step = max(1, (1 << 28) // source[0].nbytes)
        for start in range(0, len(source), step):
            target[start : start + step].set(source[start : start + step])
    z = cla.empty(queue, (a.shape[0], b.shape[1]), a.dtype)

    def product() -> None:
        pyclmm.matmul(x, y, out=z)
        queue.finish()

    return timed({"product": product}, 3)["product"]["least"]


def limit(divide: int, _: Path) -> list[Record]:
    m, n, k = 65536 // divide, 65536 // divide, 16384 // divide
    a, b, c = filled(m, k), filled(k, n), filled(m, n)
    allowed = (8 << 30) // divide**2
    plan = pyclmm.StreamedMatmul(a, b, out=c, memory_limit=allowed)
    seconds = timed({"in tiles": functools.partial(plan, a, b, out=c)}, 3)
    seconds["on the device"] = {"least": on_device(pyclmm.default_queue(), a, b)}
    seconds["on the device"]["median"] = seconds["on the device"]["least"]
    rate = {name: 2e-12 * m * n * k / x["least"] for name, x in seconds.items()}
    record = {
        "m": m,
        "n": n,
        "k": k,
        "memory_limit": allowed,
        "seconds": seconds,
        "tflops": rate,
        "of_in_core": rate["in tiles"] / rate["on the device"],
        "error": error(a, b, c),
        "explain": str(plan.explain()).split("\n\n")[0],
    }
    with Trace() as trace:
        plan(a, b, out=c)
    record["products"] = [span[2:4] for span in trace.spans() if span[1] == "product"]
    print(
        f"limit: {shown(seconds)}, {record['of_in_core']:.3f} of in core, error {record['error']:.2f}",
        flush=True,
    )
    return [record]


def link(divide: int, _: Path) -> list[Record]:
    queue = pyclmm.default_queue()
    up, down = staging.link_rates(queue)
    m, n = 65536 // divide, 32768 // divide
    large = filled(m, n)
    found = []
    for name, a, b, out, moved, alone in (
        ("up", large, filled(n, 128), np.zeros((m, 128), np.float32), large.nbytes, up),
        ("back", filled(m, 64), filled(64, n), np.zeros((m, n), np.float32), large.nbytes, down),
    ):
        plan = pyclmm.StreamedMatmul(a, b, out=out)
        seconds = timed({name: functools.partial(plan, a, b, out=out)})
        rate = moved / seconds[name]["least"]
        record = {
            "shape": [m, a.shape[1], b.shape[1]],
            "way": name,
            "seconds": seconds,
            "gb_per_s": rate / 1e9,
        }
        record |= {"pinned_gb_per_s": alone / 1e9, "of_pinned": rate / alone, "error": error(a, b, out)}
        print(f"link: {name} {rate / 1e9:.1f} GB/s, {rate / alone:.2f} of pinned memory's", flush=True)
        found.append(record)
    return found


def devices(divide: int, _: Path) -> list[Record]:
    n = 32768 // divide
    a, b, c = filled(n, n), filled(n, n), filled(n, n)
    records = pyclmm.devices()
    gpus = [x.device for x in records if x.kind == "gpu"] or [x.device for x in records][:1]
    groups = {"1 GPU": gpus[:1]}
    if len(gpus) > 1:
        groups[f"{len(gpus)} GPUs"] = gpus
        groups["the other GPU"] = gpus[1:2]
    cpus = [x.device for x in records if x.kind == "cpu" and x.device not in gpus]
    if cpus:
        groups["1 GPU and the CPU"] = [gpus[0], cpus[0]]
    plans = {name: pyclmm.StreamedMatmul(a, b, out=c, devices=group) for name, group in groups.items()}
    seconds = timed({name: functools.partial(plan, a, b, out=c) for name, plan in plans.items()}, 3)
    found: Record = {"n": n, "seconds": seconds, "error": error(a, b, c)}
    found["tiles"] = {name: dataclasses.asdict(plan.blocking) for name, plan in plans.items()}
    found["times one"] = {
        name: seconds["1 GPU"]["least"] / x["least"] for name, x in seconds.items() if name != "1 GPU"
    }
    last = list(plans)[1] if len(plans) > 1 else "1 GPU"
    with Trace() as trace:
        plans[last](a, b, out=c)
    found["spans"] = trace.spans()
    print(f"devices: {shown(seconds)}, {found['times one']}, error {found['error']:.2f}", flush=True)
    return [found]


def forget_pages(path: Path) -> bool:
    """Make the system drop the pages of a file. False if it cannot."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        if not hasattr(os, "posix_fadvise"):
            return False
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def read_through(path: Path) -> None:
    """Read a file by as many threads as a lane has, and do nothing with it."""
    size, piece = path.stat().st_size, 16 << 20

    def read(start: int) -> None:
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            file.readinto(bytearray(min(piece, size - start)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(0, size, piece)))


def file(divide: int, folder: Path) -> list[Record]:
    m, k, n = 65536 // divide, 32768 // divide, 256
    path = folder / "a.npy"
    mapped = np.lib.format.open_memmap(path, "w+", np.float16, (m, k))
    for start in range(0, m, 256):
        mapped[start : start + 256] = filled(min(256, m - start), k)
    mapped.flush()
    a = np.load(path, mmap_mode="r")
    b, c = filled(k, n).astype(np.float16), np.zeros((m, n), np.float16)
    plan = functools.partial(pyclmm.StreamedMatmul(a, b, out=c), a, b, out=c)
    seconds: dict[str, dict[str, float]] = timed({"product": plan, "reading": lambda: read_through(path)}, 3)
    cold: dict[str, list[float]] = {"product": [], "reading": []}
    for _ in range(2):
        for name, side in (("product", plan), ("reading", lambda: read_through(path))):
            if forget_pages(path):
                cold[name].append(elapsed(side))
    for name, x in cold.items():
        if x:
            seconds[f"{name}, not cached"] = {"median": statistics.median(x), "least": min(x)}
    rates = {name: a.nbytes / x["least"] / 1e9 for name, x in seconds.items()}
    record = {"m": m, "n": n, "k": k, "seconds": seconds, "gb_per_s": rates, "error": error(a, b, c)}
    print(f"file: {', '.join(f'{name} {x:.2f} GB/s' for name, x in rates.items())}", flush=True)
    return [record]


PARTS: Mapping[str, Callable[[int, Path], list[Record]]] = {
    "overlap": overlap,
    "limit": limit,
    "link": link,
    "devices": devices,
    "file": file,
}
_COLOURS = {"up": "#3c93d6", "product": "#ca713e", "down": "#1ea476"}


def draw(content: Mapping[str, Any], path: Path) -> None:
    """Size against rate, and the time lines of one device and of several."""
    from matplotlib.figure import Figure  # noqa: PLC0415  an extra

    lines = [(part, r) for part in ("overlap", "devices") for r in content.get(part, ()) if "spans" in r]
    figure = Figure(figsize=(10, 3.4 + 2.2 * len(lines)), layout="constrained")
    axes = figure.subplots(1 + len(lines), 1, squeeze=False)[:, 0]
    rows = content.get("overlap", [])
    for name in rows[0]["seconds"] if rows else ():
        points = [(r["n"], 2e-12 * r["n"] ** 3 / r["seconds"][name]["median"]) for r in rows]
        axes[0].plot(*zip(*points, strict=True), marker="o", label=name)
    axes[0].set(xlabel="N, float32, NumPy arrays in and out", ylabel="TFLOP/s", ylim=(0, None))
    if rows:
        axes[0].legend()
    for axis, (part, record) in zip(axes[1:], lines, strict=True):
        lanes = sorted({(span[0], what) for span in record["spans"] for what in _COLOURS})
        for height, (device, what) in enumerate(lanes):
            bars = [
                (s[2] * 1e3, (s[3] - s[2]) * 1e3) for s in record["spans"] if s[0] == device and s[1] == what
            ]
            axis.broken_barh(bars, (height - 0.4, 0.8), color=_COLOURS[what])
        axis.set_yticks(range(len(lanes)), [f"{what}, device {device}" for device, what in lanes])
        axis.set(xlabel="ms", title=f"{part}: {record['n']} cubed, when the device copied and multiplied")
    figure.suptitle(f"{content['device']['name']}, {str(content['date'])[:10]}")
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--divide", type=int, default=1)
    parser.add_argument("--folder", help="where the file of the part `file` is made")
    parser.add_argument("--save", metavar="NAME", help="write NAME.json and NAME.png")
    args = parser.parse_args()
    content: dict[str, Any] = dict(header_json(device_info(pyclmm.default_queue().device)))
    content["devices"] = [str(each) for each in pyclmm.devices()]
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for part in args.parts.split(","):
            content[part] = PARTS[part](args.divide, Path(folder))
    if args.save:
        Path(f"{args.save}.json").write_text(json.dumps(content, indent=1) + "\n")
        draw(content, Path(f"{args.save}.png"))


if __name__ == "__main__":
    main()
