"""verify=: right products raise no alarm and keep their bits; a wrong element is noticed and named."""

from dataclasses import replace

import numpy as np
import pytest

import pyclmm
from pyclmm.kernels import verification
from pyclmm.opencl import compiler, program
from pyclmm.plan import programs_of
from pyclmm.problem.dtypes import ELEMENT_TYPES, dtype_of
from tests.support import spoiled
from tests.support.cases import DEVICE, laid_out, numbers
from tests.support.made_up import seen_as
from tests.support.plans import executable
from tests.support.spoiled import wrong_at

TYPES = [name for name in ELEMENT_TYPES if name != "bool"]
INTEGERS = [name for name in TYPES if "int" in name]
FLOATS = [name for name in TYPES if name not in INTEGERS]
LAYOUTS = ("NN", "NT", "TN", "TT")
M, N, K = 19, 37, 53
WITHOUT_C = (0, N) if DEVICE.is_cpu else 6  # columns, with out in place of C; GPUs have a copy of C still


def operands(dtype, layout="NN", m=M, n=N, k=K, seed=0):
    rng = np.random.default_rng(seed)
    a, b = (numbers(rng, shape, dtype_of(dtype)) for shape in ((m, k), (k, n)))
    return laid_out(a, layout[0]), laid_out(b, layout[1])


def same_bits(x, y):
    x, y = np.asarray(x), np.asarray(y)
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    assert x.tobytes() == y.tobytes()


def wrong():
    return pyclmm.health()["wrong"]


# ---- right products


# Every type in one layout, two of them in every one.
TYPES_IN_LAYOUTS = dict.fromkeys(
    [(dtype, LAYOUTS[at % len(LAYOUTS)]) for at, dtype in enumerate(TYPES)]
    + [(dtype, layout) for dtype in ("float32", "int8") for layout in LAYOUTS]
)


@pytest.mark.parametrize(("dtype", "layout"), TYPES_IN_LAYOUTS)
def test_right_products_keep_their_bits(dtype, layout, form):
    a, b = operands(dtype, layout)
    same_bits(pyclmm.matmul(a, b, verify=True), pyclmm.matmul(a, b))


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex128", "int8", "uint64"])
def test_right_products_with_c_and_a_bias(dtype):
    a, b = operands(dtype, "NT")
    rng = np.random.default_rng(1)
    c, row, column = (numbers(rng, shape, dtype_of(dtype)) for shape in ((M, N), (1, N), (M, 1)))
    for extra in ({"beta": 3, "alpha": 2, "bias": row}, {"bias": column}):
        given = (a, b, c) if "beta" in extra else (a, b)
        same_bits(pyclmm.gemm(*given, verify=True, **extra), pyclmm.gemm(*given, **extra))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("shape", [None, (1, N), (M, 1)])
def test_compilers_have_nothing_to_say_of_a_check(dtype, shape, queue):
    """They print on the terminal how many warnings they have."""
    bias = None if shape is None else np.ones(shape, dtype)
    plan = pyclmm.Matmul(*operands(dtype), bias=bias, verify=True, queue=queue)
    for one in programs_of(plan):
        anew = replace(one, defines=(*one.defines, ("ANEW", 1)))  # not from the binary that is kept
        assert compiler.logs(program.built(queue.context, anew)) == []


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "gelu", "gelu_tanh", "sigmoid", "tanh", "silu"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_activation_keeps_its_bits(activation, dtype):
    a, b = operands(dtype)
    extra = {"bias": b[:1], "activation": activation}
    same_bits(pyclmm.gemm(a, b, verify=True, **extra), pyclmm.gemm(a, b, **extra))


def test_stacks_views_and_vectors():
    rng = np.random.default_rng(2)
    left, right = (rng.standard_normal(shape).astype("f") for shape in ((3, 1, M, K), (2, K, N)))
    view = rng.standard_normal((2 * M, 3 * K)).astype("f")[::2, ::-3]
    out = np.empty((M, 2 * N), "f")[:, :N]
    cases = (
        (left, right),
        (left[0], np.ascontiguousarray(right.swapaxes(-1, -2)).swapaxes(-1, -2)),
        (view, right[1]),
        (left[0, 0, 0], right),
        (left, right[0, :, 0]),
        (left[0, 0, 0], right[0, :, 0]),
    )
    for a, b in cases:
        same_bits(pyclmm.matmul(a, b, verify=True), pyclmm.matmul(a, b))
    assert pyclmm.matmul(view, right[1], out=out, verify=True) is out
    same_bits(out, pyclmm.matmul(view, right[1]))


