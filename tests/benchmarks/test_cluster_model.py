"""The model of a cluster: its grid against brute force, its limits, and the tables of the page."""

import math
from pathlib import Path

import pytest

from tests.support.scripts import script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model():
    return script("benchmarks/cluster_model.py")


def test_the_grid_moves_the_fewest_bytes_of_all(model):
    for devices in range(1, 200):
        every = [(p, devices // p) for p in range(1, devices + 1) if devices % p == 0]
        rows, columns = model.grid(devices)
        assert 1 / rows + 1 / columns == pytest.approx(min(1 / p + 1 / q for p, q in every))


def test_a_square_grid_moves_two_n_squared_over_the_root(model):
    n = 1000
    assert model.two_d(n, 64, tasks=1) == pytest.approx(2 * n * n / 8 + n * n / 64)


def test_no_scheme_is_below_the_bound(model):
    for n in (1e3, 1e5, 1e6, 1e7):
        for devices in model.DEVICES:
            assert model.two_d(n, devices, tasks=1) >= 0.99 * model.replicated(n, devices)


def test_transfers_end_with_the_arithmetic_at_the_size_that_is_told(model):
    link = model.LINKS[0]
    n = model.fast_enough(model.replicated, 64, link)
    transfers = model.replicated(n, 64) * model.ITEM / link.rate
    assert math.isclose(transfers, 2 * n**3 / 64 / model.RATE, rel_tol=1e-6)


def test_the_page_has_its_tables(model):
    page = (ROOT / "docs/dask.md").read_text(encoding="utf-8")
    assert model.bytes_table() in page
    assert model.sizes_table() in page
