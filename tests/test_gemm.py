"""gemm agrees with NumPy's widest arithmetic and with BLAS."""

import numpy as np
import pytest
import scipy.linalg.blas
from hypothesis import given
from hypothesis import strategies as st

import pyclmm
from tests.support.calls import draw_gemm, judge, operands
from tests.support.cases import numbers
from tests.support.oracle import gemm as expected
from tests.support.oracle import operated
from tests.support.selection import examples, slow

randoms = st.randoms(use_true_random=False)
BLAS = {"float32": "sgemm", "float64": "dgemm", "complex64": "cgemm", "complex128": "zgemm"}


@pytest.mark.parametrize("place", ["host", "device"])
@examples(120)
@given(r=randoms)
def test_float32_gemm_of_any_layout(place, queue, r):
    judge(draw_gemm(r, place, ["float32"]), queue)


@pytest.mark.parametrize("place", ["host", "device"])
@examples(40)
@given(r=randoms)
def test_gemm_of_any_float(place, queue, r):
    judge(draw_gemm(r, place), queue)


@pytest.mark.parametrize("dtype", ["float32", "complex128", *slow("float64", "complex64")])
@examples(25)
@given(r=randoms)
def test_gemm_agrees_with_blas(dtype, r):
    call = draw_gemm(r, "host", [dtype]) | {"out": None, "bias": None, "activation": None}
    x = {name: built.view for name, built in operands(call).items()}
    scalars = {name: call[name] for name in ("alpha", "beta")}
    numbers_of = {name: "NTC".index(call[name]) for name in ("trans_a", "trans_b")}
    blas = getattr(scipy.linalg.blas, BLAS[dtype])
    given_c = {"c": np.array(x["c"])} if call["beta"] else {}
    theirs = blas(a=np.array(x["a"]), b=np.array(x["b"]), **given_c, **scalars, **numbers_of)
    trans = {name: call[name] for name in numbers_of}
    ours = pyclmm.gemm(x["a"], x["b"], x.get("c"), **scalars, **trans)
    want = expected(x["a"], x["b"], x.get("c"), **scalars, **trans)
    want.check(ours, "pyclmm")
    want.check(theirs, "BLAS")


def test_c_is_updated_in_place(rng):
    a, b, c = numbers(rng, (9, 7), "f4"), numbers(rng, (7, 5), "f4"), numbers(rng, (9, 5), "f4")
    want = expected(a, b, c.copy(), alpha=0.7, beta=1.3)
    assert pyclmm.gemm(a, b, c, alpha=0.7, beta=1.3, out=c) is c
    want.check(c)


@pytest.mark.parametrize("alphas", [(0.0, -0.0), (-0.0, 0.0)])
def test_the_sign_of_a_zero_scalar_is_not_that_of_an_earlier_call(alphas, own_caches):
    """0.0 == -0.0, so a plan that kept the first one did not set the second. Both count as 0."""
    x = np.ones((2, 2), "f4")
    plan = pyclmm.Matmul(x, x, alpha=alphas[0])
    for alpha in alphas:
        for scalar in (alpha, np.float32(alpha)):
            assert not np.signbit(pyclmm.gemm(x, x, alpha=scalar)).any()
            assert not np.signbit(plan(x, x, alpha=scalar)).any()
    z = np.zeros((2, 2), "c8")
    for alpha in (complex(alphas[0], 1), complex(alphas[1], 1)):  # -0.0 times 0, less 1 times 0, is -0.0
        assert not np.signbit(pyclmm.gemm(z, z, alpha=alpha).real).any()


def test_c_overlaps_out_in_part(rng):
    a, b, memory = numbers(rng, (6, 7), "f4"), numbers(rng, (7, 5), "f4"), numbers(rng, (8, 5), "f4")
    want = expected(a, b, memory[2:].copy(), beta=1)
    pyclmm.gemm(a, b, memory[2:], beta=1, out=memory[:6])
    want.check(memory[:6])


@pytest.mark.parametrize("trans", ["T", "C"])
def test_a_vector_is_its_own_transpose(trans, rng):
    v, b = numbers(rng, 7, "c8"), numbers(rng, (7, 5), "c8")
    want = expected(v, b, trans_a=trans)
    want.check(pyclmm.gemm(v, b, trans_a=trans))
    want = expected(b.T, v, trans_b=trans)
    want.check(pyclmm.gemm(b.T, v, trans_b=trans))


def test_transposes_of_stacks(rng):
    a, b = numbers(rng, (3, 7, 5), "f8"), numbers(rng, (2, 1, 6, 7), "f8")
    want = operated(a, "T") @ operated(b, "T")
    assert np.allclose(pyclmm.gemm(a, b, trans_a="T", trans_b="T"), want)


MATRICES = ((4, 5), (5, 6))


@pytest.mark.parametrize(
    ("left", "right", "bias"),
    [
        *((*MATRICES, bias) for bias in ((6,), (1, 6), (4, 1), (1, 1), (1,), ())),
        ((4, 5), (5,), (4,)),
        ((5,), (5, 6), (6,)),
        ((5,), (5,), (1,)),
    ],
)
def test_shapes_of_bias(left, right, bias, rng):
    a, b, given_bias = numbers(rng, left, "f4"), numbers(rng, right, "f4"), numbers(rng, bias, "f4")
    want = a @ b + given_bias
    got = pyclmm.gemm(a, b, bias=given_bias)
    assert got.shape == (a @ b).shape
    assert np.allclose(got, want.reshape(got.shape), atol=1e-5)


def test_float16_is_rounded_once(rng):
    """The epilogue is computed in float32, and only the store rounds."""
    a, b, c = (numbers(rng, s, "f2") for s in ((9, 30), (30, 5), (9, 5)))
    want = (1.3 * (a.astype("f8") @ b.astype("f8")) + 0.7 * c.astype("f8")).astype("f2")
    got = pyclmm.gemm(a, b, c, alpha=1.3, beta=0.7)
    assert (got == want).mean() > 0.95, "rounding twice would hit more elements"


@pytest.mark.parametrize("scalar", [np.float32(2), np.float64(2), np.int8(2), 2, True, np.True_, np.False_])
def test_scalars_of_many_types(scalar, rng):
    a, b, c = (numbers(rng, shape, "f4") for shape in ((3, 4), (4, 5), (3, 5)))
    want = pyclmm.gemm(a, b, c, alpha=float(scalar), beta=float(scalar))
    assert np.array_equal(pyclmm.gemm(a, b, c, alpha=scalar, beta=scalar), want)


@pytest.mark.parametrize(
    "scalar", [300, -3, 2**40 + 7, 10**400 + 5, -(10**400) - 5, 1e300, np.uint64(2**64 - 1)]
)
@pytest.mark.parametrize("dtype", ["u1", "i4", "i8"])
def test_whole_numbers_beyond_an_integer_type_wrap(scalar, dtype, rng):
    a, b, c = (rng.integers(0, 9, shape).astype(dtype) for shape in ((3, 4), (4, 5), (3, 5)))
    got = pyclmm.gemm(a, b, c, alpha=scalar, beta=scalar)
    want = int(scalar) * ((a.astype(object) @ b.astype(object)) + c.astype(object)) % 2**64
    assert np.array_equal(got, want.astype("u8").astype(dtype))
