"""The solutions of docs/road/06_strip.md to 09_double_buffer.md are right."""

from dataclasses import replace

import numpy as np
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


# --- 06_strip.md


def test_local_reads_of_strips():
    assert [coarser.local_reads(512, 512, 512, tm) / 512**3 for tm in (1, 2, 4, 8)] == [2, 1.5, 1.25, 1.125]


def test_a_square_tile_loads_least():
    assert coarser.loads(512, 512, 512, 64, 16) == 10_485_760
    assert coarser.best_shape(512, 512, 512, 1024) == (32, 32)
    ratio = coarser.loads(512, 512, 512, 64, 16) / coarser.loads(512, 512, 512, 32, 32)
    assert ratio == 1.25
    assert coarser.loads(512, 512, 512, 32, 32) == 8_388_608


# --- 07_block.md


def test_the_best_block():
    best = [register_blocks.best_block(registers) for registers in (24, 80, 128)]
    assert best == [(4, 4), (8, 8), (10, 10)]


def test_columns_side_by_side_share_no_bank():
    apart, together = list(range(16)), [4 * place for place in range(16)]
    assert (register_blocks.passes(apart), register_blocks.passes(together)) == (1, 2)


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_a_product_of_tiles(rng, m, n, k):
    a, b = whole(rng, m, k), whole(rng, k, n)
    assert np.array_equal(register_blocks.multiply(a, b, (8, 4, 3)), a @ b)


# --- 08_vector.md


def test_vectors_inside_a_row_and_rows_that_begin_at_16_bytes():
    assert [vectors.vectors_and_elements(n, 4) for n in (512, 513, 3)] == [(128, 0), (128, 1), (0, 3)]
    assert [vectors.aligned_rows(512, n) for n in (512, 513, 514)] == [512, 128, 256]


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
