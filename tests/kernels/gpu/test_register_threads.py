"""`register` with NVIDIA's asynchronous copies, run without a GPU (interleaved.py).

A copy lands when its work-item waits for it, not before, so a missing wait is noticed.
"""

import numpy as np
import pytest

from pyclmm import TileConfig
from pyclmm.checks.layouts import resized
from pyclmm.kernels import kernel_named
from tests.kernels.nvidia.test_matrix_units import problem
from tests.simulators import interleaved
from tests.simulators.simulated import check
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
        (128, 32, 16, 64, 32, 8, 8, 3, 2),  # sub-groups of more rows than columns
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
def test_products_are_exact(folder, kind, trans, tile, rows):
    """Stacks have a full epilogue, single products none."""
    shape, stack = SHAPES[trans]
    more = {"has_c": True, "bias": "column"} if stack else {}
    aligned = np.dtype(kind).itemsize if trans == "TT" else 16
    given = problem(kind, trans=trans, a_align=aligned, b_align=aligned, batch_shape=stack, **more)
    check(folder, REGISTER, resized(given, *shape, *stack), config(kind, tile, rows), H200)
