"""The kernels of few rows by quantised weights run without a GPU (interleaved.py), judged as on a device."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

import ml_dtypes
import numpy as np
import pytest

from pyclmm.checks.drawn import Drawn, drawn_weights
from pyclmm.checks.layouts import resized
from pyclmm.formats import format_named, in_rows, ordered
from pyclmm.formats.base import RowFormat
from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from tests.simulators import interleaved
from tests.simulators.simulated import arrays_of, check
from tests.support.made_up import H200

from .test_matrix_units import problem

pytestmark = interleaved.needs_clang
MMA, WGMMA, BLOCKS = map(kernel_named, ("mma_quantized", "wgmma_quantized", "wgmma_fragments"))
TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def of(kind, shape, name, stack=(), **more):
    weights = {"b_type": "uint8", "b_format": name, "acc_type": "float32"}
    given = replace(problem(kind, trans="NT", out_type="float32", batch_shape=stack, **more), **weights)
    return resized(given, *shape, *stack)


# type, (M, N, K), format, (BM, BN, SGN, BK, STAGES, ranges, ahead), stack
CASES = [
    ("float16", (16, 64, 512), "affine4_g128_float16", (16, 64, 32, 128, 2, 1, 1), ()),
    ("float16", (13, 75, 640), "affine4_g64_float16", (16, 64, 32, 256, 3, 1, 2), ()),
    ("float16", (3, 33, 1152), "affine4_g128_float16", (8, 32, 16, 256, 2, 3, 2), ()),
    ("float16", (70, 40, 384), "affine4_g128_float16", (64, 32, 16, 128, 2, 2, 3), (2,)),
    ("bfloat16", (17, 50, 512), "affine4_g64_float16", (32, 64, 32, 256, 2, 1, 2), ()),
    ("bfloat16", (9, 17, 288), "q8_0", (16, 32, 32, 128, 2, 2, 1), ()),
    ("float16", (5, 70, 224), "q8_0", (8, 64, 16, 128, 4, 1, 2), (3,)),
]


# type, (M, N, K), format, (BM, BN, BK, STAGES, ranges, resident), stack
WGMMA_CASES = [
    ("float16", (5, 64, 1024), "affine4_g128_float16", (8, 64, 256, 3, 1, 1), ()),
    ("float16", (13, 75, 1280), "affine4_g64_float16", (16, 64, 256, 2, 1, 1), ()),
    ("bfloat16", (3, 33, 1152), "affine4_g32_bfloat16", (8, 64, 384, 4, 3, 0), ()),
    ("float16", (70, 140, 768), "affine4_g128_float16", (64, 128, 128, 3, 2, 0), (2,)),
    ("bfloat16", (17, 50, 512), "affine4_g64_float16", (32, 64, 128, 2, 1, 1), ()),
    ("float16", (100, 64, 384), "affine8_g64_float16", (128, 64, 128, 3, 1, 0), ()),
    ("bfloat16", (9, 257, 768), "affine3_g32_float32", (16, 256, 128, 3, 2, 0), ()),
    ("float16", (8, 64, 640), "affine6_g64_float16", (8, 64, 256, 5, 1, 0), (3,)),
    ("float16", (16, 64, 512), "affine2_g128_float16", (16, 64, 128, 3, 1, 0), ()),
    ("bfloat16", (9, 70, 768), "affine3_g32_float16", (16, 128, 128, 2, 2, 1), ()),
    ("float16", (16, 64, 640), "affine8_g64_float16", (16, 64, 256, 3, 1, 1), (2,)),
]


BLOCK_CASES = [  # the last columns are a block of their own; ranges and stages of all lengths
    ("float16", (70, 140, 768), "affine4_g128_float16_fragments", (64, 128, 128, 3, 2, 0), (2,)),
    ("float16", (70, 257, 1152), "affine4_g32_float16_fragments", (64, 64, 384, 2, 2, 0), ()),
    ("bfloat16", (13, 75, 1280), "affine4_g64_bfloat16_fragments", (16, 64, 256, 2, 1, 1), ()),
    ("float16", (33, 64, 640), "affine8_g32_float16_fragments", (64, 64, 256, 3, 1, 0), ()),
    ("bfloat16", (5, 64, 1024), "affine8_g64_float32_fragments", (8, 64, 256, 3, 1, 1), ()),
    ("float16", (20, 140, 640), "affine4_g128_float16_fragments", (32, 128, 256, 2, 1, 0), ()),
    ("float16", (3, 1, 128), "affine4_g128_float16_fragments", (8, 64, 512, 4, 1, 0), ()),
    ("bfloat16", (128, 130, 640), "affine8_g128_bfloat16_fragments", (128, 128, 128, 4, 2, 0), ()),
]


def config_of(sizes):
    bm, bn, sgn, bk, stages, split_k, ahead = sizes
    return TileConfig(bm=bm, bn=bn, sgn=sgn, bk=bk, stages=stages, split_k=split_k, options={"ahead": ahead})


def wgmma_config(sizes, k):
    bm, bn, bk, stages, split_k, resident = sizes
    options = {"resident": resident, "steps": -(-k // split_k // bk) + 1}
    return TileConfig(bm=bm, bn=bn, bk=bk, stages=stages, split_k=split_k, options=options)


MMA_64 = config_of((64, 16, 16, 128, 2, 1, 1))


@pytest.mark.parametrize(
    ("kernel", "case"),
    [
        (kernel, x)
        for kernel, cases in ((MMA, CASES), (WGMMA, WGMMA_CASES), (BLOCKS, BLOCK_CASES))
        for x in cases
    ],
    ids=str,
)
def test_products(kernel, case, folder):
    kind, shape, name, sizes, stack = case
    config = config_of(sizes) if kernel is MMA else wgmma_config(sizes, shape[2])
    check(folder, kernel, of(kind, shape, name, stack), config, H200, Drawn.REALS)


# scale, bias: 16-bit arithmetic rounds some weight field * scale + bias unlike float32 that is rounded again
TWICE_ROUNDED = {
    "float16": [(-0.2015380859375, 0.00012201070785522461), (-0.87841796875, 0.00048804283142089844)],
    "bfloat16": [(129 / 128, -(2.0**-30)), (-129 / 128, 2.0**-40)],
}


AFFINE = [  # in 16-bit arithmetic, and not
    *("float16-affine4_g128_float16", "bfloat16-affine4_g32_bfloat16", "float16-affine8_g64_float16"),
    *("bfloat16-affine8_g128_bfloat16", "float16-affine3_g32_float16", "bfloat16-affine6_g64_bfloat16"),
    *("bfloat16-affine4_g64_float16", "float16-affine2_g64_bfloat16", "float16-affine8_g32_float32"),
]


FRAGMENTS = [
    *("float16-affine4_g128_float16_fragments", "bfloat16-affine4_g32_bfloat16_fragments"),
    *("float16-affine8_g64_float16_fragments", "bfloat16-affine8_g128_bfloat16_fragments"),
    *("bfloat16-affine4_g64_float16_fragments", "float16-affine8_g32_float32_fragments"),
]
BY_WGMMA = {"wgmma": wgmma_config((64, 64, 128, 3, 1, 0), 256)}
BY_WGMMA["wgmma-resident"] = wgmma_config((64, 64, 128, 3, 1, 1), 256)


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize(
    ("how", "case"),
    [*(("mma", case) for case in AFFINE), *((how, case) for how in BY_WGMMA for case in AFFINE + FRAGMENTS)],
)
def test_all_bits_of_affine_weights(case, how, small, folder):
    """A one in each row of A: the result is the weights. Scales and biases are near to each other and far;
    or all are *small* and near, as the quickest way wants them."""
    by_wgmma = BLOCKS if case in FRAGMENTS else WGMMA
    kernel, config = (MMA, MMA_64) if how == "mma" else (by_wgmma, BY_WGMMA[how])
    kind, name = case.split("-")
    form, rng, k, n = format_named(name), np.random.default_rng(1), 256, 48
    rows = rng.integers(0, 256, (n, form.row_nbytes(k)), np.uint8)
    groups, scale_type = k // form.group_size, TYPES.get(form.dtype, np.dtype(np.float32))
    pairs = rng.standard_normal((n, groups, 2)) * 2.0 ** rng.integers(-11, 4, (n, groups, 2))
    if small:
        most = -4.01 if case == FRAGMENTS[0] else -5.01
        pairs = 2.0 ** rng.uniform((-14, -12), (most, -6), pairs.shape) * rng.choice((-1, 1), pairs.shape)
    else:
        pairs[:4, 0] = TWICE_ROUNDED["float16"] + TWICE_ROUNDED["bfloat16"]
        pairs[4:8, -1] = [(0, 1), (1, 0), (0, 0), (2.0**-24, -(2.0**-22))]
    values = np.swapaxes(pairs, 1, 2).astype(scale_type).reshape(n, -1).view(np.uint8)
    rows[:, k * form.bits // 8 :][:, : values.shape[1]] = values
    rows = ordered(in_rows(form), rows, k, form.order)[1]
    check_weights(kernel, config, kind, name, rows, k, folder)


LAST = (46, 7)  # of the pairs of 47 columns


@pytest.mark.parametrize("order", ["rows", "fragments"])
@pytest.mark.parametrize(
    ("name", "place", "pair", "k"),
    [
        *(("affine4_g32_float16", place, (0, 2.0**-9), 256) for place in ((0, 0), (0, 7), (46, 1), LAST)),
        *(("affine4_g128_float16", place, (0, 2.0**-9), 256) for place in ((3, 0), (46, 1))),
        ("affine4_g32_float16", LAST, TWICE_ROUNDED["float16"][0], 256),
        ("affine4_g32_float16", LAST, (2.0**-16, 2.0**-12), 256),
        ("affine4_g32_float16", LAST, (2.0**-3, 2.0**-3), 256),
        ("affine4_g32_bfloat16", LAST, (2.0**-8 * 129 / 128, -(2.0**-38)), 256),
        *(("affine4_g32_float16", place, (0, 2.0**-9), 1024) for place in ((0, 13), (46, 29))),
        ("affine8_g32_float16", LAST, (1057 / 1024 * 2.0**-14, 4 + 2.0**-8), 256),
    ],
)
def test_one_group_that_the_quickest_way_does_not_serve(name, place, pair, k, order, folder):
    """All others are as it wants them. A work-group judges several at a time, and a rest."""
    kernel = WGMMA if order == "rows" else BLOCKS
    form = format_named(name if order == "rows" else f"{name}_{order}")
    rng, n, kind = np.random.default_rng(3), 47, name.split("_")[-1]
    rows = rng.integers(0, 256, (n, form.row_nbytes(k)), np.uint8)
    if form.bits == 8:
        rows[:] = 31  # times that scale: a half of the bias's last place, and float32 loses what is missing
    pairs = rng.choice((-1, 1), (n, k // form.group_size, 2)) * np.array([2.0**-8, 2.0**-7])
    pairs[place] = pair
    values = np.swapaxes(pairs, 1, 2).astype(TYPES[kind]).reshape(n, -1).view(np.uint8)
    rows[:, k * form.bits // 8 :][:, : values.shape[1]] = values
    rows = ordered(in_rows(form), rows, k, form.order)[1]
    check_weights(kernel, wgmma_config((64, 64, 128, 3, 1, 1), k), kind, form.name, rows, k, folder)


@pytest.mark.parametrize(
    "case", ["float16-q4_k", "bfloat16-q8_0", "float16-mxfp4", "bfloat16-nvfp4", "float16-q6_k"]
)
def test_all_bits_of_other_weights(case, folder):
    kind, name = case.split("-")
    rows = format_named(name).drawn(np.random.default_rng(2), 40, 256)
    check_weights(MMA, MMA_64, kind, name, rows, 256, folder)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("kernel", "config", "name"),
    [
        (MMA, MMA_64, "q8_0"),
        (WGMMA, BY_WGMMA["wgmma"], "affine4_g64_float16"),
        (BLOCKS, BY_WGMMA["wgmma"], "affine4_g64_float16_fragments"),
    ],
    ids=["mma", "wgmma", "fragments"],
)
def test_scales_that_are_no_numbers(kernel, config, name, kind, folder):
    """Each bit is set, of the scales too."""
    rows = np.full((48, format_named(name).row_nbytes(256)), 255, np.uint8)
    given = replace(of(kind, (64, 48, 256), name), out_type=kind, ldb=rows.shape[-1], ldo=48)
    assert np.isnan(one_hot_product(kernel, given, config, rows, 0, folder).astype(np.float32)).all()


@pytest.mark.parametrize(
    ("name", "kind"), [("affine4_g128_float16", "float16"), ("affine4_g32_bfloat16", "bfloat16")]
)
def test_the_self_check_reaches_the_quickest_way_and_the_others(name, kind):
    """A work-group takes it if the exponents of all its scales and biases are within its limits."""
    given, form = of(kind, (8, 256, 2048), name), format_named(name)
    mantissa, largest, apart = (10, 9, 11) if kind == "float16" else (7, 124, 14)

    def takes(drawn):
        rows = drawn_weights(given, (256,), np.random.default_rng(3), drawn)
        assert isinstance(form, RowFormat)
        parts = form.parts(rows, 2048)
        scale, bias = (
            np.ascontiguousarray(x).view(np.uint16).astype(int) >> mantissa & (1 << 15 - mantissa) - 1
            for x in (parts.scales, parts.biases)
        )
        near = (bias - scale >= form.bits - apart) & (bias - scale <= apart)
        return (near & (scale >= 1) & (scale <= largest) & (bias > 0)).reshape(4, -1).all(axis=1)

    assert takes(Drawn.INTEGERS).all()
    assert not takes(Drawn.REALS).all()


def check_weights(kernel, config, kind, name, rows, k, folder):
    """The weights, one by one, as sums of one product: sums of -0 are 0."""
    n = len(rows)
    sizes = {"ldb": rows.shape[-1], "ldo": n, "out_align": gcd(16, 2 * n)}
    given = replace(of(kind, (64, n, k), name), out_type=kind, **sizes)
    want = format_named(name).dequantize(rows, k).astype(TYPES[kind]).T + TYPES[kind].type(0)
    for first in range(0, k, 64):
        got = one_hot_product(kernel, given, config, rows, first, folder)
        np.testing.assert_array_equal(got.view(np.uint16), want[first : first + 64].view(np.uint16))


def one_hot_product(kernel, problem, config, rows, first, folder):
    """Rows from *first* on of the unit matrix, times the weights."""
    x = np.eye(problem.k, problem.lda, dtype=np.float32)[first : first + problem.m].astype(
        TYPES[problem.a_type]
    )
    out = np.zeros((problem.m, problem.n), x.dtype)
    interleaved.run(kernel.launches(problem, config, H200), arrays_of(problem, out, x, rows), folder)
    return out


def test_epilogue(folder):
    more = {"has_c": True, "bias": "row", "activation": "relu"}
    given = of("float16", (10, 40, 256), "affine4_g64_float16", **more)
    for kernel, config in (
        *((MMA, config_of((16, 32, 16, 128, 2, ranges, 1))) for ranges in (1, 2)),
        *((WGMMA, wgmma_config((16, 64, 128, 3, ranges, 1), 256)) for ranges in (1, 2)),
    ):
        check(folder, kernel, given, config, H200, Drawn.REALS)


@pytest.mark.parametrize("name", ["affine4_g128_float16", "affine6_g32_float16", "affine8_g32_float16"])
def test_every_number_of_rows_has_a_configuration(name):
    assert all(WGMMA.candidates(of("float16", (m, 896, 2560), name), H200) for m in (1, 16, 32, 64, 128))


def test_refusals():
    given = of("float16", (16, 64, 512), "affine4_g128_float16")
    assert "affine" in WGMMA.refuses(replace(given, b_format="q8_0"), H200)
    assert "multiple of 256" in WGMMA.refuses(replace(given, k=384), H200)
    assert "order of fragments" in MMA.refuses(replace(given, b_format=f"{given.b_format}_fragments"), H200)
    assert WGMMA.refuses(replace(given, k=384, b_format="affine4_g64_float16"), H200) is None
    too_few = wgmma_config((16, 64, 128, 2, 1, 0), 512)  # A of the step before would be overwritten
    assert "stages 3 or more" in WGMMA.violations(given, too_few, H200)[0]
    for kernel in (MMA, WGMMA):
        check_refusals(kernel, given)


def check_refusals(kernel, given):
    assert kernel.refuses(given, H200) is None
    assert "quantised weights, not" in kernel.refuses(replace(given, b_format=""), H200)
    assert "rows" in kernel.refuses(replace(given, m=129), H200)
    assert "16 bytes" in kernel.refuses(replace(given, a_align=8), H200)
    assert "16 bytes" in kernel.refuses(replace(given, b_align=8), H200)
    assert "stack" in kernel.refuses(replace(given, batch_shape=(2,), batch_strides=((1,),) * 4), H200)
    assert "float32" in kernel.refuses(replace(given, a_type="float32"), H200)
