"""verify= of products with quantised weights, which the check reads through their format."""

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.formats import FORMATS, format_named
from pyclmm.problem.dtypes import dtype_of
from tests.support.spoiled import alarm, wrong_at

M, N, K = 5, 37, 256
PLACE = 3 * N + 6
HEADERS = {form.header: form.name for form in FORMATS}  # one format of each


@pytest.fixture
def weights(rng):
    return pyclmm.quantize(rng.standard_normal((N, K), np.float32), bits=4, group_size=64)


def of_rows(rows, name):
    return pyclmm.QuantizedArray.of_rows(rows, format_named(name), K)


def drawn(rng, name):
    return of_rows(format_named(name).drawn(rng, N, K), name)


def operand(rng, dtype="float32", layout="N", m=M):
    x = rng.standard_normal((m, K), np.float32).astype(dtype_of(dtype))
    return np.asfortranarray(x) if layout == "T" else x


@pytest.mark.parametrize(
    ("name", "dtype"), [*zip(HEADERS.values(), ["float32", "float16", "bfloat16"] * 9, strict=False)]
)
def test_right_products_of_each_format_keep_their_bits(rng, name, dtype):
    q, x = drawn(rng, name), operand(rng, dtype)
    assert pyclmm.matmul(x, q.T, verify=True).tobytes() == pyclmm.matmul(x, q.T).tobytes()


@pytest.mark.parametrize("layout", ["N", "T"])
@pytest.mark.parametrize("kernel", ["quantized", "dequantized"])
def test_right_products_of_each_kernel_and_layout(rng, weights, kernel, layout, form):
    x, c = operand(rng, "float16", layout), operand(rng, "float16")[:, :N]
    extra = {"bias": c[0], "beta": 2.0, "kernel": kernel}
    got, want = (pyclmm.gemm(x, weights.T, c, **extra, verify=how) for how in (True, False))
    assert got.tobytes() == want.tobytes()


def test_the_check_rounds_weights_as_the_product_does(rng):
    """Before an activation the limit is one of float32 sums, which bfloat16's rounding exceeds."""
    w = np.full((N, K), 1 + 2**-9 + 2**-12, np.float32)
    q = pyclmm.quantize(w, bits=8, group_size=32)
    x = np.ones((M, K), np.float32).astype(dtype_of("bfloat16"))
    assert not np.array_equal(q.dequantize(), q.dequantize(x.dtype).astype("f4"))
    for kernel in ("quantized", "dequantized"):
        pyclmm.gemm(x, q.T, activation="relu", kernel=kernel, verify=True)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layout", ["N", "T"])
def test_a_wrong_element_is_named(rng, weights, dtype, layout, spoiler, form):
    x = operand(rng, dtype, layout)
    spoiler.element(PLACE, dtype, lambda y: y + type(y)(900))
    alarm(pyclmm.matmul, x, weights.T, verify=True)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_nan_or_infinite(rng, value, spoiler, form):
    x, w = operand(rng), rng.standard_normal((N, K), np.float32)
    q = pyclmm.quantize(w, bits=8, group_size=32)
    rows = q.data.copy()
    rows[4, K : K + 4] = np.array([value], "f4").view(np.uint8)  # the scale of the first group of row 4
    q = of_rows(rows, q.format.name)
    got = pyclmm.matmul(x, q.T, verify=True)
    assert not np.isfinite(got[:, 4]).any()
    assert np.isfinite(np.delete(got, 4, axis=1)).all()
    for place, change in ((3 * N + 4, lambda y: y.dtype.type(1)), (3 * N + 6, lambda y: y + 900)):
        spoiler.element(place, "f", change)
        column = place % N
        with wrong_at(3, column):
            pyclmm.matmul(x, q.T, verify=True)


def test_plans_blocks_and_arrays(rng, weights, queue, spoiler):
    x = operand(rng)
    right = x @ weights.dequantize().T
    plan = pyclmm.Matmul(x, weights.T, verify=True)
    spoiler.element(PLACE, "f", lambda y: y + 900)
    alarm(plan, x, weights.T)
    assert np.allclose(plan(x, weights.T), right, atol=1e-3)
    with pyclmm.verified():
        spoiler.element(PLACE, "f", lambda y: y + 900)
        alarm(pyclmm.matmul, x, weights.T)
    on_device = cla.to_device(queue, x)
    there = weights.to(on_device)
    pyclmm.matmul(on_device, there.T, verify=True)
    pyclmm.finish()
    spoiler.element(PLACE, "f", lambda y: y + 900)
    pyclmm.matmul(on_device, there.T, verify=True)
    alarm(pyclmm.finish)


@pytest.mark.parametrize("mode", [{"bits": 4}, {"mode": "q4_0"}])
def test_a_wrong_part_is_repaired(rng, mode, queue, spoiler):
    x, q = operand(rng), pyclmm.quantize(rng.standard_normal((N, K), np.float32), **mode)
    on_device = cla.to_device(queue, x)
    for a, b in ((x, q), (on_device, q.to(on_device))):
        before = pyclmm.health()["repaired"]
        spoiler.element(PLACE, "f", lambda y: y + 900)
        with pytest.warns(pyclmm.VerificationWarning, match="row 3, column 6 .* computed again by"):
            got = pyclmm.matmul(a, b.T, verify="repair")
        assert pyclmm.health()["repaired"] == before + 1
        assert np.allclose(got if a is x else got.get(), x @ q.dequantize().T, atol=1e-3)
    assert spoiler.kernels.count("verify_out") == 4


def test_a_wrong_part_of_weights_in_blocks_is_repaired_as_whole_blocks(rng, queue, spoiler):
    x, n = operand(rng), 150
    q = pyclmm.quantize(rng.standard_normal((n, K), np.float32), bits=4, group_size=32)
    right, there = x @ q.dequantize().T, q.to(np.empty(0), order="fragments")
    for column in (70, 149):
        spoiler.element(3 * n + column, "f", lambda y: y + 900)
        with pytest.warns(pyclmm.VerificationWarning, match=f"row 3, column {column} .* computed again by"):
            got = pyclmm.matmul(x, there.T, verify="repair")
        np.testing.assert_allclose(got, right, atol=1e-3)
    assert spoiler.kernels.count("verify_out") == 4


@pytest.mark.parametrize("name", HEADERS.values())
def test_no_compiler_warns_of_vectors_that_are_passed(rng, name, own_caches, caplog):
    """PoCL prints how many warnings there are."""
    caplog.set_level("INFO", "pyclmm.opencl.program")
    for options in ({"verify": True}, {"kernel": "dequantized"}):
        pyclmm.matmul(operand(rng), drawn(rng, name).T, **options)
    assert f"compiling {format_named(name).header} verify/" in caplog.text
    assert "changes the ABI" not in caplog.text
