"""The solutions of docs/road/06_strip.md to 09_double_buffer.md are right."""

from dataclasses import replace
from math import ceil

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

from examples.road import coarser, register_blocks, two_buffers, vectors
from pyclmm import TileConfig
from pyclmm.kernels import kernel_named
from tests.support.cases import problem_of
from tests.support.made_up import DEVICE

SHAPES = [(1, 1, 1), (8, 8, 8), (13, 7, 5), (33, 18, 40)]


def whole(rng, rows, columns):
    """Small whole numbers: their products are exact in float32, whatever the order of the sums."""
    return rng.integers(-4, 5, (rows, columns)).astype(np.float32)


def beyond(queue, source, a, b, size, group, options=()):
    """What a kernel leaves behind the last element of its result: 7.5, if it writes nothing there."""
    (m, k), n = a.shape, b.shape[1]
    x, y = cla.to_device(queue, a), cla.to_device(queue, np.append(b, np.ones(3, np.float32)))
    out = cla.to_device(queue, np.full(size[1] * n + size[0] * 4, 7.5, np.float32))
    kernel = cl.Program(queue.context, source).build(list(options)).multiply
    kernel(queue, size, group, np.int32(m), np.int32(n), np.int32(k), x.data, y.data, out.data)
    return out.get()[m * n :]


# --- 06_strip.md


def test_local_reads_of_strips():
    assert [coarser.local_reads(512, 512, 512, tm) / 512**3 for tm in (1, 2, 4, 8)] == [2, 1.5, 1.25, 1.125]


def test_a_square_tile_loads_least():
    assert coarser.loads(512, 512, 512, 64, 16) == 10_485_760
    assert coarser.best_shape(512, 512, 512, 1024) == (32, 32)
    ratio = coarser.loads(512, 512, 512, 64, 16) / coarser.loads(512, 512, 512, 32, 32)
    assert ratio == 1.25
    assert coarser.loads(512, 512, 512, 32, 32) == 8_388_608


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_a_product_in_strips(queue, rng, m, n, k):
    a, b = whole(rng, m, k), whole(rng, k, n)
    assert np.array_equal(coarser.multiply(queue, a, b), a @ b)


# --- 07_block.md


def test_the_best_block():
    assert [register_blocks.best_block(registers) for registers in (24, 80, 128)] == [
        (4, 4),
        (8, 8),
        (10, 10),
    ]


def test_columns_side_by_side_share_no_bank():
    apart, together = list(range(16)), [4 * place for place in range(16)]
    assert (register_blocks.passes(apart), register_blocks.passes(together)) == (1, 2)


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_a_product_of_tiles(rng, m, n, k):
    a, b = whole(rng, m, k), whole(rng, k, n)
    assert np.array_equal(register_blocks.multiply(a, b, (8, 4, 3)), a @ b)


# --- 08_vector.md


def test_vectors_inside_a_row():
    assert [vectors.vectors_and_elements(n, 4) for n in (512, 513, 3)] == [(128, 0), (128, 1), (0, 3)]


def test_rows_that_begin_at_16_bytes():
    assert [vectors.aligned_rows(512, n) for n in (512, 513, 514)] == [512, 128, 256]


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_a_product_of_vectors(queue, rng, m, n, k):
    a, b = whole(rng, m, k), whole(rng, k, n)
    assert np.array_equal(vectors.multiply(queue, a, b), a @ b)


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_the_last_vector_ends_with_its_row(queue, rng, m, n, k):
    """In the middle of the result the next row would hide what is written too far."""
    a, b = whole(rng, m, k), whole(rng, k, n)
    assert (beyond(queue, vectors.SOURCE, a, b, (ceil(n / 4), m), None) == 7.5).all()


# --- 09_double_buffer.md


def test_the_time_of_two_pairs():
    assert two_buffers.seconds(32, 1, 1, pairs=1) == 64
    assert two_buffers.seconds(32, 1, 1, pairs=2) == 33
    assert two_buffers.seconds(32, 1, 9, pairs=1) / two_buffers.seconds(32, 1, 9, pairs=2) < 1.12


@pytest.mark.parametrize("name", ["block", "double_buffer"])
def test_work_groups_that_local_memory_holds(name):
    kernel, config = kernel_named(name), TileConfig(bm=64, bn=64, bk=16, tm=4, tn=4)
    needed = 16_384 if name == "double_buffer" else 8_192
    pairs = 2 if name == "double_buffer" else 1
    assert two_buffers.work_groups((64, 64, 16), pairs, 48 * 1024) == 48 * 1024 // needed
    assert two_buffers.work_groups((64, 64, 16), pairs, needed - 1) == 0
    small = replace(DEVICE, local_mem_size=needed - 1)
    assert kernel.violations(problem_of(64, 64, 64), config, small)


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_a_product_with_two_pairs(queue, rng, m, n, k):
    a, b = whole(rng, m, k), whole(rng, k, n)
    assert np.array_equal(two_buffers.multiply(queue, a, b), a @ b)


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_two_pairs_write_nothing_beyond_the_result(queue, rng, m, n, k):
    a, b = whole(rng, m, k), whole(rng, k, n)
    size = (8 * ceil(n / 8), 8 * ceil(m / 8))
    assert (beyond(queue, two_buffers.SOURCE, a, b, size, (8, 8), ["-DTW=8"]) == 7.5).all()
