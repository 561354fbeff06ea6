"""quantize_a="int8": a rounded to 8 bits by groups, times quantised weights, on CPU devices."""

from dataclasses import replace

import numpy as np
import pytest

import pyclmm
from pyclmm.checks.reference import error_ratio, int8_groups, limit
from pyclmm.errors import ArgumentError, DTypeError, UnsupportedError
from pyclmm.formats import FORMATS, format_named
from pyclmm.formats.base import RowFormat
from pyclmm.kernels import KERNELS, kernel_named
from pyclmm.kernels.cpu.int8_rows import OFFERED
from pyclmm.opencl.devices import default_device, device_info
from pyclmm.problem.dtypes import dtype_of
from pyclmm.problem.gemm import GemmProblem
from pyclmm.selection.select import candidates
from tests.conformance.offline import TARGETS

INT8 = {"quantize_a": "int8"}
NAME, TILE = KERNELS_OF_8_BITS = ("int8_quantized", "int8_tile")
OF_CODES = [form for form in FORMATS if form.has_codes]

pytestmark = pytest.mark.skipif(
    kernel_named(NAME).unsuited(device_info(default_device())) is not None, reason="for CPU devices"
)


def weights(rng, form, n, k):
    return pyclmm.QuantizedArray.of_rows(form.drawn(rng, n, k), form, k)


def right(got, x, q, result=None):
    """Whether *got* is the product of the rounded *x*, within the bound of float32 sums."""
    w = q.dequantize(np.float32).T
    return error_ratio(got, int8_groups(x, q), w, result=result) <= limit(w.shape[0])


@pytest.fixture
def q(rng):
    return pyclmm.quantize(rng.standard_normal((37, 256), np.float32))


@pytest.fixture
def x(rng):
    return rng.standard_normal((5, 256), np.float32)


@pytest.mark.parametrize("kernel", KERNELS_OF_8_BITS)
@pytest.mark.parametrize("form", OF_CODES, ids=lambda form: form.name)
def test_the_product_is_that_of_the_rounded_numbers(rng, form, kernel):
    """Of several blocks of scales, the last one in part."""
    for m, n, k in ((1, 13, 2304), (3, 1, 256), (7, 21, 768)):
        q, x = weights(rng, form, n, k), rng.standard_normal((m, k), np.float32)
        assert right(pyclmm.matmul(x, q.T, kernel=kernel, **INT8), x, q)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_of_16_bits_are_rounded_as_float32(rng, q, x, dtype):
    narrow = x.astype(dtype_of(dtype))
    got = pyclmm.matmul(narrow, q.T, **INT8)
    assert got.dtype == narrow.dtype
    assert right(got, narrow, q)


@pytest.mark.parametrize("kernel", KERNELS_OF_8_BITS)
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 70])
@pytest.mark.parametrize("n", [1, 2, 9, 100])
def test_sizes(rng, m, n, kernel):
    for name in ("q8_0", "q4_0"):
        q, x = weights(rng, format_named(name), n, 192), rng.standard_normal((m, 192), np.float32)
        assert right(pyclmm.matmul(x, q.T, kernel=kernel, **INT8), x, q)


@pytest.mark.parametrize("name", ["q4_k", "affine4_g128_float16"])
def test_a_tile_of_any_number_of_rows_has_the_same_bits(rng, name):
    configs = kernel_named(TILE).candidates(problem(name), device_info(default_device()))
    q, x = weights(rng, format_named(name), 40, 768), rng.standard_normal((9, 768), np.float32)
    tried = [replace(config, tm=tm) for config in configs for tm in (1, 2, 4, 8)]
    found = [pyclmm.matmul(x, q.T, kernel=(TILE, config), **INT8) for config in tried]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("name", ["q4_k", "q4_0", "affine4_g32_float16", "affine4_g128_float16", "q8_0"])
