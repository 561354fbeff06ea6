"""cl/nvidia/mma.cl runs without a GPU (interleaved.py).

This tests every copy and index. Copies complete at once there, so a missing wait is not noticed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pyclmm.kernels import kernel_named
from pyclmm.kernels.launches import batch_table
from pyclmm.kernels.nvidia import matrix_units, mma
from pyclmm.problem.dtypes import ELEMENTS
from pyclmm.problem.gemm import GemmProblem, alignment
from tests.simulators import interleaved
from tests.support.made_up import H200
from tests.support.selection import few

pytestmark = interleaved.needs_clang
RESULT = {"float64": "float64", "int8": "int32", "uint8": "int32"}
STORED = {"bfloat16": np.uint16}


def small_integers(rng, shape, kind):
    """Integers that are exact in every type here."""
    return rng.integers(0 if kind == "uint8" else -3, 4, shape).astype(np.float32)


def held(x, kind, transposed, padded_to):
    """*x* as stored on the device. Rows are padded to a multiple with values that must not be read."""
    x = np.swapaxes(x, -1, -2) if transposed else x
    bits = (x.view(np.uint32) >> 16) if kind == "bfloat16" else x
    stored = np.full((*x.shape[:-1], -(-x.shape[-1] // padded_to) * padded_to), 99, STORED.get(kind, kind))
    stored[..., : x.shape[-1]] = bits
    return stored


def of(kind, shape, trans="NN", a_align=16, b_align=16, ld=(0, 0), **more):
    """The product of *shape* (M, N, K), with leading dimensions *ld*."""
    m, n, k = shape
    out = RESULT.get(kind, "float32")
    return GemmProblem(
        *(m, n, k, kind, kind, out, ELEMENTS[kind].accumulator, trans[0] == "T", trans[1] == "T"),
        *(False, False, ld[0] or k, ld[1] or n, n, a_align, b_align, alignment(np.dtype(out).itemsize * n)),
        c_type=out,
        bias_type=out,
        precision="medium",
        **more,
    )


def arrays_for(problem, a, b, out, c, bias, table):
    alpha, beta = (np.dtype(ELEMENTS[problem.a_type].accumulator).type(x) for x in (2, 3))
    return {
        "a": a,
        "b": b,
        "out": out,
        "c": c,
        "bias": bias,
        "batch_offsets": table,
        "alpha": alpha,
        "beta": beta,
    }


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
    ("float64", "TT", (66, 130, 34), (64, 128, 4, 1), (), 2),
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
def test_products_are_exact(folder, rng, kind, trans, shape, tile, stack, padded_to):
    """Stacks have a full epilogue, single products none."""
    m, n, k = shape
    epilogue = bool(stack)
    a, b = (small_integers(rng, (*stack, *s), kind) for s in ((m, k), (k, n)))
    mine = [held(x, kind, t == "T", padded_to) for x, t in ((a, trans[0]), (b, trans[1]))]
    rows = [x.shape[-1] for x in mine]
    aligned = [alignment(x.shape[-1] * x.itemsize) for x in mine]
    out = np.full((*stack, m, n), 99, RESULT.get(kind, "float32"))
    c, bias = (small_integers(rng, s, kind).astype(out.dtype) for s in ((*stack, m, n), (m,)))
    strides = tuple((int(np.prod(x.shape[-2:])),) * len(stack) for x in (*mine, c, out))
    more = {"has_c": True, "c_strides": (n, 1), "bias": "column", "bias_stride": 1} if epilogue else {}
    problem = of(
        kind, shape, trans, aligned[0], aligned[1], rows, batch_shape=stack, batch_strides=strides, **more
    )
    family = kernel_named("mma_double" if kind == "float64" else "mma")
    config = next(x for x in family.configs(problem, H200) if (x.bm, x.bn, x.stages) == tile[:3])
    config = replace(config, split_k=tile[3])
    assert not family.violations(problem, config, H200)
    table = batch_table(stack, strides) if stack else np.zeros((1, 4), np.int64)
    given = arrays_for(problem, mine[0], mine[1], out, c, bias, table)
    interleaved.run(family.launches(problem, config, H200), given, folder)
    value = 2 * (a.astype("f8") @ b.astype("f8"))
    assert np.array_equal(out, value + 3 * c + bias[:, None] if epilogue else value)


def test_two_sub_groups_turn_a_tile_in_strips_and_store_a_padded_result(folder, rng):
    """A tile of 64 rows has four strips. Rows of out have an odd length and begin on pairs."""
    m, n, k = 65, 37, 70
    a, b = (small_integers(rng, s, "float32") for s in ((m, k), (k, n)))
    problem = replace(of("float32", (m, n, k), "TN", 4, 4, (m, n)), ldo=n + 1, out_align=8)
    family = kernel_named("mma")
    config = next(x for x in family.configs(problem, H200) if x.bm == x.bn == 64)
    config = replace(config, sgm=64, sgn=32)
    assert not family.violations(problem, config, H200)
    out = np.full((m, n + 1), 99, "float32")
    given = arrays_for(problem, np.ascontiguousarray(a.T), b, out, out, out, np.zeros((1, 4), np.int64))
    interleaved.run(family.launches(problem, config, H200), given, folder)
    assert np.array_equal(out[:, :n], 2 * (a @ b))
    assert (out[:, n] == 99).all()


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
    folder, rng, monkeypatch, kind, shape, tile, ldo, first, epilogue, staged
):
    """What lies before, between and behind the rows of out stays."""
    m, n, k = shape
    a, b, c = (small_integers(rng, s, kind) for s in ((m, k), (k, n), (m, ldo)))
    bits = STORED.get(kind, kind)
    out = np.full(first + m * ldo + 8, 99, bits)
    rows = out[first : first + m * ldo].reshape(m, ldo)
    bias = small_integers(rng, (n,), kind)
    more = {"has_c": True, "c_strides": (ldo, 1), "bias": "row", "bias_stride": 1} if epilogue else {}
    problem = replace(
        of(kind, shape, "NT", 16, 16, (72, 72), **more),
        **dict.fromkeys(("out_type", "c_type", "bias_type"), kind),
        ldo=ldo,
        out_align=alignment(2 * (first or ldo)),
    )
    family = kernel_named("mma")
    config = next(x for x in family.configs(problem, H200) if (x.bm, x.bn, x.stages) == tile)
    monkeypatch.setattr(mma, "in_staged_lines", lambda problem: staged)
    held_c, held_bias = (held(x, kind, False, 1) for x in (c, bias))
    given = arrays_for(
        problem,
        held(a, kind, False, 72),
        held(b, kind, True, 72),
        rows,
        held_c,
        held_bias,
        np.zeros((1, 4), np.int64),
    )
    interleaved.run(family.launches(problem, config, H200), given, folder)
    value = 2 * (a @ b) + (3 * c[:, :n] + bias if epilogue else 0)
    if kind == "bfloat16":  # rounded to nearest even
        bits = np.float32(value).view(np.uint32)
        value = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    assert np.array_equal(rows[:, :n], value)
    assert (rows[:, n:] == 99).all(), "between rows"
    assert (out[:first] == 99).all()
    assert (out[first + m * ldo :] == 99).all()


def test_large_results_in_rows_that_are_not_aligned_are_staged():
    """A small one is stored sooner as fragments, an aligned one always."""
    for n, least in ((1001, 524), (1002, 4186)):  # rows of 1 MiB and of 8 MiB
        for m, staged in ((least - 1, False), (least, True)):
            assert matrix_units.in_staged_lines(_halves(m, n)) is staged
    assert not matrix_units.in_staged_lines(_halves(10**4, 1008))
    assert not matrix_units.in_staged_lines(replace(_halves(10**4, 1001), out_type="float32"))


def _halves(m, n):
    return replace(of("float16", (m, n, 64)), out_type="float16", out_align=alignment(2 * n))


@pytest.mark.parametrize("mma_k", [4, 8])
def test_every_float64_instruction_is_exact(folder, rng, mma_k):
    a, b = (rng.integers(-3, 4, s).astype("f8") for s in ((64, 48), (48, 64)))
    problem, family = of("float64", (64, 64, 48), ld=(48, 64)), kernel_named("mma_double")
    config = next(x for x in family.candidates(problem, H200) if (x.bm, x.bn, x.split_k) == (64, 64, 1))
    config = replace(config, options=(("group", 8), ("mma_k", mma_k)))
    assert not family.violations(problem, config, H200)
    out = np.zeros((64, 64))
    given = arrays_for(problem, a, b, out, out, out, np.zeros((1, 4), np.int64))
    interleaved.run(family.launches(problem, config, H200), given, folder)
    assert np.array_equal(out, 2 * (a @ b))


@pytest.mark.parametrize(
    ("kind", "k"), [("float64", 2**28), ("float64", 2**30 - 16), ("float32", 2**29), ("int8", 2**30 - 16)]
)
def test_the_first_blocks_of_a_long_k_are_copied(folder, kind, k):
    """Only the parts of the long row and column that are read exist."""
    problem = of(kind, (1, 1, k), "NT", ld=(k, k))
    family = kernel_named("mma_double" if kind == "float64" else "mma")
    config = next(x for x in family.candidates(problem, H200) if (x.bm, x.bn, x.split_k) == (64, 64, 1))
    read = np.zeros(config.bk * config.stages, kind)
    out = np.zeros((1, 1), RESULT.get(kind, "float32"))
    given = arrays_for(problem, read, read, out, out, out, np.zeros((1, 4), np.int64))
    work = family.launches(problem, config, H200)
    expected = 2 * config.bk * read.itemsize * (config.stages - 1)
    assert interleaved.copied(work, given, folder) == (expected, expected)


SHORT = [("float16", 64, 1), ("float16", 70, 2), ("float64", 40, 3)]


@pytest.mark.parametrize(("kind", "k", "blocks"), SHORT)
def test_only_what_is_inside_the_operands_is_copied(folder, kind, k, blocks):
    """One row and one column of the tile are inside, and fewer blocks of K than stages."""
    problem = of(kind, (1, 1, k), "NT", ld=(128, 128))
    family = kernel_named("mma_double" if kind == "float64" else "mma")
    found = family.candidates(problem, H200)
    config = next(x for x in found if (x.bm, x.bn, x.stages, x.split_k) == (64, 64, 4, 1))
    a, out = np.ones((1, 128), kind), np.zeros((1, 1), RESULT.get(kind, "float32"))
    given = arrays_for(problem, a, a, out, out, out, np.zeros((1, 4), np.int64))
    work = family.launches(problem, config, H200)
    written, read = interleaved.copied(work, given, folder, stops=False)
    assert (written, read) == (2 * blocks * config.bk * a.itemsize, 2 * k * a.itemsize)
    assert out[0, 0] == 2 * k


def test_a_product_is_one_launch_whatever_its_alignment():
    family = kernel_named("mma")
    for kind, align in (("float16", 2), ("bfloat16", 4), ("float32", 4), ("int8", 4)):
        for trans in ("NT",) if kind == "int8" else ("NN", "NT", "TN", "TT"):
            problem = of(kind, (35, 37, 39), trans, align, align)
            for config in family.configs(problem, H200):
                assert len(family.launches(problem, config, H200).launches) == 1, (kind, trans)


def test_split_k_is_offered_for_few_tiles_and_a_long_k():
    family = kernel_named("mma")
    ranges = [c.split_k for c in family.configs(of("float16", (64, 64, 2048)), H200)]
    assert max(ranges) == 2048 // (4 * 64) == 8
    assert {c.split_k for c in family.configs(of("float16", (64, 64, 256)), H200)} == {1}
    assert {c.split_k for c in family.configs(of("float16", (8192, 8192, 8192)), H200)} == {1}
