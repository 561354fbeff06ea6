"""`thin`: one access reads several 16-bit elements, and the configuration chosen by the reading model."""

from dataclasses import replace

import numpy as np
import pytest

import pyclmm
from pyclmm.kernels import kernel_named
from pyclmm.kernels.device import DeviceInfo
from pyclmm.selection.select import candidates
from tests.kernels.nvidia.test_matrix_units import problem
from tests.support.made_up import DEVICES, H200
from tests.support.optional import optional

ml_dtypes = optional("ml_dtypes")

THIN = kernel_named("thin")
SHAPES = [(1, 256, 512), (2, 264, 520), (8, 128, 256), (200, 7, 96), (256, 1, 64)]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=lambda t: t.__name__)
@pytest.mark.parametrize("trans_b", "NT")
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_wide_accesses_to_16_bit_elements_are_exact(queue, rng, dtype, trans_b, m, n, k):
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((m, k), (k, n)))
    stored = np.ascontiguousarray(b.T) if trans_b == "T" else b
    plan = pyclmm.Matmul(a, stored, trans_b=trans_b, kernel="thin", queue=queue, dtype=np.float32)
    assert plan.config.vec == (8 if min(m, n) <= 2 else 4)
    assert np.array_equal(plan(a, stored), a.astype("f4") @ b.astype("f4"))


def test_infinities_nans_and_denormals_of_16_bit_elements_are_kept(queue):
    values = np.array([np.inf, -np.inf, np.nan, 6e-8, -6e-8, 65504, 1e-5, 1], np.float16)
    a, b = np.zeros((1, 8), np.float16), np.zeros((8, 64), np.float16)
    a[0, 3], b[3] = 1, np.tile(values, 8)
    got = pyclmm.matmul(a, b, kernel="thin", queue=queue)
    assert np.array_equal(got, b[3:4], equal_nan=True)


# Shapes timed on an H200 (docs/kernels/register.md), and the configurations (lanes, teams, depth) that were
# fastest or within 2 % of it.
FASTEST = [
    ("float16", (1, 8192, 8192), [(8, 64, 6), (8, 128, 4)]),
    ("float16", (1, 4096, 4096), [(4, 128, 4), (8, 64, 6)]),
    ("float16", (1, 16384, 4096), [(8, 64, 4)]),
    ("float16", (1, 10000, 8000), [(8, 64, 4)]),
    ("float32", (1, 8192, 8192), [(8, 64, 4)]),
    ("float64", (1, 8192, 8192), [(8, 32, 4)]),
]


@pytest.mark.parametrize(("kind", "shape", "fastest"), FASTEST, ids=str)
def test_the_model_chooses_the_configuration_measured_fastest(kind, shape, fastest):
    given = problem(kind, *shape)
    chosen = THIN.configs(given, H200)[0]
    assert tuple(chosen.option(name) for name in ("lanes", "teams", "depth")) in fastest
    assert len(THIN.launches(given, chosen, H200).launches) == 1


def test_few_columns_and_a_long_k_split_k():
    given = problem("float16", 1, 512, 65536)
    assert len(THIN.launches(given, THIN.configs(given, H200)[0], H200).launches) == 2


@pytest.mark.parametrize(
    ("device", "given", "taken"),
    [
        (H200, problem("float16", 1, 8192, 8192), ("thin",)),
        (H200, problem("float16", 3, 8192, 8192), ("wgmma", "mma")),
        (H200, problem("float16", 8, 8191, 8191, a_align=2, b_align=2), ("mma",)),
        (H200, problem("float64", 1, 8192, 8192), ("thin",)),
        (H200, problem("float64", 8, 8192, 8192), ("mma_double_bulk",)),
        (H200, problem("float32", 1, 8192, 8192), ("thin",)),
        (H200, problem("float32", 8, 8192, 8192), ("register", "thin")),
        (replace(H200, compute_capability=(8, 0)), problem("float16", 8, 8192, 8192), ("mma",)),
    ],
    ids=lambda x: f"{x.name} {x.compute_capability}" if isinstance(x, DeviceInfo) else str(x),
)
def test_auto_leaves_several_rows_to_matrix_units(device, given, taken):
    """As measured: 2026-11-22 where several rows are concerned."""
    found = [choice.kernel.name for choice in candidates(given, device, "auto", ())]
    assert found[0] in taken
    assert "thin" in found


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("align", [16, 2])
def test_small_products_have_small_work_groups(device, align):
    given = problem("float16", 1, 8, 20, a_align=align, b_align=align)
    chosen = THIN.configs(given, device)[0]
    assert chosen.option("lanes") * chosen.option("teams") <= 8 * 20, "at most one work-item for each product"
