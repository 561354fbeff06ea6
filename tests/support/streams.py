"""Operands of the tests of products in tiles."""

import numpy as np

RNG = np.random.default_rng(11)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def integers(*shape, dtype=np.float32):
    """Small ones, whose products are exact in every order of the sums."""
    return RNG.integers(-4, 5, shape).astype(dtype)
