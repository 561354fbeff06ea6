"""The solutions of docs/road/01_sequential.md to 05_tiled.md are right, and agree with the kernels."""

import json
import re
from dataclasses import replace
from itertools import permutations
from math import fsum
from pathlib import Path

import numpy as np
import pytest

from benchmarks import roofline
from examples.road import local_tiles, neighbours, one_dimension, one_group, triple_loop
from pyclmm import TileConfig
from pyclmm.kernels import kernel_named
from tests.road.test_solutions_blocks import SHAPES, whole
from tests.support.cases import problem_of
from tests.support.made_up import DEVICE

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/road").glob("0[1-9]_*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_times_are_those_that_were_measured(page):
    """The least of all rounds, to three digits."""
    text = page.read_text(encoding="utf-8")
    ((name, table),) = re.findall(r"(road-steps\S*\.json)`[^|]*\n\n((?:\|.*\n)+)", text)
    (product,) = json.loads((ROOT / "benchmarks/results" / name).read_text(encoding="utf-8"))["products"]
    least = {row["kernel"]: min(row["wall_samples_s"], default=None) for row in product["rows"]}
    rows = re.findall(r"^\| (\S+?),? .*?\| ([\d.]+) \| ([\d.]+) \|$", table, re.M)
    assert len(rows) == table.count("\n") - 2
    for kernel, milliseconds, rate in rows:
        seconds = least[kernel.strip("`").lower()]
        assert float(milliseconds) == float(f"{1e3 * seconds:.3g}")
        assert float(rate) == float(f"{2e-9 * product['work'] / seconds:.3g}")


# --- 01_sequential.md


def test_the_time_of_a_chain():
    assert triple_loop.chain_seconds(512, 512, 512, latency=4, clock=2.6e9) == pytest.approx(0.206, abs=5e-4)


ORDERS = ["".join(order) for order in permutations("ijk")]


@pytest.mark.parametrize("order", ORDERS)
def test_six_orders_of_the_loops(rng, order):
    a, b = whole(rng, 3, 5), whole(rng, 5, 4)
    assert np.array_equal(triple_loop.multiply(a, b, order), a @ b)


@pytest.mark.parametrize("order", ORDERS)
def test_steps_of_the_innermost_loop(order):
    """Of the addresses that the walk itself visits."""
    n, k = 4, 5
    first, second = list(triple_loop.walk(order, 3, n, k))[:2]
    addresses = [(i * k + kk, kk * n + j, i * n + j) for i, j, kk in (first, second)]
    assert triple_loop.steps(order, n, k) == tuple(y - x for x, y in zip(*addresses, strict=True))


def test_sums_by_their_errors():
    x, y = np.random.default_rng(1).random((2, 20_000), dtype=np.float32)
    exact = fsum((x * y).tolist())
    plain, compensated = (
        abs(float(add(x, y)) - exact) for add in (triple_loop.plain_sum, triple_loop.compensated_sum)
    )
    assert plain > 10 * np.spacing(np.float32(exact))
    assert compensated <= np.spacing(np.float32(exact))
    unrounded = fsum(x.astype(np.float64) * y)
    assert triple_loop.wide_sum(x, y) == np.float32(unrounded)


# --- 02_single_group.md


def test_what_fits_a_work_group():
    assert [one_group.largest_square(limit) for limit in (256, 1024, 4096)] == [16, 32, 64]
    assert one_group.largest_square(1023) == 31
    assert one_group.seconds(32, 32, 512, 66.9e12, 132) == pytest.approx(2.07e-6, abs=5e-9)


