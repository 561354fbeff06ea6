"""What formats mean: GGUF's against PyPI's gguf, small numbers against ml_dtypes, rows against MLX."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pyclmm.errors import ArgumentError, ShapeError, UnsupportedError
from pyclmm.formats import FORMATS, OF_GGUF, affine, format_named, format_of, fragments, mx
from pyclmm.formats.mx import E2M1, E4M3, nearest, power_of_two, signed
from tests.support.optional import optional
from tests.support.selection import examples

gguf, ml_dtypes = optional("gguf"), optional("ml_dtypes")
MADE = [form for form in OF_GGUF if form.made is not None]
# 2 x 32 weights quantised by MLX 0.32.4: packed weights, scale, bias
OF_MLX = {
    2: ("db76d8b61cb62d860000f0bf00007040", "758a769eb29da65c55559d3f00006cc0"),
    3: ("a7cc74a84c79e94099f15281000070bf00007040", "9bd5c6d447ab85b98b4e096f6edb063f00006cc0"),
    4: (
        "9fe4286ca1f5398dc2064a9ed3276ba05555d5be00007040",
        "774dbac2586fd8a31a8de6953c9be077bcbb7b3e00006cc0",
    ),
    6: (
        "3f0ae5a2326f045bf5e67383489c09eac4934ded19ef05a4f31acabd00007040",
        "9c9747e97bd0e4f567a2edb0eb70879a6f95f302a3c0de7500006c3d00006cc0",
    ),
    8: (
        "ffa142e68729cc6e0fb254f7993bde8021c46608ab4cf09133d6781abd5e00a3c9c8c8bc00007040",
        "727be946a7bd1ad3915cff6588db39b4b00de08469fa5895ce2cc1a200ed77773344693c00006cc0",
    ),
}


def by_name(form):
    return form.name


def gguf_type(form):
    return gguf.GGMLQuantizationType[form.name.removesuffix("_gguf").upper()]


def assert_same_bits(got, want):
    """Of float32 numbers. Which NaN it is does not matter."""
    both = np.isnan(want)
    assert got.dtype == want.dtype == np.float32
    np.testing.assert_array_equal(np.isnan(got), both)
    np.testing.assert_array_equal(np.where(both, 0, got).view("u4"), np.where(both, 0, want).view("u4"))


def any_blocks(form, rng):
    """Blocks in which each byte has each value, and of small blocks each float16 number each of its bits."""
    count = 1 << (16 if form.block == 32 else 12)
    each = np.arange(count, dtype=np.uint32).astype(np.uint8)[:, None].repeat(form.nbytes, 1)
    blocks = rng.permuted(each, axis=0)
    for at in form.halves:
        halves = rng.permutation(1 << 16)[:count].astype("<u2")
        blocks[:, at : at + 2] = halves.view(np.uint8).reshape(-1, 2)
    return blocks


@pytest.mark.parametrize("form", OF_GGUF, ids=by_name)
def test_any_block_has_the_bits_of_gguf(rng, form):
    rows = any_blocks(form, rng).reshape(-1, 16 * form.nbytes)
    with np.errstate(all="ignore"):
        want = gguf.quants.dequantize(rows, gguf_type(form))
    assert_same_bits(form.dequantize(rows, 16 * form.block), want)


NUMBERS = st.one_of(
    st.integers(-64, 64).map(lambda i: i / 4),  # half-way cases
    st.floats(-1e5, 1e5, width=32),
    st.sampled_from([0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0]),
)


@pytest.mark.parametrize("form", MADE, ids=by_name)
@examples(60)
@given(w=arrays(np.float32, (1, 64), elements=NUMBERS), power=st.integers(-30, 0))
def test_quantised_blocks_have_the_bytes_of_gguf(form, w, power):
    w = np.ldexp(w, power)
    with np.errstate(all="ignore"):
        want = gguf.quants.quantize(w, gguf_type(form))
    np.testing.assert_array_equal(form.quantize(w), want)


def test_random_weights_have_the_bytes_of_gguf(rng):
    w = rng.standard_normal((64, 1024), np.float32)
    for form in MADE:
        np.testing.assert_array_equal(form.quantize(w), gguf.quants.quantize(w, gguf_type(form)))


def test_formats_that_are_only_read_say_so():
    assert {form.name for form in MADE} == {"q4_0", "q4_1", "q5_0", "q8_0", "mxfp4_gguf"}
    for form in set(OF_GGUF) - set(MADE):
        with pytest.raises(UnsupportedError, match=f"mode '{form.mode}' is read, not made"):
            form.quantize(np.zeros((1, 256), np.float32))


@pytest.mark.parametrize(("table", "name"), [(E2M1, "float4_e2m1fn"), (E4M3, "float8_e4m3fn")])
def test_small_floats_are_those_of_ml_dtypes(rng, table, name):
    if not hasattr(ml_dtypes, name):
        pytest.skip("needs ml_dtypes 0.5")
    kind = np.dtype(getattr(ml_dtypes, name))
    codes = np.arange(2 * len(table), dtype=np.uint8)
    values = codes.view(kind).astype(np.float32)
    assert_same_bits(signed(table, codes), values)
    finite = values[np.isfinite(values)]
    middles = (np.sort(finite)[1:] + np.sort(finite)[:-1]) / 2
    drawn = rng.uniform(-finite.max(), finite.max(), 4096).astype(np.float32)
    x = np.concatenate([finite, middles, np.nextafter(middles, np.float32(0)), drawn, drawn / 64])
    np.testing.assert_array_equal(nearest(table, x), x.astype(kind).view(np.uint8))
    beyond = np.array([np.inf, -np.inf, 1e9], np.float32)
    np.testing.assert_array_equal(signed(table, nearest(table, beyond)), finite.max() * np.array([1, -1, 1]))


def test_powers_of_two_are_those_of_ml_dtypes():
    if not hasattr(ml_dtypes, "float8_e8m0fnu"):
        pytest.skip("needs ml_dtypes 0.5")
    codes = np.arange(256, dtype=np.uint8)
    assert_same_bits(power_of_two(codes), codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float32))


@pytest.mark.parametrize("form", [form for form in FORMATS if form not in OF_GGUF], ids=by_name)
def test_rows_are_packed_weights_then_scales_then_biases(rng, form):
    """Read weight by weight, from each row as one number."""
    k = 256
    rows, groups = form.drawn(rng, 3, k), k // form.group_size
    start, size = k * form.bits // 8, form.scale_nbytes
    got = form.dequantize(rows, k)
    for row, values in zip(rows, got, strict=True):
        packed = int.from_bytes(row[:start].tobytes(), "little")
        stored = row[start : start + groups * size * (1 + form.biases)]
        numbers = affine.widened(stored, form.dtype) if form.mode == "affine" else form.widened(stored)
        for i in rng.integers(0, k, 40):
            code = packed >> int(i) * form.bits & (1 << form.bits) - 1
            scale = numbers[i // form.group_size]
            if form.mode == "affine":
                want = np.float32(code) * scale + numbers[groups + i // form.group_size]
            else:
                want = signed(E2M1 if form.bits == 4 else E4M3, np.array(code)) * scale
            assert want == values[i]


@pytest.mark.parametrize("form", fragments.FRAGMENTS, ids=by_name)
def test_blocks_of_fragments_are_slices_of_weights_then_pairs(rng, form):
    """Read weight by weight, from all bytes as one number; 16 bytes of a row and 128 of K are a part."""
    n, k, size = 70, 256, form.in_rows.scale_nbytes
    stored = form.drawn(rng, n, k)
    values, memory, slice_bytes = form.dequantize(stored, k), stored.tobytes(), 16 * form.bits
    packed = int.from_bytes(memory, "little")
    for j, i in zip(rng.integers(0, n, 200).tolist(), rng.integers(0, k, 200).tolist(), strict=True):
        first = j // 64 * 64
        rows, row = min(64, n - first), j - first
        fields = 128 // form.bits
        part = i % 128 // fields ^ (row // 2 % 4 if form.bits == 4 else row % 8)
        eight, place = divmod(i % fields, 8)
        at = first * form.row_nbytes(k) + (i // 128 * rows + row) * slice_bytes + part * 16
        code = packed >> 8 * at + (place * (fields // 8) + eight) * form.bits & (1 << form.bits) - 1
        at = first * form.row_nbytes(k) + k // 128 * rows * slice_bytes
        at += (i // form.group_size * rows + row) * 2 * size
        scale, bias = affine.widened(np.frombuffer(memory[at : at + 2 * size], np.uint8), form.dtype)
        assert np.float32(code) * scale + bias == values[j, i]
    assert not any(hasattr(form, of_rows) for of_rows in ("codes", "joined", "parts"))  # a row has none


@pytest.mark.parametrize("bits", OF_MLX)
def test_affine_weights_have_the_bytes_of_mlx(bits):
    w = (np.arange(64, dtype=np.float32) * 37 % 101 - 40).reshape(2, 32) / 16
    w[1] = -abs(w[1])
    form = format_of("affine", bits, 32, "float32")
    used = 4 * bits + 8
    for row, want in zip(form.quantize(w), OF_MLX[bits], strict=True):
        assert row[:used].tobytes().hex() == want
        assert not row[used:].any()


@pytest.mark.parametrize("dtype", affine.SCALES)
def test_a_step_of_affine_weights_is_that_of_their_stored_scales(rng, dtype):
    """Codes are the nearest to the weights by the scale and the bias as they are rounded."""
    (form,) = [one for one in affine.FORMATS if one.name == f"affine8_g64_{dtype}"]
    w = rng.standard_normal((16, 256), np.float32)
    rows = form.quantize(w)
    codes, parts = form.codes(rows, 256).astype(np.float64), form.parts(rows, 256)
    scale, bias = (affine.widened(x, dtype).astype(np.float64)[:, :, None] for x in parts[1:])
    want = np.clip((w.reshape(codes.shape) - bias) / scale, 0, 255)
    assert abs(codes - want).max() < 0.5001


def test_bfloat16_is_rounded_as_ml_dtypes_rounds(rng):
    x = rng.integers(0, 1 << 32, 1 << 16, np.uint32).view(np.float32)
    x = np.concatenate([x[np.isfinite(x)], np.float32([1 + 2**-8, 1 + 3 * 2**-8, -0.0, 3.4e38])])
    with np.errstate(over="ignore"):
        want = x.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(affine.narrowed(x, "bfloat16"), want.view(np.uint16))
    assert_same_bits(affine.widened(want.view(np.uint8), "bfloat16"), want.astype(np.float32))


@pytest.mark.parametrize("form", mx.FORMATS, ids=by_name)
def test_small_floats_are_the_nearest_below_a_largest_one(rng, form):
    w = rng.standard_normal((8, 128), np.float32)
    w[0, :32] = 0
    got, largest = form.dequantize(form.quantize(w), 128), 6 if form.bits == 4 else 448
    assert (got[0, :32] == 0).all()
    scale = form.widened(form.parts(form.quantize(w), 128).scales).repeat(form.group_size, axis=1)
    inside = np.divide(abs(w), scale, where=scale != 0, out=np.zeros_like(w)) <= largest
    step = 2.0 if form.bits == 4 else 32.0
    assert inside.mean() > 0.95
    assert (abs(got - w) <= scale * step / 2)[inside].all()
    np.testing.assert_array_equal(abs(got[~inside]), (scale * largest)[~inside])


@pytest.mark.parametrize("form", FORMATS, ids=by_name)
def test_rows_drawn_for_checks_are_numbers_of_moderate_size(rng, form):
    rows = form.drawn(rng, 64, 512)
    values = form.dequantize(rows, 512)
    assert rows.shape == (64, form.row_nbytes(512))
    assert np.isfinite(values).all()
    assert 0.001 < abs(values).mean() < 2
    assert format_named(form.name) is form
    assert form.padded(1) % form.block == form.padded(1) % 32 == 0


@pytest.mark.parametrize("form", FORMATS, ids=by_name)
def test_no_rows_are_no_weights(rng, form):
    rows = form.drawn(rng, 0, 512)
    assert rows.shape == (0, form.row_nbytes(512))
    assert form.dequantize(rows, 512).shape == (0, 512)


@pytest.mark.parametrize("k", [-64, 0, 1, 32, 100])
def test_a_depth_without_rows_is_refused(k):
    words = f"K is {k}, no multiple of 64, .* which makes it {128 if k == 100 else 64}"
    with pytest.raises(ShapeError, match=words):
        format_of("affine", 4, 64, "float32").check_depth(k)
    format_of("affine", 4, 64, "float32").check_depth(192)


@pytest.mark.parametrize(
    ("name", "k", "nbytes"),
    [
        *(("affine4_g64_float32", 64, 48), ("affine3_g32_float16", 96, 48), ("mxfp8", 64, 80)),
        *(("nvfp4", 32, 32), ("q4_0", 64, 36), ("q6_k", 512, 420), ("mxfp4_gguf", 64, 34)),
    ],
)
def test_rows_begin_at_multiples_of_16_bytes_but_for_those_of_gguf(name, k, nbytes):
    assert format_named(name).row_nbytes(k) == nbytes


def test_a_format_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ArgumentError, match=r"unknown format 'q4_2': did you mean .*'q4_k'"):
        format_named("q4_2")
    with pytest.raises(ArgumentError, match=r"unknown mode 'iq4_xs'.* valid are 'affine', 'mxfp4'.*'q6_k'"):
        format_of("iq4_xs", None, None, "float32")
