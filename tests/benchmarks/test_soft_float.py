"""benchmarks/soft_float.cl multiplies as NumPy and exact arithmetic do, and the check sees a wrong bit."""

from fractions import Fraction

import numpy as np
import pyopencl.array as cla
import pytest

from pyclmm.opencl.queues import default_queue
from tests.support.scripts import script


@pytest.fixture(scope="module")
def soft_float():
    return script("benchmarks/soft_float.py")


def product(module, x, y, fused):
    queue = default_queue()
    out = cla.empty(queue, (len(x), y.shape[1]), np.float64)
    module.SoftFloat(queue.context, fused)(cla.to_device(queue, x), cla.to_device(queue, y), out)
    return out.get()


def nearest(x, y, z):
    """x y + z of finite numbers, rounded once."""
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        return float(exact) if exact else x * y + z
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


def test_separate_operations_round_as_numpy(soft_float):
    for name, x, y in soft_float.hard_operands(np.random.default_rng(2)):
        assert soft_float.same(product(soft_float, x, y, False), soft_float.by_numpy(x, y)), name


def test_the_fused_operation_rounds_once(soft_float):
    checked = 0
    for name, a, b in soft_float.hard_operands(np.random.default_rng(3)):
        if not np.isfinite(a).all() or not np.isfinite(b).all():
            continue
        x, y = a[:8], b[:, :8].copy()
        right = np.zeros((8, 8))
        for k in range(x.shape[1]):
            for i, j in np.ndindex(8, 8):
                if np.isfinite(right[i, j]):
                    right[i, j] = nearest(x[i, k], y[k, j], right[i, j])
        assert soft_float.same(product(soft_float, x, y, True), right), name
        checked += 1
    assert checked >= 8


def test_infinities_and_nan_of_the_fused_operation(soft_float):
    pool = np.array([0.0, -0.0, 5e-324, 1.0, -1.0, np.inf, -np.inf, np.nan])
    x = pool[:, None]
    for z in pool:  # the sum is z first, then x y + z, which is exact or tiny
        got = product(soft_float, np.hstack([np.full_like(x, z), x]), np.vstack([np.ones(8), pool]), True)
        with np.errstate(invalid="ignore"):
            assert soft_float.same(got, x * pool + (0.0 + z))


def test_same_sees_the_last_bit_and_the_sign_of_zero(soft_float):
    x = np.array([1.0, np.nan, 0.0])
    assert soft_float.same(x, x.copy())
    assert not soft_float.same(x, np.array([np.nextafter(1.0, 2), np.nan, 0.0]))
    assert not soft_float.same(x, np.array([1.0, np.nan, -0.0]))
