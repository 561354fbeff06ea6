"""cl/nvidia/mma.cl runs without a GPU (interleaved.py).

This tests every copy and index. Copies complete at once there, so a missing wait is not noticed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pyclmm.checks.layouts import resized
from pyclmm.kernels import kernel_named
from pyclmm.kernels.nvidia import matrix_units, mma
from pyclmm.problem.gemm import alignment
from tests.simulators import interleaved
from tests.simulators.simulated import check
from tests.support.made_up import H200
from tests.support.selection import few

from .test_matrix_units import problem

pytestmark = interleaved.needs_clang
RESULT = {"float64": "float64", "int8": "int32", "uint8": "int32"}
EPILOGUE = {"has_c": True, "bias": "column"}


def of(kind, shape, trans="NN", a_align=16, b_align=16, **more):
    """The product of *shape* (M, N, K)."""
    m, n, k = shape
    out = {"out_type": RESULT.get(kind, "float32"), "precision": "medium"} | more
    size = np.dtype("f2" if out["out_type"] == "bfloat16" else out["out_type"]).itemsize
    aligned = {"a_align": a_align, "b_align": b_align, "out_align": alignment(size * n)}
    return problem(kind, m, n, k, trans, **aligned | out)


def on_device(kind, sizes, given, stages=None):
    """The family for *kind*, and its configuration for *given* whose tile has these *sizes*."""
    family = kernel_named("mma_double" if kind == "float64" else "mma")
    found = (
        x for x in family.candidates(given, H200) if (x.bm, x.bn) == sizes and stages in (None, x.stages)
    )
    return family, next(x for x in found if x.split_k == 1)


# element type, layout, (M, N, K), (BM, BN, stages, ranges of K), products, multiple to which rows are padded
CASES = [
    ("float16", "NN", (70, 72, 136), (64, 64, 4, 1), (), 8),
    ("float16", "TT", (136, 130, 40), (128, 128, 3, 1), (), 8),
    ("float16", "NT", (130, 40, 200), (128, 256, 3, 1), (), 8),
    ("float16", "TN", (72, 40, 200), (64, 64, 2, 1), (3,), 8),
    ("float16", "TN", (35, 37, 70), (64, 64, 2, 1), (2,), 1),  # elements are read one by one
    ("bfloat16", "NN", (70, 72, 136), (64, 64, 2, 1), (), 8),
    ("float32", "NT", (70, 65, 100), (64, 64, 2, 1), (), 4),
    ("float32", "NN", (65, 72, 100), (64, 64, 4, 1), (2,), 4),  # b is transposed
    ("float32", "TT", (72, 65, 36), (64, 64, 2, 1), (2,), 4),  # a is transposed
    ("int8", "NT", (64, 33, 300), (64, 64, 2, 1), (), 16),
    ("uint8", "NN", (65, 70, 140), (64, 64, 2, 1), (2,), 16),
    ("float64", "NN", (70, 66, 36), (64, 64, 4, 1), (2,), 2),
    ("float64", "NT", (130, 129, 70), (128, 128, 3, 1), (), 2),
    ("float64", "TN", (65, 63, 37), (64, 64, 4, 1), (2,), 1),  # copies of 8 bytes
    ("float16", "NT", (35, 37, 71), (32, 32, 4, 1), (), 1),
    ("float16", "NN", (70, 34, 130), (64, 32, 4, 1), (2,), 2),
    ("float16", "NN", (70, 18, 70), (64, 16, 4, 1), (2,), 8),
    ("float16", "TT", (19, 50, 130), (16, 64, 4, 1), (), 1),
    ("float16", "TN", (130, 258, 70), (128, 256, 3, 1), (), 2),
    ("float16", "NN", (40, 70, 700), (32, 64, 4, 3), (2,), 1),
    ("float16", "NT", (33, 31, 130), (32, 32, 2, 4), (), 2),  # the last range is empty
    ("float16", "NT", (33, 31, 700), (32, 32, 4, 10), (), 8),  # two teams add
    ("bfloat16", "TN", (36, 70, 100), (32, 64, 4, 1), (), 4),
    ("bfloat16", "TN", (33, 61, 100), (32, 32, 4, 1), (2,), 1),
    ("float32", "TN", (65, 70, 70), (64, 64, 2, 1), (), 1),
    ("float32", "TN", (35, 30, 70), (32, 32, 4, 1), (2,), 1),
    ("float32", "TN", (20, 70, 70), (16, 64, 4, 2), (), 1),
    ("float32", "TN", (130, 258, 40), (128, 256, 3, 1), (), 1),
    ("float32", "NT", (33, 65, 67), (32, 64, 4, 1), (), 1),
    ("int8", "NT", (40, 33, 140), (32, 32, 4, 2), (), 4),
    ("int8", "NN", (40, 33, 141), (64, 64, 2, 1), (2,), 1),  # both operands are packed
    ("int8", "NN", (70, 150, 260), (64, 64, 2, 1), (2,), 4),  # tiles are turned by words, edges are not
    ("uint8", "TT", (140, 33, 140), (64, 64, 2, 1), (), 4),
    ("int8", "NN", (40, 130, 135), (64, 64, 2, 1), (), 2),  # rows begin between words
    ("float64", "TN", (35, 33, 130), (32, 32, 4, 4), (2,), 1),
    ("float64", "NN", (70, 31, 37), (64, 32, 4, 1), (), 1),
    ("float64", "NT", (31, 70, 66), (32, 64, 4, 1), (), 2),
]


@pytest.mark.parametrize(
    ("kind", "trans", "shape", "tile", "stack", "padded_to"), few(CASES, 0, 1, 5), ids=str
)
def test_products_are_exact(folder, kind, trans, shape, tile, stack, padded_to):
    """Stacks have a full epilogue, single products none."""
    aligned = padded_to * np.dtype("f2" if kind == "bfloat16" else kind).itemsize
    given = of(kind, shape, trans, aligned, aligned, batch_shape=stack, **(EPILOGUE if stack else {}))
    given = resized(given, *shape, *stack)
    bm, bn, stages, ranges = tile
    family, config = on_device(kind, (bm, bn), given, stages)
    check(folder, family, given, replace(config, split_k=ranges), H200)


def test_two_sub_groups_turn_a_tile_in_strips_and_store_a_padded_result(folder):
    """A tile of 64 rows has four strips. Rows of out have an odd length and begin on pairs."""
    shape = 65, 37, 70
    given = resized(of("float32", shape, "TN", 4, 4, out_align=8), *shape)
    assert (given.ldo, given.out_align) == (38, 8)
    family, config = on_device("float32", (64, 64), given)
    check(folder, family, given, replace(config, sgm=64, sgn=32), H200)


@pytest.mark.parametrize(("epilogue", "staged"), [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("kind", "shape", "tile", "ldo", "first"),
    few(
        [
            ("float16", (70, 71, 70), (64, 64, 4), 71, 0),  # rows begin on odd and even elements
            ("bfloat16", (70, 71, 70), (64, 64, 2), 72, 1),  # all on odd ones
            ("float16", (131, 258, 40), (128, 256, 3), 259, 1),
            ("bfloat16", (35, 34, 70), (32, 32, 4), 34, 0),  # all on even ones
            ("float16", (66, 17, 70), (64, 16, 4), 17, 0),  # eight work-items a row
            ("float16", (17, 65, 70), (16, 64, 4), 67, 0),  # the second tile has one column
        ],
        0,
    ),
    ids=str,
)
def test_16_bit_results_in_rows_that_are_not_aligned(
    folder, monkeypatch, kind, shape, tile, ldo, first, epilogue, staged
):
    """What lies before, between and behind the rows of out stays."""
    more = {"has_c": True, "bias": "row"} if epilogue else {}
    given = resized(of(kind, shape, "NT", out_type=kind, **more), *shape)
    given = replace(given, ldo=ldo, out_align=alignment(2 * (first or ldo)))
    bm, bn, stages = tile
    family, config = on_device(kind, (bm, bn), given, stages)
    monkeypatch.setattr(mma, "in_staged_lines", lambda problem: staged)
    check(folder, family, given, config, H200)


def test_large_results_in_rows_that_are_not_aligned_are_staged():
    """A small one is stored sooner as fragments, an aligned one always."""
    for n, least in ((1001, 524), (1002, 4186)):  # rows of 1 MiB and of 8 MiB
        for m, staged in ((least - 1, False), (least, True)):
            assert matrix_units.in_staged_lines(_halves(m, n)) is staged
    assert not matrix_units.in_staged_lines(_halves(10**4, 1008))
    assert not matrix_units.in_staged_lines(replace(_halves(10**4, 1001), out_type="float32"))


def _halves(m, n):
    return of("float16", (m, n, 64), out_type="float16")


@pytest.mark.parametrize("mma_k", [4, 8])
def test_every_float64_instruction_is_exact(folder, mma_k):
    given = resized(of("float64", (64, 64, 48)), 64, 64, 48)
    family, config = on_device("float64", (64, 64), given)
    check(folder, family, given, replace(config, options=(("group", 8), ("mma_k", mma_k))), H200)


def copied(folder, kind, given, config, elements, **how):
    """What :func:`.interleaved.copied` counts where A and B are these *elements*, and the result."""
    family = kernel_named("mma_double" if kind == "float64" else "mma")
    out = np.zeros((1, 1), RESULT.get(kind, "float32"))
    arrays = dict.fromkeys("ab", elements) | dict.fromkeys(("out", "c", "bias"), out)
    scalars = {x: np.dtype(given.acc_type).type(value) for x, value in (("alpha", 2), ("beta", 3))}
    arrays |= {"batch_offsets": np.zeros((1, 4), np.int64), **scalars}
    work = family.launches(given, config, H200)
    return interleaved.copied(work, arrays, folder, **how), out[0, 0]


@pytest.mark.parametrize(
    ("kind", "k"), [("float64", 2**28), ("float64", 2**30 - 16), ("float32", 2**29), ("int8", 2**30 - 16)]
)
def test_the_first_blocks_of_a_long_k_are_copied(folder, kind, k):
    """Only the parts of the long row and column that are read exist."""
    given = of(kind, (1, 1, k), "NT")
    _, config = on_device(kind, (64, 64), given)
    read = np.zeros(config.bk * config.stages, kind)
    expected = 2 * config.bk * read.itemsize * (config.stages - 1)
    assert copied(folder, kind, given, config, read)[0] == (expected, expected)


SHORT = [("float16", 64, 1), ("float16", 70, 2), ("float64", 40, 3)]


@pytest.mark.parametrize(("kind", "k", "blocks"), SHORT)
def test_only_what_is_inside_the_operands_is_copied(folder, kind, k, blocks):
    """One row and one column of the tile are inside, and fewer blocks of K than stages."""
    given = replace(of(kind, (1, 1, k), "NT"), lda=128, ldb=128)
    _, config = on_device(kind, (64, 64), given, stages=4)
    a = np.ones((1, 128), kind)
    counted, result = copied(folder, kind, given, config, a, stops=False)
    assert counted == (2 * blocks * config.bk * a.itemsize, 2 * k * a.itemsize)
    assert result == 2 * k


def test_a_product_is_one_launch_whatever_its_alignment():
    family = kernel_named("mma")
    for kind, align in (("float16", 2), ("bfloat16", 4), ("float32", 4), ("int8", 4)):
        for trans in ("NT",) if kind == "int8" else ("NN", "NT", "TN", "TT"):
            given = of(kind, (35, 37, 39), trans, align, align)
            for config in family.configs(given, H200):
                assert len(family.launches(given, config, H200).launches) == 1, (kind, trans)


def test_split_k_is_offered_for_few_tiles_and_a_long_k():
    family = kernel_named("mma")
    ranges = [c.split_k for c in family.configs(of("float16", (64, 64, 2048)), H200)]
    assert max(ranges) == 2048 // (4 * 64) == 8
    assert {c.split_k for c in family.configs(of("float16", (64, 64, 256)), H200)} == {1}
    assert {c.split_k for c in family.configs(of("float16", (8192, 8192, 8192)), H200)} == {1}
