"""M, N, K and stacks of 2^31 and more: tiles cut them, and what no tile can cut is refused by name."""

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import linalg
from pyclmm.errors import ArgumentError, UnsupportedError
from pyclmm.execution.options import Options
from pyclmm.problem.gemm import MAX_DIMENSION
from pyclmm.streaming import entry

LONG = 1 << 31


def ones(*shape, dtype=np.int8):
    """An array of one byte, by strides of 0."""
    return np.broadcast_to(np.ones((), dtype), shape)


SHAPES = {
    "M": ((LONG, 1), (1, 1)),
    "N": ((1, 1), (1, LONG)),
    "K": ((1, LONG), (LONG, 1)),
    "K, far longer": ((2, 1 << 36), (1 << 36, 3)),
    "vectors": ((LONG,), (LONG,)),
    "a stack": ((LONG, 1, 1), (1, 1)),
    "stacks in two axes": ((1 << 16, 1, 1, 1), (1 << 15, 1, 1)),
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", ["int8", "float16", "float64"])
def test_no_tile_is_longer_than_a_kernel_counts(shapes, dtype, queue):
    a, b = (ones(*shape, dtype=dtype) for shape in shapes)
    plan = pyclmm.StreamedMatmul(a, b, queue=queue)
    at = plan.blocking
    assert max(at.m, at.n, at.k, at.batch) <= MAX_DIMENSION
    assert plan.explain().tile is not None
    assert entry.pays({"a": a, "b": b}, Options(), queue)


@pytest.mark.parametrize("what", ["M", "N", "K", "stack"])
def test_what_is_too_long_for_a_kernel_is_multiplied_in_tiles(what, queue, limits):
    """The same with kernels that count to 5000."""
    rng = np.random.default_rng(0)
    m, n, k, stack = (12000 if name == what else 3 for name in ("M", "N", "K", "stack"))
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((stack, m, k), (stack, k, n)))
    limits(dimension=5000, tiles_from=0, table_rows=1, tile=1 << 16)
    assert np.array_equal(pyclmm.matmul(a, b, queue=queue), a @ b)
    assert np.array_equal(linalg.einsum("zij,zjk->zik", a, b, queue=queue), a @ b)
    with pytest.raises(UnsupportedError, match=r"memory_limit= where a kernel is named"):
        pyclmm.matmul(a, b, queue=queue, kernel="naive")


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_arrays_and_plans_say_what_is_too_long(shapes, queue):
    memory = cla.to_device(queue, np.ones(1, np.int8))
    x, y = (cla.Array(queue, s, np.int8, data=memory.base_data, strides=(0,) * len(s)) for s in shapes)
    with pytest.raises(UnsupportedError, match=r"a has shape .* at most 2\^31 - 2\^16: .*parts of Arrays"):
        pyclmm.matmul(x, y)
    with pytest.raises(UnsupportedError, match=r"at most 2\^31 - 2\^16"):
        pyclmm.Matmul(ones(*shapes[0]), ones(*shapes[1]), queue=queue)


def test_sums_that_cannot_be_cut_are_refused(queue):
    for dtype, keywords in (("float32", {"reproducible": True}), ("bool", {})):
        a, b = ones(1, LONG, dtype=dtype), ones(LONG, 1, dtype=dtype)
        with pytest.raises(UnsupportedError, match=rf"K is {LONG}: a reproducible sum, and one of bools"):
            pyclmm.matmul(a, b, queue=queue, **keywords)


def test_more_tiles_than_a_list_holds_are_refused(queue):
    with pytest.raises(ArgumentError, match=rf"cut into {LONG} tiles.*last axis is long"):
        pyclmm.matmul(ones(LONG, 1, 1, 1), ones(1, 1), queue=queue)
