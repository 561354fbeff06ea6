"""`packed`, a kernel for CPU devices: packing, tiles and operands of every layout."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import TileConfig
from pyclmm.checks import selfcheck
from pyclmm.kernels import kernel_named
from pyclmm.kernels.cpu import packed_shape
from pyclmm.kernels.cpu.packed_shape import cut, parts, split_k
from pyclmm.kernels.cpu.packing import packs_a, packs_b
from pyclmm.kernels.device import Target
from pyclmm.opencl.queues import new_queue
from pyclmm.problem.canonical import problem_of
from pyclmm.problem.dtypes import dtype_of
from tests.support.cases import small_integers
from tests.support.made_up import dense_problem as problem
from tests.support.plans import launched, workspace
from tests.support.selection import slow, slow_rows

# (tm, tn, vec) that no device would be tuned to
ODD = TileConfig(bm=6, bn=8, bk=8, tm=3, tn=4, vec=4)


def test_every_float16_is_converted_exactly(packed):
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)[:, None]
    got = packed(x, np.ones((1, 16), np.float16))
    assert np.array_equal(got, np.repeat(x, 16, axis=1), equal_nan=True)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", ["i1", "bfloat16", *slow("?", "u2", "f2", "i4")])
def test_a_narrow_b_in_place_is_widened(dtype, rng):
    dtype = dtype_of(dtype) if dtype == "bfloat16" else np.dtype(dtype)
    for m, n, k in [(3, 70, 33), (20, 100, 40), (9, 64, 300)]:
        a, b = (rng.integers(0 if dtype.kind in "bu" else -3, 4, s).astype(dtype) for s in ((m, k), (k, n)))
        plan = pyclmm.Matmul(a, b, kernel="packed")
        assert plan.config.option("pack_b") == 0
        wide = (a.astype("f4"), b.astype("f4")) if dtype.kind in "fV" else (a, b)
        assert np.array_equal(plan(a, b), np.matmul(*wide)), (m, n, k)


def test_a_narrow_b_is_packed_for_many_rows(cpu):
    wide, narrow = (dataclasses.replace(cpu, target=Target(bits)) for bits in (512, 256))

    def packs(m, device, dtype="float16"):
        return kernel_named("packed").configs(problem(m, 1000, 1000, dtype), device)[0].option("pack_b") == 1

    assert [packs(m, wide) for m in (64, 65)] == [packs(m, narrow) for m in (128, 129)] == [False, True]


def test_only_cpu_devices_are_taken(cpu):
    gpu = dataclasses.replace(cpu, kind="gpu")
    for name in ("packed", "matvec"):
        assert "CPU" in kernel_named(name).refuses(problem(1, 64, 64), gpu)


def test_converted_operands_are_packed(cpu):
    config = kernel_named("packed").configs(problem(640, 64, 64, "float16"), cpu)[0]
    assert packs_a(problem(640, 64, 64, "float16"), config)
    assert packs_b(problem(640, 64, 64, "float16"), config)
    assert packs_b(problem(64, 64, 64, trans_b=True), config)


def test_rows_of_b_a_page_apart_are_packed(cpu):
    packed = kernel_named("packed")
    assert packed.configs(problem(1024, 1024, 1024), cpu)[0].option("pack_b") == 1
    assert packed.configs(problem(2000, 2000, 2000), cpu)[0].option("pack_b") == 1  # large; rows far apart
    assert packed.configs(problem(256, 256, 16384), cpu)[0].option("pack_b") == 0  # large; four rows a page
    assert packed.configs(problem(256, 256, 256), cpu)[0].option("pack_b") == 0
    assert packed.configs(problem(16, 1024, 1024), cpu)[0].option("pack_b") == 0


def test_b_is_packed_where_enough_rows_use_it(cpu):
    """Rows of B lie far apart, and the second-level cache does not hold it."""
    wide = dataclasses.replace(cpu, target=Target(512))

    def packs(m, n, device=cpu, dtype="float32"):
        return kernel_named("packed").configs(problem(m, n, 1000, dtype), device)[0].option("pack_b") > 0

    assert [packs(m, 1000) for m in (256, 257)] == [False, True]
    assert [packs(m, 1000, wide) for m in (128, 129)] == [False, True]
    assert [packs(m, 1000, dtype="complex64") for m in (64, 65)] == [False, True]
    assert [packs(m, 1000, wide, "complex64") for m in (32, 33)] == [False, True]
    # Rows a page apart displace each other: narrow vectors find a line of them gone sooner.
    assert [packs(m, 1024) for m in (16, 33)] == [False, True]
    assert [packs(m, 1024, wide) for m in (128, 129)] == [False, True]


def test_an_unaligned_b_is_packed_where_that_costs_less_than_its_loads(cpu):
    """Rows are a multiple of 64 bytes. NumPy's arrays begin 16 bytes past a cache line."""

    def packs(m, align, device=cpu):
        p = problem(m, 448, 1000, b_align=align)
        return kernel_named("packed").configs(p, device)[0].option("pack_b") > 0

    assert [packs(1000, align) for align in (64, 32, 16, 4)] == [False, False, True, True]
    wide, narrow = (dataclasses.replace(cpu, target=Target(bits)) for bits in (512, 128))
    assert [packs(1000, align, wide) for align in (64, 32, 16)] == [False, True, True]
    assert [packs(1000, align, narrow) for align in (64, 16, 8)] == [False, False, True]
    assert [packs(m, 16) for m in (256, 257)] == [False, True]
    assert [packs(m, 16, wide) for m in (128, 129)] == [False, True]


