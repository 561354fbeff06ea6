"""QuantizedArray.from_parts: MLX's parts, and GPTQ's and AWQ's, read number by number."""

import numpy as np
import pytest

from pyclmm import ArgumentError, DTypeError, QuantizedArray, ShapeError, quantize
from tests.support.optional import optional

ml_dtypes = optional("ml_dtypes")
N, K, GROUP = 24, 128, 32
AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)  # the column of eight that each 4 bits of a word are of


def words(rng, *shape):
    return rng.integers(-(1 << 31), 1 << 31, shape, np.int32)


def number(word, place):
    return int(word) >> 4 * place & 15


def gptq_parts(rng, dtype=np.float16):
    scales = rng.uniform(-0.02, 0.02, (K // GROUP, N)).astype(dtype)
    return {"packed": words(rng, K // 8, N), "scales": scales, "zeros": words(rng, K // GROUP, N // 8)}


def awq_parts(rng):
    return {**gptq_parts(rng), "packed": words(rng, K, N // 8)}


def by_hand(parts, layout):
    """The values, (N, K), in float64, in which they are exact."""
    w = np.empty((N, K))
    for n in range(N):
        place = AWQ_COLUMNS.index(n % 8) if layout == "awq" else n % 8
        for k in range(K):
            zero = number(parts["zeros"][k // GROUP, n // 8], place) + (layout == "gptq")
            word = parts["packed"][(k, n // 8) if layout == "awq" else (k // 8, n)]
            code = number(word, place if layout == "awq" else k % 8)
            w[n, k] = float(parts["scales"][k // GROUP, n]) * (code - zero)
    return w


@pytest.mark.parametrize("layout", ["gptq", "gptq_v2", "awq"])
def test_int4_of_other_libraries_is_exact(rng, layout):
    for dtype in (np.float16, ml_dtypes.bfloat16):
        parts = awq_parts(rng) if layout == "awq" else gptq_parts(rng, dtype)
        q = QuantizedArray.from_parts(**parts, layout=layout)
        assert (q.shape, q.mode, q.bits, q.group_size, q.dtype) == ((N, K), "affine", 4, GROUP, np.float32)
        np.testing.assert_array_equal(q.dequantize(), by_hand(parts, layout))


def test_words_may_be_unsigned(rng):
    parts = gptq_parts(rng)
    unsigned = {**parts, "packed": parts["packed"].view("u4"), "zeros": parts["zeros"].view("u4")}
    got = QuantizedArray.from_parts(**unsigned, layout="gptq")
    np.testing.assert_array_equal(got.data, QuantizedArray.from_parts(**parts, layout="gptq").data)


def swapped(parts):
    return {name: x.astype(x.dtype.newbyteorder()) for name, x in parts.items()}


def test_parts_may_be_of_the_other_order_of_bytes(rng):
    parts = gptq_parts(rng)
    q = QuantizedArray.from_parts(**parts, layout="gptq")
    assert np.array_equal(QuantizedArray.from_parts(**swapped(parts), layout="gptq").data, q.data)
    parts = {"packed": q.packed, "scales": q.scales, "biases": q.biases}
    assert np.array_equal(QuantizedArray.from_parts(**swapped(parts), group_size=GROUP).data, q.data)


def test_an_order_of_groups_is_taken_if_it_is_the_usual_one(rng):
    parts, order = gptq_parts(rng), np.arange(K, dtype=np.int32) // GROUP
    q = QuantizedArray.from_parts(**parts, g_idx=order, layout="gptq")
    np.testing.assert_array_equal(q.dequantize(), by_hand(parts, "gptq"))
    for other in (order[::-1], order[:-1], order + 1):
        with pytest.raises(ArgumentError, match=r"g_idx is not k // 32.*desc_act"):
            QuantizedArray.from_parts(**parts, g_idx=other, layout="gptq")


def test_a_group_that_the_scales_contradict_is_refused(rng):
    parts = gptq_parts(rng)
    assert QuantizedArray.from_parts(**parts, group_size=GROUP, layout="gptq").group_size == GROUP
    with pytest.raises(ArgumentError, match="group_size is 128, but scales of shape"):
        QuantizedArray.from_parts(**parts, group_size=128, layout="gptq")


def mlx(**changed):
    """Affine parts of 4 bits, (4, 64), in groups of 32, and what is *changed* of them."""
    scales = np.ones((4, 2), np.float16)
    given = {"packed": np.zeros((4, 8), np.uint32), "scales": scales, "biases": scales, "group_size": 32}
    return {**given, **changed}


def mx(**changed):
    return {
        "packed": np.zeros((4, 8), np.uint32),
        "scales": np.ones((4, 2), np.uint8),
        "mode": "mxfp4",
        **changed,
    }


def gptq(**changed):
    return {**gptq_parts(np.random.default_rng(1)), "layout": "gptq", **changed}


def nan_at(shape, value=np.nan):
    x = np.ones(shape, np.float16)
    x[1, 1] = value
    return x


F2 = np.ones((4, 2), np.float16)
REFUSED = [
    (mlx(packed=np.zeros(8, np.uint32)), ShapeError, r"packed has shape \(8,\); pass 2 axes"),
    (mlx(packed=F2), DTypeError, "packed has dtype float16; pass uint32"),
    (mlx(packed=np.zeros((4, 8), np.uint8)), DTypeError, "packed has dtype uint8; pass uint32"),
    (mlx(packed=np.zeros((4, 7), np.uint32)), ShapeError, r"packed has shape \(4, 7\), .* K = 56 .* of 32: "),
    (mlx(packed=np.zeros((4, 7), np.uint32), bits=3), ShapeError, r"packed has shape .* K = 74 of 3 bits"),
    (mlx(packed=quantize(np.ones((4, 64)))), DTypeError, r"packed is a QuantizedArray: .*q\.dequantize\(\)"),
    (mlx(scales=F2[:3]), ShapeError, r"scales has shape \(3, 2\); .* pass \(4, 2\)"),
    (mlx(biases=F2[:, :1]), ShapeError, r"biases has shape \(4, 1\); .* pass \(4, 2\)"),
    (mlx(scales=F2[0]), ShapeError, r"scales has shape \(2,\)"),
    (mlx(biases=F2.astype("f4")), DTypeError, "biases has dtype float32; pass float16"),
    (mlx(scales=F2.astype("i4")), DTypeError, "scales has dtype int32; pass float32 or float16 or bfloat16"),
    (mlx(scales=F2.astype("f8")), DTypeError, "scales has dtype float64"),
    (mlx(scales=nan_at((4, 2))), ArgumentError, "scales has numbers that are not finite"),
    (mlx(biases=nan_at((4, 2), np.inf)), ArgumentError, "biases has numbers that are not finite"),
    (mx(bits=8), ArgumentError, "bits is 8, but mxfp4 has 4; leave it out"),
    (mx(group_size=64), ArgumentError, "group_size is 64, but mxfp4 has 32; leave it out"),
    (mlx(biases=None), ArgumentError, "biases is missing"),
    (mlx(zeros=F2), ArgumentError, "zeros or g_idx is given, but layout 'mlx' has biases"),
    (mlx(g_idx=F2), ArgumentError, "zeros or g_idx is given"),
    (mlx(bits=5), ArgumentError, "bits is 5; affine weights have"),
    (mlx(group_size=48), ArgumentError, "group_size is 48"),
    (mlx(layout="marlin"), ArgumentError, "unknown layout 'marlin'.*'gptq_v2'"),
    (mlx(mode="int4"), ArgumentError, "unknown mode 'int4'"),
    (mlx(mode=np.array(["affine", "q"])), DTypeError, "mode is array.*; pass a string"),
    (mlx(layout=np.array(["mlx", "q"])), DTypeError, "layout is array.*; pass a string"),
    (mlx(mode="q4_0", biases=None), ArgumentError, "mode 'q4_0' has its scales in blocks"),
    (mx(biases=F2), ArgumentError, "biases is given; leave it out"),
    (mx(scales=F2), DTypeError, "scales has dtype float16; pass uint8"),
    (mx(scales=np.ones((4, 1), np.uint8)), ShapeError, r"scales has shape \(4, 1\); .*pass \(4, 2\)"),
    (mx(scales=np.full((4, 2), 255, np.uint8)), ArgumentError, "scales has bytes that stand for NaN"),
    (
        mx(scales=np.full((4, 4), 127, np.uint8), mode="nvfp4"),
        ArgumentError, "scales has bytes that stand for NaN",
    ),
    (gptq(bits=8), ArgumentError, "layout 'gptq' is of affine weights of 4 bits"),
    (gptq(mode="mxfp4"), ArgumentError, "layout 'gptq' is of affine weights"),
    (gptq(biases=F2), ArgumentError, "leave out mode, bits and biases"),
    (gptq(zeros=None), ArgumentError, "zeros is missing"),
    (gptq(zeros=F2), DTypeError, "zeros has dtype float16; pass int32"),
    (gptq(zeros=np.zeros((4, 2), np.int32)), ShapeError, r"zeros \(4, 2\); for weights of N = 24, K = 128"),
    (gptq(scales=np.ones((4, 23), np.float16)), ShapeError, r"scales has shape \(4, 23\)"),
    (gptq(scales=np.ones(24, np.float16)), ShapeError, r"scales has shape \(24,\)"),
    (gptq(scales=np.ones((4, 24), np.int32)), DTypeError, "scales has dtype int32"),
    (
        gptq(scales=np.full((4, 24), 1e38, np.float32), zeros=np.full((4, 3), -1, np.int32)),
        ArgumentError, "scales times zeros has numbers that are not finite in float32",
    ),
    (gptq(scales=np.full((4, 24), 1e300)), ArgumentError, "scales has numbers that are not finite in"),
    (gptq(bits=np.array([4, 4])), DTypeError, "bits is array.*; pass an int"),
    (gptq(group_size=np.array([32, 32])), DTypeError, "group_size is array.*; pass an int"),
    (gptq(group_size="32"), DTypeError, "group_size is '32'; pass an int"),
    (gptq(scales=nan_at((4, 24), -np.inf)), ArgumentError, "scales has numbers that are not finite"),
    (
        gptq(
            scales=np.ones((1, 24), np.float16), zeros=np.zeros((1, 3), np.int32),
            packed=np.zeros((8, 24), "i4"),
        ),
        None,
        "",
    ),
    (
        gptq(
            scales=np.ones((9, 24), np.float16), zeros=np.zeros((9, 3), "i4"), packed=np.zeros((37, 24), "i4")
        ),
        ShapeError,
        "for weights of N = 24, K = 296",
    ),
    (
        gptq(scales=np.ones((8, 24), np.float16), zeros=np.zeros((8, 3), np.int32)),
        ArgumentError, "group_size is 16",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "error", "words"), REFUSED, ids=[words for *_, words in REFUSED])
def test_parts_that_do_not_fit_are_refused_by_name(given, error, words):
    if error is None:
        assert QuantizedArray.from_parts(**given).group_size == 64
        return
    with pytest.raises(error, match=words):
        QuantizedArray.from_parts(**given)
