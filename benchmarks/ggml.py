"""Times one row times GGUF's weights on a CPU: pyclmm, and llama.cpp's library of products, ggml, in turn.

    pip install llama-cpp-python        # builds ggml for this processor; needs a C++ compiler
    python benchmarks/ggml.py [--device NAME] [--n 11008] [--k 4096] [--rows 1,64] [--formats q8_0,q4_k,q4_0]
        [--int8] [--cpu-time] [--json FILE]

--int8: also with quantize_a="int8". All read the same bytes, in buffers that take turns, so that they come
from memory. ggml multiplies by integers: it rounds x to 8 bits, 32 or 256 numbers with one scale, which
pyclmm does if asked. So each error against x @ q.dequantize().T is shown. ggml has as many threads as there
are processors; they wait for work without sleeping. Medians of calls, and the least. --cpu-time, for machines
with other work: the process's CPU seconds over the number of processors, with one thread of ggml's.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import importlib.metadata
import importlib.util
import json
import os
import statistics
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

import pyclmm
from pyclmm.formats import format_named
from pyclmm.opencl.devices import device_info, find_device

# ggml_type of ggml.h
TYPES = {"q4_0": 2, "q4_1": 3, "q5_0": 6, "q8_0": 8}
TYPES |= {"q2_k": 10, "q3_k": 11, "q4_k": 12, "q5_k": 13, "q6_k": 14}
FLOAT32 = 0
COPIES, ROUNDS, CALLS, PAUSE = 6, 15, 6, 0.02
POINTER = ctypes.c_void_p


class InitParams(ctypes.Structure):
    """ggml_init_params of ggml.h."""

    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", POINTER), ("no_alloc", ctypes.c_bool))


class Plan(ctypes.Structure):
    """ggml_cplan of ggml-cpu.h, with room for fields that newer versions add."""

    _fields_ = (
        ("work_size", ctypes.c_size_t),
        ("work_data", POINTER),
        ("n_threads", ctypes.c_int),
        ("threadpool", POINTER),
        ("more", POINTER * 6),
    )


class PoolParams(ctypes.Structure):
    """ggml_threadpool_params of ggml.h."""

    _fields_ = (
        ("cpumask", ctypes.c_bool * 512),
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    )


def library(name: str) -> ctypes.CDLL:
    package = importlib.util.find_spec("llama_cpp")
    if package is None or package.origin is None:
        raise SystemExit("pip install llama-cpp-python")
    folder = Path(package.origin).parent / "lib"
    return ctypes.CDLL(str(next(folder.glob(f"lib{name}.so*"))))


def declared(found: ctypes.CDLL, name: str, result: Any, *args: Any) -> Callable[..., Any]:
    function = getattr(found, name)
    function.restype, function.argtypes = result, args
    return function


class Ggml:
    """Products of *x*, (M, K), by each of the *copies* of rows of weights."""

    def __init__(
        self, form: str, x: np.ndarray[Any, Any], copies: list[np.ndarray[Any, Any]], threads: int
    ) -> None:
        base, cpu = library("ggml-base"), library("ggml-cpu")
        new = declared(base, "ggml_new_tensor_2d", POINTER, POINTER, ctypes.c_int, *[ctypes.c_int64] * 2)
        data = declared(base, "ggml_get_data", POINTER, POINTER)
        multiply = declared(base, "ggml_mul_mat", POINTER, POINTER, POINTER, POINTER)
        graph_of = declared(base, "ggml_new_graph", POINTER, POINTER)
        expand = declared(base, "ggml_build_forward_expand", None, POINTER, POINTER)
        plan_of = declared(cpu, "ggml_graph_plan", Plan, POINTER, ctypes.c_int, POINTER)
        self._compute = declared(cpu, "ggml_graph_compute", ctypes.c_int, POINTER, ctypes.POINTER(Plan))
        pool = declared(base, "ggml_threadpool_params_default", PoolParams, ctypes.c_int)(threads)
        self._pool = declared(cpu, "ggml_threadpool_new", POINTER, ctypes.POINTER(PoolParams))(pool)
        declared(cpu, "ggml_cpu_init", None)()
        size = sum(rows.nbytes for rows in copies) + 64 * x.nbytes + (64 << 20)
        context = declared(base, "ggml_init", POINTER, InitParams)(InitParams(size, None, False))
        (m, k), n = x.shape, len(copies[0])
        given = new(context, FLOAT32, k, m)
        ctypes.memmove(data(given), x.ctypes.data, x.nbytes)
        self._graphs, self._out, self._work = list[tuple[int, Plan]](), list[Any](), list[Any]()
        for rows in copies:
            weights = new(context, TYPES[form], k, n)
            ctypes.memmove(data(weights), rows.ctypes.data, rows.nbytes)
            out, graph = multiply(context, weights, given), graph_of(context)
            expand(graph, out)
            plan = plan_of(graph, threads, self._pool)
            self._work.append(np.empty(max(1, plan.work_size), np.uint8))
            plan.work_data = self._work[-1].ctypes.data
            self._graphs.append((graph, plan))
            self._out.append((ctypes.c_float * (m * n)).from_address(data(out)))
        self.shape = m, n

    def __call__(self, copy: int) -> np.ndarray[Any, Any]:
        graph, plan = self._graphs[copy]
        if self._compute(graph, ctypes.byref(plan)):
            raise RuntimeError("ggml refused")
        return np.frombuffer(self._out[copy], np.float32).reshape(self.shape)


def row(device: Any, name: str, m: int, n: int, k: int, ways: dict[str, Any], by_cpu: bool) -> dict[str, Any]:
    cpus = os.cpu_count() or 1
    clock, units = (time.process_time, cpus) if by_cpu else (time.perf_counter, 1)
    form, rng = format_named(name), np.random.default_rng(0)
    rows = form.drawn(rng, n, k)
    x = rng.standard_normal((m, k)).astype(np.float32)
    weights = form.dequantize(rows, k)
    want, scale = x @ weights.T, abs(x) @ abs(weights.T)
    copies = [rows.copy() for _ in range(COPIES)]
    ours = [pyclmm.QuantizedArray.of_rows(one, form, k) for one in copies]
    peer, out = Ggml(name, x, copies, 1 if by_cpu else cpus), np.empty((m, n), np.float32)
    product = functools.partial(pyclmm.matmul, x, out=out, device=device)
    sides: dict[str, Callable[[int], Any]] = {"ggml": peer}
    for side, how in ways.items():
        sides[side] = lambda copy, how=how: product(ours[copy].T, **how)  # type: ignore[misc]
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    errors = {side: float((abs(call(0) - want) / scale).max()) for side, call in sides.items()}
    for _ in range(ROUNDS):
        for side, call in sides.items():
            call(0)
            time.sleep(PAUSE)
            for copy in range(CALLS):
                start = clock()
                call(copy % COPIES)
                seconds[side].append((clock() - start) / units)
    medians = {side: statistics.median(found) for side, found in seconds.items()}
    least = {side: min(found) for side, found in seconds.items()}
    return {"format": name, "m": m, "n": n, "k": k, "seconds": medians, "least": least, "errors": errors}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device")
    parser.add_argument("--n", type=int, default=11008)
    parser.add_argument("--k", type=int, default=4096)
    parser.add_argument("--rows", default="1,64")
    parser.add_argument("--formats", default="q8_0,q4_k,q4_0")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    device, found = find_device(args.device), []
    ways = {"pyclmm": {}, **({"pyclmm int8": {"quantize_a": "int8"}} if args.int8 else {})}
    print(device_info(device).name, "llama-cpp-python", importlib.metadata.version("llama-cpp-python"))
    for name in args.formats.split(","):
        for m in map(int, args.rows.split(",")):
            one = row(device, name, m, args.n, args.k, ways, args.cpu_time)
            found.append(one)
            for side in one["seconds"]:
                took, least = (1e3 * one[what][side] for what in ("seconds", "least"))
                error = one["errors"][side]
                print(f"{name} M={m} {side}: {took:.2f} ms, least {least:.2f}, error {error:.1e}", flush=True)
    if args.json:
        about = {"device": device_info(device).identity, "date": datetime.now(timezone.utc).isoformat()}
        args.json.write_text(json.dumps({**about, "rows": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
