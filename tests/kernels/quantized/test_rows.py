"""`quantized`: what is launched on made-up devices, and whether the results are right."""

from dataclasses import replace

import pytest

from pyclmm.checks.small_problems import first_wrong_result
from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.selection.select import candidates
from tests.support.cases import DEVICE
from tests.support.made_up import DEVICES, EPYC_INTEL, EPYC_POCL, H200, LLVMPIPE, NEON

FAMILY = kernel_named("quantized")
FORMATS = (
    "q8_0", "affine4_g64_float16", "affine4_g128_float32", "affine4_g32_float16", "q4_0", "q4_1", "q4_k",
    "mxfp4", "nvfp4", "q6_k",
)  # fmt: skip
TYPES = ("float32", "float16", "bfloat16")
ITEMS = [
    TileConfig(tm=1, tn=4, split_k=1, options={"lanes": 16, "teams": 2}),
    TileConfig(tm=4, tn=2, split_k=3, options={"lanes": 4, "teams": 4}),
    TileConfig(tm=2, tn=1, split_k=0, options={"lanes": 1, "teams": 1}),
]


@pytest.mark.parametrize("device", [H200, EPYC_POCL, EPYC_INTEL], ids=lambda d: d.name)
@pytest.mark.parametrize(("m", "name"), [(1, "quantized"), (4, "quantized"), (4096, "dequantized")])
def test_few_rows_are_multiplied_at_once_and_many_as_numbers(device, m, name, weights):
    device = replace(device, max_mem_alloc_size=1 << 32, global_mem_size=1 << 34)
    for k in (4096, 11008):
        choice = next(candidates(weights(m, 8192, k, "affine4_g128_float16"), device, "auto"))
        assert choice.kernel.name == name


@pytest.mark.parametrize("device", [*DEVICES, EPYC_POCL, EPYC_INTEL, LLVMPIPE, NEON], ids=lambda d: d.name)
def test_every_configuration_fits_and_covers_the_result(device, weights):
    for m, n, k in ((1, 4096, 4096), (3, 100, 256), (16, 33, 11008), (64, 7, 64)):
        problem = weights(m, n, k)
        for config in FAMILY.configs(problem, device):
            product = FAMILY.launches(problem, config, device).launches[0]
            groups = product.global_size[0] // product.local_size[0]
            if config.option("lanes"):
                assert groups * config.tm * config.tn * config.option("teams") >= m * n
            else:
                assert groups * product.args[-1] >= n > (groups - 1) * product.args[-1]


def test_devices_but_cpus_have_work_items_side_by_side(weights):
    problem = weights(1, 4096, 4096)
    assert all(config.option("lanes") for config in FAMILY.configs(problem, H200))
    assert not FAMILY.configs(problem, EPYC_POCL)[0].option("lanes")
    turned = replace(problem, trans_a=True, lda=1)
    assert all(config.option("lanes") for config in FAMILY.configs(turned, EPYC_POCL))
    assert "A along K" in FAMILY.violations(turned, TileConfig(vec=16), EPYC_POCL)[0]


def test_k_is_split_where_tiles_leave_units_idle(weights):
    few, many = weights(1, 64, 16384), weights(1, 65536, 16384)
    config = ITEMS[0] if FAMILY.violations(few, ITEMS[0], H200) else replace(ITEMS[0], split_k=0)
    assert len(FAMILY.launches(few, config, H200).launches) == 2
    assert len(FAMILY.launches(many, config, H200).launches) == 1
    product, added = FAMILY.launches(few, config, H200).launches
    assert product.global_size[1] == added.args[-2] > 1
    assert product.args[-2] % 32 == 0


def test_numbers_of_few_rows_cost_the_bytes_of_the_weights(weights):
    problem = weights(1, 8192, 8192, "affine4_g128_float16")
    seconds = FAMILY.estimate(problem, FAMILY.configs(problem, H200)[0], H200)
    assert problem.nbytes / H200.rates.memory < seconds < 5 * problem.nbytes / H200.rates.memory


def test_many_rows_are_multiplied_at_once_where_numbers_have_no_room(weights):
    little = replace(EPYC_POCL, max_mem_alloc_size=1 << 25)
    choice = next(candidates(weights(4096, 8192, 4096), little, "auto"))
    assert choice.kernel is FAMILY
    assert "K is 0" in FAMILY.refuses(weights(1, 8, 0), H200)


@pytest.mark.parametrize(
    ("name", "a_type", "config", "m"),
    [
        *((name, TYPES[i % 3], None, (1, 5)[i % 2]) for i, name in enumerate(FORMATS)),
        *((FORMATS[0], a_type, None, m) for a_type in TYPES for m in (1, 5)),
        *((FORMATS[i], TYPES[i], config, (5, 1, 1)[i]) for i, config in enumerate(ITEMS)),
    ],
)
def test_products_are_right(queue, weights, name, a_type, config, m):
    more = {"has_c": True, "c_type": a_type, "c_strides": (37, 1), "bias": "column", "bias_stride": 1}
    problem = weights(m, 37, 768, name, a_type, **more)
    offered = FAMILY.configs(problem, DEVICE)
    by_vectors = [one for one in offered if not one.option("lanes")]  # of the widths that a CPU has
    for each in [config] if config else by_vectors or offered[:1]:
        work = FAMILY.launches(problem, each, DEVICE)
        assert first_wrong_result(queue, problem, FAMILY, each, work) is None


@pytest.mark.parametrize("name", ["quantized", "dequantized"])
def test_weights_at_addresses_that_no_load_takes_are_refused(weights, name):
    problem = replace(weights(4, 64, 256, "affine4_g64_float16"), b_align=8)
    assert "multiples of 16 bytes" in kernel_named(name).refuses(problem, EPYC_POCL)
    assert kernel_named(name).refuses(replace(problem, b_align=16), EPYC_POCL) is None
