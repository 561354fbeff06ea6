"""`dequantized`: what is launched on made-up devices, and whether the results are right."""

from dataclasses import replace

import pytest

from pyclmm.checks.small_problems import first_wrong_result
from pyclmm.kernels import kernel_named
from pyclmm.problem.gemm import Ragged
from tests.support.cases import DEVICE
from tests.support.made_up import DEVICES, EPYC_INTEL, EPYC_POCL, H200, LLVMPIPE, NEON

FAMILY = kernel_named("dequantized")
FORMATS = ("q8_0", "affine4_g64_float16")


@pytest.mark.parametrize("device", [*DEVICES, EPYC_POCL, EPYC_INTEL, LLVMPIPE, NEON], ids=lambda d: d.name)
@pytest.mark.parametrize("a_type", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("reproducible", [False, True])
def test_every_device_has_a_way(device, a_type, reproducible, weights):
    for m in (1, 300):
        problem = weights(m, 96, 512, a_type=a_type, reproducible=reproducible)
        if device.unfused("float32") is None or not reproducible:
            assert FAMILY.refuses(problem, device) is None
            config = FAMILY.configs(problem, device)[0]
            assert not FAMILY.violations(problem, config, device)


@pytest.mark.parametrize("device", [H200, EPYC_POCL], ids=lambda d: d.name)
def test_weights_become_numbers_in_a_launch_that_later_calls_skip(device, weights):
    problem = weights(500, 96, 520 - 8, "affine4_g64_float16", "float16")
    work = FAMILY.launches(problem, FAMILY.configs(problem, device)[0], device)
    first, *others = work.launches
    assert (first.kernel, first.packs, first.args[2]) == ("dequantize", "b", "b")
    assert work.workspace[0].nbytes == 96 * 512 * 2
    assert "workspace:weights" in {arg for launch in others for arg in launch.args if isinstance(arg, str)}
    assert all("b" not in launch.args for launch in others)
    assert all(launch.program.define("B_TYPE") == "float16" for launch in others)
    assert first.global_size[0] * first.args[-1] >= 512 // 32


def test_rows_of_numbers_begin_at_aligned_addresses(weights):
    problem = weights(500, 96, 1056)  # 33 runs
    work = FAMILY.launches(replace(problem, a_type="bfloat16"), FAMILY.configs(problem, H200)[0], H200)
    assert work.workspace[0].nbytes == 96 * 1056 * 2
    problem = weights(500, 96, 1056 + 32)
    for a_type, ld in (("float32", 1088), ("float16", 1088)):
        one = replace(problem, a_type=a_type, out_type=a_type)
        size = {"float32": 4, "float16": 2}[a_type]
        assert FAMILY.launches(one, FAMILY.configs(one, H200)[0], H200).workspace[0].nbytes == 96 * ld * size


def test_reproducible_products_are_summed_in_order(weights):
    problem = weights(64, 96, 512, reproducible=True)
    for device in (H200, EPYC_POCL):
        found = FAMILY.configs(problem, device)
        assert found
        assert all(FAMILY.out_of_order(problem, config) is None for config in found)
    split = next(c for c in FAMILY.candidates(weights(64, 96, 512), H200) if c.split_k != 1)
    assert "ranges of K" in FAMILY.out_of_order(problem, split)


def test_more_rows_cost_more_but_the_weights_are_turned_once(weights):
    def seconds(m):
        problem = weights(m, 4096, 4096)
        return FAMILY.estimate(problem, FAMILY.configs(problem, H200)[0], H200)

    moved = 4096 * (4096 // 32 * 34 + 4096 * 4) / H200.rates.memory
    assert moved < seconds(16) < seconds(1024) < 64 * seconds(16)


@pytest.mark.parametrize("device", [H200, EPYC_POCL], ids=lambda d: d.name)
def test_weights_of_all_groups_become_numbers(device, weights):
    one = weights(300, 96, 512, a_type="float16")
    many = replace(one, ragged=Ragged("m", 8, 99 * one.ldb))
    config = FAMILY.configs(many, device)[0]
    first, *others = FAMILY.launches(many, config, device).launches
    assert first.global_size[1:] == (96, 8)
    assert first.args[5] == 99 * one.ldb
    assert FAMILY.launches(many, config, device).workspace[0].nbytes == 8 * 96 * 512 * 2
    assert any(96 * 512 in launch.args for launch in others), "the stride of the dense matrices"
    large = weights(64, 4096, 4096)
    groups = replace(large, ragged=Ragged("m", 8, 4096 * large.ldb))
    seconds = [FAMILY.estimate(p, FAMILY.configs(p, H200)[0], H200) for p in (large, groups)]
    assert seconds[1] > 3 * seconds[0]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"k": 40}, "K is 40, no multiple of 32"),
        ({"batch_shape": (2,), "batch_strides": ((0,), (999,), (0,), (0,))}, "a stack of quantised matrices"),
        ({"ragged": Ragged("k", 2, 64)}, "divide"),
        ({"b_format": ""}, "by quantised weights, not float32 by uint8"),
    ],
)
def test_reasons_are_for_users(given, why, weights):
    problem = replace(weights(3, 5, 64), **given)
    for name in ("dequantized", "quantized"):
        assert why in kernel_named(name).refuses(problem, EPYC_POCL)


@pytest.mark.parametrize("a_type", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", FORMATS)
def test_products_are_right(queue, weights, name, a_type):
    problem = weights(
        40, 37, 640, name, a_type, has_c=True, c_type=a_type, c_strides=(37, 1), bias="row", bias_stride=1
    )
    config = FAMILY.configs(problem, DEVICE)[0]
    assert (
        first_wrong_result(queue, problem, FAMILY, config, FAMILY.launches(problem, config, DEVICE)) is None
    )
