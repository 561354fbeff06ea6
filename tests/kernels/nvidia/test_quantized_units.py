"""mma_quantized.cl and wgmma_quantized.cl run without a GPU (interleaved.py), against x @ dequantize."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from pyclmm.checks.drawn import Drawn, drawn_weights
from pyclmm.formats import format_named
from pyclmm.formats.rows import RowFormat
from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.kernels.launches import batch_table
from pyclmm.problem.gemm import GemmProblem
from tests.simulators import interleaved
from tests.support.made_up import H200

pytestmark = interleaved.needs_clang
MMA, WGMMA = kernel_named("mma_quantized"), kernel_named("wgmma_quantized")
TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def of(kind, shape, name, stack=(), **more):
    m, n, k = shape
    ldb, lda = format_named(name).row_nbytes(k), k + 8
    return GemmProblem(
        *(m, n, k, kind, "uint8", "float32", "float32"), trans_b=True, b_format=name, batch_shape=stack,
        batch_strides=((m * lda,), (0,), (0,), (m * n,)) if stack else ((), (), (), ()),
        lda=lda, ldb=ldb, ldo=n, a_align=16, b_align=16, **more,
    )  # fmt: skip


def product(kernel, problem, config, folder, rows=None, seed=0):
    """The kernel's result and x @ weights.T, of random numbers."""
    rng, p, form = np.random.default_rng(seed), problem, format_named(problem.b_format)
    rows = form.drawn(rng, p.n, p.k) if rows is None else rows
    weights = form.dequantize(rows, p.k).astype(TYPES[p.a_type]).astype(np.float32)
    stack = p.batch_shape or (1,)
    stored = np.full((*stack, p.m, p.lda), np.nan, np.float32)
    stored[..., : p.k] = rng.standard_normal((*stack, p.m, p.k))
    stored = stored.astype(TYPES[p.a_type])
    out = np.full((*stack, p.m, p.n), np.nan, np.float32)
    c = rng.standard_normal((p.m, p.n), np.float32)
    bias = rng.standard_normal(p.n, np.float32)
    work = kernel.launches(p, config, H200)
    arrays = {
        "a": stored, "b": rows, "out": out, "c": c, "bias": bias,
        "batch_offsets": batch_table(p.batch_shape, p.batch_strides),
        "alpha": np.float32(2), "beta": np.float32(3),
        **{w.symbol: np.zeros(w.nbytes, np.uint8) for w in work.workspace if w.zeroed},
    }  # fmt: skip
    interleaved.run(work, arrays, folder)
    assert not any(arrays[w.symbol].any() for w in work.workspace if w.zeroed)  # for the next call
    want = 2 * stored[..., : p.k].astype(np.float64) @ weights.T.astype(np.float64)
    want = want + (3 * c if p.has_c else 0) + (bias if p.bias == "row" else 0)
    return out, np.maximum(want, 0) if p.activation == "relu" else want


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
]


def config_of(sizes):
    bm, bn, sgn, bk, stages, split_k, ahead = sizes
    return TileConfig(bm=bm, bn=bn, sgn=sgn, bk=bk, stages=stages, split_k=split_k, options={"ahead": ahead})


