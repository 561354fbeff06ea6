"""The choice by estimates, on made-up devices: seconds decide, and nothing else."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from pyclmm.kernels import KERNELS, kernel_named
from pyclmm.kernels.device import Target
from pyclmm.kernels.rates import MEANINGS, Rates, as_numbers
from pyclmm.problem.canonical import problem_of
from pyclmm.selection.select import best, candidates, offer
from pyclmm.selection.tables import Entry
from tests.support.made_up import DEVICES, EPYC_INTEL, EPYC_POCL, H200, MALI, MI250, PASCAL

SMALL_GROUPS = replace(MALI, has_fp64=True)  # 64 work-items
SHAPES = (
    (1, 1, 1), (48, 40, 64), (7, 5000, 5000), (300, 300, 30), (640, 640, 640), (4096, 128, 4096), (4096,) * 3,
)  # fmt: skip


def made(shape, dtype="float32", precision="highest", layout="NN", stack=()):
    m, n, k = shape
    return problem_of(m, n, k, np.dtype(dtype), layout, precision, stack)


def chosen(problem, device):
    return next(candidates(problem, device, "auto", ()))


def workspace_of(choice, problem, device):
    return choice.kernel.launches(problem, choice.config, device).workspace


def seconds(choice, problem, device):
    return choice.kernel.estimate(problem, choice.config, device)


@pytest.mark.parametrize("device", [*DEVICES, EPYC_POCL], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_the_least_estimate_of_all_families_is_chosen(device, shape, precision):
    problem = made(shape, precision=precision)
    found = list(candidates(problem, device, "auto", ()))
    times = [seconds(choice, problem, device) for choice in found]
    assert times == sorted(times)
    every = (k for k in KERNELS if k.automatic)
    listed = [(k, offer(k, problem, device)) for k in every]
    assert times[0] == min(
        k.estimate(problem, c, device) for k, cs in listed if not isinstance(cs, str) for _, c in cs
    )


@pytest.mark.parametrize("device", [*DEVICES, EPYC_POCL, EPYC_INTEL], ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int64", "complex64"])
def test_every_estimate_is_a_time(device, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    for shape in (*SHAPES, (5, 7, 0), (100_000, 64, 64)):
        problem = made(shape, dtype, stack=(3,) if shape[0] == 300 else ())
        for kernel in KERNELS:
            configs = offer(kernel, problem, device)
            for _, config in () if isinstance(configs, str) else configs:
                found = kernel.estimate(problem, config, device)
                assert isinstance(found, float)
                assert math.isfinite(found)
                assert found >= device.rates.launch
                assert found >= kernel.least_seconds(problem, device)


@pytest.mark.parametrize("seed", range(40))
def test_high_is_never_slower_than_highest_by_the_estimates(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(2 ** rng.uniform(3, 13)) for _ in range(3))
    layout = str(rng.choice(["NN", "NT", "TN", "TT"]))
    times = {}
    for precision in ("highest", "high", "medium"):
        problem = made(shape, precision=precision, layout=layout)
        times[precision] = seconds(chosen(problem, H200), problem, H200)
    assert times["medium"] <= times["high"] <= times["highest"]


def test_a_higher_precision_is_taken_where_splitting_does_not_pay():
    short, long = made((3000, 3000, 20), precision="high"), made((4096,) * 3, precision="high")
    assert not chosen(short, H200).kernel.matrix_units
    assert chosen(long, H200).kernel.name == "split"


# -- workspace


def test_a_kernel_whose_workspace_no_buffer_can_hold_does_not_bid():
    problem = made((64, 64, 4096))
    choice = chosen(problem, EPYC_POCL)
    assert choice.kernel.name == "packed"
    largest = max(w.nbytes for w in workspace_of(choice, problem, EPYC_POCL))
    small = replace(EPYC_POCL, max_mem_alloc_size=largest - 1)
    assert "packed" not in [x.kernel.name for x in candidates(problem, small, "auto", ())]
    reason = best(choice.kernel, problem, small)
    assert f"needs {largest} bytes" in reason
    assert f"a buffer may have {largest - 1}" in reason
    named = next(candidates(problem, small, "packed", ()))
    assert named == choice, "whoever names a kernel gets it, or the driver's refusal"


def test_a_kernel_whose_workspace_takes_more_than_a_quarter_of_the_memory_does_not_bid():
    problem = made((64, 64, 4096), "float16")
    choice = chosen(problem, EPYC_POCL)
    total = sum(w.nbytes for w in workspace_of(choice, problem, EPYC_POCL))
    for memory, bids in ((4 * total, True), (4 * total - 4, False)):
        small = replace(EPYC_POCL, global_mem_size=memory, max_mem_alloc_size=memory)
        found = [x.kernel.name for x in candidates(problem, small, "auto", ())]
        assert ("packed" in found) == bids
    assert f"needs {total} bytes" in best(choice.kernel, problem, small)


def test_a_configuration_with_less_workspace_bids_for_its_family():
    family = kernel_named("mma_double")
    problem = made((64, 64, 100_000), "float64")
    first = best(family, problem, H200)[1]
    needed = family.launches(problem, first, H200).workspace_nbytes
    assert needed > 0
    small = replace(H200, max_mem_alloc_size=needed - 1)
    other = best(family, problem, small)[1]
    assert other != first
    assert family.launches(problem, other, small).workspace_nbytes < needed


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
@pytest.mark.parametrize("shape", [(3, 5, 200_000), (300, 300, 20_000), (16, 16, 10**6), (4000, 1, 30_000)])
def test_estimates_on_a_cpu_count_workspace_written_and_read(dtype, shape):
    problem = made(shape, dtype, layout="TN")
    for kernel in map(kernel_named, ("packed", "matvec")):
        configs = offer(kernel, problem, EPYC_POCL)
        for _, config in () if isinstance(configs, str) else configs:
            nbytes = kernel.launches(problem, config, EPYC_POCL).workspace_nbytes
            assert kernel.estimate(problem, config, EPYC_POCL) > EPYC_POCL.rates.moved(2 * nbytes)


def test_a_measured_choice_without_room_is_not_taken():
    problem = made((4096, 64, 4096), "float16")
    choice = chosen(problem, EPYC_POCL)
    entry = Entry(
        "float16", "float16", "float16", "NN", "highest", True, 4096, 64, 4096,
        "packed", choice.config, 1e-3, "2026-11-22",
    )  # fmt: skip
    assert next(candidates(problem, EPYC_POCL, "auto", [{entry.key: entry}])) == choice
    small = replace(EPYC_POCL, max_mem_alloc_size=1 << 10)
    assert next(candidates(problem, small, "auto", [{entry.key: entry}])).kernel.name != "packed"


def test_slow_matrix_units_are_not_used():
    problem = made((2048,) * 3, "float16")
    slow = replace(H200, user_rates=replace(H200.rates, matrix16=H200.rates.float32 / 20))
    assert chosen(problem, H200).kernel.matrix_units
    assert not chosen(problem, slow).kernel.matrix_units


def test_slow_local_memory_gets_another_kernel():
    problem = made((2048,) * 3)
    slow = replace(MI250, user_rates=replace(MI250.rates, local=MI250.rates.local / 100))
    ours, theirs = chosen(problem, MI250), chosen(problem, slow)
    assert (ours.kernel.name, ours.config) != (theirs.kernel.name, theirs.config)


def test_a_faster_device_has_lower_estimates():
    """Each rate counts for some product."""
    kinds = (
        *(("float32", "highest"), ("float32", "medium"), ("float16", "highest")),
        *(("float64", "highest"), ("int8", "highest"), ("int32", "highest")),
    )
    products = [made(shape, *kind) for shape in SHAPES for kind in kinds]
    products += [made((64, 64, 64), "float16", stack=(3000,)), made((20000, 20000, 32))]
    products += [made((4096,) * 3, precision="medium", layout="NT")]
    where = [(product, H200) for product in products]
    residues = replace(made((512, 512, 512), "float64", "high"), soft_float64=True)
    where += [(residues, replace(PASCAL, has_fp64=False))]

    def times(rates):
        devices = [(product, replace(device, user_rates=rates)) for product, device in where]
        return [seconds(chosen(*each), *each) for each in devices]

    before = times(H200.rates)
    for name in MEANINGS:
        seconds_field = MEANINGS[name][0] == "s"
        factor = 0.5 if seconds_field else 2.0
        after = times(replace(H200.rates, **{name: getattr(H200.rates, name) * factor}))
        assert all(new <= old * (1 + 1e-9) for new, old in zip(after, before, strict=True)), name
        assert any(new < old for new, old in zip(after, before, strict=True)), name


def test_rates_have_a_meaning_and_a_source():
    names = {field.name for field in fields(Rates)} - {"source"}
    assert set(MEANINGS) == names == set(as_numbers(H200.rates))
    for device in (*DEVICES, EPYC_POCL):
        assert device.rates.source
        assert all(value >= 0 for value in as_numbers(device.rates).values())
    assert "H200" in H200.rates.source
    assert "datasheet" in MI250.rates.source


def test_a_named_family_comes_with_its_best_configuration():
    problem = made((4096,) * 3, "float16")
    choice = next(candidates(problem, H200, "wgmma", ()))
    family = kernel_named("wgmma")
    assert seconds(choice, problem, H200) == min(
        family.estimate(problem, c, H200) for c in family.candidates(problem, H200)
    )


@pytest.mark.parametrize("vendor", ["intel", "pocl", "amd"])
def test_all_units_of_a_cpu_count(vendor):
    """Of Intel's GPUs 16 compute units make one. Intel's runtime for CPUs tells no clock of AMD's."""
    cpu = replace(EPYC_POCL, vendor=vendor, compute_units=32, max_clock_mhz=0, target=Target(256))
    assert cpu.units == 32
    assert cpu.rates.float32 == 2 * 8 * 2.5e9 * 32
    assert replace(cpu, kind="gpu", vendor="intel").units == 2


