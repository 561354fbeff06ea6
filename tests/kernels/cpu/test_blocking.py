"""The blocks of `packed` on made-up processors: caches of 32 KB to 2 MB, 128 to 512 bits, 2 to 192 cores."""

from dataclasses import replace
from itertools import product

import pytest

from pyclmm.kernels import kernel_named
from pyclmm.kernels.cpu.blocking import PAGE, UNROLL_K, blocks, equal_steps, steps_from_memory, steps_in_place
from pyclmm.kernels.cpu.packed_shape import cut, range_of_k, sum_size
from pyclmm.kernels.cpu.packing import packs_b
from pyclmm.kernels.device import Caches, Target
from pyclmm.kernels.interface import gemm_args
from pyclmm.problem.dtypes import dtype_of
from tests.support.made_up import DEVICE
from tests.support.made_up import dense_problem as problem

KIB = 1 << 10
CACHES = [Caches(l1 * KIB, l2 * KIB) for l1, l2 in product((32, 48, 128), (32, 256, 1024, 2048)) if l1 <= l2]
SHAPES = [
    (1, 40, 300), (37, 29, 50), (128, 128, 128), (1025, 1025, 1025), (2000, 2000, 2000), (100, 1000, 1100),
    (256, 256, 16384), (16, 2048, 2048), (2048, 2048, 16), (5000, 64, 700), (64, 5000, 1030),
]  # fmt: skip


def machine(caches, bits, cores, local=1 << 20):
    facts = {"compute_units": cores, "caches": caches, "local_mem_size": local, "target": Target(bits)}
    return replace(DEVICE, kind="cpu", vendor="pocl", **facts)


@pytest.mark.parametrize("caches", CACHES, ids=lambda c: f"{c.l1 // KIB}K-{c.l2 // KIB}K")
@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_blocks_fit_the_caches(caches, bits, dtype):
    device = machine(caches, bits, 8)
    size, packed = dtype_of(dtype).itemsize, kernel_named("packed")
    for shape in SHAPES:
        p = problem(*shape, dtype)
        for c in packed.configs(p, device):
            assert packed.violations(p, c, device) == []
            high = (
                2 if c.split_k > 1 else 1
            )  # partial sums are in workspace, so macro-tiles are twice as high
            assert c.bk * c.tn * size <= max(caches.l1 // 2, caches.l2 // 4), (shape, c)
            assert c.bm * c.bk * size <= high * caches.l2 // 2 or c.bm == c.tm, (shape, c)
            sums = c.bm * c.bn * sum_size(p)
            assert sums <= high * caches.l2 // 8 or c.bm <= high * c.tm or c.bn == c.tn, (shape, c)
            assert c.bk >= UNROLL_K


@pytest.mark.parametrize("cores", [2, 16, 64, 192])
@pytest.mark.parametrize("caches", [CACHES[0], CACHES[-1]], ids=["small", "large"])
@pytest.mark.parametrize("bits", [128, 512])
def test_macro_tiles_cover_the_result_in_equal_parts(cores, caches, bits):
    device = machine(caches, bits, cores)
    for shape in SHAPES:
        p = problem(*shape)
        for c in kernel_named("packed").configs(p, device):
            t = cut(p, c, device)
            for length, part, count, step in ((p.m, t.mc, t.rows, c.tm), (p.n, t.nc, t.columns, c.tn)):
                assert (count - 1) * part < length <= count * part, (shape, c, t)
                assert length > count * (part - step), f"{shape}: the last one is nearly as long {c} {t}"
            assert t.mc <= c.bm
            assert t.nc <= c.bn
            enough = p.m * p.n * p.k / cores > 64**3  # multiply-adds of a compute unit
            if enough and p.m >= 2 * c.tm:
                most = -(-p.m // (2 * c.tm)) * -(-p.n // c.tn) * max(1, p.k // 512)
                assert 2 * t.rows * t.columns * c.split_k >= min(cores, most // 2), (shape, c, t)


def test_steps_of_k_are_equal_and_none_is_tiny():
    for length in (1, 3, 4, 5, 63, 64, 65, 255, 257, 700, 1024, 1025, 1030, 2049, 5000, 16384):
        for longest in (4, 64, 256, 680, 1024):
            steps = equal_steps(length, longest)
            count = -(-length // steps)
            assert steps % UNROLL_K == 0
            assert steps <= longest
            assert count == max(1, -(-length // longest)), "no more steps than necessary"
            assert length - (count - 1) * steps > steps - count * UNROLL_K, (length, longest, steps)


def test_each_range_of_k_is_divided_by_itself():
    device = machine(Caches(32 * KIB, 1024 * KIB), 512, 2)
    p = problem(256, 256, 9000)
    config = kernel_named("packed").configs(p, device)[0]
    assert config.split_k > 1
    work = kernel_named("packed").launches(p, config, device)
    (args,) = (launch.args for launch in work.launches if launch.kernel == "packed_multiply")
    kc = args[len(gemm_args(p)) + 2]  # after MC and NC
    assert kc == equal_steps(range_of_k(p, config), config.bk) <= config.bk
    assert range_of_k(p, config) * (config.split_k - 1) < p.k <= range_of_k(p, config) * config.split_k


def test_zen_4_gets_the_blocks_that_were_measured_there():
    """32 KiB, 1 MiB: the constants of versions 1 to 21 in docs/kernels/packed.md."""
    zen4 = Caches(32 * KIB, 1024 * KIB)
    found = [
        blocks(zen4, tm, tn, size, size, 1 << 20)
        for tm, tn, size in ((8, 32, 4), (8, 16, 8), (8, 24, 8), (6, 16, 4), (6, 8, 8))
    ]
    assert [(b.mc, b.nc, b.kc) for b in found] == [
        (128, 256, 1024), (64, 256, 1024), (64, 240, 1024), (126, 256, 1024), (60, 256, 1024),
    ]  # fmt: skip
    assert steps_in_place(zen4, 2048, 1024) == 256
    assert steps_in_place(zen4, 2 * PAGE, 1024) == 64
    assert (steps_from_memory(zen4, reused=True), steps_from_memory(zen4, reused=False)) == (8, 16)


def test_larger_caches_mean_larger_blocks_and_little_local_memory_smaller_ones():
    small, large = (blocks(Caches(48 * KIB, l2 * KIB), 8, 32, 4, 4, 1 << 20) for l2 in (256, 2048))
    assert small.kc < large.kc
    assert small.mc * small.nc < large.mc * large.nc
    assert blocks(Caches(48 * KIB, 2048 * KIB), 8, 32, 4, 4, 1 << 14).mc < large.mc
    assert steps_in_place(Caches(128 * KIB, 2048 * KIB), 1000, 1024) > steps_in_place(Caches(), 1000, 1024)


def test_an_operand_is_packed_by_the_size_of_the_second_level():
    """B of 1000 x 1000 float32 is 4 MB, with rows far apart: packed unless the second level holds it."""
    p = problem(1000, 1000, 1000)
    for l2, packs in ((256, True), (2048, True), (8192, False)):
        device = machine(Caches(32 * KIB, l2 * KIB), 256, 2)
        assert packs_b(p, kernel_named("packed").configs(p, device)[0]) == packs
