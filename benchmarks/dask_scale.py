"""Times one product of dask arrays on a LocalCluster of one worker and of two, one device each.

    python benchmarks/dask_scale.py [--size 32768] [--chunk 4096] [--workers 1 2] [--devices 0 1]
                                    [--rounds 3] [--save FILE]

Each worker is a process of one thread; worker n takes device n of --devices (default: every GPU). Random
chunks are made on the workers and kept there. The first product also moves chunks between the workers (TCP on
this host), compiles and checks. In later rounds each worker has the copies that it got: nothing removes them,
because Dask's active memory manager is off. Random elements are compared with sums in float64.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np
from numpy.typing import NDArray

import pyclmm
import pyclmm.dask

_SETTINGS = {
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.admin.large-graph-warning-threshold": "1 GiB",
}
_CHECKED = 5  # rows and columns


def random_chunk(seed: int, block_info: Any = None) -> NDArray[np.float32]:
    """The chunk of a place: float32 from -1 to 1."""
    here = block_info[None]
    rng = np.random.default_rng([seed, *here["chunk-location"]])
    return rng.random(here["chunk-shape"], dtype=np.float32) * 2 - 1


def random_matrix(size: int, chunk: int, seed: int) -> Any:
    lengths = tuple(min(chunk, size - start) for start in range(0, size, chunk))
    return da.map_blocks(random_chunk, seed, chunks=(lengths, lengths), dtype=np.float32)


def error_bound(x: Any, y: Any, product: Any) -> float:
    """The largest error of a few elements, in units of the bound (K + 2) u |A||B|; 1 is the limit."""
    rng = np.random.default_rng(7)
    rows, columns = (np.sort(rng.choice(product.shape[i], _CHECKED, replace=False)) for i in (0, 1))
    a, b, got = dask.compute(x[rows], y[:, columns], product[rows][:, columns])
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = (a.shape[1] + 2) * 2.0**-24 * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64))
    return float(np.max(np.abs(got - exact) / bound))


def timed(
    workers: int, size: int, chunk: int, devices: list[int | str] | None, rounds: int
) -> dict[str, Any]:
    """Seconds of the product on a cluster of *workers*."""
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=0,
            dashboard_address=None,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.register_plugin(pyclmm.dask.DevicePlugin(devices=devices))
        x, y = (random_matrix(size, chunk, seed).persist() for seed in (1, 2))
        distributed.wait([x, y])
        seconds = []
        for number in range(rounds + 1):
            start = time.perf_counter()
            product = pyclmm.dask.matmul(x, y).persist()
            distributed.wait(product)
            seconds.append(time.perf_counter() - start)
            if number < rounds:
                del product  # else the same name is already there and nothing is computed
        found: dict[str, Any] = {
            "workers": workers,
            "first_s": seconds[0],
            "rounds_s": seconds[1:],
            "median_s": statistics.median(seconds[1:]),
            "output_chunks": [int(n) for n in product.numblocks],
            "error": error_bound(x, y, product),
        }
    found["tflops"] = 2 * size**3 / found["median_s"] / 1e12
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=32768)
    parser.add_argument("--chunk", type=int, default=4096)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--devices", nargs="+", help="numbers or names; one may stand twice")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    devices = None if given.devices is None else [int(d) if d.isdecimal() else d for d in given.devices]
    with dask.config.set(_SETTINGS):
        runs = [timed(n, given.size, given.chunk, devices, given.rounds) for n in given.workers]
    for run in runs:
        print(
            f"{run['workers']} workers: first {run['first_s']:.2f} s, then {run['median_s']:.3f} s, "
            f"{run['tflops']:.2f} TFLOP/s, error {run['error']:.3f} of the bound"
        )
        if not run["error"] <= 1:
            raise SystemExit("the product is wrong")
    print(
        f"{runs[0]['median_s'] / runs[-1]['median_s']:.2f} times as fast with {runs[-1]['workers']} workers"
    )
    if given.save:
        content = {
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "version": pyclmm.__version__,
            "dask": dask.__version__,
            "devices": [str(device) for device in pyclmm.devices()],
            "size": given.size,
            "chunk": given.chunk,
            "runs": runs,
        }
        given.save.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
