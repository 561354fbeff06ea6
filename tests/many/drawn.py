"""Lists of products, drawn at random, with their results by a loop of NumPy's; and Arrays of any layout."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

from pyclmm.opencl.host_memory import host_span
from pyclmm.problem.dtypes import dtype_of
from tests.support.cases import small_integers
from tests.support.habits import laid_out
from tests.support.plans import of_list

TYPES = ("float32", "float64", "int32", "float16", "complex64", "int8")


def drawn_layout(rng, x):
    """*x* in another layout: column-major, with gaps, upside down, or as it is."""
    how = rng.choice(["C", "C", "F", "sliced", "upside down"])
    return x[::-1].copy()[::-1] if how == "upside down" and x.ndim else laid_out(x, how, None)


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
    pieces = [None if x is None else _memory(x) for x in xs]
    pads = [b"" if piece is None else bytes(-len(piece[0]) % 16) for piece in pieces]
    whole, found, at = b"", [], 0
    for x, piece, pad in zip(xs, pieces, pads, strict=True):
        found.append(None if piece is None else (x, piece[0], at + piece[1]))
        if piece is not None:
            whole, at = whole + piece[0] + pad, at + len(piece[0]) + len(pad)
    shared = _buffer(queue, whole) if together else None
    return [None if one is None else _array(queue, *one, shared) for one in found]


def _memory(x):
    """The bytes from the first to the last element of *x*, and where among them it begins."""
    memory, start = host_span(x)
    return (memory.tobytes(), start * x.itemsize) if x.size else (b"", 0)


def _buffer(queue, content):
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(queue.context, flags, hostbuf=np.frombuffer(content + bytes(16), np.uint8))


def _array(queue, x, content, at, shared):
    buffer = _buffer(queue, content) if shared is None else shared
    at = at if shared is not None else _memory(x)[1]
    return cla.Array(queue, x.shape, x.dtype, strides=x.strides, data=buffer, offset=at)


def read(queue, x):
    """The elements of an Array of any layout."""
    if not x.size:
        return np.zeros(x.shape, x.dtype)
    raw = np.empty(x.base_data.size, np.uint8)
    cl.enqueue_copy(queue, raw, x.base_data, wait_for=list(x.events))
    return np.ndarray(x.shape, x.dtype, raw, x.offset, x.strides)


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