@pytest.mark.parametrize("shape", [(3, 4, 0), (0, 4, 5), (3, 0, 5), (1, 1, 1), (1, 40, 1), (40, 1, 1)])
def test_empty_and_thin_products(shape):
    m, n, k = shape
    a, b = np.ones((m, k), "f"), np.ones((k, n), "f")
    same_bits(pyclmm.matmul(a, b, verify=True), a @ b)
    same_bits(pyclmm.gemm(a, b, np.ones((m, n), "f"), beta=2.0, verify=True), a @ b + 2)


def test_other_types_of_result_and_operands():
    a, b = operands("float32")
    for x, y, options in (
        (a.astype("f2"), b, {}),
        (a, b, {"dtype": np.float64}),
        (a, b, {"out": np.empty((M, N), "f2"), "casting": "same_kind"}),
        (np.ones((M, K), bool), np.ones((K, N), "i2"), {}),
    ):
        want = pyclmm.matmul(x, y, **options).copy()
        same_bits(pyclmm.matmul(x, y, verify=True, **options), want)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "float64"])
@pytest.mark.parametrize("precision", ["high", "medium"])
def test_other_precisions(dtype, precision):
    a, b = operands(dtype)
    same_bits(pyclmm.matmul(a, b, precision=precision, verify=True), pyclmm.matmul(a, b, precision=precision))


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "float64"])
@pytest.mark.parametrize("scales", [(1e-3, 1e-3), (1e-30, 1e-12), (1e25, 1e10), (1e30, 1e30), (0, 1)])
def test_huge_and_tiny_scales(dtype, scales):
    rng = np.random.default_rng(3)
    real = dtype_of(dtype).type(0).real.dtype
    with np.errstate(all="ignore"):
        a = (rng.standard_normal((M, K)) * scales[0] * 10.0 ** rng.integers(-4, 4, (M, 1))).astype(real)
        b = (rng.standard_normal((K, N)) * scales[1] * 10.0 ** rng.integers(-4, 4, (1, N))).astype(real)
    a, b = a.astype(dtype), b.astype(dtype)
    same_bits(pyclmm.matmul(a, b, verify=True), pyclmm.matmul(a, b))


@pytest.mark.parametrize(("dtype", "alpha"), [("float32", 1e30), ("complex64", 1e30), ("float64", 1e250)])
def test_sums_of_subnormal_products_that_alpha_makes_large(dtype, alpha, form):
    a, b = (x * np.sqrt(np.finfo(dtype).tiny / 1e5).astype(dtype) for x in operands(dtype))
    same_bits(pyclmm.gemm(a, b, alpha=alpha, verify=True), pyclmm.gemm(a, b, alpha=alpha))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_device_that_flushes_loses_sums_of_numbers_that_are_nearly_subnormal(monkeypatch, layout, form):
    """A multiplies them by 1e30. Parts of a complex number are flushed apart."""
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-denorms-are-zero")
    seen_as(monkeypatch, flushes=True)
    pyclmm.release()
    small = np.where(np.arange(N) % 2, -1.2e-38, 1.5e-38)
    for dtype, row in (("f4", small), ("c8", small + 3e-39j), ("c8", 1j * small)):
        a, b = np.full((M, K), 1e30, dtype), np.broadcast_to(row, (K, N)).astype(dtype)
        given = laid_out(a, layout[0]), laid_out(b, layout[1])
        same_bits(pyclmm.matmul(*given, kernel="naive", verify=True), pyclmm.matmul(*given, kernel="naive"))


@pytest.mark.parametrize("dtype", ["float64", "int32"])
@pytest.mark.parametrize("n", [30, 2 * N])
def test_columns_in_another_order_are_noticed_by_a_first_call(dtype, n, spoiler, form):
    def reverse(words):
        out = words[: M * n * np.dtype(dtype).itemsize].view(dtype).reshape(M, n)
        out[:, :30] = out[:, 29::-1]

    a, b = operands(dtype, n=n)
    plan = pyclmm.Matmul(a, b, verify=True)
    spoiler.waiting.append(reverse)
    with pytest.raises(pyclmm.VerificationError, match="signs of seed 0"):
        plan(a, b)


