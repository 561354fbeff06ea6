"""Lists of products and ragged ones by `mma`, `mma_double` and `wgmma`, without a GPU (interleaved.py).

They are judged as the self-check judges them on a device.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyclmm.checks.drawn import Drawn
from pyclmm.checks.layouts import resized
from pyclmm.kernels import kernel_named
from pyclmm.problem.dtypes import ELEMENTS
from pyclmm.problem.gemm import GemmProblem, ListedProduct, Ragged
from tests.simulators import interleaved
from tests.simulators.simulated import check
from tests.support.made_up import H200
from tests.support.selection import few

pytestmark = interleaved.needs_clang


def of(kind, trans, align=16, **more):
    out = {"float64": "float64", "int8": "int32"}.get(kind, "float32")
    return GemmProblem(
        *(1, 1, 1, kind, kind, out, ELEMENTS[kind].accumulator, trans[0] == "T", trans[1] == "T"),
        **dict.fromkeys(("a_align", "b_align", "out_align"), align),
        **dict.fromkeys(("c_type", "bias_type"), out),
        precision="medium" if kind == "float32" else "highest",
        **more,
    )


LIST = {"products": (ListedProduct(1, 1, 1, 0, 0, 0, 1, 1, 1),)}
EPILOGUE = {"has_c": True, "bias": "column", "activation": "relu"}
ROWS, DEPTH = ({"ragged": Ragged(axis, 1, 0)} for axis in "mk")
# family, its tile, element type, layout, alignment, (M, N, K), further fields
CASES = [
    ("mma", (64, 64), "float16", "NN", 16, (80, 96, 160), LIST),
    ("mma", (64, 64), "bfloat16", "TT", 2, (70, 67, 71), LIST | EPILOGUE),
    ("mma", (32, 32), "float32", "NT", 4, (40, 35, 67), LIST),
    ("mma", (64, 64), "int8", "NT", 16, (80, 96, 160), LIST),
    ("mma_double", (64, 64), "float64", "NN", 8, (70, 67, 37), LIST | EPILOGUE),
    ("mma", (64, 64), "float16", "NN", 16, (150, 72, 136), ROWS),
    ("mma", (64, 64), "float16", "TN", 16, (72, 80, 150), DEPTH),
    ("mma", (64, 64), "bfloat16", "NT", 2, (33, 70, 150), DEPTH),
    ("mma_double", (32, 32), "float64", "NT", 16, (100, 40, 36), ROWS),
    ("wgmma", (64, 64), "float16", "NN", 16, (200, 136, 264), ROWS),
    ("wgmma", (128, 128), "float16", "NT", 16, (300, 136, 72), ROWS),
    ("wgmma", (64, 128), "float16", "NN", 16, (150, 264, 72), ROWS),
    ("wgmma", (64, 64), "float16", "TN", 16, (136, 72, 300), DEPTH),
    ("wgmma", (128, 256), "float16", "TN", 16, (136, 264, 200), DEPTH),
    ("wgmma", (64, 64), "float16", "TN", 16, (40, 264, 300), DEPTH),  # one row of tiles
    ("wgmma", (64, 64), "float16", "NN", 16, (40, 264, 264), ROWS),
]


def configured(family, tile, problem, device):
    """The family's first configuration with that tile."""
    return next(c for c in family.configs(problem, device) if (c.bm, c.bn) == tile)


@pytest.mark.parametrize(
    ("name", "tile", "kind", "trans", "align", "shape", "more"), few(CASES, 0, 6), ids=str
)
def test_lists_and_ragged_products_are_right(folder, name, tile, kind, trans, align, shape, more):
    family, device = kernel_named(name), replace(H200, compute_units=3)
    problem = resized(of(kind, trans, align, **more), *shape, stack=4)
    for seed in range(2):
        check(folder, family, problem, configured(family, tile, problem, device), device, seed=seed)


@pytest.mark.parametrize("name", ["mma", "wgmma"])
def test_groups_of_weights_are_right(folder, name):
    family, device = kernel_named("dequantized"), replace(H200, compute_units=3)
    bytes_of_b = {"b_type": "uint8", "b_format": "q8_0", "b_align": 2, "out_type": "float16"}
    problem = resized(replace(of("float16", "NT", **ROWS), **bytes_of_b), 200, 136, 256, stack=4)
    config = next(c for c in family.configs(problem, device) if name in family.arithmetic(c).split())
    check(folder, family, problem, config, device, Drawn.REALS)


def test_tiles_suit_groups_that_end_within_a_tile_or_differ_in_k():
    wgmma = kernel_named("wgmma")
    rows, depth = (
        wgmma.configs(resized(of("float16", trans, 16, **more), 8192, 4096, 4096, stack=8), H200)
        for trans, more in (("NN", ROWS), ("TN", DEPTH))
    )
    assert max(c.bm for c in rows) == 128
    assert rows[0].bn >= 128
    assert depth
    assert not any(c.option("alternate") for c in depth)


def test_what_has_to_be_packed_is_refused():
    assert "pack" in kernel_named("mma").refuses(of("int8", "NN", **LIST), H200)
    assert "across K" in kernel_named("wgmma").refuses(
        resized(of("float16", "NN", **DEPTH), 64, 64, 64), H200
    )
    turned = resized(of("float16", "TN", **ROWS), 64, 64, 64)  # groups begin within lines of A
    assert "pack" in kernel_named("wgmma").refuses(turned, H200)
    assert "lists of products" in kernel_named("wgmma").refuses(of("float16", "NN", **LIST), H200)