def wgmma_config(sizes, k):
    bm, bn, bk, stages, split_k, resident = sizes
    options = {"resident": resident, "steps": -(-k // split_k // bk) + 1}
    return TileConfig(bm=bm, bn=bn, bk=bk, stages=stages, split_k=split_k, options=options)


@pytest.mark.parametrize(
    ("kernel", "case"), [*((MMA, x) for x in CASES), *((WGMMA, x) for x in WGMMA_CASES)], ids=str
)
def test_products(kernel, case, folder):
    kind, shape, name, sizes, stack = case
    problem = of(kind, shape, name, stack)
    config = config_of(sizes) if kernel is MMA else wgmma_config(sizes, shape[2])
    assert not kernel.refuses(problem, H200)
    assert not kernel.violations(problem, config, H200)
    got, want = product(kernel, problem, config, folder)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * abs(want).max())


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


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("kernel", [MMA, WGMMA], ids=["mma", "wgmma"])
@pytest.mark.parametrize("case", AFFINE)
def test_all_bits_of_affine_weights(case, kernel, small, folder):
    """A one in each row of A: the result is the weights. Scales and biases are near to each other and far;
    or all are *small* and near, as the quickest way wants them."""
    kind, name = case.split("-")
    form, rng, k, n = format_named(name), np.random.default_rng(1), 256, 48
    rows = rng.integers(0, 256, (n, form.row_nbytes(k)), np.uint8)
    groups, scale_type = k // form.group_size, TYPES.get(form.dtype, np.dtype(np.float32))
    pairs = rng.standard_normal((n, groups, 2)) * 2.0 ** rng.integers(-11, 4, (n, groups, 2))
    if small:
        pairs = 2.0 ** rng.uniform((-14, -12), (-5.01, -6), pairs.shape) * rng.choice((-1, 1), pairs.shape)
    else:
        pairs[:4, 0] = TWICE_ROUNDED["float16"] + TWICE_ROUNDED["bfloat16"]
        pairs[4:8, -1] = [(0, 1), (1, 0), (0, 0), (2.0**-24, -(2.0**-22))]
    values = np.swapaxes(pairs, 1, 2).astype(scale_type).reshape(n, -1).view(np.uint8)
    rows[:, k * form.bits // 8 :][:, : values.shape[1]] = values
    check_weights(kernel, kind, name, rows, k, folder)


@pytest.mark.parametrize(
    "case", ["float16-q4_k", "bfloat16-q8_0", "float16-mxfp4", "bfloat16-nvfp4", "float16-q6_k"]
)
def test_all_bits_of_other_weights(case, folder):
    kind, name = case.split("-")
    rows = format_named(name).drawn(np.random.default_rng(2), 40, 256)
    check_weights(MMA, kind, name, rows, 256, folder)


@pytest.mark.parametrize(
    ("name", "kind"), [("affine4_g128_float16", "float16"), ("affine4_g32_bfloat16", "bfloat16")]
)
def test_the_self_check_reaches_the_quickest_way_and_the_others(name, kind):
    """A work-group takes it if the exponents of all its scales and biases are within its limits."""
    problem, form = of(kind, (8, 256, 2048), name), format_named(name)
    mantissa, largest, apart = (10, 9, 11) if kind == "float16" else (7, 124, 14)

    def takes(drawn):
        rows = drawn_weights(problem, (256,), np.random.default_rng(3), drawn)
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


def check_weights(kernel, kind, name, rows, k, folder):
    """The weights, one by one, as sums of one product: sums of -0 are 0."""
    problem = replace(of(kind, (64, len(rows), k), name), out_type=kind)
    want = format_named(name).dequantize(rows, k).astype(TYPES[kind]).T + TYPES[kind].type(0)
    for first in range(0, k, 64):
        config = (
            config_of((64, 16, 16, 128, 2, 1, 1))
            if kernel is MMA
            else wgmma_config((64, 64, 128, 2, 1, 1), k)
        )
        got = one_hot_product(kernel, problem, config, rows, first, folder)
        np.testing.assert_array_equal(got.view(np.uint16), want[first : first + 64].view(np.uint16))


def one_hot_product(kernel, problem, config, rows, first, folder):
    """Rows from *first* on of the unit matrix, times the weights."""
    x = np.eye(problem.k, problem.lda, dtype=np.float32)[first : first + problem.m].astype(
        TYPES[problem.a_type]
    )
    out = np.zeros((problem.m, problem.n), x.dtype)
    arrays = {
        "a": x, "b": rows, "out": out, "c": out, "bias": out, "alpha": np.float32(1), "beta": np.float32(0),
        "batch_offsets": batch_table((), ((), (), (), ())),
    }  # fmt: skip
    interleaved.run(kernel.launches(problem, config, H200), arrays, folder)
    return out


def test_epilogue(folder):
    problem = of("float16", (10, 40, 256), "affine4_g64_float16", has_c=True, c_strides=(40, 1), bias="row",
                 bias_stride=1, activation="relu")  # fmt: skip
    for kernel, config in (
        *((MMA, config_of((16, 32, 16, 128, 2, ranges, 1))) for ranges in (1, 2)),
        *((WGMMA, wgmma_config((16, 64, 128, 2, ranges, 1), 256)) for ranges in (1, 2)),
    ):
        got, want = product(kernel, problem, config, folder)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_refusals():
    problem = of("float16", (16, 64, 512), "affine4_g128_float16")
    assert "affine" in WGMMA.refuses(replace(problem, b_format="q8_0"), H200)
    assert "multiple of 256" in WGMMA.refuses(replace(problem, k=384), H200)
    assert WGMMA.refuses(replace(problem, k=384, b_format="affine4_g64_float16"), H200) is None
    too_few = wgmma_config((16, 64, 128, 2, 1, 0), 512)  # A of the step before would be overwritten
    assert "stages 3 or more" in WGMMA.violations(problem, too_few, H200)[0]
    for kernel in (MMA, WGMMA):
        check_refusals(kernel, problem)


def check_refusals(kernel, problem):
    assert kernel.refuses(problem, H200) is None
    assert "quantised weights, not" in kernel.refuses(replace(problem, b_format=""), H200)
    assert "rows" in kernel.refuses(replace(problem, m=129), H200)
    assert "16 bytes" in kernel.refuses(replace(problem, a_align=8), H200)
    assert "16 bytes" in kernel.refuses(replace(problem, b_align=8), H200)
    assert "stack" in kernel.refuses(replace(problem, batch_shape=(2,), batch_strides=((1,),) * 4), H200)
    assert "float32" in kernel.refuses(replace(problem, a_type="float32"), H200)
