"""What estimates share, and those of kernels for many work-items on a CPU, against times measured there."""

from dataclasses import replace

import pytest

from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from tests.support.made_up import EPYC_INTEL, EPYC_POCL, H200, dense_problem

# Milliseconds of 256 cubed, float32: Intel's runtime 2026.2 on Zen 4, the fastest call, 2026-11-27 and 28.
ON_INTEL = {"double_buffer": 0.47, "block": 0.48, "tiled": 0.55, "register": 0.42}
CUBE = dense_problem(256, 256, 256)
ZEN4 = replace(EPYC_INTEL, max_clock_mhz=0, max_work_group_size=8192)  # as Intel's runtime tells of it


def seconds(name, device):
    return kernel_named(name).ranked(CUBE, device)[0][0]


@pytest.mark.parametrize("name", ON_INTEL)
def test_where_the_compiler_makes_vectors_of_work_items_estimates_are_as_measured(name):
    assert 0.5 < 1e3 * seconds(name, ZEN4) / ON_INTEL[name] < 2


def test_launches_that_overlap_cost_less():
    device = replace(H200, overlaps=True)
    assert device.rates == replace(H200.rates, launch=device.rates.launch)
    assert 0.2 < device.rates.launch / H200.rates.launch < 0.6


@pytest.mark.parametrize("trans", [False, True])
def test_lines_that_begin_within_a_sector_of_the_cache_cost_more(trans):
    config = TileConfig(bm=64, bn=64, bk=16, sgm=32, sgn=32, stages=4, options=(("group", 8), ("mma_k", 8)))
    problem = replace(dense_problem(4096, 4096, 4096, "float64"), trans_a=trans)
    family = kernel_named("mma_double")
    times = [
        family.estimate(replace(problem, a_align=a, b_align=b), config, H200)
        for a, b in ((64, 64), (32, 32), (16, 64), (16, 16))
    ]
    assert times[0] == times[1] < times[2] < times[3]


def test_a_work_group_narrower_than_a_vector_is_no_vector():
    """Measured: 0.55 and 0.51 ms with rows of 16 and 32 work-items, 9 and 18 ms with rows of 8 and 4."""
    found = {config.bm: seconds for seconds, config in kernel_named("tiled").ranked(CUBE, ZEN4)}
    assert min(found[8], found[4]) > 10 * max(found[16], found[32])


def test_where_it_makes_a_loop_of_them_the_general_kernel_is_estimated_faster():
    assert seconds("register", EPYC_POCL) < seconds("block", EPYC_POCL)