@pytest.mark.parametrize(
    "device", [*DEVICES, EPYC_POCL, SMALL_GROUPS], ids=lambda d: f"{d.name} {d.max_work_group_size}"
)
def test_every_offered_configuration_fits_the_device(device):
    for dtype, precision in (
        ("float32", "highest"), ("float64", "high"), ("complex64", "medium"), ("int8", "highest"),
    ):  # fmt: skip
        for shape in SHAPES[1:5]:
            problem = made(shape, dtype, precision)
            for family in KERNELS:
                offers = [] if family.refuses(problem, device) else family.configs(problem, device)
                for config in offers:
                    assert family.violations(problem, config, device) == [], family.name


def test_residues_need_work_groups_of_the_size_that_converts():
    problem = made((300, 300, 300), "float64", "high")
    assert "256 work-items a work-group" in kernel_named("residues").refuses(problem, SMALL_GROUPS)
    assert chosen(problem, SMALL_GROUPS).kernel.name != "residues"


@pytest.mark.parametrize("m", [1, 300])
def test_on_a_cpu_tiles_for_gpus_are_not_estimated_unless_a_fallback_is_wanted(monkeypatch, m):
    asked = []
    for name in ("register", "thin"):
        family = type(kernel_named(name))
        own = family.candidates
        monkeypatch.setattr(
            family, "candidates", lambda *args, own=own: asked.append(args[0].name) or own(*args)
        )
    problem = problem_of(m, 500, 700, np.dtype(np.float32))
    choices = candidates(problem, EPYC_POCL, "auto", tables=())
    assert next(choices).kernel.made_for == "cpu"
    assert not asked
    assert "register" in {choice.kernel.name for choice in choices}
    assert "register" in asked
    asked.clear()
    next(candidates(problem, replace(EPYC_POCL, name="llvmpipe"), "auto", tables=()))  # no family for CPUs
    assert "register" in asked