def test_a_result_may_overflow_to_infinity():
    a, b = (np.full(shape, 200, "f2") for shape in ((M, K), (K, N)))
    b[:, ::2] = 0.5
    got = pyclmm.matmul(a, b, verify=True)
    assert np.isinf(got[:, 1::2]).all()
    assert np.isfinite(got[:, ::2]).all()


@pytest.mark.parametrize("more", ["nothing", "c", "bias"])
def test_a_sum_may_overflow_that_alpha_makes_small(more, form):
    a, b = np.full((M, K), 1e19, "f4"), np.full((K, 1), 4e19 / K, "f4")
    c, bias = (np.ones((M, 1), "f4") if more == name else None for name in ("c", "bias"))
    got = pyclmm.gemm(a, b, c, bias=bias, alpha=1e-3, beta=float(more == "c"), verify=True)
    assert np.isinf(got).all()


@pytest.mark.parametrize("wrong", [lambda x: np.nan, lambda x: np.inf, lambda x: x + 5000])
def test_what_is_wrong_is_noticed_beside_an_overflow(wrong, spoiler, form):
    a, b = (np.full(shape, 1, "f2") for shape in ((M, K), (K, N)))
    b[:, 3] = 2000
    assert np.isinf(pyclmm.matmul(a, b, verify=True)[:, 3]).all()
    spoiler.element(4 * N + 6, "f2", wrong)
    with wrong_at(4, 6):
        pyclmm.matmul(a, b, verify=True)


def test_stacks_with_c_and_a_bias_in_the_form_of_gpus(monkeypatch, spoiler):
    spoiled.gpu_form(monkeypatch)
    pyclmm.release()
    a, b, c = (np.ones((2, *shape), "f") for shape in ((M, K), (K, N), (M, N)))
    plan = pyclmm.Matmul(a, b, c, beta=2.0, bias=np.ones((M, 1), "f"), verify=True)
    assert (plan(a, b, c, bias=np.ones((M, 1), "f")) == K + 3).all()
    spoiler.element((M + 4) * N, "f", lambda x: x + 1)
    with pytest.raises(pyclmm.VerificationError) as caught:
        plan(a, b, c, bias=np.ones((M, 1), "f"))
    assert (caught.value.rows, caught.value.stack) == ((4, 5), (1, 2))


# ---- NaN and infinity


