"""Thin products of 16-bit elements, of which one access takes several."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pyclmm
from pyclmm.kernels import kernel_named

THIN = kernel_named("thin")
SHAPES = [(1, 256, 512), (2, 264, 520), (8, 128, 256), (200, 7, 96), (256, 1, 64)]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=lambda t: t.__name__)
@pytest.mark.parametrize("trans_b", "NT")
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_wide_accesses_to_short_elements(queue, rng, unchecked, dtype, trans_b, m, n, k):
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((m, k), (k, n)))
    stored = np.ascontiguousarray(b.T) if trans_b == "T" else b
    plan = pyclmm.Matmul(a, stored, trans_b=trans_b, kernel="thin", queue=queue, dtype=np.float32)
    assert plan.config.vec == (8 if min(m, n) <= 2 else 4)
    assert np.array_equal(plan(a, stored), a.astype("f4") @ b.astype("f4"))


def test_short_elements_keep_their_specials(queue, unchecked):
    values = np.array([np.inf, -np.inf, np.nan, 6e-8, -6e-8, 65504, 1e-5, 1], np.float16)
    a, b = np.zeros((1, 8), np.float16), np.zeros((8, 64), np.float16)
    a[0, 3], b[3] = 1, np.tile(values, 8)
    got = pyclmm.matmul(a, b, kernel="thin", queue=queue)
    assert np.array_equal(got, b[3:4], equal_nan=True)
