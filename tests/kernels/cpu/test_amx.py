"""`amx`: products by the matrix units of Intel's processors, and why other devices refuse it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import pyclmm
from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.kernels.device import AmxSupport, DeviceInfo, Target
from pyclmm.opencl.processor import types_of
from pyclmm.problem.canonical import problem_of
from pyclmm.problem.gemm import GemmProblem
from tests.support.made_up import XEON_POCL
from tests.support.optional import optional

ml_dtypes = optional("ml_dtypes")

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
    none = dataclasses.replace(cpu, amx=AmxSupport(refusal="the processor does not have it"))
    problem = GemmProblem(8, 8, 8, "int8", "int8", "int32", "uint32")
    assert "does not have it" in kernel_named("amx").refuses(problem, none)


def small_config(left: np.dtype, pack_a: int = 1) -> TileConfig:
    """Macro-tiles of one block, and chunks of one step, so that sums are kept and taken up again."""
    step = 64 // left.itemsize
    return TileConfig(bm=32, bn=32, bk=step, vec=16, options={"pack_a": pack_a})


def test_a_configuration_may_leave_the_plain_product_to_the_family():
    kernel = kernel_named("amx")
    asked = dataclasses.replace(XEON_POCL, target=Target(512))
    problem = GemmProblem(70, 97, 200, "bfloat16", "bfloat16", "float32", "float32")
    [own] = kernel.configs(problem, asked)
    short = dataclasses.replace(own, plain=None)
    assert kernel.violations(problem, short, asked) == []
    assert kernel.launches(problem, short, asked) == kernel.launches(problem, own, asked)


@pytest.mark.usefixtures("on_amx")
@pytest.mark.parametrize("precision", ["highest", "medium"])
@pytest.mark.parametrize("dtype", ["bfloat16", "i1"])
def test_macro_tiles_and_chunks(dtype, precision, rng):
    """Several of each, with rows and columns left over; A in place where that can be."""
    left = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    out = np.dtype(np.float32 if left == BFLOAT16 else np.int32)
    for m, n, k in [(70, 97, 200), (64, 64, 256)]:
        a, b = (rng.integers(-3, 4, shape).astype(left) for shape in ((m, k), (k, n)))
        for pack_a in (0, 1):
            may_stay = m % 32 == 0 and (left != BFLOAT16 or precision == "medium")
            if not pack_a and not may_stay:
                continue
            kernel = ("amx", small_config(left, pack_a))
            got = pyclmm.matmul(a, b, kernel=kernel, dtype=out, precision=precision)
            assert np.array_equal(got, a.astype("f8") @ b.astype("f8")), (m, pack_a)


@pytest.mark.usefixtures("on_amx")
@pytest.mark.parametrize("dtype", ["bfloat16", "i1"])
def test_stacks_and_shared_operands(dtype, rng):
    left = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    out = np.dtype(np.float32 if left == BFLOAT16 else np.int32)
    for a_stack, b_stack in [((3,), (3,)), ((1,), (4,)), ((2, 1), (3,)), ((5,), ())]:
        a = rng.integers(-3, 4, (*a_stack, 35, 40)).astype(left)
        b = rng.integers(-3, 4, (*b_stack, 40, 33)).astype(left)
        got = pyclmm.matmul(a, b, kernel="amx", dtype=out)
        assert np.array_equal(got, a.astype("f8") @ b.astype("f8")), (a_stack, b_stack)


@pytest.mark.usefixtures("on_amx")
@pytest.mark.parametrize("columns", [64, 50])
@pytest.mark.parametrize("out_type", ["f4", "bfloat16"])
@pytest.mark.parametrize("activation", [None, "relu", "tanh"])
def test_the_epilogue(columns, out_type, activation, rng):
    """Rows of 32 are stored as vectors, others one by one. Nothing else of out is touched."""
    dtype = BFLOAT16 if out_type == "bfloat16" else np.dtype(out_type)
    a, b = (rng.integers(-3, 4, shape).astype(BFLOAT16) for shape in ((40, 70), (70, columns)))
    c = rng.integers(-9, 10, (40, columns)).astype(dtype)
    product = a.astype("f4") @ b.astype("f4")
    for bias in (None, rng.integers(-9, 10, columns), rng.integers(-9, 10, (40, 1))):
        for beta in (0.0, 2.0):
            shift = np.float32(0) if bias is None else bias.astype("f4")
            right = 0.5 * product + np.float32(beta) * c.astype("f4") + shift
            right = np.maximum(right, 0) if activation == "relu" else right
            right = np.tanh(right) if activation == "tanh" else right
            whole = np.full((40, columns + 9), 77, dtype)
            given = {} if bias is None else {"bias": bias.astype(dtype)}
            if activation:
                given["activation"] = activation
            old = (c,) if beta else ()
            pyclmm.gemm(a, b, *old, alpha=0.5, beta=beta, out=whole[:, :columns], kernel="amx", **given)
            assert np.allclose(whole[:, :columns].astype("f4"), right.astype(dtype).astype("f4"), rtol=1e-2)
            if not activation:
                assert np.array_equal(whole[:, :columns], right.astype(dtype))
            assert (whole[:, columns:] == 77).all()


@pytest.mark.usefixtures("on_amx")
@pytest.mark.parametrize("small", [2.0**-51, 2.0**-52, 2.0**-127])
@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
@pytest.mark.parametrize("where", [(0, 0), (39, 69), (17, 33)])
def test_one_small_number_decides(small, layout, where):
    """At the threshold and under it the product keeps the bits that amx alone would lose."""
    a = np.zeros((40, 70), BFLOAT16)
    a[where] = small
    b = np.full((70, 64), 2.0**-78 if small > 2.0**-60 else 1.0).astype(BFLOAT16)
    x = np.ascontiguousarray(a.T).T if layout[0] == "T" else a
    y = np.ascontiguousarray(b.T).T if layout[1] == "T" else b
    right = a.astype("f4") @ b.astype("f4")
    assert right[where[0]].all()
    got = pyclmm.matmul(x, y, kernel="amx", dtype=np.float32)
    assert np.array_equal(got, right)


@pytest.mark.usefixtures("on_amx")
def test_what_is_left_of_small_products_is_not_lost():
    """(1 + 2^-7)^2 - (1 + 2^-6) = 2^-14, times 2^-116: a subnormal sum of products that are not."""
    a, b = np.zeros((32, 64), BFLOAT16), np.zeros((64, 32), BFLOAT16)
    a[:, 0], a[:, 1] = (1 + 2.0**-7) * 2.0**-58, 2.0**-58
    b[0], b[1] = (1 + 2.0**-7) * 2.0**-58, -(1 + 2.0**-6) * 2.0**-58
    got = pyclmm.matmul(a, b, kernel="amx", dtype=np.float32)
    assert np.array_equal(got, np.full((32, 32), 2.0**-130, "f4"))


@pytest.mark.usefixtures("on_amx")
def test_nan_and_infinity_go_where_ieee_says(rng):
    a, b = (rng.integers(-3, 4, (40, 40)).astype(BFLOAT16) for _ in "ab")
    a[3, 5], a[7, 1], b[2, 9] = np.nan, np.inf, -np.inf
    for precision in ("highest", "medium"):
        with np.errstate(invalid="ignore"):
            right = a.astype("f4") @ b.astype("f4")
        got = pyclmm.matmul(a, b, kernel="amx", dtype=np.float32, precision=precision)
        assert np.array_equal(got, right, equal_nan=True)


@pytest.mark.usefixtures("on_amx")
def test_normal_numbers_are_within_the_bound(rng):
    a, b = (rng.standard_normal(shape).astype(BFLOAT16) for shape in ((90, 1000), (1000, 70)))
    exact = a.astype("f8") @ b.astype("f8")
    bound = 1002 * 2.0**-24 * (np.abs(a.astype("f8")) @ np.abs(b.astype("f8")))
    assert (np.abs(pyclmm.matmul(a, b, kernel="amx", dtype=np.float32) - exact) <= bound).all()


@pytest.mark.usefixtures("on_amx")
def test_auto_takes_it_where_it_is_faster(device):
    """Large products of its types; a vector and float32 are for others, and so are chains of operations."""
    large = problem_of(512, 512, 512, BFLOAT16)
    assert best(large, device)[0] == "amx"
    assert best(problem_of(512, 512, 512, np.dtype("i1")), device)[0] == "amx"
    assert best(problem_of(1, 4096, 4096, BFLOAT16), device)[0] == "matvec"
    assert best(problem_of(512, 512, 512, np.dtype("f4")), device)[0] == "packed"
    chains = problem_of(512, 512, 512, BFLOAT16, reproducible=True)
    assert "chains" in kernel_named("amx").refuses(chains, device)


def best(problem: GemmProblem, device: DeviceInfo) -> tuple[str, float]:
    """The CPU family with the least estimate."""
    families = [kernel_named(name) for name in ("amx", "packed", "matvec")]
    found = [
        (family.name, family.estimate(problem, family.configs(problem, device)[0], device))
        for family in families
        if family.refuses(problem, device) is None
    ]
    return min(found, key=lambda one: one[1])