def test_a_small_unaligned_b_is_packed_where_a_launch_and_a_copy_cost_less(cpu):
    """The second level holds B. Each step is slower by some percent, so the size of the product decides."""

    def packs(n, vendor, bits, align=16):
        device = dataclasses.replace(cpu, target=Target(bits), vendor=vendor, max_clock_mhz=3000)
        config = kernel_named("packed").configs(problem(n, n, n, b_align=align), device)[0]
        return config.option("pack_b") > 0

    assert [packs(n, "pocl", 256) for n in (256, 500)] == [False, True]
    assert [packs(n, "pocl", 512) for n in (256, 650)] == [False, True]
    assert not packs(448, "pocl", 512)
    assert packs(448, "intel", 512)  # whose launches take less time
    assert not packs(448, "intel", 512, align=64)


@pytest.mark.usefixtures("on_cpu")
def test_the_address_of_b_decides_whether_it_is_packed(queue, device, rng):
    """NumPy's array is packed; the same numbers in a buffer of their own are read in place."""
    if device.vector_bits < 256 or device.caches.l2 > 448 * 1000 * 4:
        pytest.skip(f"vectors of {device.vector_bits} bits, {device.caches.l2} bytes of cache")
    a, b = small_integers(rng, (600, 1000), "f4"), small_integers(rng, (1000, 448), "f4")
    on_device = [cla.to_device(queue, x) for x in (a, b)]
    for operands, packs in ((on_device, 0), ((a, b), 1)):
        plan = pyclmm.Matmul(*operands, kernel="packed")
        assert plan.config.option("pack_b") == packs
        got = plan(*operands)
        assert np.array_equal(got.get() if packs == 0 else got, a @ b)


def test_the_tile_that_wastes_least_is_taken(cpu):
    """With vectors of 16 elements and equal waste, Intel's compiler does best with three vectors a row.

    PoCL gets two, and so does a product that reads B once, or in place.
    """
    intel, pocl = (
        dataclasses.replace(cpu, target=Target(512), vendor=vendor) for vendor in ("intel", "pocl")
    )

    def columns(m, n, k, device=intel):
        return kernel_named("packed").configs(problem(m, n, k), device)[0].tn

    assert columns(1000, 1000, 1000) == columns(2048, 2048, 2048) == 48
    assert columns(512, 512, 512) == columns(16, 2048, 2048) == columns(2048, 2048, 16) == 32
    assert columns(64, 1000, 1000) == columns(128, 1000, 1000) == 32
    assert columns(1000, 1000, 1000, pocl) == columns(2048, 2048, 2048, pocl) == 32
    assert columns(512, 48, 512, pocl) == 48


def test_last_columns_that_fill_a_vector_count_as_one(cpu):
    packed, wide = kernel_named("packed"), dataclasses.replace(cpu, target=Target(512))
    config = packed.configs(problem(64, 64, 64), wide)[0]
    whole, lone, more = (packed.estimate(problem(64, n, 64), config, wide) for n in (64, 48, 49))
    assert lone < more
    assert more == pytest.approx(whole, rel=0.05)