@pytest.mark.parametrize(
    ("solution", "m", "n", "k"),
    [(solution, *shape) for solution in (one_group, neighbours, one_dimension) for shape in SHAPES],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_a_product_of_any_size(queue, rng, m, n, k, solution):
    """In one work-group, with b transposed, and in squares of work-items."""
    a, b = whole(rng, m, k), whole(rng, k, n)
    given = b.T.copy() if solution is neighbours else b
    assert np.array_equal(solution.multiply(queue, a, given), a @ b)


@pytest.mark.parametrize("work_items", [1, 2, 64])
@pytest.mark.parametrize("length", [1, 63, 1000])
def test_a_sum_by_many_work_items(queue, rng, length, work_items):
    x, y = whole(rng, 2, length)
    assert one_group.dot_product(queue, x, y, work_items) == x @ y


def test_a_sum_in_halves_needs_a_power_of_two(queue):
    with pytest.raises(ValueError, match="power of two"):
        one_group.dot_product(queue, np.ones(3, np.float32), np.ones(3, np.float32), 48)


# --- 03_naive.md


def test_work_items_outside_the_result():
    assert neighbours.global_size(513, 513, (16, 16)) == (528, 528)
    assert round(neighbours.idle_share(513, 513, (16, 16)), 3) == 0.056
    assert round(neighbours.idle_share(1, 1000, (16, 16)), 2) == 0.94
    assert neighbours.idle_share(512, 512, (16, 16)) == 0


def test_lines_of_a_sub_group():
    assert neighbours.lines("row", 512, 512) == (1, 1, 1)
    assert neighbours.lines("column", 512, 512) == (32, 1, 32)
    assert neighbours.lines("row", 512, 512, b_transposed=True) == (1, 32, 1)


# --- 04_flat.md


def test_work_items_of_naive_and_flat():
    assert one_dimension.work_items(1000, 3) == (16_128, 3_072)
    assert one_dimension.work_items(512, 512) == (262_144, 262_144)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 10, 512, 641, 1000, 2**16 + 1, 2**31 - 1])
def test_a_division_without_dividing(n):
    factor, shift = one_dimension.magic(n)
    last = (2**32 - 1) // n * n
    at_steps = [q + d for q in (0, n, 2 * n, last) for d in (-1, 0, 1)]
    random = np.random.default_rng(n).integers(0, 2**32, 1000).tolist()
    for number in (x for x in [*at_steps, *random, 2**32 - 1] if 0 <= x < 2**32):
        assert number * factor >> shift == number // n


def test_squares_share_more_rows_and_columns():
    group = range(512, 768)
    assert one_dimension.rows_and_columns([one_dimension.in_rows(x, 512) for x in group]) == 257
    assert one_dimension.rows_and_columns([one_dimension.in_squares(x, 512) for x in group]) == 32


@pytest.mark.parametrize(("m", "n"), [(16, 16), (32, 48), (17, 33)])
def test_squares_cover_each_element_once(m, n):
    numbers = range(one_dimension.work_items(m, n)[0])
    inside = [p for p in (one_dimension.in_squares(x, n) for x in numbers) if p[0] < m and p[1] < n]
    assert sorted(inside) == [(i, j) for i in range(m) for j in range(n)]


# --- 05_tiled.md


@pytest.mark.parametrize("tw", [1, 4, 5, 16])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_loads_of_tiles(m, n, k, tw):
    counted = local_tiles.counted_loads(m, n, k, tw)
    assert counted == local_tiles.loads(m, n, k, tw)
    assert 4 * (counted + m * n) == roofline.tiled(m, n, k, tw).nbytes(4)


@pytest.mark.parametrize(
    ("local_bytes", "work_items", "tw"), [(48 * 1024, 1024, 32), (8 * 1024, 1024, 31), (48 * 1024, 256, 16)]
)
def test_the_widest_tile(local_bytes, work_items, tw):
    """The next one is too wide for the library as well."""
    assert local_tiles.widest_tile(local_bytes, work_items) == tw
    device = replace(
        DEVICE, local_mem_size=local_bytes, max_work_group_size=work_items, compute_capability=None
    )
    tiled, problem = kernel_named("tiled"), problem_of(64, 64, 64)
    assert not tiled.violations(problem, TileConfig.square(tw), device)
    assert tiled.violations(problem, TileConfig.square(tw + 1), device)


def test_a_column_of_padding():
    assert [local_tiles.passes(length) for length in (32, 33, 16, 17)] == [32, 1, 16, 1]
