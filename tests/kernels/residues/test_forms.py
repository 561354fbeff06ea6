"""The forms in which residues are multiplied: as bytes, as float32 numbers, and as words of four bytes.

The largest sums are exact, edges lie within a word, and the estimate chooses what a device is fast at.
"""

from dataclasses import replace

import numpy as np
import pytest

from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import PlainConfig, TileConfig
from pyclmm.kernels.residues import products, residues
from pyclmm.kernels.residues.products import BYTES, FLOATS, FORM, WORDS
from pyclmm.opencl.program import build_options
from pyclmm.problem.canonical import problem_of
from pyclmm.selection.select import candidates
from tests.kernels.residues.conftest import FORMS
from tests.kernels.residues.test_products import Memory
from tests.kernels.residues.test_residues import K, as_real, data, within_bound
from tests.support.cases import DEVICE
from tests.support.made_up import ARC, EPYC_POCL, H200, LLVMPIPE, MALI, PASCAL
from tests.support.selection import slow

FLOAT64, COMPLEX128 = np.dtype(np.float64), np.dtype(np.complex128)
GPU = replace(MALI, has_fp64=True)  # without matrix units
DOTS = "cl_khr_integer_dot_product"
# This device, as if it were a GPU with the instruction. Where it has none, plain C does the same.
WITH_DOTS = replace(
    DEVICE,
    kind="gpu",
    extensions=DEVICE.extensions | {DOTS},
    user_rates=DEVICE.rates.with_measured({"dot8": 1e12}, "made up"),
)


def high(m, n, k, dtype=FLOAT64):
    return problem_of(m, n, k, dtype, precision="high")


def family_of(form):
    """`packed` multiplies numbers on CPUs, `naive` everything."""
    return kernel_named("packed" if form is not WORDS and DEVICE.is_cpu else "naive")


def multiplied(queue, inner, kernel, memory, needed):
    """`memory.out` after the first *needed* products of each block, by *kernel* on this device."""
    device = WITH_DOTS if inner.dot_bytes else DEVICE
    work = kernel.launches(inner, kernel.configs(inner, device)[0], device)
    return memory.multiplied(queue, inner, work, needed)


def memory_of(rng, problem, form):
    """Random residues for `multiplied`, as bytes whatever the form."""
    return Memory(rng, products.inner(problem, replace(BYTES, most=form.most)))


@pytest.mark.parametrize("shape", [(37, 29, 51), (20, 33, 1024), (9, 5, 2500), (1, 1, 1)], ids=str)
@pytest.mark.parametrize(("dtype", "needed"), [(FLOAT64, 15), (FLOAT64, 4), (COMPLEX128, 11)], ids=str)
@pytest.mark.parametrize("form", [FLOATS, WORDS], ids=FORMS[1:])
def test_residues_in_each_form(queue, rng, form, dtype, needed, shape):
    problem = high(*shape, dtype=dtype)
    memory = memory_of(rng, problem, form)
    memory.a[..., shape[2] :] = memory.b[..., shape[2] :] = 0  # convert.cl fills lines with zeros
    got = multiplied(queue, products.inner(problem, form), family_of(form), memory, needed)
    assert np.array_equal(got, memory.after(needed))


@pytest.mark.parametrize("k", [1024, 2048])
@pytest.mark.parametrize("form", [FLOATS, WORDS], ids=FORMS[1:])
def test_the_largest_sums_are_exact(queue, rng, form, k):
    """All products but the first are 2^14, so that a sum of float32 numbers has its last bit at 1."""
    problem = high(5, 7, k)
    memory = memory_of(rng, problem, form)
    memory.a[:] = memory.b[:] = -128
    memory.a[..., 0] = memory.b[..., 0] = 1
    got = multiplied(queue, products.inner(problem, form), family_of(form), memory, 15)
    assert np.array_equal(got, memory.after(15))


def only(form, dtype=FLOAT64):
    """The work of `residues` for the data of test_residues.py, with all residues in *form*."""
    family = family_of(form)
    kernel = residues.Residues((family,), (kernel_named("naive"),))
    m, n = (x.shape[i] for i, x in enumerate(data("normal", dtype)))
    problem, device = high(m, n, K, dtype), WITH_DOTS if form is WORDS else DEVICE
    number = products.FORMS.index(form)
    config = next(c for c in kernel.configs(problem, device) if c.option(FORM) == number)
    assert kernel.violations(problem, config, device) == []
    return kernel.launches(problem, config, device)


@pytest.mark.parametrize(
    "name", ["normal", "few bits", "elements 2^+-20", *slow("positive", "lines 2^+-300")]
)
@pytest.mark.parametrize("form", [BYTES, FLOATS, WORDS], ids=FORMS)
def test_products_in_each_form_are_within_the_bound(run, form, name):
    a, b = data(name)
    found = run(a, b, only(form))
    assert (found.count > 0) == (name != "elements 2^+-20")
    if found.count:
        within_bound(found.result, a, b, K)


