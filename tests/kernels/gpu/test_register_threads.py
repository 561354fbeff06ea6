"""`register` with NVIDIA's asynchronous copies, run as threads without a GPU (threaded.py).

A copy lands when its work-item waits for it, not before, so a missing wait is noticed.
"""

from __future__ import annotations

import platform

import numpy as np
import pytest

from pyclmm.kernels import kernel_named
from pyclmm.opencl.launches import batch_table
from pyclmm.problem.gemm import GemmProblem, alignment
from tests.simulators import threaded
from tests.support.made_up import H200

pytestmark = pytest.mark.skipif(
    threaded.CLANG is None or platform.machine() != "x86_64", reason="needs clang on x86-64"
)
REGISTER = kernel_named("register")
# element type, layout, (M, N, K), tile (BM, BN, BK), stores rows, products
CASES = [
    ("float32", "TN", (40, 36, 200), (32, 32, 64), 1, ()),  # more steps than stages, copies of 16 bytes
    ("float32", "NT", (33, 35, 70), (32, 32, 32), 1, (2,)),  # copies of 4 bytes
    ("float32", "NN", (20, 40, 44), (16, 32, 64), 1, ()),
    ("float32", "TT", (17, 15, 131), (16, 16, 64), 1, (2,)),
    ("float32", "TT", (64, 68, 40), (32, 64, 32), 1, ()),
    ("float32", "NN", (70, 68, 36), (64, 64, 32), 1, (2,)),
    ("float64", "TN", (34, 36, 100), (32, 32, 32), 1, ()),
    ("float64", "NT", (17, 37, 35), (16, 32, 32), 1, (2,)),
    ("float64", "TT", (15, 18, 33), (16, 16, 32), 1, ()),
    ("float32", "TN", (40, 36, 100), (32, 64, 32), 0, ()),
    ("float64", "NT", (17, 37, 35), (16, 64, 16), 0, (2,)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("threaded")


@pytest.mark.parametrize(("kind", "trans", "shape", "tile", "rows", "stack"), CASES, ids=str)
def test_products_are_exact(folder, rng, kind, trans, shape, tile, rows, stack):
    """Stacks have a full epilogue, single products none."""
    m, n, k = shape
    a, b, c = (rng.integers(-3, 4, (*stack, *s)).astype(kind) for s in ((m, k), (k, n), (m, n)))
    bias = rng.integers(-3, 4, m).astype(kind)
    stored = [
        np.ascontiguousarray(np.swapaxes(x, -1, -2) if t == "T" else x)
        for x, t in zip((a, b), trans, strict=True)
    ]
    strides = tuple((x.shape[-1] * x.shape[-2],) * len(stack) for x in (*stored, c, c))
    more = {"has_c": True, "c_strides": (n, 1), "bias": "column", "bias_stride": 1} if stack else {}
    lds = [x.shape[-1] for x in stored]
    problem = GemmProblem(
        *(m, n, k, kind, kind, kind, kind, trans[0] == "T", trans[1] == "T", False, False, *lds, n),
        *(alignment(ld * c.itemsize) for ld in (*lds, n)),
        c_type=kind,
        bias_type=kind,
        batch_shape=stack,
        batch_strides=strides,
        **more,
    )
    config = next(
        x
        for x in REGISTER.configs(problem, H200)
        if (x.bm, x.bn, x.bk) == tile and x.option("rows") == rows and x.option("held") == 0
    )
    memory = np.full(c.size + 64 * n, 99, kind)
    out = memory[: c.size].reshape(c.shape)
    arrays = {"a": stored[0], "b": stored[1], "out": out, "c": c, "bias": bias}
    arrays |= {"alpha": np.dtype(kind).type(2), "beta": np.dtype(kind).type(3)}
    arrays["batch_offsets"] = batch_table(stack, strides) if stack else np.zeros((1, 4), np.int64)
    threaded.run(REGISTER.launches(problem, config, H200), arrays, folder)
    value = 2 * (a @ b)
    assert (memory[c.size :] == 99).all()
    assert np.array_equal(out, value + 3 * c + bias[:, None] if stack else value)
