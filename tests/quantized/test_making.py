"""pyclmm.quantize: which weights it takes, in parts of rows, and what it refuses."""

import numpy as np
import pytest

import pyclmm
from tests.support.optional import optional

ml_dtypes = optional("ml_dtypes")


def test_weights_are_quantised_in_parts_of_rows(rng, limits):
    w = rng.standard_normal((7, 128), np.float32)
    whole = pyclmm.quantize(w, bits=6)
    limits(weights=300)
    np.testing.assert_array_equal(pyclmm.quantize(w, bits=6).data, whole.data)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_affine_scales_have_the_dtype_of_w(rng, dtype):
    w = rng.standard_normal((5, 128)).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    q = pyclmm.quantize(w)
    assert q.format.name == f"affine4_g64_{'float32' if dtype == 'float64' else dtype}"
    assert abs(q.dequantize("float64") - w.astype("f8")).max() < 0.35
    np.testing.assert_array_equal(
        pyclmm.quantize(w.astype("f8"), mode="q8_0").data, pyclmm.quantize(w, mode="q8_0").data
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("bits", [2, 8])
def test_affine_steps_are_relative_to_the_weights_of_a_group(rng, dtype, bits):
    """Small weights are as exact as large ones; each group has steps of its own."""
    w = rng.uniform(-1, 1, (4, 64))
    w[1] *= 2**-10 if dtype == "float16" else 2**-100
    w[2] = 0
    w[3] = w[3, 0]
    w = w.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    error = abs(pyclmm.quantize(w, bits=bits).dequantize("float64") - w.astype("f8")).max(axis=1)
    assert (error <= abs(w.astype("f8")).max(axis=1) * (1.5 / (2**bits - 1) + 2**-6)).all()
    assert error[2] == error[3] == 0


def test_the_least_numbers_of_float16_are_kept():
    w = np.arange(-16, 16).astype(np.float16)[None] * np.float16(2**-24)
    np.testing.assert_array_equal(pyclmm.quantize(w, 32, 8).dequantize(), w)


def test_weights_of_any_layout_are_quantised(rng):
    w = rng.standard_normal((128, 10), np.float32)
    np.testing.assert_array_equal(pyclmm.quantize(w.T).data, pyclmm.quantize(np.ascontiguousarray(w.T)).data)
    assert pyclmm.quantize(w.T[:0]).dequantize().shape == (0, 128)


def test_a_stack_has_the_bytes_of_its_matrices(rng):
    w = rng.standard_normal((128, 3, 5), np.float32).T  # (5, 3, 128)
    q = pyclmm.quantize(w)
    for own, matrix in zip(q, w, strict=True):
        np.testing.assert_array_equal(own.data, pyclmm.quantize(matrix).data)
    assert pyclmm.quantize(w[..., :100], mode="q8_0", pad=True).shape == (5, 3, 128)
    assert pyclmm.quantize(w[:0]).dequantize().shape == (0, 3, 128)


def test_padding_is_zeros_behind_k(rng):
    w = rng.standard_normal((3, 100), np.float32)
    q = pyclmm.quantize(w, mode="q8_0", pad=True)
    assert q.shape == (3, 128)
    assert (q.dequantize()[:, 100:] == 0).all()
    padded = np.pad(w, ((0, 0), (0, 28)))
    np.testing.assert_array_equal(q.data, pyclmm.quantize(padded, mode="q8_0").data)
    assert pyclmm.quantize(w[:, :64], pad=True).shape == (3, 64)


W = np.ones((3, 256), np.float32)
REFUSED = [
    ({"w": W.astype(int)}, pyclmm.DTypeError, r"w has dtype int64; .*w\.astype\(np\.float32\)"),
    ({"w": W.astype(complex)}, pyclmm.DTypeError, "w has dtype complex128"),
    ({"w": pyclmm.quantize(W)}, pyclmm.DTypeError, r"w is a QuantizedArray: .*q\.dequantize\(\)"),
    ({"w": W[0]}, pyclmm.ShapeError, r"w has shape \(256,\); pass a matrix"),
    ({"w": W[None, None]}, pyclmm.ShapeError, r"w has shape \(1, 1, 3, 256\)"),
    ({"w": W[None, :, :100]}, pyclmm.ShapeError, "K is 100, no multiple of 64"),
    ({"w": np.stack([W, W * np.nan])}, pyclmm.ArgumentError, "w has numbers that are not finite"),
    ({"w": W[:, :100]}, pyclmm.ShapeError, "K is 100, no multiple of 64, .*pad=True .* makes it 128"),
    ({"w": W[:, :0]}, pyclmm.ShapeError, "K is 0, no multiple of 64"),
    ({"w": W * np.nan}, pyclmm.ArgumentError, "w has numbers that are not finite"),
    ({"w": W.astype("f8") * 1e300}, pyclmm.ArgumentError, "not finite in float32"),
    ({"w": np.ma.array(W)}, pyclmm.DTypeError, "w is a masked array"),
    ({"w": [[1.0], [2.0, 3.0]]}, pyclmm.DTypeError, "w is a list: .*; pass a NumPy array"),
    ({"w": W.astype(object)}, pyclmm.DTypeError, "w is an array of object; pass a NumPy array of numbers"),
    ({"bits": 4.0}, pyclmm.DTypeError, "bits is 4.0; pass an int"),
    ({"mode": "q4_0", "group_size": np.array([32, 32])}, pyclmm.DTypeError, r"group_size is array.*an int"),
    ({"pad": "yes"}, pyclmm.DTypeError, "pad is 'yes'; pass True or False"),
    ({"bits": 5}, pyclmm.ArgumentError, "bits is 5; affine weights have 2, 3, 4, 6, 8"),
    ({"group_size": 16}, pyclmm.ArgumentError, "group_size is 16; affine weights have 32, 64, 128"),
    ({"mode": "q4_0", "bits": 8}, pyclmm.ArgumentError, "bits is 8, but q4_0 has 4"),
    ({"mode": "mxfp4", "group_size": 64}, pyclmm.ArgumentError, "group_size is 64, but mxfp4 has 32"),
    ({"mode": "iq4_xs"}, pyclmm.ArgumentError, "unknown mode 'iq4_xs'.*valid are 'affine'"),
    ({"mode": "q4_k"}, pyclmm.UnsupportedError, "mode 'q4_k' is read, not made"),
    ({"mode": "q4_k", "w": W[:, :32]}, pyclmm.UnsupportedError, "mode 'q4_k' is read, not made"),
    ({"w": W * 1e6, "mode": "q4_0"}, pyclmm.ArgumentError, r"w has numbers up to 1e\+06, too large .* q4_0"),
    ({"w": W * 3000, "mode": "nvfp4"}, None, ""),
    ({"w": W * 4000, "mode": "nvfp4"}, pyclmm.ArgumentError, r"up to 4e\+03, too large .* nvfp4"),
    ({"w": W * 6000, "mode": "nvfp4"}, pyclmm.ArgumentError, r"up to 6e\+03, too large .* nvfp4"),
    ({"w": np.array([[3e38, -3e38] * 32])}, pyclmm.ArgumentError, r"up to 3e\+38, too large"),
    ({"w": W * 3e38}, None, ""),
    ({"w": W * 1e-30}, None, ""),
    ({"w": W * 1e-4, "mode": "nvfp4"}, pyclmm.ArgumentError, r"up to 0.0001, too small .* nvfp4"),
    ({"w": W * 1e-8, "mode": "q8_0"}, pyclmm.ArgumentError, r"up to 1e-08, too small .* q8_0"),
    ({"w": W.astype(float) * 1e-60}, pyclmm.ArgumentError, r"up to 1e-60, too small .* affine4"),
    ({"w": W * 0, "mode": "q8_0"}, None, ""),
    ({"w": W * 3e38, "mode": "mxfp4"}, None, ""),
]


@pytest.mark.parametrize(("given", "error", "words"), REFUSED)
def test_weights_that_no_scales_fit_are_refused_by_name(given, error, words):
    if error is None:
        assert np.isfinite(pyclmm.quantize(**{"w": W, **given}).dequantize()).all()
        return
    with pytest.raises(error, match=words):
        pyclmm.quantize(**{"w": W, **given})


@pytest.mark.parametrize("mode", ["nvfp4", "q8_0"])
def test_a_matrix_of_a_stack_and_rows_may_be_too_small(mode):
    stack = np.stack([W, W * 1e-12])
    rows = np.concatenate([np.ones((1024, 4096), np.float32), np.full((8, 4096), 1e-12, np.float32)])
    for w in (stack, rows):
        found = pyclmm.quantize(w, mode=mode).dequantize()
        assert found[0].any()
        assert not found[-1].any()
    with pytest.raises(pyclmm.ArgumentError, match="too small"):
        pyclmm.quantize(stack * np.float32(1e-8), mode=mode)
