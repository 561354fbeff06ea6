"""Draws random calls and compares each with NumPy: ``make fuzz``.

    python tests/campaigns/fuzz.py [--seconds 60] [--calls N] [--kinds N] [--seed N]
                                   [--keep tests/campaigns/failed_calls] [--record FILE.json]

It prints its seed. A call that fails is written to a JSON file, and `make test` replays it from then on.

Almost every combination of types, kernel and layout needs its own program, and compiling takes most of the
time. ``--kinds`` first draws that many combinations of types, kernel and epilogue and then every call from
these, so that a long search varies shapes, layouts, views and values. ``--record`` keeps a search's seed
and counts.
"""

import argparse
import json
import os
import random
import secrets
import sys
import time
import traceback
import zlib
from collections import Counter
from pathlib import Path

from pyclmm.opencl.devices import device_info
from pyclmm.opencl.queues import default_queue
from pyclmm.tools.report import header_json
from tests.support import calls
from tests.support.calls import draw_gemm, draw_matmul, gemm_kind, matmul_kind
from tests.support.einsums import draw_einsum, einsum_kind, judge_einsum

KEPT = Path(__file__).parent / "failed_calls"
DRAWN = {"matmul": draw_matmul, "gemm": draw_gemm, "einsum": draw_einsum}
PROGRESS = 1000  # calls between lines of progress
_SETTINGS = ("PYCLMM_SELFCHECK", "PYCLMM_TRIAL")  # variables of the environment that a record keeps


def draw_kind(r):
    """A random kind of call, of matmul, gemm or einsum."""
    return r.choice((matmul_kind, matmul_kind, gemm_kind, einsum_kind))(r)


def draw(r, kinds=()):
    """A random call of one of *kinds*, or of any kind, on host arrays or Arrays."""
    kind = r.choice(kinds) if kinds else draw_kind(r)
    return DRAWN[kind["name"]](r, r.choice(("host", "device")), kind=kind)


def judge(call, queue):
    """Compare a call with NumPy. Returns whether it gave a product."""
    return calls.judge(call, queue, judge_einsum if call["name"] == "einsum" else None)


def keep(call, folder):
    """Write a call that failed to a file named after its content."""
    text = json.dumps(call, indent=1)
    path = folder / f"{call['name']}-{zlib.crc32(text.encode()):08x}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    return path


def search(options, r, queue):
    """Draw and judge until the time or the number of calls is reached; counts calls by outcome."""
    kinds = [draw_kind(r) for _ in range(options.kinds)]
    ends = Counter(products=0, refused=0, failed=0)
    end = time.monotonic() + options.seconds
    while time.monotonic() < end and ends.total() < options.calls:
        call = draw(r, kinds)
        try:
            ends["products" if judge(call, queue) else "refused"] += 1
        except Exception:
            ends["failed"] += 1
            print(traceback.format_exc(limit=-3), keep(call, options.keep), sep="", flush=True)
        if ends.total() % PROGRESS == 0:
            print(*(f"{count} {what}" for what, count in ends.items()), sep=", ", flush=True)
    return dict(ends)


def main(arguments=None):
    """Run the search; returns how many calls failed."""
    parser = argparse.ArgumentParser(description="compare random calls with NumPy")
    parser.add_argument("--seconds", type=float, default=None, help="at most; 60 without --calls")
    parser.add_argument("--calls", type=int, default=sys.maxsize, help="at most")
    parser.add_argument("--kinds", type=int, default=0, help="draw calls of that many kinds only")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", type=Path, default=KEPT, help="folder for the calls that fail")
    parser.add_argument("--record", type=Path, help="write seed, counts, device and versions to this file")
    options = parser.parse_args(arguments)
    if options.seconds is None:
        options.seconds = 60 if options.calls == sys.maxsize else float("inf")
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    queue, start = default_queue(), time.monotonic()
    ends = search(options, random.Random(seed), queue)
    count = sum(ends.values())
    print(f"{count} calls, {ends['failed']} failed")
    if options.record:
        found = {"seed": seed, "kinds": options.kinds or None, "calls": count, **ends}
        found |= {"minutes": round((time.monotonic() - start) / 60, 1)}
        found |= {name: os.environ.get(name, "on") for name in _SETTINGS}
        record = header_json(device_info(queue.device)) | found
        options.record.write_text(json.dumps(record, indent=1) + "\n")
    return ends["failed"]


if __name__ == "__main__":
    raise SystemExit(bool(main()))
