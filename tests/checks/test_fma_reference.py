"""Chains of fused multiply-adds on the host, against Python's exact fractions; the fixed products."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclmm
from pyclmm.checks import fixed_products, fma_reference
from pyclmm.checks.fixed_products import DATA, PRODUCTS
from tests.support.selection import examples

FORMATS = {np.float32: (24, -149, 128), np.float64: (53, -1074, 1024)}


def rounded(exact: Fraction, kind) -> float:
    """*exact*, not zero, rounded once to the nearest number of *kind*, ties to even."""
    bits, least, end = FORMATS[kind]
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** max(exponent - bits + 1, least)
    nearest = round(size / step) * step
    value = math.inf if nearest >= Fraction(2) ** end else float(nearest)
    return -value if exact < 0 else value


def exact_fma(x, y, z, kind):
    found = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    return rounded(found, kind) if found else None


@st.composite
def triples(draw, kind):
    """Numbers whose sum with the product is hard: near ties, cancelling, subnormal, overflowing."""
    bits, least, end = FORMATS[kind]
    edges = st.sampled_from([1, 2 ** (bits - 1) + 1, 2**bits - 1, 2 ** (bits - 1)])

    def number(low, high):
        whole = draw(edges | st.integers(1, 2**bits - 1)) * draw(st.sampled_from([1, -1]))
        with np.errstate(all="ignore"):
            return kind(np.ldexp(float(whole), draw(st.integers(low, high)) - bits))

    where = draw(st.sampled_from(["near", "tiny", "huge", "cancels", "far"]))
    if where == "cancels":
        x, y = number(-3, 3), number(-3, 3)
        return x, y, kind(-float(x) * float(y))
    half = {"near": 0, "tiny": least // 2, "huge": end // 2, "far": 0}[where]
    x, y = number(half - 4, half + 3), number(half - 4, half + 3)
    return x, y, number(*((least, end - 1) if where == "far" else (2 * half - bits - 5, 2 * half + 4)))


@pytest.mark.parametrize("kind", FORMATS)
def test_fma_rounds_once(kind):
    @examples(600)
    @given(triples(kind))
    def check(numbers):
        got = fma_reference.fma(*(np.array([x]) for x in numbers))[0]
        if not np.isfinite(np.array(numbers)).all():
            return
        x, y, z = numbers
        want = exact_fma(x, y, z, kind)
        assert got.dtype == kind
        assert (want is None and got == 0) or (got == want and np.signbit(got) == np.signbit(want))

    check()


@pytest.mark.parametrize("kind", FORMATS)
def test_fma_of_zeros_infinities_and_nan(kind):
    inf, tiny, huge = np.inf, np.finfo(kind).tiny, np.finfo(kind).max
    cases = [
        ((0, -1, -0.0), -0.0), ((0, 1, -0.0), 0.0), ((1, 2, -2), 0.0), ((-tiny, tiny, 0), -0.0),
        ((huge, huge, -inf), -inf), ((inf, 1, -inf), np.nan), ((inf, 0, 1), np.nan), ((huge, 2, -huge), huge),
        ((huge, huge, 1), inf), ((np.nan, 0, 1), np.nan),
    ]  # fmt: skip
    got = fma_reference.fma(*(np.array(column, kind) for column in zip(*(x for x, _ in cases), strict=True)))
    want = np.array([x for _, x in cases], kind)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


def step(total, x, y, kind):
    return kind(exact_fma(x, y, total, kind) or 0.0)


def test_a_chain_of_real_numbers_is_the_definition():
    a, b = fixed_products.numbers("a", (3, 9), "float32"), fixed_products.numbers("b", (9, 2), "float32")
    c, bias = fixed_products.numbers("c", (3, 2), "float32"), fixed_products.numbers("bias", (2,), "float32")
    got = fma_reference.chain(a, b, c, alpha=1.3, beta=-0.7, bias=bias)
    one = np.float32
    for i, j in np.ndindex(3, 2):
        total = one(0)
        for k in range(9):
            total = step(total, a[i, k], b[k, j], one)
        rest = step(bias[j], one(-0.7), c[i, j], one)
        assert got[i, j] == step(rest, one(1.3), total, one)


def test_a_chain_of_complex_numbers_is_the_definition():
    a, b = (fixed_products.numbers(x, shape, "complex128") for x, shape in (("a", (1, 7)), ("b", (7, 1))))
    one = np.float64
    re = im = one(0)
    for x, y in zip(a[0], b[:, 0], strict=True):
        re = step(step(re, x.real, y.real, one), -x.imag, y.imag, one)
        im = step(step(im, x.real, y.imag, one), x.imag, y.real, one)
    assert fma_reference.chain(a, b)[0, 0] == complex(re, im)


def test_a_sum_that_underflows_is_plus_zero():
    tiny = np.float32(2.0**-80)
    got = pyclmm.reference.chain(np.array([[-tiny]]), np.array([[tiny]]))
    assert got[0, 0] == 0
    assert not np.signbit(got[0, 0])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "uint64"])
def test_chains_of_integers_are_numpys_products(dtype):
    a, b = fixed_products.numbers("a", (4, 9), dtype), fixed_products.numbers("b", (9, 3), dtype)
    got = pyclmm.reference.chain(a, b)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, a @ b)


@pytest.mark.parametrize("shapes", [((5,), (5,)), ((5,), (5, 2)), ((3, 5), (5,)), ((2, 1, 3, 5), (4, 5, 2))])
def test_shapes_are_numpys(shapes):
    a, b = (fixed_products.numbers("x", shape, "float64") for shape in shapes)
    want = a @ b
    got = pyclmm.reference.chain(a, b)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)


def test_wrong_arguments_are_named():
    a = np.ones((2, 2), np.float32)
    with pytest.raises(pyclmm.ArgumentError, match="activation 'gelu'"):
        pyclmm.reference.chain(a, a, activation="gelu")
    with pytest.raises(pyclmm.DTypeError):
        pyclmm.reference.chain(a.astype(object), a)
    with pytest.raises(pyclmm.ArgumentError, match="c is given without beta"):
        pyclmm.reference.chain(a, a, a)
    with pytest.raises(pyclmm.ShapeError, match="b has a mismatch in its core dimension"):
        pyclmm.reference.chain(a, np.ones((3, 2), "f4"))
    with pytest.raises(pyclmm.ShapeError, match="c has shape"):
        pyclmm.reference.chain(a, a, a[0], beta=1.0)
    with pytest.raises(pyclmm.ShapeError, match="bias has shape"):
        pyclmm.reference.chain(a, a, bias=np.ones(3, "f4"))
    whole = a.astype("i4")
    for name in ("alpha", "beta"):
        with pytest.raises(pyclmm.DTypeError, match=f"^{name} is .*; pass a whole number"):
            pyclmm.reference.chain(whole, whole, whole, **{"beta": 1.0} | {name: 1.5})
    with pytest.raises(pyclmm.DTypeError, match=r"^alpha is complex"):
        pyclmm.reference.chain(a, a, alpha=1j)


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: p.name)
def test_the_host_computes_the_digest_in_the_repository(product):
    assert fixed_products.digest(product.on_host()) == fixed_products.digests()[product.name]


def test_there_are_40_products_of_every_kind():
    assert len(PRODUCTS) == len(fixed_products.digests()) == len({p.name for p in PRODUCTS}) == 40
    assert {p.data for p in PRODUCTS} == set(DATA)
    tiny = next(p for p in PRODUCTS if p.name == "float32 tiny").on_host()
    assert (abs(tiny[tiny != 0]) < np.finfo(np.float32).tiny).mean() > 0.5
    huge = next(p for p in PRODUCTS if p.name == "float32 huge").on_host()
    assert 0 < np.isinf(huge).mean() < 1


def test_numbers_come_from_integers_alone():
    """SplitMix64's first first outputs for seed 1234567, and a known array."""
    start = int.from_bytes(hashlib.sha256(b"a").digest()[:8], "little")
    want = [x - 2**64 if x >= 2**63 else x for x in split_mix(start, 2)]
    assert fixed_products.numbers("a", (2,), "int64").tolist() == want
    assert split_mix(1234567, 2) == [6457827717110365317, 3203168211198807973]


def split_mix(state, count):
    """The algorithm with Python's integers."""
    found, mask = [], 2**64 - 1
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        x = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        found.append(x ^ (x >> 31))
    return found


def test_a_digest_tells_zeros_apart_but_no_nan():
    one = np.array([0.0, np.nan], np.float32)
    other = np.array([0.0, np.nan], np.float32)
    other.view(np.uint32)[1] ^= 0x80000001
    assert fixed_products.digest(one) == fixed_products.digest(other)
    other[0] = -0.0
    assert fixed_products.digest(one) != fixed_products.digest(other)


def test_a_host_whose_numpy_is_not_ieee_is_noticed(monkeypatch):
    fixed_products.host_fault.cache_clear()
    assert fixed_products.host_fault("float32") is None
    fixed_products.host_fault.cache_clear()
    monkeypatch.setattr(fma_reference, "fma", lambda x, y, z: x * y + z)
    assert "NumPy does not compute" in fixed_products.host_fault("float32")
    fixed_products.host_fault.cache_clear()
