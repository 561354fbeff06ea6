"""Calls of einsum as plain data, as in calls.py: drawn at random, and compared with NumPy's."""

import numpy as np
import pyopencl.array as cla

from pyclmm import linalg
from pyclmm.opencl.arrays import fetched
from tests.support.calls import OUT_LAYOUTS, brought_back, build, on_device, same_rest

LETTERS = "ijkmA"
TYPES = ("float32", "float64", "complex64", "int32")
LAYOUTS = ("C", "C", "F", "reversed", "sliced", "permuted", "zero", "zero")  # "zero": a stride of 0
NAMES = "abc"


def draw_subscripts(r, operands):
    """(terms, result or None, shapes): with ellipses, repeated and permuted letters, axes that broadcast."""
    lengths = {letter: r.choice((1, 2, 2, 3, 3, 3)) if r.random() < 0.95 else 0 for letter in LETTERS}
    spare = [r.choice((1, 2, 3)) for _ in range(2)]
    terms, shapes = [], []
    for _ in range(operands):
        repeats = r.random() < 0.4
        letters = r.choices(LETTERS, k=r.randint(0, 3)) if repeats else r.sample(LETTERS[:4], r.randint(2, 4))
        shape = [1 if r.random() < 0.2 else lengths[x] for x in letters]
        shape = [shape[letters.index(x)] for x in letters]  # a repeated letter has one length
        if r.random() < 0.25:
            more = [1 if r.random() < 0.3 else n for n in spare[2 - r.randint(0, 2) :]]
            at = r.randint(0, len(letters))
            letters, shape = [*letters[:at], "...", *letters[at:]], [*shape[:at], *more, *shape[at:]]
        terms.append("".join(letters))
        shapes.append(shape)
    known = sorted(set("".join(terms)) - {"."})
    out = "".join(r.sample(known, r.randint(0, min(len(known), r.choice((1, 2, 5))))))
    if any("..." in term for term in terms):
        at = r.randint(0, len(out))
        out = out[:at] + "..." + out[at:]
    return terms, out if r.random() < 0.8 else None, shapes


def einsum_kind(r):
    """What decides which programs a call runs, apart from subscripts, shapes and layouts."""
    return {"name": "einsum", "dtype": r.choice(TYPES), "kernel": r.choice(("auto", "auto", "naive"))}


def draw_einsum(r, place, kind=None):
    """A valid call on one to three arrays. On a device some of them may be the host's (mixed="copy")."""
    call = dict(kind or einsum_kind(r)) | {"place": place, "seed": r.randint(0, 1 << 16)}
    dtype = call.pop("dtype")
    terms, out, shapes = draw_subscripts(r, r.choice((1, 2, 2, 2, 3, 3)))
    call["subscripts"] = ",".join(terms) + ("" if out is None else f"->{out}")
    for name, shape in zip(NAMES, shapes, strict=False):
        call[name] = {"shape": shape, "dtype": dtype, "layout": r.choice(LAYOUTS)}
    shape = np.shape(np.einsum(call["subscripts"], *map(np.zeros, shapes)))
    if r.random() < 0.4:
        call["out"] = {"shape": list(shape), "dtype": dtype, "layout": r.choice(OUT_LAYOUTS)}
    if place == "device" and r.random() < 0.2:
        call["mixed"] = r.choice(NAMES[: len(terms)])
    return call | {"optimize": r.choice((True, False, "greedy"))}


def judge_einsum(call, queue):
    """Compare a call with numpy.einsum, on multiples of a half, whose sums are exact in every type.

    Bytes beside the elements must be as they were. Returns True: every call is valid.
    """
    mine, other = _built(call), _built(call)
    given = {name: x.view for name, x in other.items()}
    want = np.einsum(call["subscripts"], *(given[n] for n in NAMES if n in given), out=given.get("out"))
    arrays = {name: _placed(call, name, x.view, queue) for name, x in mine.items()}
    keywords = {name: call[name] for name in ("optimize", "kernel")} | {"out": arrays.get("out")}
    if "mixed" in call:
        keywords["mixed"] = "copy"
    xs = [arrays[name] for name in NAMES if name in arrays]
    got = linalg.einsum(call["subscripts"], *xs, queue=queue, **keywords)
    if isinstance(got, cla.Array):
        back = brought_back(mine, arrays, got if "out" in mine else None)
        got = fetched(got) if back is None else back
    assert (got.dtype, np.shape(got)) == (want.dtype, np.shape(want)), f"{got!r}, NumPy: {want!r}"
    assert np.array_equal(got, want), f"{got}, NumPy: {want}"
    same_rest(mine, other, written=True)
    return True


def _built(call):
    rng = np.random.default_rng(call["seed"])
    return {n: build(call[n], rng, exact=True, least=-6) for n in (*NAMES, "out") if n in call}


def _placed(call, name, x, queue):
    on_host = call["place"] == "host" or name == call.get("mixed")
    return x if on_host else on_device(x, queue)
