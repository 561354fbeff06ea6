"""Products with quantised weights: seconds, and the fraction of the rate at which the device reads memory.

    python benchmarks/quantized.py [--device NAME] [--n 8192] [--k 8192] [--rows 1,4,16,64] [--dtype float16]
        [--formats affine4_g128_float16,q8_0,q4_k] [--kernels auto,quantized,dequantized] [--int8]
        [--json FILE]

Weights lie in eight buffers that take turns, so that they come from memory if these exceed the cache. A
kernel that reads the buffers takes turns with the products: its rate is that of the memory on the spot.
Seconds are from the start of a product's first launch to the end of its last; medians, and the least. On CPUs
also the process's CPU seconds over their number, and those of the read over the product's: other work on the
machine touches these least. Each product is compared with x @ q.dequantize().T: the error is relative to the
products' absolute values. --int8: with quantize_a="int8".
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm
from pyclmm.formats import format_named
from pyclmm.opencl.clock import device_seconds
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.problem.dtypes import dtype_of

TURNS, ROTATED = 15, 8
READ = """
__kernel void read(
    __global const uint4 *p, const ulong count, const ulong apart, const ulong each, __global uint *out)
{
  uint4 s = 0, t = 0;
  const ulong first = get_global_id(0) * each;
  for (ulong i = first; i + 3 * apart < min(count, each > 1 ? first + each : count); i += 4 * apart)
    s ^= p[i] ^ p[i + apart], t ^= p[i + 2 * apart] ^ p[i + 3 * apart];
  s ^= t;
  if ((s.x ^ s.y ^ s.z ^ s.w) == 0x5a17) out[0] = 1;
}
"""


class Memory:
    """Reads buffers of weights at the memory's rate."""

    def __init__(self, queue: cl.CommandQueue, nbytes: int) -> None:
        self.queue, self.count = queue, nbytes // 16
        self.kernel = cl.Kernel(cl.Program(queue.context, READ).build(), "read")
        self.out = cla.zeros(queue, 1, np.uint32)
        self.is_cpu = bool(queue.device.type & cl.device_type.CPU)
        self.items = (8 if self.is_cpu else 1024) * queue.device.max_compute_units
        self.group = 1 if self.is_cpu else 256
        self.steps = (1, self.count // self.items) if self.is_cpu else (self.items, 1)

    def seconds(self, data: cla.Array) -> float:
        sizes = map(np.uint64, (self.count, *self.steps))
        local = (self.group,)
        event = self.kernel(self.queue, (self.items,), local, data.base_data, *sizes, self.out.base_data)
        event.wait()
        return device_seconds([event])


def row(
    queue: cl.CommandQueue, name: str, shape: tuple[int, int, int], dtype: str, kernel: str, **how: Any
) -> dict[str, Any]:
    """One product, in turn with reading its weights."""
    m, n, k = shape
    form, rng = format_named(name), np.random.default_rng(0)
    rows = form.drawn(rng, n, k)
    q = pyclmm.QuantizedArray.of_rows(rows, form, k)
    x = rng.standard_normal((m, k)).astype(dtype_of(dtype))
    wanted = q.dequantize(x.dtype).astype(np.float32)
    scale = abs(x.astype("f4")) @ abs(wanted.T) + 1e-30
    wanted = x.astype("f4") @ wanted.T
    given = cla.to_device(queue, x)
    copies: list[Any] = [q.to(queue) for _ in range(ROTATED)]
    out = cla.empty(queue, (m, n), x.dtype)
    plan = pyclmm.Matmul(given, copies[0].T, out=out, kernel=kernel, **how)
    memory, taken, reading = Memory(queue, rows.nbytes), [], []
    worked, read_work = [], []  # CPU seconds
    for turn in range(TURNS + 2):
        one = copies[turn % ROTATED]
        start = time.process_time()
        events = plan.enqueue(given, one.T, out=out)
        events[-1].wait()
        worked.append(time.process_time() - start)
        taken.append(device_seconds(events))
        start = time.process_time()
        reading.append(memory.seconds(copies[(turn + ROTATED // 2) % ROTATED].data))
        read_work.append(time.process_time() - start)
    error = float((abs(out.get().astype("f4") - wanted) / scale).max())
    seconds, read = statistics.median(taken[2:]), statistics.median(reading[2:])
    least, read_least = min(taken[2:]), min(reading[2:])
    work, units = statistics.median(worked[2:]), queue.device.max_compute_units
    of_cpus = {"cpu us": work / units * 1e6, "cpu of memory": statistics.median(read_work[2:]) / work}
    return {
        "format": name, "m": m, "n": n, "k": k, "dtype": dtype,
        "kernel": plan.kernel, "config": str(plan.config), "us": seconds * 1e6, "error": error,
        "of memory": read / seconds, "memory GB/s": rows.nbytes / read * 1e-9,
        "least us": least * 1e6, "least of memory": read_least / least,
        "most memory GB/s": rows.nbytes / read_least * 1e-9,
        **(of_cpus if memory.is_cpu else {}),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device")
    parser.add_argument("--n", type=int, default=8192)
    parser.add_argument("--k", type=int, default=8192)
    parser.add_argument("--rows", default="1,4,16,64")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--formats", default="affine4_g128_float16,affine4_g64_float16,q4_k,q8_0")
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    device = find_device(args.device)
    properties = cl.command_queue_properties.PROFILING_ENABLE
    context = cl.Context([device])  # of which Intel's runtime keeps none for its queues
    queue = cl.CommandQueue(context, properties=properties)
    found: list[dict[str, Any]] = []
    how = {"quantize_a": "int8"} if args.int8 else {}
    print(device_info(device).name)
    for name in args.formats.split(","):
        for m in map(int, args.rows.split(",")):
            for kernel in args.kernels.split(","):
                one = row(queue, name, (m, args.n, args.k), args.dtype, kernel, **how)
                found.append(one)
                what = f"{name} M={m} {one['kernel']} ({one['config']})"
                rate = f"{one['of memory']:.2f} of the memory's {one['memory GB/s']:.0f} GB/s"
                least = f"least {one['least us']:.1f} us, {one['least of memory']:.2f} of the least read"
                cpu = f"CPU {one['cpu us']:.1f} us, {one['cpu of memory']:.2f}, " if "cpu us" in one else ""
                took = f"{one['us']:.1f} us, {rate}, {least}, {cpu}error {one['error']:.1e}"
                print(f"{what}: {took}", flush=True)
    if args.json:
        about = {"device": device_info(device).identity, "date": datetime.now(timezone.utc).isoformat()}
        args.json.write_text(json.dumps({**about, "rows": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
