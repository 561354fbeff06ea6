"""cl/nvidia/wgmma_bare.cl: run without a GPU (interleaved.py), assembled, and what it refuses.

The emulated unit reads descriptors and multiplies as late as it may. A missing fence or wait gives NaN.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pyclmm.checks.layouts import resized
from pyclmm.kernels import KERNELS, kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.opencl import compiler
from pyclmm.opencl.compiler import read_source
from tests.simulators import interleaved
from tests.simulators.simulated import arrays_of, check
from tests.support.guarded import before_a_guard
from tests.support.made_up import DEVICES, EPYC_INTEL, H200
from tests.support.processes import in_a_process_of_its_own

from .test_matrix_units import A100, assembled, compilers, problem

with_clang = interleaved.needs_clang
FAMILY = kernel_named("wgmma_bare")
TILE = TileConfig(bm=64, bn=64, bk=64)
HALF = np.dtype(np.float16)
FULL = {"has_c": True, "bias": "row", "activation": "gelu", "a_align": 2, "out_align": 2}


# element type, layout, (M, N, K), products
CASES = [
    ("float16", "NN", (1, 1, 1), ()), ("float16", "NN", (64, 64, 64), ()),
    ("float16", "NN", (65, 63, 129), ()), ("float16", "NT", (130, 66, 65), ()),
    ("float16", "TN", (70, 129, 200), ()), ("float16", "TT", (33, 97, 16), ()),
    ("float16", "NN", (3, 130, 70), (3,)), ("float16", "TN", (66, 5, 63), (4,)),
    ("bfloat16", "NN", (66, 70, 100), ()), ("bfloat16", "TT", (64, 65, 70), (2,)),
]  # fmt: skip


@with_clang
@pytest.mark.parametrize(("kind", "trans", "shape", "stack"), CASES, ids=str)
@pytest.mark.parametrize("epilogue", [{}, {"has_c": True, "bias": "column"}], ids=["plain", "epilogue"])
def test_products_are_exact(folder, kind, trans, shape, stack, epilogue):
    aligned = {"a_align": 2, "b_align": 2, "batch_shape": stack}
    given = problem(kind, trans=trans, out_type="float32", **aligned, **epilogue)
    given = resized(given, *shape, *stack)
    [config] = FAMILY.configs(given, H200)
    check(folder, FAMILY, given, config, H200)


@with_clang
def test_a_result_of_16_bits_is_rounded_once(folder, rng):
    a, b = (rng.standard_normal(s).astype(HALF) for s in ((70, 90), (90, 65)))
    given, out = problem(m=70, n=65, k=90), np.full((70, 65), np.nan, HALF)
    interleaved.run(FAMILY.launches(given, TILE, H200), arrays_of(given, out, a, b), folder)
    exact = a.astype("f8") @ b.astype("f8")
    bound = 2.0**-11 * abs(exact) + 92 * 2.0**-24 * (abs(a).astype("f8") @ abs(b).astype("f8"))
    assert (abs(out - exact) <= bound + 2.0**-25).all()


def multiply_before_guards(folder):
    """A product whose operands end where memory ends, in two layouts."""
    rng = np.random.default_rng(5)
    m, n, k = 65, 66, 70
    a, b = (rng.integers(-3, 4, shape).astype(HALF) for shape in ((m, k), (k, n)))
    for trans in ("NN", "TT"):
        held = [before_a_guard(x.T.copy() if t == "T" else x) for x, t in ((a, trans[0]), (b, trans[1]))]
        given, out = problem(m=m, n=n, k=k, trans=trans), np.full((m, n), np.nan, HALF)
        interleaved.run(FAMILY.launches(given, TILE, H200), arrays_of(given, out, *held), Path(folder))
        assert np.array_equal(out, a.astype("f8") @ b)


@with_clang
def test_nothing_is_read_behind_an_operand(folder):
    """In a process of its own, because such a read ends it."""
    in_a_process_of_its_own(multiply_before_guards, str(folder))


# --- assembled -----------------------------------------------------------------------------------------


@compilers
@pytest.mark.parametrize(
    "given",
    [problem(), problem(trans="TT"), problem("bfloat16"), problem("bfloat16", trans="TN", **FULL)],
    ids=str,
)
def test_programs_assemble_without_spills(given, tmp_path):
    [launch] = FAMILY.launches(given, TILE, H200).launches
    assert int(np.prod(launch.local_size)) == 128
    registers, spills, report = assembled(launch.program, H200, 128, tmp_path)
    assert "serialized" not in report, "wgmma instructions that wait for each other"
    assert spills == 0
    assert registers <= 128, "four work-groups no longer fit a compute unit: _RESIDENT"


def test_its_instructions_are_hidden_from_the_compiler():
    text = "".join(map(read_source, ("nvidia/ptx_wgmma_bare.h", "nvidia/ptx_wgmma_lists.h")))
    hidden = [
        line for line in text.splitlines() if ("wgmma." in line and "asm volatile" in line) or '"//' in line
    ]
    assert len(hidden) == 5
    assert all(compiler.MARK.decode() in line for line in hidden)


# --- refusals ------------------------------------------------------------------------------------------


def test_it_is_called_by_name_only():
    assert FAMILY in KERNELS
    assert not FAMILY.automatic


@pytest.mark.parametrize("device", [d for d in (*DEVICES, A100) if d is not H200], ids=lambda d: d.name)
def test_devices_without_wgmma_are_refused(device):
    assert "compute capability 9.0" in FAMILY.refuses(problem(), device)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (problem("float32", precision="medium"), "not float32 by float32 summed in float32"),
        (problem("int8"), "not int8 by int8 summed in uint32"),
        (problem("float64"), "not float64 by float64"),
        (replace(problem(), b_type="bfloat16"), "not float16 by bfloat16"),
        (replace(problem(), acc_type="float64"), "summed in float64"),
        (problem(k=0), "K is 0"),
        (problem(m=2**30), "must stay under"),
    ],
)
def test_products_that_it_cannot_compute_are_refused_with_a_reason(given, why):
    assert why in FAMILY.refuses(given, H200)


def test_other_tiles_are_refused():
    [reason] = FAMILY.violations(problem(), replace(TILE, bn=128), H200)
    assert "bn=128" in reason
    assert FAMILY.violations(problem(), TILE, H200) == []
    small = replace(H200, max_work_group_size=64)
    assert FAMILY.candidates(problem(), small) == []


def test_its_estimate_is_longer_than_that_of_wgmma():
    """It has one stage, loads through registers and a small tile. Nothing was measured."""
    full = kernel_named("wgmma")
    for size in (64, 512, 4096):
        given = problem(m=size, n=size, k=size)
        best = full.estimate(given, full.configs(given, H200)[0], H200)
        assert best < FAMILY.estimate(given, TILE, H200) < 1


@pytest.mark.parametrize("device", [H200, EPYC_INTEL], ids=lambda d: d.name)
def test_its_estimate_needs_no_clock(device):
    """Some drivers tell none."""
    assert FAMILY.estimate(problem(), TILE, replace(device, name="another", max_clock_mhz=0)) > 0
