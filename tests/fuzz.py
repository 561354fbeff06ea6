"""Draws calls without end and compares each with NumPy: ``make fuzz``.

    python tests/fuzz.py [--seconds 60] [--seed N] [--keep tests/failed_calls]

Prints its seed; a call that fails is written to a JSON file, which `make test` replays from then on.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import time
import traceback
import zlib
from pathlib import Path

from calls import draw_gemm, draw_matmul, judge

from pyclmm.queues import default_queue

KEPT = Path(__file__).parent / "failed_calls"


def draw(r):
    """Any call of any function, on host arrays or Arrays."""
    return r.choice((draw_matmul, draw_matmul, draw_gemm))(r, r.choice(("host", "device")))


def keep(call, folder):
    """Write a call that failed to a file named by its contents."""
    text = json.dumps(call, indent=1)
    path = folder / f"{call['name']}-{zlib.crc32(text.encode()):08x}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    return path


def main(arguments=None):
    """Draw for a while; returns how many calls failed."""
    parser = argparse.ArgumentParser(description="compare random calls with NumPy")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", type=Path, default=KEPT, help="folder for the calls that fail")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    r, queue, drawn, failed = random.Random(seed), default_queue(), 0, 0
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        call = draw(r)
        drawn += 1
        try:
            judge(call, queue)
        except Exception:
            failed += 1
            print(traceback.format_exc(limit=-3), keep(call, options.keep), sep="", flush=True)
    print(f"{drawn} calls, {failed} failed")
    return failed


if __name__ == "__main__":
    raise SystemExit(bool(main()))
