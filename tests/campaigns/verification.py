"""Checks what verify= says: no right product is refused, and wrong elements are noticed by their size.

    python tests/campaigns/verification.py [--calls 3000] [--kinds 24] [--flips 0] [--seed N] [--json FILE]

``--calls`` random right products of ``--kinds`` kinds (types, layout, epilogue, precision; with quantised
weights, ragged, in lists) with random shapes, scales and special values, each of which must raise no alarm. A
kind needs programs of its own, and compiling them takes most of the time.

``--flips`` so many times one random bit is flipped, for each type, of a random element of out, before it is
checked; of A in local memory; and of an accumulator, by a build of `tiled` that errs. The share that is
noticed is printed by size of the greatest error in limits (of the row's sum, docs/verification.md), and is
what ``--json`` writes for benchmarks/pictures.py.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import random
import secrets
import warnings
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np

import pyclmm
from pyclmm.formats import FORMAT_NAMES, format_named
from pyclmm.opencl.queues import default_queue
from pyclmm.problem.canonical import WITH_WEIGHTS
from pyclmm.problem.dtypes import ELEMENT_TYPES, dtype_of
from tests.support.cases import numbers
from tests.support.spoiled import SUM, TILE, FaultyTiled, Spoiler, installed

TYPES = [name for name in ELEMENT_TYPES if name != "bool"]
FLIPPED = ("float16", "bfloat16", "float32", "float64", "int32")  # a complex product is made of real ones
WHERE = ("out", "tile", "sum")  # of what a bit is flipped: out, A in local memory, an accumulator
SIZES = (1, 1, 2, 3, 7, 8, 16, 17, 33, 40, 64, 65, 129)
SHAPES = 12  # of a kind
ACTIVATIONS = (None, None, None, "relu", "gelu", "tanh")
SCALES = (0.0, 1e-40, 1e-20, 1e-5, 1.0, 1.0, 1.0, 1e3, 1e18, 1e30)
PROGRESS = 5000  # products between lines of progress
LOW, HIGH = -6, 12  # powers of two of the errors that are told apart


# ---- right products


def draw_kind(r):
    """What decides which programs a product runs, apart from shapes."""
    how = r.choice(("gemm", "gemm", "gemm", "weights", "ragged", "list"))
    dtype = r.choice(WITH_WEIGHTS if how == "weights" else TYPES)
    is_real_float = dtype_of(dtype).kind not in "iuc"
    return {
        "how": how,
        "format": r.choice(FORMAT_NAMES),
        "dtype": dtype,
        "layout": r.choice(("NN", "NT", "TN", "TT")),
        "c": r.random() < 0.25,
        "bias": r.choice((None, None, None, "row", "column")),
        "activation": r.choice(ACTIVATIONS) if is_real_float else None,
        "precision": r.choice(("highest", "highest", "high", "medium")),
        "reproducible": r.random() < 0.1,
        "shapes": [draw_shape(r) for _ in range(SHAPES)],  # a new shape needs a plan
    }


def draw_shape(r):
    """M, N and K."""
    m, n, k = (r.choice(SIZES) for _ in "mnk")
    return m, n, r.choice((k, k, k, 300, 1000))


def values(r, rng, shape, dtype):
    """Random elements of a random scale, some rows scaled apart, some with NaN, infinity or zeros."""
    x = numbers(rng, shape, dtype_of(dtype))
    if np.dtype(x.dtype).kind in "iu":
        return x
    with np.errstate(all="ignore"):
        x = (x * x.dtype.type(r.choice(SCALES))).astype(x.dtype)
        if r.random() < 0.3:
            powers = 2.0 ** rng.integers(-10, 11, shape[0])
            x = (x * powers[:, None]).astype(x.dtype)
    if r.random() < 0.2:
        x[rng.random(shape) < 0.5] = 0
    for special in (np.nan, np.inf, -np.inf):
        if x.size and r.random() < 0.1:
            x[int(rng.integers(shape[0])), int(rng.integers(shape[1]))] = special
    return x


def draw(r, kind):
    """A call of gemm of that kind: its keywords."""
    rng = np.random.default_rng(r.randint(0, 1 << 30))
    dtype, (m, n, k) = kind["dtype"], r.choice(kind["shapes"])
    a, b = values(r, rng, (m, k), dtype), values(r, rng, (k, n), dtype)
    a, b = (np.asfortranarray(x) if t == "T" else x for x, t in zip((a, b), kind["layout"], strict=True))
    call = {"a": a, "b": b, "alpha": r.choice((1, 1, 2, 0))}
    if kind["c"]:
        call |= {"c": values(r, rng, (m, n), dtype), "beta": r.choice((1, 3))}
    if kind["bias"]:
        call["bias"] = values(r, rng, (1, n) if kind["bias"] == "row" else (m, 1), dtype)
    names = ("activation", "precision", "reproducible")
    if kind["reproducible"] and kind["activation"] not in (None, "relu"):
        names = ("precision", "reproducible")
    return call | {name: kind[name] for name in names}


def with_weights(r, rng, kind):
    """(a, weights, the rest) of a call of gemm with quantised weights, of any bits."""
    call = draw(r, kind)
    m, n = call.pop("a").shape[0], call.pop("b").shape[1]
    k, form = r.choice((256, 512, 1024)), format_named(kind["format"])
    a = values(r, rng, (m, k), kind["dtype"])
    weights = pyclmm.QuantizedArray.of_rows(form.drawn(rng, n, k), form, k)
    return np.asfortranarray(a) if kind["layout"][0] == "T" else a, weights.T, call


def ragged(r, rng, kind):
    """The operands of ragged_matmul, with sizes that may leave some rows out."""
    (m, n, k), groups = r.choice(kind["shapes"]), r.choice((1, 2, 5))
    cuts = sorted(r.randint(0, m) for _ in range(groups + 1))
    sizes = [after - before for before, after in pairwise(cuts)]
    a = values(r, rng, (m, k), kind["dtype"])
    b = np.stack([values(r, rng, (k, n), kind["dtype"]) for _ in range(groups)])
    if kind["layout"][0] == "T":  # K is divided
        a, b = np.ascontiguousarray(a.T), values(r, rng, (m, n), kind["dtype"])
    if kind["layout"][1] == "T":
        b = np.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2)
    return a, b, sizes


def listed(r, kind):
    """The pairs of a list and the rest of the call."""
    calls = [draw(r, kind) for _ in range(r.choice((2, 4, 8)))]
    pairs = [(call.pop("a"), call.pop("b")) for call in calls]
    rest = {
        name: [call[name] for call in calls] for name in ("alpha", "c", "beta", "bias") if name in calls[0]
    }
    return pairs, rest | {name: kind[name] for name in ("precision", "reproducible")}


def checked(r, kind):
    """Compute a random product of that kind with verify=True."""
    rng = np.random.default_rng(r.randint(0, 1 << 30))
    if kind["how"] == "ragged":
        ways = {name: kind[name] for name in ("precision", "reproducible")}
        return pyclmm.ragged_matmul(*ragged(r, rng, kind), **ways, verify=True)
    if kind["how"] == "list":
        pairs, rest = listed(r, kind)
        return pyclmm.matmul_many(pairs, **rest, verify=True)
    if kind["how"] == "weights":
        a, b, call = with_weights(r, rng, kind)
    else:
        call = draw(r, kind)
        a, b = call.pop("a"), call.pop("b")
    return pyclmm.gemm(a, b, call.pop("c", None), **call, verify=True)


def right_products(r, calls, kinds):
    """How many of *calls* products were checked, refused as unsupported, and raised an alarm."""
    drawn = [draw_kind(r) for _ in range(kinds)]
    ends = Counter(products=0, unsupported=0, alarms=0)
    for number in range(calls):
        kind = drawn[number % kinds]
        try:
            checked(r, kind)
        except pyclmm.VerificationError as error:
            ends["alarms"] += 1
            print(f"alarm: {kind}, {error}", flush=True)
        except (pyclmm.UnsupportedError, pyclmm.DTypeError, pyclmm.ArgumentError):
            ends["unsupported"] += 1
        else:
            ends["products"] += 1
        if ends.total() % PROGRESS == 0:
            print(*(f"{count} {what}" for what, count in ends.items()), sep=", ", flush=True)
    return dict(ends)


# ---- flipped bits

SHAPE = (48, 64, 96)  # of the products whose bits are flipped
TILE_WIDTH = 16


class Flips:
    """Products of one type by `tiled`, of which a bit is flipped: of out, of A in local memory, of a sum."""

    def __init__(self, r, spoiler, faulty, dtype):
        self.r, self.spoiler, self.faulty = r, spoiler, faulty
        rng = np.random.default_rng(r.randint(0, 1 << 30))
        m, n, k = SHAPE
        self.a, self.b = (numbers(rng, one, dtype_of(dtype)) for one in ((m, k), (k, n)))
        self.plan, self.checked = (
            pyclmm.Matmul(self.a, self.b, kernel="tiled", verify=verify) for verify in (False, True)
        )
        self.right = self.plan(self.a, self.b)
        self.limits = limits(self.a, self.b, self.right, spoiler)
        self.width = 8 * self.right.itemsize
        self.sum_width = 8 * max(4, self.right.itemsize)  # of an accumulator

    def out(self):
        """A bit of an element of out, written over between the product and its check: the wrong result."""
        r, wrong = self.r, self.right.copy()
        words = wrong.view(f"u{wrong.itemsize}").reshape(-1)
        place = r.randrange(words.size)
        words[place] ^= words.dtype.type(1 << r.randrange(self.width))
        value = wrong.reshape(-1)[place]
        self.spoiler.element(place, wrong.dtype, lambda _: value)
        return wrong

    def inside(self, kind):
        """A bit of what a work-item has loaded, or summed."""
        r, (m, n, k) = self.r, (size // TILE_WIDTH for size in SHAPE)
        group, item = (r.randrange(n), r.randrange(m)), r.randrange(TILE_WIDTH**2)
        self.faulty.at(kind, r.randrange(k), group, item, r.randrange(self.sum_width))
        return self.plan(self.a, self.b)

    def shares(self, where, count):
        """By power of two of the greatest error in limits, how many of *count* were flipped and noticed.

        An error that is NaN or infinite counts as one of the greatest; faults that
        change nothing do not.
        """
        flipped, noticed = Counter(), Counter()
        for _ in range(count):
            wrong = self.out() if where == "out" else self.inside({"tile": TILE, "sum": SUM}[where])
            with np.errstate(all="ignore"):
                errors = abs(wrong.astype("f8") - self.right.astype("f8")) / self.limits[:, None]
            same = wrong.tobytes() == self.right.tobytes()
            place = place_of(float(np.max(np.where(np.isnan(errors), np.inf, errors))))
            try:
                self.checked(self.a, self.b)
                found = 0
            except pyclmm.VerificationError:
                found = 1
            self.faulty.place = 0
            assert not (same and found), "an alarm for a right product"
            flipped[place] += not same
            noticed[place] += found
        return [{"power": p, "flipped": flipped[p], "noticed": noticed[p]} for p in sorted(flipped)]


def place_of(error):
    """The power of two below *error*, from LOW to HIGH."""
    if not math.isfinite(error):
        return HIGH
    return LOW if error == 0 else max(LOW, min(HIGH, math.floor(math.log2(error))))


def limits(a, b, out, spoiler):
    """The limit of each row of the product, as the check states it when a row is wrong."""
    if out.dtype.kind in "iu":
        return np.ones(len(out))
    found = []
    for i in range(len(out)):
        spoiler.element(i * out.shape[1], out.dtype, lambda x: type(x)(8192))
        try:
            pyclmm.matmul(a, b, verify=True)
        except pyclmm.VerificationError as error:
            found.append(error.limit)
    return np.array(found)


def main(arguments=None):
    """Run both; returns how many alarms right products raised."""
    parser = argparse.ArgumentParser(description="right products and flipped bits, with verify=")
    parser.add_argument("--calls", type=int, default=3000, help="right products")
    parser.add_argument("--kinds", type=int, default=24)
    parser.add_argument("--flips", type=int, default=0, help="flipped bits of each type")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", type=Path, help="write the shares of the flips there")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    r = random.Random(seed)
    print(f"seed {seed}", flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ends = right_products(r, options.calls, options.kinds)
    print(*(f"{count} {what}" for what, count in ends.items()), sep=", ", flush=True)
    rows = []
    if options.flips:
        with FaultyTiled().installed() as faulty, installed(Spoiler()) as spoiler:
            for dtype in FLIPPED:
                flips = Flips(r, spoiler, faulty, dtype)
                rows += [
                    {"dtype": dtype, "where": x, "shares": flips.shares(x, options.flips)} for x in WHERE
                ]
        for row in rows:
            for share in row["shares"]:
                head = f"{row['dtype']:9} {row['where']:5} 2^{share['power']:<3}"
                print(f"{head} {share['noticed']:5} of {share['flipped']:5}")
    if options.json:
        device, date = default_queue().device, datetime.datetime.now(datetime.UTC).date()
        head = {"device": device.name.strip(), "driver": device.driver_version, "date": str(date)}
        found = head | {"seed": seed, **ends, "low": LOW, "high": HIGH, "rows": rows}
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return ends["alarms"]


if __name__ == "__main__":
    raise SystemExit(bool(main()))