def test_rows_of_a_pages_apart_are_packed(cpu):
    packed = kernel_named("packed")
    assert packed.configs(problem(2048, 2048, 2048), cpu)[0].option("pack_a") == 1
    assert packed.configs(problem(1024, 1024, 1024), cpu)[0].option("pack_a") == 0
    assert packed.configs(problem(1024, 1024, 1024, "float64"), cpu)[0].option("pack_a") == 1
    assert packed.configs(problem(1000, 1000, 1000, "float64"), cpu)[0].option("pack_a") == 0
    assert packed.configs(problem(1024, 16, 1024, "float64"), cpu)[0].option("pack_a") == 0


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(("bits", "dtype"), [(256, "f8"), *slow_rows((128, "f4"), (128, "c8"))])
def test_tiles_for_narrower_vectors_are_exact(device, bits, dtype, rng):
    """Configurations for Neon and AVX2 run on this device, whose vectors are wider."""
    if device.vector_bits < bits:
        pytest.skip(f"vectors of {device.vector_bits} bits")
    narrow = dataclasses.replace(device, target=Target(bits))
    for m, n, k in [(37, 29, 50), (1, 40, 300)]:
        a, b = small_integers(rng, (m, k), dtype), small_integers(rng, (k, n), dtype)
        p = problem(m, n, k, a.dtype.name)
        for name in ("packed", "matvec"):
            if kernel_named(name).refuses(p, narrow) is None:
                for config in kernel_named(name).configs(p, narrow):
                    assert config.vec * a.real.itemsize * 8 == bits
                    assert np.array_equal(pyclmm.matmul(a, b, kernel=(name, config)), a @ b), config


def test_a_long_k_is_split_where_the_result_is_small(cpu):
    p = problem(16, 16, 100_000)
    config = kernel_named("packed").configs(p, cpu)[0]
    assert config.split_k == split_k(p, config, cpu) > 1
    assert kernel_named("packed").configs(problem(2048, 2048, 4096), cpu)[0].split_k == 1


def test_a_long_k_is_split_before_macro_tiles_shrink(cpu):
    """Smaller macro-tiles would read the operands more often."""
    p = problem(256, 256, 16384)
    config = kernel_named("packed").configs(p, cpu)[0]
    found = cut(p, config, cpu)
    assert found.rows * found.columns <= 2
    assert found.rows * found.columns * config.split_k >= 2 * cpu.compute_units


def test_a_large_b_for_few_rows_is_read_in_place(cpu):
    def chosen(m, **given):
        return kernel_named("packed").configs(problem(m, 2048, 2048, **given), cpu)[0]

    for config in (chosen(16), chosen(24)):
        assert config.bn * 4 == 4096
        assert config.bk <= 16
        assert config.split_k > 1
    assert chosen(64).bk > 16
    assert chosen(16, trans_b=True).bk > 16


def test_b_is_read_as_a_stream_from_memory_only(cpu):
    """4 MB come from the third level, 9.6 MB from memory. A register tile has 8 rows."""
    wide = dataclasses.replace(cpu, target=Target(512))

    def streams(m, n):
        return kernel_named("packed").configs(problem(m, n, 1000), wide)[0].bk <= 16

    assert [streams(16, n) for n in (1000, 2400)] == [False, True]
    assert [streams(m, 2400) for m in (48, 56)] == [True, False]


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_little_local_memory_means_smaller_macro_tiles(cpu, dtype):
    small = dataclasses.replace(cpu, local_mem_size=1 << 15)
    assert kernel_named("packed").configs(problem(512, 512, 512, dtype), small)


def test_each_violation_has_a_reason(cpu):
    packed = kernel_named("packed")
    wrong = TileConfig(bm=5, bn=4, bk=3, tm=2, tn=4, vec=3)
    reasons = " ".join(packed.violations(problem(8, 8, 8), wrong, cpu))
    assert "BM and BN" in reasons
    assert "VEC" in reasons
    assert "BK" in reasons
    wide = TileConfig(bm=2, bn=16, bk=4, tm=2, tn=16, vec=16)
    assert "wider" in " ".join(packed.violations(problem(8, 8, 8), wide, cpu))
    narrow = TileConfig(bm=2, bn=4, bk=4, tm=2, tn=4, vec=2)  # no compiler takes what turn.h makes of these
    assert "under 128 bits" in " ".join(packed.violations(problem(8, 8, 8), narrow, cpu))
    assert packed.violations(problem(8, 8, 8, "float64"), narrow, cpu) == []


