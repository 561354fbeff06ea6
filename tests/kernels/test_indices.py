"""Loops in kernels count in 32 bits: their last index fits, also past the end of the largest product."""

from dataclasses import replace

import pytest

from pyclmm.kernels import kernel_named
from pyclmm.problem.gemm import MAX_DIMENSION, GemmProblem
from tests.support.made_up import DEVICE

LARGEST_INT = 2**31 - 1


def last_step(length, step, first=0):
    """The last value of k in `for (int k = first; k < length; k += step)`."""
    return first + -(-(length - first) // step) * step


# The largest index along K in each kernel function, from its macros.
LAST_K = {
    "matmul_tiled": lambda k, d: last_step(k, d["TW"]),
    "thin_dot": lambda k, d: last_step(k, d["LANES"] * d["CHUNK"], (d["LANES"] - 1) * d["CHUNK"]),
    "thin_walk": lambda k, d: (
        last_step(k, d["AHEAD"] * d["SLICES"], d["SLICES"] - 1) + (2 * d["AHEAD"] - 1) * d["SLICES"]
    ),
    "matmul_register": lambda k, d: last_step(k, d["BK"]),
    "matmul_register_rows": lambda k, d: last_step(k, d["BK"]),
}
SHAPES = {"tiled": (3, 3), "thin": (1, 1 << 20), "register": (64, 64)}


@pytest.mark.parametrize("family", sorted(SHAPES))
@pytest.mark.parametrize("along_k", [False, True])
@pytest.mark.parametrize("k", [MAX_DIMENSION, MAX_DIMENSION - 1])
def test_indices_along_k_fit_32_bits(family, along_k, k):
    m, n = SHAPES[family]
    rows = {"lda": k, "ldb": k if along_k else n, "ldo": n}
    problem = GemmProblem(m, n, k, *["float32"] * 4, trans_b=along_k, **rows)
    for config in kernel_named(family).configs(problem, DEVICE):
        whole = config if family == "tiled" else replace(config, split_k=1)
        for launch in kernel_named(family).launches(problem, whole, DEVICE).launches:
            assert LAST_K[launch.kernel](k, dict(launch.program.defines)) <= LARGEST_INT, config


def test_indices_along_m_and_n_fit_32_bits():
    """A tile of any width up to 2^15 may extend beyond the result."""
    assert all(-(-MAX_DIMENSION // width) * width <= LARGEST_INT for width in (*range(1, 1025), 1 << 15))
