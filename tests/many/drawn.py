"""Lists of products, drawn at random, with their results by a loop of NumPy's; and Arrays of any layout."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cla

from pyclmm.opencl.host_memory import host_span
from pyclmm.problem.dtypes import dtype_of
from tests.support import calls
from tests.support.cases import small_integers
from tests.support.plans import of_list

TYPES = ("float32", "float64", "int32", "float16", "complex64", "int8")


def drawn_layout(rng, x):
    """*x* in another layout: column-major, with gaps, upside down, or as it is."""
    how = rng.choice(["C", "C", "F", "sliced", "upside down"])
    if how == "upside down" and x.ndim:
        return x[::-1].copy()[::-1]
    view = calls.empty(rng, x.shape, x.dtype, how).view
    view[...] = x
    return view


def pairs_of(rng, sizes, dtype="float32"):
    """Pairs of matrices of small integers, of these M, N and K."""
    return [(small_integers(rng, (m, k), dtype), small_integers(rng, (k, n), dtype)) for m, n, k in sizes]


def loop(pairs):
    return [a @ b for a, b in pairs]


def shapes(rng):
    """Of a and b: matrices, vectors, stacks that broadcast; some without elements."""
    m, n, k = (int(rng.choice([0, 1, 2, 3, 5, 8, 17, 33], p=[0.04, *[0.16] * 6, 0.0])) for _ in "mnk")
    ways = [((m, k), (k, n))] * 4
    ways += [((k,), (k, n)), ((m, k), (k,)), ((k,), (k,)), ((2, 1, m, k), (3, k, n)), ((m, k), (2, k, n))]
    return ways[rng.integers(len(ways))]


class Drawn:
    """A list: the keywords of a call on NumPy arrays, and what a loop gives."""

    def __init__(self, rng, count):
        types, has = rng.choice(TYPES, 2), rng.random(3) < 0.5
        self.pairs, self.want = [], []
        lists = {name: [] for name in ("c", "alpha", "beta", "bias", "out")}
        for _ in range(count):
            a, b = (drawn_layout(rng, small_integers(rng, s, rng.choice(types))) for s in shapes(rng))
            product = np.asarray(a @ b)
            self.pairs.append((a, b))
            c = drawn_layout(rng, small_integers(rng, product.shape, product.dtype))
            c = c if has[0] and rng.random() < 0.7 else None
            bias = small_integers(rng, b.shape[-1:], product.dtype) if b.ndim > 1 else None
            bias = bias if has[1] and rng.random() < 0.7 else None
            out = drawn_layout(rng, small_integers(rng, product.shape, product.dtype))
            out = out if has[2] and rng.random() < 0.8 else None
            alpha, beta = (int(rng.integers(0, 3)) if has[0] else 1), (2 if c is not None else 0)
            want = alpha * product
            want = want if c is None else want + beta * c
            self.want.append((want if bias is None else want + bias).astype(product.dtype))
            for name, x in (("c", c), ("alpha", alpha), ("beta", beta), ("bias", bias), ("out", out)):
                lists[name].append(x)
        self.keywords = lists


def on_device(queue, xs, together):
    """Arrays of the layouts of *xs*, in one buffer *together*, or each in its own."""
    if not together:
        return [None if x is None else calls.on_device(x, queue) for x in xs]
    content, places = bytearray(), []
    for x in (np.empty(0) if x is None else x for x in xs):
        memory, start = host_span(x)
        places.append(len(content) + start * x.itemsize)
        content += bytes(memory) + bytes(-len(memory) % 16)
    shared = cla.to_device(queue, np.frombuffer(content + bytes(16), np.uint8)).base_data
    return [
        None if x is None else cla.Array(queue, x.shape, x.dtype, strides=x.strides, data=shared, offset=at)
        for x, at in zip(xs, places, strict=True)
    ]


def check(got, want):
    """Each result has the very elements, shape and dtype of NumPy's."""
    assert len(got) == len(want)
    for one, its in zip(got, want, strict=True):
        assert one.dtype == its.dtype
        assert one.shape == its.shape
        assert np.array_equal(one, its)


def check_aligned(plan):
    """Rows begin where the kernels are told that they do."""
    for group in of_list(plan).groups:
        p = group.executable.problem
        for name in ("a", "b", "out"):
            size = dtype_of(getattr(p, f"{name}_type")).itemsize
            rows = {"a": "k" if p.trans_a else "m", "b": "n" if p.trans_b else "k", "out": "m"}[name]
            for one in p.products:
                steps = [getattr(one, name)] if one.k or name == "out" else []
                steps += [getattr(one, "ld" + name[0])] if steps and getattr(one, rows) > 1 else []
                assert not [step for step in steps if step * size % getattr(p, f"{name}_align")]