@pytest.mark.parametrize("form", [FLOATS, WORDS], ids=FORMS[1:])
def test_complex_products_in_each_form_are_within_the_bound(run, form):
    a, b = data("normal", COMPLEX128)
    found = run(a, b, only(form, COMPLEX128))
    assert found.count > 0
    rows, columns = as_real(a, b)
    within_bound(found.result.view(np.float64), rows, columns, 2 * K)


def chosen(device, n, form=None):
    """The family for float64 of n cubed on *device*, and the form of its residues."""
    problem = high(n, n, n)
    if not device.has_fp64:
        problem = replace(problem, soft_float64=True)
    best = next(candidates(problem, device, "auto"))
    return best.kernel.name, products.FORMS[best.config.option(FORM)]


def test_the_estimate_chooses_what_the_device_is_fast_at():
    without = {"has_fp64": False, "extensions": frozenset()}
    arc = replace(ARC, extensions=frozenset({DOTS}))  # and no matrix instructions
    pascal = replace(PASCAL, has_fp64=False)
    older = replace(pascal, compute_capability=(6, 0))
    slow = older.rates.with_measured({"int32": older.rates.float32 / 8}, "made up")
    assert chosen(arc, 2048) == chosen(pascal, 2048) == ("residues", WORDS)
    assert chosen(older, 1024)[0] == "limbs"
    assert chosen(replace(older, user_rates=slow), 1024) == ("residues", FLOATS)
    assert chosen(replace(EPYC_POCL, **without), 1024) == ("residues", FLOATS)
    assert chosen(replace(LLVMPIPE, **without), 256)[0] == "limbs"
    assert chosen(replace(H200, has_fp64=False), 4096) == ("residues", BYTES)


def test_words_are_for_gpus_that_have_the_instruction():
    naive, problem = kernel_named("naive"), high(9, 9, 9)

    def numbers(device, family=naive):
        return [number for number, _ in products.forms_for(family, problem, device)]

    cpu = replace(EPYC_POCL, extensions=frozenset({DOTS}))
    assert numbers(replace(ARC, extensions=frozenset({DOTS}))) == [0, 1, 2]
    assert numbers(PASCAL) == [0, 1, 2]
    assert numbers(replace(PASCAL, compute_capability=(6, 0))) == numbers(MALI) == numbers(cpu) == [0, 1]
    assert numbers(H200, kernel_named("wgmma")) == [0], "matrix units take bytes"
    assert "words of bytes" in kernel_named("packed").refuses(products.inner(problem, WORDS), EPYC_POCL)


def test_long_sums_of_float32_have_blocks_as_far_as_their_digits_can_be_added():
    naive, most = kernel_named("naive"), products.MOST_BLOCKS * FLOATS.most
    assert len(products.blocks(high(9, 9, most), FLOATS)) == products.MOST_BLOCKS
    assert [n for n, _ in products.forms_for(naive, high(9, 9, most), MALI)] == [0, 1]
    assert [n for n, _ in products.forms_for(naive, high(9, 9, most + 1), MALI)] == [0]


def test_configurations_whose_form_does_not_fit_are_refused():
    kernel, problem = residues.Residues((kernel_named("naive"),), (kernel_named("naive"),)), high(9, 9, 9)
    [config, *_] = kernel.configs(problem, DEVICE)
    assert kernel.violations(problem, config, DEVICE) == []

    def violations(form, k=9):
        options = {**dict(config.options), FORM: form}
        return kernel.violations(
            high(9, 9, k), replace(config, options=options), replace(MALI, has_fp64=True)
        )

    assert "form must be below 3" in violations(3)[0]
    assert "no dot products of bytes" in violations(2)[0]
    assert f"K up to {22 * 1024}, those of form 0 all K" in violations(1, 22 * 1024 + 1)[0]


@pytest.mark.parametrize("name", ["residues", "limbs"])
@pytest.mark.parametrize(("number", "meant"), [(0, "0 (mma_double_bulk)"), (99, "99")])
def test_a_family_that_cannot_is_refused_with_those_that_can(name, number, meant):
    kernel, problem = kernel_named(name), high(9, 9, 9)
    [config, *_] = kernel.configs(problem, GPU)
    wrong = replace(config, plain=PlainConfig(number, TileConfig()))
    [reason] = kernel.violations(problem, wrong, GPU)
    assert reason.startswith("plain may be ")
    assert "(naive)" in reason
    assert reason.endswith(f"here, not {meant}")


def test_a_family_that_cannot_multiply_residues_is_refused_with_those_that_can():
    kernel, problem = kernel_named("residues"), high(9, 9, 9)
    [config, *_] = kernel.configs(problem, GPU)
    [reason] = kernel.violations(problem, replace(config, options={"form": 1}), GPU)
    assert reason.startswith("option product may be ")
    assert reason.endswith("(naive) here, not 0 (wgmma)")


def test_dot_products_are_compiled_as_opencl_c_3_and_all_else_as_1_2():
    naive, problem = kernel_named("naive"), high(9, 9, 9)
    for form, standard in ((BYTES, "CL1.2"), (FLOATS, "CL1.2"), (WORDS, "CL3.0")):
        [launch] = naive.launches(products.inner(problem, form), TileConfig.square(8), PASCAL).launches
        assert build_options(launch.program)[0] == f"-cl-std={standard}"
