"""`amx`: products by the matrix units of Intel's processors, and why other devices refuse it."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import pyclmm
from pyclmm.kernels import kernel_named
from pyclmm.kernels.device import Amx
from pyclmm.opencl.amx import types_of
from pyclmm.problem.gemm import GemmProblem

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SHAPES = [(1, 1, 1), (17, 33, 65), (32, 64, 64), (300, 40, 130)]


@pytest.fixture
def on_amx(device):
    if not device.amx.types:
        pytest.skip(f"no AMX: {device.amx.refusal}")


@pytest.mark.usefixtures("on_amx")
@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("types", ["bb", "i1i1", "i1u1", "u1i1", "u1u1"])
def test_products_are_exact(types, trans, rng):
    left, right = (BFLOAT16, BFLOAT16) if types == "bb" else (np.dtype(types[:2]), np.dtype(types[2:]))
    for m, n, k in SHAPES:
        low, high = (-3, 4) if types == "bb" else (0, 256)
        a, b = rng.integers(low, high, (m, k)), rng.integers(low, high, (k, n))
        a, b = (a.astype(BFLOAT16), b.astype(BFLOAT16)) if types == "bb" else (a.astype("u1"), b.astype("u1"))
        a, b = a.view(left), b.view(right)
        x = np.ascontiguousarray(a.T).T if trans[0] == "T" else a
        y = np.ascontiguousarray(b.T).T if trans[1] == "T" else b
        dtype = np.float32 if types == "bb" else np.int32
        got = pyclmm.matmul(x, y, kernel="amx", dtype=dtype)
        assert np.array_equal(got, a.astype("f8") @ b.astype("f8")), (m, n, k)


@pytest.mark.usefixtures("on_amx")
def test_subnormal_operands_are_not_lost():
    a = np.full((40, 70), 2.0**-130).astype(BFLOAT16)
    b = np.full((70, 50), 2.0**100).astype(BFLOAT16)
    got = pyclmm.matmul(a, b, kernel="amx", dtype=np.float32)
    assert np.array_equal(got, np.full((40, 50), 70 * 2.0**-30, "f4"))
    ones = np.ones((70, 50), BFLOAT16)
    assert np.array_equal(
        pyclmm.matmul(ones.T, ones, kernel="amx"), (ones.T.astype("f4") @ ones.astype("f4"))
    )


def test_the_processor_tells_what_it_multiplies():
    assert types_of("flags\t\t: fpu amx_bf16 avx512f amx_tile amx_int8") == ("int8", "bfloat16")
    assert types_of("flags\t\t: fpu amx_bf16 avx512f") == ()


def test_a_refusal_says_why(cpu):
    none = dataclasses.replace(cpu, amx=Amx(refusal="the processor does not have it"))
    problem = GemmProblem(8, 8, 8, "int8", "int8", "int32", "uint32")
    assert "does not have it" in kernel_named("amx").supports(problem, none)