def odd(x):
    """*x* with NaN and infinity in some places."""
    x = x.copy()
    x[(0,) * (x.ndim - 1) + (7,)], x[(x.shape[0] // 2,) * (x.ndim - 1) + (-1,)] = np.nan, np.inf
    return x


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("where", ["a", "b", "c", "bias"])
def test_nan_and_infinity_raise_no_alarm(where, layout, form):
    dtype = ("float32", "complex64", "float16")[(len(where) + LAYOUTS.index(layout)) % 3]
    a, b = operands(dtype, layout)
    if where == "a":
        a = laid_out(odd(a), layout[0])
    elif where == "b":
        b = laid_out(odd(b), layout[1])
    given, extra = (a, b), {}
    if where == "c":
        given, extra = (a, b, odd(np.ones((M, N), dtype))), {"beta": 1.0}
    elif where == "bias":
        extra = {"bias": odd(np.ones(N, dtype))}
    got = pyclmm.gemm(*given, **extra, verify=True)
    assert not np.isfinite(got).all()
    same_bits(np.isnan(got), np.isnan(pyclmm.gemm(*given, **extra)))


@pytest.mark.parametrize("where", ["a", "b"])
def test_a_finite_element_where_there_must_be_none_is_noticed(where, spoiler, form):
    a, b = operands("float32")
    place = {"a": a, "b": b}[where]
    place[3, 5] = np.inf
    assert not np.isfinite(pyclmm.matmul(a, b, verify=True)).all()
    i, j = (3, 8) if where == "a" else (8, 5)
    spoiler.element(i * N + j, "f", lambda x: 1.0)
    with wrong_at(i, j):
        pyclmm.matmul(a, b, verify=True)


@pytest.mark.parametrize("beside_nan", [False, True])
@pytest.mark.parametrize("more", ["nothing", "c", "bias", "out is c"])
@pytest.mark.parametrize("wrong", [lambda x: np.nan, lambda x: np.inf, lambda x: x + 100])
def test_what_is_wrong_is_noticed_beside_a_column_of_nan_too(wrong, more, beside_nan, spoiler, form):
    a, b = operands("float32")
    c, bias = np.ones((M, N), "f"), np.ones(N, "f")
    if beside_nan:
        b[2, 3] = c[4, 3] = bias[3] = np.nan
    given, extra = ((a, b, c), {"beta": 2.0}) if "c" in more else ((a, b), {})
    extra |= {"bias": {"bias": bias}, "out is c": {"out": c}}.get(more, {})
    spoiler.element(4 * N + 6, "f", wrong)
    with wrong_at(4, WITHOUT_C if "out" in more else 6):
        pyclmm.gemm(*given, **extra, verify=True)


# ---- wrong elements


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_any_wrong_element_of_integers_is_noticed(dtype, layout, spoiler):
    a, b = operands(dtype, layout)
    width = np.iinfo(dtype).bits
    for i, j, bit in ((0, 0, 0), (M - 1, N - 1, width - 1), (7, 11, width // 2)):
        spoiler.element(i * N + j, f"uint{width}", lambda x, bit=bit: x ^ type(x)(1 << bit))
        with wrong_at(i, j):
            pyclmm.matmul(a, b, verify=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_wrong_element_is_named(dtype, layout, spoiler, form):
    a, b = operands(dtype, layout)
    result = pyclmm.matmul(a, b).dtype  # of bfloat16 it is float32
    for i, j in ((0, 0), (M - 1, N - 1), (7, 11)):
        spoiler.element(i * N + j, result, lambda x: x + type(x)(64))
        with pytest.raises(pyclmm.VerificationError) as caught:
            pyclmm.matmul(a, b, verify=True)
        error = caught.value
        assert (error.rows, error.columns, error.stack) == ((i, i + 1), (j, j + 1), (0, 1))
        assert error.error == pytest.approx(64, rel=0.02)
        assert 0 < error.limit < 64
        assert str(error).startswith(f"a result is wrong: row {i}, column {j} of ")


def test_a_wrong_element_of_a_column_major_result_is_named(spoiler):
    """Its transposed product is computed."""
    a, b = operands("float32")
    out = np.empty((N, M), "f").T
    spoiler.element(6 * M + 3, "f", lambda x: x + 64)
    named = f"row 3, column 6 of {M} x {N} x {K} float32 .*The sum of column 6 with"
    with pytest.raises(pyclmm.VerificationError, match=named) as caught:
        pyclmm.matmul(a, b, out=out, verify=True)
    assert (caught.value.rows, caught.value.columns) == ((3, 4), (6, 7))


def test_errors_under_the_bound_are_not_seen_and_those_above_are(spoiler):
    """The bound that the error states is the one that the check uses."""
    a, b = operands("float32")
    spoiler.element(N, "f", lambda x: x + 1)
    with pytest.raises(pyclmm.VerificationError) as caught:
        pyclmm.matmul(a, b, verify=True)
    limit = caught.value.limit
    spoiler.element(N, "f", lambda x: x + np.float32(limit / 2))
    pyclmm.matmul(a, b, verify=True)
    spoiler.element(N, "f", lambda x: x + np.float32(limit * 2))
    with pytest.raises(pyclmm.VerificationError):
        pyclmm.matmul(a, b, verify=True)


def test_errors_that_would_cancel_are_noticed_by_the_signs(spoiler):
    """+e and -e in one row, and +e and +e: with signs that change, at most half of the calls miss each."""
    a, b = operands("float32")

    def both(second):
        def change(words):
            elements = words.view("f")
            elements[5] += 50
            elements[9] += second

        return change

    for second in (50, -50):
        found = 0
        for _ in range(12):
            spoiler.waiting.append(both(second))
            try:
                pyclmm.matmul(a, b, verify=True)
            except pyclmm.VerificationError:
                found += 1
        assert found >= 2


def test_a_wrong_product_of_a_stack_is_named(spoiler, form):
    a, b = np.ones((3, M, K), "f"), np.ones((K, N), "f")
    a[1] = 2
    b = np.stack([b, b, b])
    spoiler.element((2 * M + 5) * N + 6, "f", lambda x: -x)
    with pytest.raises(pyclmm.VerificationError, match="product 2 of the stack") as caught:
        pyclmm.matmul(a, b, verify=True)
    assert caught.value.stack == (2, 3)
    assert (caught.value.rows, caught.value.columns) == ((5, 6), (6, 7))


@pytest.mark.parametrize("dtype", ["float32", "int16", "complex64"])
@pytest.mark.parametrize("in_place", [False, True])
def test_with_c_the_column_is_named_unless_out_is_c(dtype, in_place, spoiler):
    a, b = operands(dtype)
    c = np.arange(M * N).astype(dtype).reshape(M, N)
    spoiler.element(3 * N + 6, dtype, lambda x: x + type(x)(90))
    with wrong_at(3, WITHOUT_C if in_place else 6):
        pyclmm.gemm(a, b, c, alpha=2, beta=3, out=c if in_place else None, verify=True)


def test_a_wrong_nan_is_told_from_a_wrong_sum(spoiler):
    a, b = operands("float32")
    for value in (np.nan, np.inf):
        spoiler.element(3 * N + 6, "f", lambda x, value=value: x.dtype.type(value))
        words = "In row 3 an element is NaN or infinite"
        with pytest.raises(pyclmm.VerificationError, match=words) as caught:
            pyclmm.matmul(a, b, verify=True)
        assert caught.value.error == np.inf
        assert (caught.value.rows, caught.value.columns) == ((3, 4), (6, 7))


@pytest.mark.parametrize(
    "more",
    [{"bias": np.full((1, N), 5, "f")}, {"bias": np.full((M, 1), 5, "f")}, {"activation": "relu"}],
    ids=["row", "column", "relu"],
)
def test_before_a_bias_and_an_activation(more, spoiler):
    a, b = operands("float32")
    spoiler.element(3 * N + 6, "f", lambda x: x - 90)  # relu alone would hide it
    with wrong_at(3, 6):
        pyclmm.gemm(-abs(a), abs(b), **more, verify=True)


def test_an_alarm_is_given_once(spoiler):
    a, b = operands("float32")
    before = wrong()
    spoiler.element(3, "f", lambda x: x + 90)
    with pytest.raises(pyclmm.VerificationError):
        pyclmm.matmul(a, b, verify=True)
    assert wrong() == before + 1
    pyclmm.matmul(a, b, verify=True)
    pyclmm.finish()
    assert wrong() == before + 1


def test_unchecked_products_launch_no_check(spoiler):
    a, b = operands("float32")
    pyclmm.Matmul(a, b)(a, b)
    assert not [name for name in spoiler.kernels if name.startswith("verify")]
    pyclmm.matmul(a, b, verify=True)
    assert "verify_out" in spoiler.kernels


@pytest.mark.parametrize("verify", [True, "repair", False])
def test_a_plan_tells_how_it_checks_and_what_that_takes(verify):
    a, b = operands("float32")
    plan, plain = (pyclmm.Matmul(a, b, activation="relu", verify=x) for x in (verify, False))
    assert plan.verify == verify
    found, without = plan.explain(), plain.explain()
    assert found.seconds == without.seconds + found.check_seconds
    assert (found.check_seconds > 0) == ("to check the result" in str(found)) == bool(verify)
    others = {other.kernel: other.seconds for other in without.others if other.seconds}
    assert others
    for other in found.others:
        if other.seconds:
            assert other.seconds == others[other.kernel] + found.check_seconds


def test_the_limit_counts_every_addition_of_c():
    """A work-item of a CPU adds a row of C one by one."""
    n = 4096
    shape = np.zeros((1, 1), "f"), np.zeros((1, n), "f"), np.zeros((1, n), "f")
    plan = pyclmm.Matmul(*shape, beta=1.0, verify=True)
    form = verification._FormOfSums.of(executable(plan).problem, executable(plan).device)
    factor = verification._bound(executable(plan).problem, form)[0]
    assert factor >= 2.0**-24 * (n // form.items)


def test_sums_with_care_round_as_often_as_others(form):
    """A row beside a NaN, whose terms all round the same way: one by one they would be off by more than the
    limit. The product and its own row sum are exact."""
    n = 32768
    b = np.full((2, n), [[1.5 * 2.0**-24], [0]], np.float32)
    b[:, 0] = 1, -1
    b *= signs_of_the_first_call(n)
    b[:, -1] = np.nan
    a = np.ones((1, 2), np.float32)
    with pyclmm.Matmul(a, b, verify=True) as plan:
        assert np.array_equal(plan(a, b), a @ b, equal_nan=True)


def signs_of_the_first_call(n):
    """As cl/verify/sums.h draws them."""
    j = np.arange(n, dtype=np.uint32)
    h = (j >> 5) * np.uint32(0x9E3779B1)
    h = (h ^ (h >> 15)) * np.uint32(0x85EBCA6B)
    return 1 - 2 * ((h ^ (h >> 13)) >> (j & 31) & 1).astype(np.float32)
