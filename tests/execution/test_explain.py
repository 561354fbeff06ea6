"""plan.explain(): the choice and its reason, the other kernels, the arithmetic, and only known numbers."""

from dataclasses import replace

import numpy as np
import pytest

import pyclmm
from pyclmm import KERNELS
from pyclmm.kernels import kernel_named
from pyclmm.selection import select, tables
from pyclmm.selection.explanation import explain
from pyclmm.selection.select import Choice
from tests.support.cases import problem_of
from tests.support.faults import refuse_kernels
from tests.support.made_up import DEVICE, EPYC_POCL, H200
from tests.support.plans import executable

X = np.ones((60, 60), np.float32)


def explained(problem, device, name="auto"):
    """The explanation of the choice for a made-up device. Nothing runs."""
    choice = next(select.candidates(problem, device, name, tables=()))
    return explain(problem, device, choice, requested=name, launches=["one"], workspace_nbytes=0)


def test_a_plan_explains_itself():
    planned = pyclmm.Matmul(X, X)
    found = planned.explain()
    assert (found.kernel, found.config) == (planned.kernel, planned.config)
    assert found.workspace_nbytes == planned.workspace_nbytes
    assert (found.flops, found.nbytes) == (planned.estimate().flops, planned.estimate().nbytes)
    assert found.launches
    assert {found.kernel, *(other.kernel for other in found.others)} == {k.name for k in KERNELS}
    text = str(found)
    for part in (found.kernel, str(found.config), found.because, found.arithmetic, *found.launches):
        assert part in text
    for other in found.others:
        assert (f"  {other.kernel} " in text) != other.unsuited


def test_kernels_for_other_devices_are_only_counted():
    found = explained(problem_of(60, 60, 60), DEVICE)
    never = {other.kernel for other in found.others if other.unsuited}
    assert never == {k.name for k in KERNELS if k.unsuited(DEVICE)}
    assert {"wgmma", "mfma", "dpas"} <= never
    assert str(found).splitlines()[-1] == (
        f"  {len(never)} more cannot run on this device: .others has the reason of each"
    )


def test_each_other_kernel_has_a_reason_or_a_configuration():
    found = explained(problem_of(60, 60, 60), DEVICE)
    for other in found.others:
        family = kernel_named(other.kernel)
        reason = select.refusal(family, problem_of(60, 60, 60), DEVICE)
        assert (other.config is None) == (reason is not None)
        if reason is not None:
            assert other.reason == reason
            assert str(other) == f"no: {reason}"
        elif not family.automatic:
            assert "on request only" in str(other)


def test_a_kernel_that_is_launched_several_times_is_named_once():
    problem = problem_of(60, 60, 60)
    choice = next(select.candidates(problem, DEVICE, "auto", tables=()))
    launches = ["pack_b", *["pack_a", "multiply"] * 30]
    found = explain(problem, DEVICE, choice, requested="auto", launches=launches, workspace_nbytes=0)
    assert "61: pack_b, pack_a (30 times), multiply (30 times)\n" in str(found)


def test_a_kernel_without_room_for_its_workspace_has_that_reason():
    small = replace(EPYC_POCL, max_mem_alloc_size=1 << 10)
    found = explained(problem_of(4096, 64, 4096, "float16"), small)
    [packed] = [other for other in found.others if other.kernel == "packed"]
    assert packed.config is None
    assert "a buffer may have 1024" in str(packed)


@pytest.mark.parametrize(
    ("dtype", "precision", "arithmetic"),
    [
        ("float32", "highest", "float32 FMA"),
        (
            "float32",
            "medium",
            'float32 FMA (precision="medium" allows a lower precision, which this kernel does not use)',
        ),
        (
            "float32",
            "high",
            'float32 FMA (precision="high" allows a lower precision, which this kernel does not use)',
        ),
        ("float16", "medium", "float32 FMA of float16"),
        ("float64", "medium", "float64 FMA"),
        ("complex64", "highest", "float32 FMA of complex64"),
        ("int8", "highest", "32-bit integers"),
        ("int64", "highest", "64-bit integers"),
    ],
)
def test_the_arithmetic_on_a_cpu(dtype, precision, arithmetic):
    x = X.astype(dtype)
    planned = pyclmm.Matmul(x, x, kernel="naive", precision=precision)
    assert planned.explain().arithmetic == arithmetic


def test_the_arithmetic_names_a_wider_type_of_the_sum():
    has_fp64 = explained(problem_of(8, 8, 8), replace(DEVICE, has_fp64=True), "sequential")
    assert has_fp64.arithmetic == "float64 FMA of float32"
    without = explained(problem_of(8, 8, 8), replace(DEVICE, has_fp64=False), "sequential")
    assert without.arithmetic == "float32 FMA"