def test_vectors_of_every_width_that_are_offered(rng, name):
    """Those of the processor and those of which the compiler was told."""
    q = weights(rng, format_named(name), 21, 1792 if name == "affine4_g128_float16" else 2304)
    for kernel in KERNELS_OF_8_BITS:
        for m in (1, 3):
            x = rng.standard_normal((m, q.shape[1]), np.float32)
            for config in kernel_named(kernel).candidates(problem(name), device_info(default_device())):
                assert right(pyclmm.matmul(x, q.T, kernel=(kernel, config), **INT8), x, q)


def test_many_rows_take_a_tile(rng, q):
    for m, name in ((1, NAME), (256, TILE)):
        assert pyclmm.Matmul(rng.standard_normal((m, 256), np.float32), q.T, **INT8).kernel == name


def test_the_reference_rounds_to_the_nearest_of_255_numbers(rng, x, q):
    groups, near = (each.reshape(5, -1, q.group_size) for each in (x, int8_groups(x, q)))
    scale = abs(groups).max(-1, keepdims=True) / 127
    whole = near / scale
    assert (abs(whole - np.rint(whole)) < 1e-4).all()
    assert (abs(whole) < 127.01).all()
    assert (abs(near - groups) <= 0.5001 * scale).all()


def test_the_reference_refuses_rows_that_groups_do_not_divide(x, q):
    with pytest.raises(pyclmm.ShapeError, match=r"a has shape \(5, 96\); pass \(\.\.\., K\).* groups of 64"):
        int8_groups(x[:, :96], q)


@pytest.mark.parametrize("form", OF_CODES[::3], ids=lambda form: form.name)
def test_the_bound_that_is_promised(rng, form):
    """|y - x w| <= sum over groups of 0.5001 scale sum |w|, and the rounding of float32 sums."""
    q, x = weights(rng, form, 50, 1024), rng.standard_normal((6, 1024), np.float32) * np.float32(3)
    got, w = pyclmm.matmul(x, q.T, **INT8), q.dequantize(np.float32).astype("f8")
    size = q.group_size
    scale = abs(x.reshape(6, -1, size)).max(-1) / 127
    bound = 0.5001 * scale @ abs(w).reshape(50, -1, size).sum(-1).T
    sums = limit(1024) * 2.0**-24 * abs(x) @ abs(w).T
    error = abs(got - x.astype("f8") @ w.T)
    assert (error <= bound + sums).all()
    assert error.max() > 100 * 2.0**-24 * abs(got).max()  # something was rounded


