"""`register` without measurements: its tile geometry and its count of waves, on made-up devices."""

from dataclasses import replace

import pytest

from pyclmm import TileConfig
from pyclmm.kernels import kernel_named
from pyclmm.kernels.gpu.tile import is_held, local_bytes, misfits, sides, work_items
from pyclmm.kernels.gpu.waves import Tiling, registers, resident
from pyclmm.problem.dtypes import dtype_of
from pyclmm.problem.gemm import GemmProblem
from tests.support.made_up import ARC, DEVICES, H200, MALI, MI250, ONE_ITEM, PASCAL

REGISTER = kernel_named("register")
BIG = TileConfig(
    128, 256, 8, 32, 128, 8, 16, 4, 3, 0, (("fetch_b", 2), ("held", 0), ("slices", 1))
)  # BM x BN x BK of a work-group, 8 x 16 a work-item
TYPES = ("float32", "float64", "uint32", "uint64", "complex64", "complex128")


def problem(m, n, k, acc="float32", **kwargs):
    return GemmProblem(m, n, k, acc, acc, acc, acc, lda=k, ldb=n, ldo=n, **kwargs)


def best(device, *shape, **kwargs):
    p = problem(*shape, **kwargs)
    config = REGISTER.configs(p, device)[0]
    return config, Tiling(p, config, device).tile_ranges()


def test_arithmetic_of_one_tile():
    assert work_items(BIG) == 256
    assert local_bytes(BIG, 4) == 3 * 8 * (128 + 256 + 8) * 4
    assert registers(BIG, 4) == 8 * 16 + 2 * (8 + 16) + 32
    assert resident(BIG, 4, H200) == 1
    assert H200.static_local_bytes > H200.local_mem_size
    assert MI250.static_local_bytes == MI250.local_mem_size
    assert ARC.units == 32


def test_accesses_are_wide_only_where_every_row_is_aligned():
    wide = problem(64, 64, 64)
    a, b = sides(wide, BIG)
    assert (a.vec, a.across, a.pad) == (1, True, 4), "an asynchronous copy cannot transpose more than one"
    assert (b.vec, b.across, b.pad) == (4, False, 0)
    for odd in (replace(wide, n=63), replace(wide, b_align=8), replace(wide, b_type="float16")):
        assert sides(odd, BIG)[1].vec == 1
    held = replace(BIG, stages=2, options=(("held", 1),))
    assert sides(wide, held)[0].vec == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bm": 96, "sgm": 64}, "bm 96 is no multiple of sgm 64"),
        ({"vec": 2}, "vec 2"),
        ({"stages": 1}, "stages 1"),
        ({"bk": 3}, "bk 3"),
        ({"bn": 128, "sgn": 128, "bm": 192, "sgm": 64}, "do not fill"),
    ],
)
def test_a_tile_that_does_not_fit_has_a_reason(change, reason):
    assert any(reason in text for text in misfits(replace(BIG, **change), "float32"))


@pytest.mark.parametrize("acc", TYPES)
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_every_device_and_type_has_a_configuration_within_its_limits(device, acc):
    p = problem(500, 700, 300, acc)
    if REGISTER.refuses(p, device):
        pytest.skip(REGISTER.refuses(p, device))
    configs = REGISTER.configs(p, device)
    assert configs
    for config in configs:
        assert work_items(config) <= device.max_work_group_size
        assert local_bytes(config, dtype_of(acc).itemsize) <= device.static_local_bytes
        assert is_held(config) or device.vendor == "nvidia"


def test_asynchronous_copies_are_for_new_nvidia_devices_and_plain_operands():
    p = problem(64, 64, 64)
    assert not REGISTER.violations(p, BIG, H200)
    assert "compute capability 8.0" in REGISTER.violations(p, BIG, PASCAL)[0]
    assert "cannot convert b" in REGISTER.violations(replace(p, b_type="float16"), BIG, H200)[0]


@pytest.mark.parametrize(
    "shape", [(4096,) * 3, (4097, 4095, 1000), (64, 64, 100_000), (1, 1, 1), (5, 7, 0), (0, 4, 4)]
)
@pytest.mark.parametrize("device", [H200, MI250, MALI, ONE_ITEM], ids=lambda d: d.name)
def test_parts_cover_every_tile_once_and_split_k_covers_k(shape, device):
    p = problem(*shape)
    for config in REGISTER.configs(p, device):
        tiling = Tiling(p, config, device)
        at = 0
        for part in tiling.tile_ranges():
            assert part.first == at
            at += part.tiles
            assert tiling.k_range(part.split_k) * part.split_k >= p.k
            assert part.split_k == 1 or tiling.k_range(part.split_k) * (part.split_k - 1) < p.k
        assert at == tiling.tiles


def test_big_products_get_big_tiles_and_small_ones_small():
    assert best(H200, 4096, 4096, 4096)[0].bm * best(H200, 4096, 4096, 4096)[0].bn >= 128 * 128
    small, parts = best(H200, 512, 512, 512)
    assert small.bm * small.bn * 100 <= 512 * 512, "enough tiles for most of the 132 units"
    assert len(parts) == 1


def test_k_is_split_where_tiles_are_few():
    config, parts = best(H200, 256, 256, 65536)
    groups = sum(part.tiles * part.split_k for part in parts)
    assert 100 <= groups <= 4 * 132, config


def test_only_the_last_wave_splits_k():
    _, parts = best(H200, 3072, 3072, 3072)
    assert [part.split_k > 1 for part in parts] == [False, True]


def test_split_k_is_taken_as_given():
    p = problem(100, 100, 64)
    for asked, given in ((1, 1), (4, 4), (100, 8)):  # 8 steps of BK
        (part,) = Tiling(p, replace(BIG, split_k=asked), H200).tile_ranges()
        assert part.split_k == given


def test_a_new_shape_needs_no_new_program():
    whole = replace(BIG, split_k=1)
    programs = {
        launch.program
        for shape in ((4096, 4096, 4096), (128, 640, 64), (100, 12, 4))
        for launch in REGISTER.launches(problem(*shape), whole, H200).launches
    }
    assert len(programs) == 1


@pytest.mark.parametrize("shape", [(0, 0, 2), (1, 0, 5), (0, 1, 0)])
def test_empty_products_have_launches_too(shape):
    for family in (REGISTER, kernel_named("thin")):
        p = problem(*shape)
        for config in family.configs(p, H200):
            for split_k in (0, 3):
                assert family.launches(p, replace(config, split_k=split_k), H200).launches