@pytest.mark.parametrize(
    ("dtype", "precision", "arithmetic"),
    [
        ("float16", "highest", "float16 on matrix units, summed in float32"),
        ("float32", "medium", "TF32 on matrix units, summed in float32"),
        ("float32", "high", "float32 split into parts, multiplied on matrix units"),
        ("float32", "highest", "float32 FMA"),
        ("float64", "highest", "float64 on matrix units, summed in float64"),
    ],
)
def test_the_arithmetic_on_matrix_units(dtype, precision, arithmetic):
    problem = replace(problem_of(2048, 2048, 2048, dtype), precision=precision)
    assert explained(problem, H200).arithmetic == arithmetic


def test_the_arithmetic_by_whole_numbers():
    problem = replace(problem_of(4096, 4096, 4096, "float64"), precision="high")
    by_residues = explained(problem, H200).arithmetic
    assert by_residues.startswith("residues of 8 bits by wgmma, summed as 32-bit integers; ")
    assert by_residues.endswith("plain product by mma_double_bulk")
    kernel, small = kernel_named("residues"), replace(problem_of(64, 64, 64, "float64"), precision="high")
    floats = next(c for c in kernel.configs(small, DEVICE) if c.option("form") == 1)
    assert "summed as float32 numbers" in kernel.arithmetic(floats)
    assert explained(small, DEVICE, "limbs").arithmetic.startswith("whole numbers of 58 bits")


def test_mfma_of_gfx90a_does_not_round_float32():
    problem = replace(problem_of(512, 512, 512), precision="medium")
    kernel = kernel_named("mfma")
    for name, word in (("gfx90a:sramecc+", "float32"), ("gfx942", "TF32")):
        device = replace(DEVICE, vendor="amd", kind="gpu", name=name, local_mem_size=65536)
        assert kernel.multiplied_as(problem, device) == word


def test_every_kernel_that_could_compute_a_product_has_an_estimate_in_seconds():
    problem = problem_of(2048, 2048, 2048, "float16")
    found = explained(problem, H200)
    assert found.kernel == "wgmma"
    family = kernel_named("wgmma")
    assert found.seconds == family.estimate(problem, found.config, H200)
    assert 1e-6 < found.seconds < 1e-3
    able = [other for other in found.others if other.config is not None]
    assert {"register", "mma", "naive"} <= {other.kernel for other in able}
    assert all(other.seconds > found.seconds for other in able)
    assert H200.rates.source in str(found)


def test_the_least_time_follows_from_the_rates():
    problem = problem_of(4096, 4096, 4096)
    found = explained(problem, H200)
    memory, arithmetic = found.memory_seconds, found.arithmetic_seconds
    assert memory == pytest.approx(3 * 4096**2 * 4 / H200.rates.memory)
    assert arithmetic == pytest.approx(4096**3 / H200.rates.float32)
    assert found.least_seconds == arithmetic
    small = explained(problem_of(64, 64, 64, "float64"), H200, "naive")
    assert small.memory_seconds == pytest.approx(3 * 64**2 * 8 / H200.rates.cache)
    assert small.arithmetic_seconds == pytest.approx(64**3 / H200.rates.float64)
    medium = explained(replace(problem, precision="medium"), H200)
    assert (medium.arithmetic_seconds, medium.least_seconds) == (None, memory), "the units are faster"
    assert "arithmetic not known" in str(medium)


def test_because_says_that_the_kernel_was_named():
    assert pyclmm.Matmul(X, X, kernel="naive").explain().because == "kernel='naive' was asked for"


def test_because_names_the_measured_table(own_caches, device):
    planned = pyclmm.Matmul(X, X)
    problem = executable(planned).problem
    choice = Choice(kernel_named("naive"), kernel_named("naive").configs(problem, device)[0])
    entry = tables.Entry(
        "float32", "float32", "float32", "NN", "highest", tables.is_aligned(problem), 60, 60, 60,
        "naive", choice.config, 1.5e-5, "2026-11-22",
    )  # fmt: skip
    assert tables.merge(device, [entry])
    found = pyclmm.Matmul(X, X).explain()
    assert found.kernel == "naive"
    assert found.entry == entry
    assert found.because == "measured as the fastest: 15 us for 60 x 60 x 60, 2026-11-22"


def test_because_names_kernels_that_failed_first(own_caches, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("PYCLMM_SELFCHECK", "off")  # no verdict is kept
        best = pyclmm.Matmul(X, X).kernel
    refuse_kernels(monkeypatch, "wrong by a test", best)
    with pytest.warns(pyclmm.KernelWarning):
        found = pyclmm.Matmul(X, X).explain()
    assert found.kernel != best
    assert f"after {best}: wrong by a test" in found.because
    assert f"  {best}" in str(found)
    assert [str(other) for other in found.others if other.kernel == best] == ["no: wrong by a test"]


def test_an_empty_result_is_explained():
    found = pyclmm.Matmul(np.ones((0, 4), np.float32), np.ones((4, 3), np.float32)).explain()
    assert (found.kernel, found.launches, found.others) == (None, (), ())
    assert found.because == "the result has no element"
    assert str(found)


def test_alpha_zero_is_explained():
    assert "nothing is multiplied" in pyclmm.Matmul(X, X, alpha=0.0).explain().arithmetic
