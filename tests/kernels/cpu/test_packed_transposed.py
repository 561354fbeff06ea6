"""`packed` with operands of every layout, and out^T = B^T A^T in place of A B."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import TileConfig
from pyclmm.kernels import kernel_named
from pyclmm.kernels.cpu.packed_shape import cut
from pyclmm.kernels.device import Target
from pyclmm.problem.canonical import problem_of
from tests.support.cases import laid_out, small_integers
from tests.support.made_up import dense_problem
from tests.support.plans import launched
from tests.support.selection import slow

LAYOUTS = ("NN", "TN", "NT", "TT")
PACKING = ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2))


def swapped(pack_a=0, pack_b=0, swapped=1, **sizes) -> TileConfig:
    """Tiles that no device would be tuned to."""
    options = (("pack_a", pack_a), ("pack_b", pack_b), ("swapped", swapped))
    return dataclasses.replace(TileConfig(bm=6, bn=8, bk=8, tm=3, tn=4, vec=4, options=options), **sizes)


def best(problem, device):
    """The configuration that the estimate takes."""
    packed = kernel_named("packed")
    return min(packed.candidates(problem, device), key=lambda c: packed.estimate(problem, c, device))


def transposed_problem(m, n, k, layout, dtype="f4"):
    return problem_of(m, n, k, np.dtype(dtype), layout)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("split_k", [1, 3])
@pytest.mark.parametrize("packing", PACKING)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_packing_and_split_is_exact(packing, split_k, layout, turned, rng):
    config = swapped(*packing, swapped=turned, split_k=split_k)
    for m, n, k in [(4, 3, 4), (2, 3, 5), (7, 9, 21), (20, 17, 30), (5, 140, 150), (20, 30, 70)]:
        a, b, c = (small_integers(rng, shape, "f4") for shape in ((m, k), (k, n), (m, n)))
        x, y = laid_out(a, layout[0]), laid_out(b, layout[1])
        assert np.array_equal(pyclmm.matmul(x, y, kernel=("packed", config)), a @ b), (m, n, k)
        for bias in (small_integers(rng, (n,), "f4"), small_integers(rng, (m, 1), "f4")):
            got = pyclmm.gemm(x, y, c, alpha=3.0, beta=2.0, bias=bias, kernel=("packed", config))
            assert np.array_equal(got, 3 * (a @ b) + 2 * c + bias), (m, n, k)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("packing", PACKING)
@pytest.mark.parametrize("dtype", ["f8", "c8", "f2", "u8", *slow("i1", "i4", "u4", "c16")])
def test_every_type_and_stack_is_exact(packing, dtype, turned, rng):
    config = swapped(*packing, swapped=turned, vec=2 if dtype in ("c16", "u8") else 4)
    for a_stack, b_stack in (((), ()), ((3,), (3,)), ((2, 1), (3,)), ((3,), ()), ((), (3,))):
        a, b = small_integers(rng, (*a_stack, 7, 30), dtype), small_integers(rng, (*b_stack, 30, 9), dtype)
        if dtype.startswith("c"):
            a, b = (a * (1 + 2j)).astype(dtype), (b * (2 - 1j)).astype(dtype)
            got = pyclmm.gemm(a, b.swapaxes(-1, -2), trans_b="C", kernel=("packed", config))
            assert np.array_equal(got, a @ b.conj()), (a_stack, b_stack)
        for x, y in ((a, b), (laid_out(a, "T"), laid_out(b, "T"))):
            got = pyclmm.matmul(x, y, kernel=("packed", config))
            assert np.array_equal(got, a @ b), (a_stack, b_stack)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("tm", [3, 6])
@pytest.mark.parametrize("pack_b", [1, 2])
def test_the_transposed_product_leaves_the_gaps_of_out(tm, pack_b, rng):
    """A tile has more columns than are left. They are rows of out, and stored by numbers or by lanes."""
    a, b = small_integers(rng, (13, 20), "f4"), small_integers(rng, (20, 17), "f4")
    whole = np.full((17, 40), 7, np.float32)
    config = swapped(0, pack_b, tm=tm)
    pyclmm.matmul(a, laid_out(b, "T"), out=whole[:13, 3:20], kernel=("packed", config))
    assert np.array_equal(whole[:13, 3:20], a @ b)
    whole[:13, 3:20] = 7
    assert np.all(whole == 7)


@pytest.mark.usefixtures("on_cpu")
def test_b_is_packed_in_parts_where_the_product_is_transposed(limits, device, queue, rng):
    """As the kernel's A. A constant B in parts is packed again: none but the last part is left."""
    limits(panels=2000 // device.compute_units)
    x, y = small_integers(rng, (9, 21), "f4"), small_integers(rng, (21, 61), "f4")
    a, b = cla.to_device(queue, x), cla.to_device(queue, y)
    plan = pyclmm.Matmul(a, b, constant_b=True, kernel=("packed", swapped(pack_a=1)))
    assert launched(plan).count("pack_a") > 1
    for _ in range(2):
        assert np.array_equal(plan(a, b).get(), x @ y)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("packing", PACKING)
def test_a_constant_b_of_the_transposed_product_is_packed_once(queue, packing, rng):
    """A changed B is not seen where B is packed; a changed A always is."""
    x, y = small_integers(rng, (20, 30), "f4"), small_integers(rng, (30, 40), "f4")
    a, b = cla.to_device(queue, x), cla.to_device(queue, y)
    plan = pyclmm.Matmul(a, b, constant_b=True, kernel=("packed", swapped(*packing)))
    assert np.array_equal(plan(a, b).get(), x @ y)
    a.fill(1)
    assert np.array_equal(plan(a, b).get(), np.ones_like(x) @ y)
    b.fill(0)
    assert np.any(plan(a, b).get()) == bool(packing[0])


def test_a_transposed_b_is_left_in_place_by_the_transposed_product(cpu):
    for wide in (cpu, dataclasses.replace(cpu, target=Target(512))):
        for m, n, k in [(64, 1584, 620), (104, 152, 64), (48, 1264, 1784)]:
            config = best(transposed_problem(m, n, k, "TT"), wide)
            assert config.option("swapped"), (m, n, k)
            assert not config.option("pack_a"), (m, n, k)
        assert best(transposed_problem(64, 1000, 1000, "NT"), wide).option("swapped")
        assert not best(transposed_problem(2144, 1744, 60, "TT"), wide).option("swapped")  # stores cost more


def test_only_a_transposed_b_or_columns_that_fill_no_vectors_are_a_reason_to_transpose(cpu):
    """298 x 4 x 194 TN: 6.9 us, not 14.1, on PoCL's `basic` and Zen 5."""
    packed = kernel_named("packed")
    for layout in LAYOUTS:
        found = packed.candidates(transposed_problem(64, 1000, 1000, layout), cpu)
        assert any(c.option("swapped") for c in found) == (layout[1] == "T"), layout
        found = packed.candidates(transposed_problem(1000, 4, 194, layout), cpu)
        assert any(c.option("swapped") for c in found) == ("T" in layout), layout
    config = best(transposed_problem(298, 4, 194, "TN"), dataclasses.replace(cpu, target=Target(512)))
    assert config.option("swapped")
    assert config.option("pack_a") == config.option("pack_b") == 0


@pytest.mark.usefixtures("on_cpu")
def test_a_complex_product_in_order_is_not_transposed(rng):
    """(a + bi)(c + di) begins with a c - b d; the transposed product adds in another order."""
    a = small_integers(rng, (5, 6), "c8")
    with pytest.raises(pyclmm.ArgumentError, match="swapped, a complex product is not summed in order"):
        pyclmm.matmul(a, a.T, reproducible=True, kernel=("packed", swapped()))
    assert np.array_equal(pyclmm.matmul(a, a.T, kernel=("packed", swapped())), a @ a.T)


def test_the_option_is_0_or_1(cpu):
    config = dataclasses.replace(swapped(), options=(("swapped", 2),))
    reasons = kernel_named("packed").violations(dense_problem(8, 8, 8), config, cpu)
    assert any("swapped must be 0 or 1" in reason for reason in reasons)


def test_a_transposed_a_is_packed_where_many_columns_use_it(cpu):
    """In place each tile of columns reads A across its rows; a copy costs the same for one and for all."""

    def packs(m, n, k, bits):
        device = dataclasses.replace(cpu, target=Target(bits), max_clock_mhz=3000)
        config = kernel_named("packed").configs(transposed_problem(m, n, k, "TN"), device)[0]
        return config.option("pack_a") == 1

    for bits in (256, 512):
        assert [packs(2000, n, 500, bits) for n in (64, 500, 2000)] == [False, True, True]
        assert not packs(200, 2000, 500, bits)  # half of the second level holds it
        # Rows a page apart displace each other.
        assert [packs(1024, n, 1024, bits) for n in (16, 128)] == [False, True]


def test_compute_units_get_equal_macro_tiles(cpu):
    """13 rows of macro-tiles would leave one of two units idle while the other computes the last."""
    two = dataclasses.replace(cpu, compute_units=2)
    given = transposed_problem(1520, 256, 368, "NN")
    config = kernel_named("packed").configs(given, two)[0]
    found = cut(given, config, two)
    assert found.rows * found.columns % 2 == 0
    assert found.rows * found.mc >= 1520
