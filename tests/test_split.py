"""float32 as a sum of two narrower floats: NumPy models of cl/split.cl and cl/pack.cl."""

from __future__ import annotations

import numpy as np
import pytest


def tf32(x):
    """cvt.rna.tf32: ten bits of fraction, to nearest, ties away from zero."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def exponent(row):
    """split.cl: the row's largest magnitude, times 2^-e, lies in [2^14, 2^15)."""
    largest = np.abs(row).max().view(np.uint32)
    return -127 if largest == 0 else max(int(largest >> 23) - 127 - 14, -126)


def half_parts(row):
    scaled = row * np.float32(2.0) ** -exponent(row)
    hi = scaled.astype(np.float16)
    return scaled, hi, (scaled - hi.astype(np.float32)).astype(np.float16)


def product_of_parts(a, b, parts):
    """hi lo + lo hi + hi hi, added in float64: what the split alone costs."""
    (ah, al), (bh, bl) = parts(a), parts(b.T)
    wide = np.float64
    return (
        ah.astype(wide) @ bl.astype(wide).T
        + al.astype(wide) @ bh.astype(wide).T
        + (ah.astype(wide) @ bh.astype(wide).T)
    )


def half_split(lines):
    rows = [half_parts(row) for row in lines]
    back = [np.float64(2.0) ** exponent(row) for row in lines]
    return tuple(
        np.array([r[i].astype(np.float64) * e for r, e in zip(rows, back, strict=True)]) for i in (1, 2)
    )


def tf32_split(lines):
    hi = tf32(lines)
    return hi, tf32(lines - hi)


def relative(got, exact):
    return np.linalg.norm(got - exact) / np.linalg.norm(exact)


def classes():
    rng = np.random.default_rng(7)
    a = rng.standard_normal((40, 300), dtype=np.float32)
    b = rng.standard_normal((300, 50), dtype=np.float32)
    two = np.float32(2)
    s = rng.integers(-30, 31, 300).astype(np.float32)
    return {
        "normal": (a, b),
        "uniform": (rng.random((40, 300), dtype=np.float32), rng.random((300, 50), dtype=np.float32)),
        "each": (a * two ** rng.integers(-20, 21, a.shape), b * two ** rng.integers(-20, 21, b.shape)),
        "rows": (a * two ** rng.integers(-30, 31, (40, 1)), b * two ** rng.integers(-30, 31, (1, 50))),
        "along K": (a * two**s, b * two ** -s[:, None]),
    }


CLASSES = {name: (a.astype(np.float32), b.astype(np.float32)) for name, (a, b) in classes().items()}


@pytest.mark.parametrize("name", CLASSES)
def test_tf32_parts_keep_float32_accuracy_on_every_class(name):
    a, b = CLASSES[name]
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert relative(product_of_parts(a, b, tf32_split), exact) < 2.0**-21


def serves(a, b):
    """split.h: half_parts_serve, on the scaled magnitudes."""

    def peaks(lines):
        return np.abs([half_parts(row)[0] for row in lines]).max(0)

    return (peaks(a) * peaks(b.T)).max() >= 2.0**20


@pytest.mark.parametrize("name", CLASSES)
def test_half_parts_keep_it_wherever_they_serve(name):
    a, b = CLASSES[name]
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert serves(a, b) == (name != "along K")
    if serves(a, b):
        assert relative(product_of_parts(a, b, half_split), exact) < 2.0**-21


def test_half_parts_fail_where_they_do_not_serve():
    a, b = CLASSES["along K"]
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert relative(product_of_parts(a, b, half_split), exact) > 1e-3


@pytest.mark.parametrize("power", [-126, -60, -1, 0, 1, 60, 127])
def test_exponents_bring_a_row_to_the_top_of_float16(power):
    row = np.array([0.75, -1.99, 0.001], np.float32) * np.float32(2.0) ** power
    scaled, hi, _ = half_parts(row)
    assert np.isfinite(hi).all()
    assert power < -110 or 2.0**14 <= np.abs(scaled).max() < 2.0**15


@pytest.mark.parametrize("e", [-253, -127, -1, 0, 1, 127, 226])
def test_scaling_in_two_steps_is_exact(e):
    """fragment.h: scaled, whose halves of e round towards zero as C's do."""
    x = np.float32(1.5) * np.float32(2.0) ** 20
    half = int(e / 2)
    with np.errstate(over="ignore", under="ignore"):
        got = x * np.float32(2.0) ** half * np.float32(2.0) ** (e - half)
        assert got == np.float32(np.float64(x) * 2.0**e)