# -- A is packed a part at a time


@pytest.fixture
def small_parts(limits, device) -> int:
    """Panels of A may take so many bytes in all."""
    limits(panels=2000 // device.compute_units)
    return packed_shape.panels_room(device)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("split_k", [1, 3])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", ["f4", "u1", "f2"])
def test_a_product_in_parts_is_exact(small_parts, split_k, order, dtype, rng):
    """Rows left over, parts of one and of several macro-tiles, an A that is used for a whole stack."""
    config = dataclasses.replace(ODD, options=(("pack_a", 1), ("pack_b", 0)), split_k=split_k)
    for stack, m, n, k in [((), 61, 9, 21), ((), 20, 40, 150), ((3,), 64, 5, 30), ((40,), 4, 5, 20)]:
        b = small_integers(rng, (*stack, k, n), dtype)
        for a_stack in {(), stack}:
            a = np.asarray(small_integers(rng, (*a_stack, m, k), dtype), order=order)
            plan = pyclmm.Matmul(a, b, kernel=("packed", config))
            assert np.array_equal(plan(a, b), a @ b), (stack, m, n, k)
            assert workspace(plan, "a_panels") <= small_parts
            assert launched(plan).count("pack_a") == launched(plan).count("packed_multiply")
            assert (launched(plan).count("pack_a") > 1) == (4 * a.size > small_parts)


@pytest.mark.usefixtures("on_cpu", "small_parts")
def test_a_part_reads_and_writes_its_own_rows_of_c(rng):
    a, b, c = (small_integers(rng, shape, "f4") for shape in ((61, 30), (30, 20), (61, 20)))
    config = dataclasses.replace(ODD, options=(("pack_a", 1), ("pack_b", 1)))
    bias = small_integers(rng, (20,), "f4")
    right = a @ b + 2 * c + bias
    pyclmm.gemm(a, b, c, beta=2.0, bias=bias, out=c, kernel=("packed", config))  # a row computed twice shows
    assert np.array_equal(c, right)


def test_a_small_product_of_a_stack_is_one_work_group(cpu):
    """Matrices of 32 x 32 float32 take 12 KiB, less than half of the first-level cache; of float64 24 KiB."""
    for dtype, length, groups in (("float32", 32, 1), ("float64", 16, 1), ("float64", 32, 3)):
        stack = problem(length, length, length, dtype, batch_shape=(1000,), batch_strides=((length**2,),) * 4)
        config = kernel_named("packed").configs(stack, cpu)[0]
        found = cut(stack, config, cpu)
        assert found.rows * found.columns == groups, (dtype, length)


@pytest.mark.usefixtures("on_cpu", "small_parts")
def test_parts_of_a_stack_longer_than_an_enqueue_may_be(limits, rng):
    limits(launch=3)
    a, b = small_integers(rng, (40, 4, 20), "u1"), small_integers(rng, (40, 20, 5), "u1")
    plan = pyclmm.Matmul(a, b, kernel=("packed", ODD))
    assert launched(plan).count("pack_a") > 1
    assert np.array_equal(plan(a, b), a @ b)


@pytest.mark.usefixtures("on_cpu", "small_parts")
def test_parts_wait_for_each_other_on_an_out_of_order_queue(queue, rng):
    mode = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    apart = cl.CommandQueue(queue.context, queue.device, mode)
    x, y = small_integers(rng, (400, 30), "u1"), small_integers(rng, (30, 20), "u1")
    a, b = cla.to_device(apart, x), cla.to_device(apart, y)
    plan = pyclmm.Matmul(a, b, kernel=("packed", ODD))
    assert launched(plan).count("pack_a") > 10
    for _ in range(5):
        assert np.array_equal(plan(a, b).get(), x @ y)


@pytest.mark.usefixtures("on_cpu", "small_parts")
def test_a_constant_b_in_parts_is_packed_again(queue, rng):
    """With a column-major out, b is the operand that is packed in parts; none but the last is left."""
    x, y = small_integers(rng, (20, 30), "u1"), small_integers(rng, (30, 200), "u1")
    a, b = cla.to_device(queue, x), cla.to_device(queue, y)
    out = cla.Array(queue, (20, 200), np.uint8, order="F")
    plan = pyclmm.Matmul(a, b, out=out, constant_b=True, kernel=("packed", ODD))
    assert launched(plan).count("pack_a") > 1
    for _ in range(2):
        out.fill(0)
        plan(a, b, out=out)
        assert np.array_equal(out.get(), x @ y)


@pytest.mark.parametrize("stack", [(3,), *slow((), (5000,))])
def test_parts_cover_each_row_of_each_product_once(cpu, stack):
    for m, k in [(1, 1), (7, 500), (40_000, 32_768), (3000, 3000), (64, 10**6), (100, 0)]:
        p = problem_of(m, 3, k, np.dtype("u1"), stack=stack)
        config = kernel_named("packed").configs(p, cpu)[0]
        found = parts(p, config, cpu)
        rows = sorted((x.first_entry, x.first_row, x.entries, x.last_row) for x in found)
        entry = row = 0
        for first_entry, first_row, entries, last_row in rows:
            assert (first_entry, first_row) == (entry, row)
            entry, row = (entry, last_row) if last_row < m else (entry + entries, 0)
        assert (entry, row) == (p.batch, 0)
        assert all(x.first_row % config.tm == 0 for x in found)


def test_workspace_for_a_does_not_grow_with_a(cpu):
    """5 GB for one whole A, and 26 GB for the stack."""
    most = packed_shape.panels_room(cpu)
    for m, k, stack in [(40_000, 32_768, ()), (80_000, 32_768, ()), (1000, 1000, (6500,))]:
        p = problem_of(m, 3, k, np.dtype("u1"), stack=stack)
        family = kernel_named("packed")
        work = family.launches(p, family.configs(p, cpu)[0], cpu)
        [panels] = [w.nbytes for w in work.workspace if w.name == "a_panels"]
        assert most / 2 < panels <= most


def test_the_check_does_not_depend_on_the_number_of_parts(cpu):
    few, many = (problem_of(m, 64, 4096, np.dtype("u1")) for m in (4000, 20_000))
    family = kernel_named("packed")
    config = family.configs(few, cpu)[0]
    works = [family.launches(p, config, cpu) for p in (few, many)]
    assert len(works[0].launches) < len(works[1].launches)
    assert len({selfcheck._digest(cpu, work, "opencl") for work in works}) == 1


def with_gaps(queue, x):
    """*x* on the device, in every second column of an array, so that it must be copied."""
    return cla.to_device(queue, np.repeat(x, 2, axis=1))[:, ::2]


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_constant_b_is_packed_once(queue, rng, order):
    """With a column-major out the product is transposed and b becomes its first operand.

    On a profiling queue each launch has an event, so that events count the launches.
    """
    queue = new_queue(queue.device, profiling=True)
    x, y = (small_integers(rng, (64, 64), "f4") for _ in range(2))
    a, b = cla.to_device(queue, x), with_gaps(queue, y)
    out = cla.Array(queue, (64, 64), np.float32, order=order)
    plan = pyclmm.Matmul(a, b, out=out, constant_b=True, kernel="packed")
    counts = []
    for _ in range(3):
        counts.append(len(plan.enqueue(a, b, out=out)))
        assert np.array_equal(out.get(), x @ y)
    assert counts[0] > counts[1] == counts[2] >= 1


@pytest.mark.usefixtures("on_cpu")
def test_a_constant_host_b_is_packed_once(rng):
    """Big enough that B is packed; the promise is broken here to see that it is relied on."""
    a, b = small_integers(rng, (300, 1100), "f4"), small_integers(rng, (1100, 900), "f4")
    plan = pyclmm.Matmul(a, b, constant_b=True, kernel="packed")
    right = a @ b
    assert np.array_equal(plan(a, b), right)
    assert workspace(plan, "b_panels"), "B is packed"
    b[...] = 0
    assert np.array_equal(plan(a, b), right)