@pytest.mark.parametrize(("name", "code"), [("q4_0", 0x88), ("q8_0", 0)])
@pytest.mark.parametrize("kernel", KERNELS_OF_8_BITS)
def test_weights_of_0_give_0(rng, name, code, kernel):
    """Codes are whole numbers that stand for 0 in the middle of their range: nothing of that is rounded."""
    form = format_named(name)
    rows = form.drawn(rng, 3, 512)
    rows.reshape(3, 512 // form.block, -1)[..., 2:] = code
    q, x = pyclmm.QuantizedArray.of_rows(rows, form, 512), rng.standard_normal((5, 512), np.float32)
    assert not pyclmm.matmul(x, q.T, kernel=kernel, **INT8).any()


@pytest.mark.parametrize(("name", "code"), [("q8_0", 128), ("q8_0", 127), ("affine8_g64_float32", 255),
                                            ("affine8_g64_float32", 0), ("affine4_g128_float32", 15),
                                            ("q4_0", 15)])  # fmt: skip
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("kernel", [NAME, (TILE, 2), (TILE, 4)])
def test_the_largest_numbers_do_not_overflow(rng, name, code, sign, kernel):
    """All weights have the code, all of x is 127 or -127."""
    form = format_named(name)
    rows = form.drawn(rng, 3, 512)
    if isinstance(form, RowFormat):
        form.parts(rows, 512).packed[...] = code * (17 if form.bits == 4 else 1)
    else:
        blocks = rows.reshape(3, 512 // form.block, -1)
        blocks[..., 2:] = code * (17 if form.bits == 4 else 1)
    q, x = pyclmm.QuantizedArray.of_rows(rows, form, 512), np.full((2, 512), 127 * sign, np.float32)
    name_of, tm = kernel if isinstance(kernel, tuple) else (kernel, 1)
    for config in kernel_named(name_of).candidates(problem(name), device_info(default_device())):
        assert right(pyclmm.matmul(x, q.T, kernel=(name_of, replace(config, tm=tm)), **INT8), x, q)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_with_a_nan_or_an_infinity_is_nan(q, x, value):
    whole = pyclmm.matmul(x, q.T, **INT8)
    x[3, 77] = value
    got = pyclmm.matmul(x, q.T, **INT8)
    assert np.isnan(got[3]).all()
    np.testing.assert_array_equal(np.delete(got, 3, 0), np.delete(whole, 3, 0))


@pytest.mark.parametrize("size", [0, 1e-45, 1e-37, 1e-30, 1e30, 1e35])
def test_tiny_and_huge_numbers(q, x, size):
    """Groups without a number of 2^-120 count as zeros; none becomes infinite."""
    x *= np.float32(size)
    got = pyclmm.matmul(x, q.T, **INT8)
    assert np.isfinite(got).all()
    if size < 2.0**-123:
        assert not got.any()
    assert right(got, x, q)


def test_zeros_beside_numbers(q, x):
    x[:, 64:192] = 0
    assert right(pyclmm.matmul(x, q.T, **INT8), x, q)


@pytest.mark.parametrize("view", [lambda x: x[::-1], lambda x: x[1:2], np.asfortranarray,
                                  lambda x: x[:, None], lambda x: x[0], lambda x: x[:0]])  # fmt: skip
def test_views_and_stacks(q, x, view):
    a = view(x)
    got = pyclmm.matmul(a, q.T, **INT8)
    assert got.shape == (a @ q.dequantize().T).shape
    assert right(got, a, q)


def test_gemm_applies_its_epilogue(rng, q, x):
    c, bias = (rng.standard_normal(s, np.float32) for s in ((5, 37), 37))
    got = pyclmm.gemm(x.T.copy(), q.T, c, alpha=2, beta=3, trans_a="T", bias=bias, activation="relu", **INT8)
    wanted = np.maximum(2 * int8_groups(x, q) @ q.dequantize().T.astype("f8") + 3 * c + bias, 0)
    assert right(got, 2 * x, q, wanted)
    np.testing.assert_array_equal(pyclmm.gemm(x, q.T, c, alpha=0, beta=3, **INT8), 3 * c)


def test_a_plan(q, x):
    plan = pyclmm.Matmul(x, q.T, constant_b=True, **INT8)
    assert plan.kernel == NAME
    for other in (x, x[::-1] * 3):
        assert right(plan(np.ascontiguousarray(other), q.T), other, q)
    assert "8 bits" in str(plan.explain())


def test_calls_with_and_without_take_turns(q, x):
    rounded, plain = pyclmm.matmul(x, q.T, **INT8), pyclmm.matmul(x, q.T)
    for _ in range(3):
        np.testing.assert_array_equal(pyclmm.matmul(x, q.T), plain)
        np.testing.assert_array_equal(pyclmm.matmul(x, q.T, **INT8), rounded)
    assert abs(rounded - plain).max() > 1e-3


def problem(name="affine4_g64_float16", k=256, **more):
    own = {"ldb": format_named(name).row_nbytes(k), "b_align": format_named(name).align, **more}
    types = ("float32", "uint8", "float32", "float32")
    return GemmProblem(1, 99, k, *types, trans_b=True, lda=k, ldo=99, b_format=name, **own)


def test_without_the_option_it_is_never_chosen():
    cpu = device_info(default_device())
    for form in FORMATS:
        found = {choice.kernel.name for choice in candidates(problem(form.name), cpu, "auto", ())}
        assert found
        assert not found & {NAME, TILE}
    with pytest.raises(UnsupportedError, match="rounds A to 8 bits, which quantize_a"):
        next(candidates(problem(), cpu, NAME))


def test_with_the_option_nothing_else_is_chosen():
    found = [one.kernel.name for one in candidates(problem(**INT8), device_info(default_device()), "auto")]
    assert {*found} == {NAME, TILE}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_gpus_refuse_it(target):
    if target.device.is_cpu:
        return
    with pytest.raises(UnsupportedError, match=f"{NAME}: {NAME} is for CPU devices"):
        next(candidates(problem(**INT8), target.device, "auto"))
    assert all(kernel.refuses(problem(**INT8), target.device) for kernel in KERNELS)


@pytest.mark.parametrize("form", [f for f in FORMATS if not f.has_codes], ids=lambda form: form.name)
def test_other_formats_are_refused_with_the_list(form):
    cpu = device_info(default_device())
    with pytest.raises(UnsupportedError, match=f"offered with {', '.join(OFFERED)}, not {form.name}$"):
        next(candidates(problem(form.name, **INT8), cpu, "auto"))


def test_the_order_of_fragments_is_refused_with_what_to_do():
    cpu, wanted = device_info(default_device()), problem("affine4_g32_float32_fragments", **INT8)
    with pytest.raises(UnsupportedError, match=r'order of fragments, not rows: see q.to\(x, order="rows"\)$'):
        next(candidates(wanted, cpu, "auto"))


def test_half_a_step_of_k_is_refused():
    cpu = device_info(default_device())
    with pytest.raises(UnsupportedError, match="K is 96, no positive multiple of 64; leave quantize_a out"):
        next(candidates(problem("q8_0", 96, **INT8), cpu, "auto"))
    assert kernel_named(NAME).refuses(replace(problem("q8_0", 128, **INT8), b_align=1), cpu) is not None


@pytest.mark.parametrize(
    ("more", "kind", "message"),
    [
        ({"b": np.zeros((256, 3), np.float32)}, ArgumentError, "b is no quantised weights; leave it out"),
        ({"quantize_a": "int4"}, ArgumentError, "unknown quantize_a 'int4'"),
        ({"quantize_a": 8}, DTypeError, "quantize_a is 8; pass a string"),
        ({"verify": True}, UnsupportedError, "quantize_a is 'int8' and verify is True"),
        ({"reproducible": True}, UnsupportedError, "quantize_a is 'int8' and reproducible is True"),
        ({"kernel": "quantized"}, UnsupportedError, "quantized does not round A to 8 bits"),
        ({"dtype": np.float64}, DTypeError, "quantised weights are multiplied in"),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, dict) else None,
)
@pytest.mark.parametrize("call", [pyclmm.matmul, pyclmm.gemm, pyclmm.Matmul])
def test_what_is_refused(q, x, call, more, kind, message):
    given = {**INT8, **more}
    with pytest.raises(kind, match=message):
        call(x, given.pop("b", q.T), **given)


def test_the_settings_of_a_block_are_refused_too(q, x):
    with pyclmm.verified(), pytest.raises(UnsupportedError, match="verify is True"):
        pyclmm.matmul(x, q.T, **INT8)
    with pyclmm.default_reproducible(), pytest.raises(UnsupportedError, match="reproducible is True"):
        pyclmm.matmul(x, q.T, **INT8)


def test_warm_takes_it(x, q):
    """And finds a wrong kernel before the first call does."""
    (plan,) = pyclmm.warm((x, q.T), **INT8)
    assert plan.kernel == NAME
    assert right(plan(x, q.T), x, q)


def test_einsum_takes_it(x, q):
    got = pyclmm.linalg.einsum("mk,nk->mn", x, q, **INT8)
    np.testing.assert_array_equal(got, pyclmm.matmul(x, q.T, **INT8))
    with pytest.raises(ArgumentError, match="no operand is quantised weights; leave it out"):
        pyclmm.linalg.einsum("mk,nk->mn", x, x, **INT8)
