"""`packed` with option ``pack_b`` 2: each work-group packs the columns of B that it uses, in local memory."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import TileConfig
from pyclmm.kernels import kernel_named
from pyclmm.kernels.cpu.packed_shape import cut
from pyclmm.kernels.cpu.packing import INSIDE
from pyclmm.kernels.device import Target
from pyclmm.problem.canonical import problem_of
from tests.support.cases import laid_out, small_integers
from tests.support.made_up import dense_problem
from tests.support.plans import launched

# (MR, NR, LANES) by the type of the sums: tiles that turn whole lanes of 128 bits, and vectors of one lane
TILES = {"f4": ((6, 16, 8), (5, 8, 4)), "f8": ((6, 8, 4), (4, 4, 2))}


def inside(**sizes) -> TileConfig:
    options = (("pack_a", 0), ("pack_b", INSIDE))
    return dataclasses.replace(TileConfig(bm=6, bn=8, bk=8, tm=3, tn=4, vec=4, options=options), **sizes)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("swapped", [0, 1])
@pytest.mark.parametrize("pack_b", [1, INSIDE])
def test_columns_turned_in_registers_are_exact(dtype, swapped, pack_b, rng, device):
    """Steps of K and columns left over beside whole lanes; the transposed product's rows, stored in lanes."""
    for tm, tn, vec in TILES[dtype]:
        if vec * np.dtype(dtype).itemsize * 8 > device.vector_bits:
            continue
        options = (("pack_a", 0), ("pack_b", pack_b), ("swapped", swapped))
        config = TileConfig(bm=2 * tm, bn=2 * tn, bk=20, tm=tm, tn=tn, vec=vec, options=options)
        for m, n, k in [(tm, tn, 16), (41, 35, 45), (3 * tm, 3 * tn, 19), (17, tn + 1, 3)]:
            a, b = small_integers(rng, (m, k), dtype), small_integers(rng, (k, n), dtype)
            for x, y in ((a, laid_out(b, "T")), (laid_out(a, "T"), laid_out(b, "T"))):
                got = pyclmm.matmul(x, y, kernel=("packed", config))
                assert np.array_equal(got, a @ b), (config, m, n, k)


@pytest.mark.usefixtures("on_cpu")
def test_a_small_transposed_b_takes_one_launch(rng):
    a, b = small_integers(rng, (64, 64), "f4"), small_integers(rng, (64, 256), "f4")
    plan = pyclmm.Matmul(a, laid_out(b, "T"), kernel="packed")
    assert plan.config.option("pack_b") == INSIDE
    assert launched(plan) == ["packed_multiply"]
    assert np.array_equal(plan(a, laid_out(b, "T")), a @ b)


@pytest.mark.usefixtures("on_cpu")
def test_a_constant_b_is_packed_by_a_launch_that_later_calls_skip(queue, rng):
    x, y = small_integers(rng, (64, 64), "f4"), small_integers(rng, (256, 64), "f4")
    a, b = cla.to_device(queue, x), cla.to_device(queue, y)
    plans = [pyclmm.Matmul(a, b, trans_b="T", constant_b=c, kernel="packed") for c in (False, True)]
    assert [plan.config.option("pack_b") for plan in plans] == [INSIDE, 0]
    assert [len(launched(plan)) for plan in plans] == [1, 2]
    assert np.array_equal(plans[1](a, b).get(), x @ y.T)
    asked = pyclmm.Matmul(a, b, trans_b="T", constant_b=True, kernel=("packed", plans[0].config))
    assert asked.config == plans[0].config, "whoever names a configuration gets it"


def best(m, n, k, layout, device):
    return kernel_named("packed").configs(problem_of(m, n, k, np.dtype("f4"), layout), device)[0]


def test_where_many_macro_tiles_would_pack_it_again_b_is_packed_once(cpu):
    """A panel is packed for up to so many rows at a time; the copy of a launch serves all rows."""
    two = dataclasses.replace(cpu, compute_units=2, max_clock_mhz=3000)
    for device in (two, dataclasses.replace(two, target=Target(512))):
        assert best(64, 256, 64, "NT", device).option("pack_b") == INSIDE
        assert best(300, 300, 300, "NT", device).option("pack_b") == INSIDE
        assert best(20_000, 500, 500, "NT", device).option("pack_b") != INSIDE


def test_a_b_that_may_stay_in_place_does(cpu):
    """Its vectors cross cache lines, which some processors hide."""
    for n in (64, 200, 320):
        config = kernel_named("packed").configs(dense_problem(n, n, n, b_align=16), cpu)[0]
        assert config.option("pack_b") == 0, n


def test_work_groups_divide_columns_before_rows(cpu):
    p = problem_of(64, 256, 64, np.dtype("f4"), "NT")
    config = best(64, 256, 64, "NT", cpu)
    found = cut(p, config, cpu)
    assert found.rows == 1
    assert found.columns >= 2 * cpu.compute_units


def test_one_unit_packs_a_small_b_once(cpu):
    """But K is divided as ever, because that decides the bits."""
    one, two = (dataclasses.replace(cpu, compute_units=units) for units in (1, 2))
    p, config = problem_of(141, 108, 27, np.dtype("f4"), "NT"), inside(bm=336, bn=96, tm=8, tn=32)
    assert cut(p, config, one).rows == 1 < cut(p, config, two).rows
    assert kernel_named("packed").configs(dense_problem(16, 16, 2048), one)[0].split_k == 4


def test_the_panel_fits_local_memory(cpu):
    config = inside()
    p = dense_problem(64, 64, 64)
    need = 4 * (config.bm * config.bn + config.bk * config.tn)
    for size, reasons in ((need, 0), (need - 1, 1)):
        small = dataclasses.replace(cpu, local_mem_size=size)
        assert len(kernel_named("packed").violations(p, config, small)) == reasons


def test_the_options_have_three_and_two_values(cpu):
    for options in ((("pack_b", 3),), (("pack_a", 2),)):
        reasons = kernel_named("packed").violations(dense_problem(8, 8, 8), inside(options=options), cpu)
        assert any("pack_a must be 0 or 1, pack_b 0, 1 or 2" in reason for reason in reasons)


@pytest.mark.parametrize(("rows", "height"), [(1, 8), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (9, 8)])
@pytest.mark.parametrize("layout", ["NN", "TN"])
def test_a_few_rows_are_read_in_place(cpu, rows, height, layout):
    """By a lower tile: to pack them took a launch. One row is for `matvec`."""
    wide, packed = dataclasses.replace(cpu, target=Target(512)), kernel_named("packed")
    few = problem_of(rows, 231, 51, np.dtype("f4"), layout)
    config = packed.configs(few, wide)[0]
    assert config.tm == height
    assert len(packed.launches(few, config, wide).launches) == 1 + (rows == 1)
    if rows > 1:
        assert len(packed.launches(few, config, wide).launches[0].args) == 18
    halves = problem_of(rows, 231, 51, np.dtype("f2"), layout)
    assert packed.configs(halves, wide)[0].tm == 8, "they are packed to be converted"
