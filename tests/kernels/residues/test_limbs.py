"""Products by limbs: within the bound of cl/residues/residues.h, and exact for whole numbers."""

from dataclasses import replace

import numpy as np
import pytest

import pyclmm
from pyclmm.kernels import kernel_named
from pyclmm.kernels.residues import limbs
from pyclmm.problem.canonical import problem_of
from tests.kernels.residues.test_residues import K, as_real, data, within_bound
from tests.support.made_up import DEVICE


@pytest.fixture
def by_limbs(device):
    """The product, with and without cl_khr_fp64."""
    return lambda a, b, **options: pyclmm.matmul(a, b, kernel="limbs", precision="high", **options)


@pytest.mark.parametrize("name", ["normal", "uniform", "positive", "lines 2^+-300", "cancelling", "small"])
def test_every_element_is_within_the_bound(by_limbs, name):
    a, b = data(name)
    within_bound(by_limbs(a, b), a, b, K)


def test_complex_numbers_are_within_the_bound(by_limbs):
    a, b = data("normal", np.complex128)
    rows, columns = as_real(a, b)
    within_bound(by_limbs(a, b).view(np.float64), rows, columns, 2 * K)


def test_largest_limbs(by_limbs):
    """Elements just below their line's scale, so that sums are as large as they can be. One small element of
    many bits has each take all 58.
    """
    for value in (2.0**53 - 1, 1.0 - 2.0**-53, -(2.0**53 - 1)):
        a, b = np.full((5, 700), value), np.full((700, 9), value)
        a[:, 350] = b[90] = value * 2.0**-20
        within_bound(by_limbs(a, b), a, b, 700)


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 15, 3), (65, 16, 67), (63, 17, 129)])
def test_shapes_around_the_tiles_and_blocks(by_limbs, shape):
    m, k, n = shape
    rng = np.random.default_rng(m)
    a, b = rng.integers(-(2**20), 2**20, (2, m, k)) * 1.0, rng.integers(-(2**20), 2**20, (2, k, n)) * 1.0
    out = np.full((2, m, 2 * n), 7.0)
    by_limbs(a, b, out=out[:, :, ::2])
    assert np.array_equal(out[:, :, ::2], a @ b)
    assert (out[:, :, 1::2] == 7).all()


def test_short_sums_of_normal_data_get_the_plain_product_too():
    soft = replace(problem_of(64, 64, 16, np.dtype(np.float64)), soft_float64=True)
    assert not limbs.serves(soft)
    assert limbs.serves(replace(soft, k=200))
    cpu = replace(DEVICE, kind="cpu", has_fp64=False)
    kernel = kernel_named("limbs")
    times = [kernel.estimate(p, kernel.configs(p, cpu)[0], cpu) for p in (soft, replace(soft, k=200))]
    assert times[0] > kernel_named("naive").estimate(soft, kernel_named("naive").configs(soft, cpu)[0], cpu)
    assert times[1] > 0
