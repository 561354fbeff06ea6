"""The traffic formulas agree with what the kernels load, and the roofline with itself."""

import numpy as np
import pytest

from benchmarks import roofline
from pyclmm.errors import ArgumentError
from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.kernels.traffic import loads
from pyclmm.problem.canonical import problem_of

SIZES = [(1, 1, 1), (5, 3, 2), (4, 8, 4), (9, 7, 10), (16, 16, 16), (17, 1, 33), (3, 20, 5)]
TILES = [1, 2, 3, 4, 16]


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_traffic_is_what_the_kernels_load(m, n, k):
    """tests/kernels/test_traffic.py counts the loads on a device."""
    problem = problem_of(m, n, k, np.dtype(np.float32))
    cases = [("naive", TileConfig(bm=4, bn=4), roofline.naive(m, n, k))]
    cases += [("tiled", TileConfig.square(tw), roofline.tiled(m, n, k, tw)) for tw in TILES]
    for name, config, traffic in cases:
        assert (traffic.a, traffic.b) == loads(kernel_named(name), problem, config), config
        assert traffic.out == m * n


def test_tiles_of_one_and_of_the_whole_give_the_extremes():
    assert roofline.tiled(50, 60, 70, 1) == roofline.naive(50, 60, 70)
    assert roofline.tiled(50, 60, 70, 64) == roofline.least(50, 60, 70)


def test_intensity_grows_with_the_tile_width():
    """As docs/kernels.md says for large float32 products: 1/4 operation a byte, with tiles TW/4."""
    assert roofline.naive(4096, 4096, 4096).intensity(4) == pytest.approx(1 / 4, rel=1e-3)
    for tw in (8, 16, 32):
        assert roofline.tiled(4096, 4096, 4096, tw).intensity(4) == pytest.approx(tw / 4, rel=1e-2)


def test_the_roofline_has_its_ridge_where_the_needed_bandwidth_says():
    rate, intensity = 1e12, 4.0
    needed = roofline.bandwidth_needed(rate, intensity)
    assert needed == 2.5e11
    assert roofline.attainable(rate, needed, intensity) == rate
    assert roofline.attainable(rate, needed / 2, intensity) == rate / 2
    assert roofline.attainable(rate, needed * 2, intensity) == rate


def test_the_intensity_of_an_empty_product_is_zero():
    assert roofline.naive(0, 0, 0).intensity(4) == 0.0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: roofline.tiled(1, 1, 1, 0), "tw is 0"),
        (lambda: roofline.naive(1, -2, 1), "N is -2"),
        (lambda: roofline.bandwidth_needed(1e9, 0.0), "intensity is 0.0"),
    ],
)
def test_bad_arguments_are_named(call, says):
    with pytest.raises(ArgumentError, match=says):
        call()
