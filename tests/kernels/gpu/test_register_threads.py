"""`register` with NVIDIA's asynchronous copies, run without a GPU (interleaved.py).

A copy lands when its work-item waits for it, not before, so a missing wait is noticed.
"""

import numpy as np
import pytest

from pyclmm import TileConfig
from pyclmm.kernels import kernel_named
from pyclmm.kernels.launches import batch_table
from pyclmm.problem.gemm import GemmProblem, alignment
from tests.simulators import interleaved
from tests.support.made_up import H200
from tests.support.selection import few

pytestmark = interleaved.needs_clang
REGISTER = kernel_named("register")
# bm, bn, bk, sgm, sgn, tm, tn, stages, slices
TILES = {
    "float32": (
        (32, 64, 32, 32, 64, 8, 8, 3, 4),
        (32, 32, 64, 32, 32, 8, 8, 3, 8),  # more steps than stages
        (32, 32, 32, 16, 32, 4, 4, 3, 4),
        (32, 32, 16, 16, 32, 4, 4, 5, 2),
        (16, 32, 64, 16, 32, 4, 4, 3, 8),  # more work-items in a pass than a tile has rows
        (64, 64, 16, 32, 64, 8, 8, 4, 2),
    ),
    "float64": (
        (32, 32, 32, 16, 32, 4, 4, 3, 4),
        (16, 16, 32, 16, 16, 4, 4, 3, 8),
        (16, 64, 16, 16, 64, 4, 8, 3, 4),
    ),
}
SHAPES = {  # (M, N, K), products
    "TN": ((40, 36, 204), ()),  # every row aligned: copies of 16 bytes
    "NT": ((33, 35, 148), (2,)),
    "NN": ((17, 68, 36), ()),
    "TT": ((65, 31, 131), (2,)),  # single elements
}
CASES = [
    (kind, trans, tile, rows)
    for kind, tiles in TILES.items()
    for number, tile in enumerate(tiles)
    for trans in SHAPES
    for rows in ((1, 0) if number == 1 else (1,))
]


def config(kind, tile, rows):
    *sizes, stages, slices = tile
    options = {"fetch_b": 1, "held": 0, "slices": slices, "rows": rows}
    return TileConfig(*sizes, 16 // np.dtype(kind).itemsize, stages, 1, options)  # type: ignore[call-arg]


@pytest.mark.parametrize(("kind", "trans", "tile", "rows"), few(CASES, 0, 1, 2, 3), ids=str)
def test_products_are_exact(folder, rng, kind, trans, tile, rows):
    """Stacks have a full epilogue, single products none."""
    (m, n, k), stack = SHAPES[trans]
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
    chosen = config(kind, tile, rows)
    assert not REGISTER.violations(problem, chosen, H200)
    memory = np.full(c.size + 64 * n, 99, kind)
    out = memory[: c.size].reshape(c.shape)
    arrays = {"a": stored[0], "b": stored[1], "out": out, "c": c, "bias": bias}
    arrays |= {"alpha": np.dtype(kind).type(2), "beta": np.dtype(kind).type(3)}
    arrays["batch_offsets"] = batch_table(stack, strides) if stack else np.zeros((1, 4), np.int64)
    interleaved.run(REGISTER.launches(problem, chosen, H200), arrays, folder)
    value = 2 * (a @ b)
    assert (memory[c.size :] == 99).all()
    assert np.array_equal(out, value + 3 * c + bias[:, None] if stack else value)
