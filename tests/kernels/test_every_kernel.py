"""The laws: every kernel in every configuration has every property of a matrix product."""

from __future__ import annotations

import itertools

import numpy as np
import pyopencl.array as cla
import pytest

from pyclmm import TileConfig
from pyclmm.problem.dtypes import ELEMENT_TYPES, dtype_of
from pyclmm.problem.gemm import ACTIVATIONS
from tests.support.cases import (
    every_config,
    every_kernel,
    is_positive_zero,
    numbers,
    rotated,
    small_integers,
    two_configs,
    zero_products,
)
from tests.support.optional import optional
from tests.support.oracle import gemm as expected

ml_dtypes = optional("ml_dtypes")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NETLIB_SIZES = (0, 1, 2, 3, 5, 9)
CANARY = 127
UNITS = 8 * 2.0**-24  # the relative error that OpenCL allows its builtins


def shapes_around(config):
    """(M, N, K) at each tile size and one beside it, with 1 in each place, primes, K = 0, long and thin."""
    config = config or TileConfig()
    sizes = {"m": {config.bm, 16}, "n": {config.bn, 16}, "k": {config.bk, 16}}
    near = [{s + d for s in sizes[axis] for d in (-1, 0, 1)} - {0} for axis in "mnk"]
    together = itertools.zip_longest(*(sorted(axis) for axis in near), fillvalue=17)
    alone = [(m, 7, 5) for m in near[0]] + [(6, n, 5) for n in near[1]] + [(6, 7, k) for k in near[2]]
    rest = [(1, 9, 9), (9, 1, 9), (9, 9, 1), (1, 1, 1), (13, 17, 31), (37, 29, 41), (4, 5, 0)]
    thin = [(1, 200, 1), (200, 1, 3), (3, 2, 301), (1, 1, 500), (1, 64, 64), (150, 2, 1), (64, 4, 100)]
    return [*together, *alone, *rest, *thin]


@every_config
@pytest.mark.usefixtures("optimized")
def test_small_integers_are_exact_at_shapes_that_break_kernels(subject, rng):
    before = subject.used
    for m, n, k in subject.shapes(shapes_around(subject.config)):
        a, b = small_integers(rng, (m, k), "f4"), small_integers(rng, (k, n), "f4")
        got = subject(a, b)
        assert np.array_equal(got, a @ b), (m, n, k)
    assert subject.used > before, "no shape ran in this configuration"


@every_config
def test_error_bound(subject, rng):
    for m, n, k in subject.shapes([(33, 35, 67), (5, 4, 1000), (1, 17, 300), (18, 1, 129), (6, 5, 200)]):
        a, b = numbers(rng, (m, k), "f4"), numbers(rng, (k, n), "f4")
        expected(a, b).check(subject(a, b), (m, n, k))


@every_config
def test_identity(subject, rng):
    for m, n in ((13, 13), (4, 13), (13, 4)):
        if subject.takes(m, n, n):
            x = numbers(rng, (m, n), "f4")
            assert np.array_equal(subject(x, np.eye(n, dtype="f4")), x)
            assert np.array_equal(subject(np.eye(m, dtype="f4"), x), x)


@every_config
def test_nothing_but_the_result_is_written(subject, rng, queue):
    m, n, k = subject.shape(13, 11, 19)
    ld = n + 5
    a, b = numbers(rng, (m, k), "f4"), numbers(rng, (k, n), "f4")
    memory = cla.to_device(queue, np.full(3 + m * ld + CANARY, 7, "f4"))
    out = memory[3 : 3 + m * ld].reshape(m, ld)[:, :n]
    a_dev, b_dev = cla.to_device(queue, a), cla.to_device(queue, b)
    subject(a_dev, b_dev, out=out)
    after = memory.get()
    rows = after[3 : 3 + m * ld].reshape(m, ld)
    expected(a, b).check(rows[:, :n])
    assert (rows[:, n:] == 7).all(), "padding columns of the leading dimension"
    assert (after[:3] == 7).all()
    assert (after[3 + m * ld :] == 7).all(), "canary behind the result"
    assert np.array_equal(a_dev.get(), a)
    assert np.array_equal(b_dev.get(), b)


@every_config
def test_padding_of_operands_is_not_read(subject, rng):
    m, n, k = subject.shape(9, 10, 11)
    a, b = np.full((m + 2, k + 5), np.nan, "f4"), np.full((k + 2, n + 3), np.nan, "f4")
    a[1:-1, 2:-3], b[1:-1, 1:-2] = small_integers(rng, (m, k), "f4"), small_integers(rng, (k, n), "f4")
    left, right = a[1:-1, 2:-3], b[1:-1, 1:-2]
    assert np.array_equal(subject(left, right), left @ right)


@every_config
def test_nan_and_infinity_go_where_ieee_says(subject, rng):
    m, n, k = subject.shape(9, 9, 10)
    a, b = small_integers(rng, (m, k), "f4"), np.ones((k, n), "f4")
    a[2, 3], a[4, 5], b[3, n - 1] = np.nan, np.inf, -np.inf
    a[0, 3] = 0  # 0 times infinity
    with np.errstate(invalid="ignore"):
        want = (a.astype("f8")[:, :, None] * b.astype("f8")[None]).sum(1)
    assert np.array_equal(subject(a, b), want.astype("f4"), equal_nan=True)


@every_config
def test_denormals_and_negative_zero(subject):
    tiny = np.float32(2.0**-149)
    a = np.array([[tiny, 0], [-0.0, -0.0], [tiny, tiny]], "f4")
    b = np.array([[1, 2, -0.0], [0, 2, -1]], "f4")
    got = subject(a, b)
    assert np.array_equal(got, a @ b)
    negative = subject(a, b, np.full((3, 3), -0.0, "f4"), alpha=0, beta=1)
    assert np.array_equal(negative, np.zeros((3, 3)))


# ---- the sign of zero (docs/semantics.md) ------------------------------------------------------


@every_config
def test_the_sign_of_zero_is_positive(subject):
    """Sums start from +0.0, and rounding to nearest gives +0.0 + -0.0 = +0.0."""
    for m, n, k in subject.shapes([(7, 5, 1), (1, 9, 1), (6, 1, 3), (17, 18, 33)]):
        for a, b in zero_products(m, n, k):
            assert is_positive_zero(subject(a, b)), (m, n, k)
    m, n, _ = subject.shape(5, 6, 0)
    assert is_positive_zero(subject(np.ones((m, 0), "f4"), -np.ones((0, n), "f4")))


@rotated(["name"], [(n,) for n in ELEMENT_TYPES if dtype_of(n).kind in "fcV"], by=2)
def test_the_sign_of_zero_of_every_type(subject, name):
    m, n, k = subject.shape(9, 6, 5)
    for a, b in zero_products(m, n, k, dtype_of(name)):
        assert is_positive_zero(subject(a, b))


@every_kernel
def test_the_sign_of_zero_is_ieees_after_the_sum(subject):
    """alpha (+0.0) + beta C + bias, one operation after the other, and relu keeps what is not below zero."""
    m, n, k = subject.shape(6, 5, 7)
    a, b, plus = -np.zeros((m, k), "f4"), np.ones((k, n), "f4"), np.float32(0)
    for alpha, beta, c, bias in (
        (-2, 0, None, None), (1, 1, -0.0, None), (-1, 1, -0.0, None), (-1, 1, 0.0, None), (-1, -1, 0.0, None),
        (1, 0, None, -0.0), (-1, 0, None, -0.0), (-1, -3, 0.0, -0.0), (0, 1, -0.0, None),
    ):  # fmt: skip
        want = alpha * plus
        want = want if c is None else want + np.float32(beta) * np.float32(c)
        want = want if bias is None else want + np.float32(bias)
        given = [] if c is None else [np.full((m, n), c, "f4")]
        call = {"alpha": alpha, "beta": beta, "bias": None if bias is None else np.full(n, bias, "f4")}
        activation = "relu" if given and bias is not None else None
        got = subject(a, b, *given, activation=activation, **call)
        assert (got == 0).all()
        assert (np.signbit(got) == np.signbit(want)).all(), (alpha, beta, c, bias)


@every_kernel
def test_the_sign_of_zero_that_a_store_rounds_to_is_that_of_the_sum(subject):
    """-2^-28 is a float32, and as a float16 it is -0.0."""
    m, n, k = subject.shape(5, 6, 1)
    a, b = np.full((m, k), -(2.0**-14), "f2"), np.full((k, n), 2.0**-14, "f2")
    got = subject(a, b)
    assert (got == 0).all()
    assert np.signbit(got).all()


@two_configs
@pytest.mark.parametrize("beta", [0, 1, 1.3])
@pytest.mark.parametrize("alpha", [0, 1, 0.7])
def test_netlib_sizes_and_scalars(subject, alpha, beta, rng):
    sizes = list(itertools.product(NETLIB_SIZES, repeat=3))[:: 2 if alpha == beta == 1 else 9]
    for m, n, k in subject.shapes(sizes):
        a, b, c = (numbers(rng, s, "f4") for s in ((m, k), (k, n), (m, n)))
        want = expected(a, b, c, alpha=alpha, beta=beta)
        want.check(subject(a, b, c, alpha=alpha, beta=beta), (m, n, k))


@two_configs
def test_beta_zero_never_reads_c(subject, rng):
    m, n, k = subject.shape(9, 9, 7)
    a, b, c = numbers(rng, (m, k), "f4"), numbers(rng, (k, n), "f4"), np.full((m, n), np.nan, "f4")
    expected(a, b).check(subject(a, b, c, beta=0))
    expected(a, b).check(subject(a, b, c, beta=0, out=c), "C in place")


@two_configs
def test_alpha_zero_never_reads_a_and_b(subject, rng):
    m, n, k = subject.shape(9, 9, 7)
    a, b, c = np.full((m, k), np.nan, "f4"), np.full((k, n), np.inf, "f4"), numbers(rng, (m, n), "f4")
    assert np.array_equal(subject(a, b, c, alpha=0, beta=1), c)
    assert np.array_equal(subject(a, b, alpha=0), np.zeros_like(c))


def stored(x, trans):
    """The array that op turns into *x*."""
    return np.ascontiguousarray(x if trans == "N" else x.T)


@two_configs
@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
def test_transposes(subject, trans, rng):
    for m, n, k in subject.shapes([(5, 17, 33), (19, 1, 2), (1, 18, 34), (21, 20, 16), (8, 6, 40)]):
        a, b = stored(numbers(rng, (m, k), "f4"), trans[0]), stored(numbers(rng, (k, n), "f4"), trans[1])
        want = expected(a, b, trans_a=trans[0], trans_b=trans[1])
        got = subject(a, b, trans_a=trans[0], trans_b=trans[1])
        want.check(got, (m, n, k))
        column_major = np.zeros((n, m), "f4").T
        subject(a, b, trans_a=trans[0], trans_b=trans[1], out=column_major)
        want.check(column_major, "column-major out")


@rotated(["trans"], [("CN",), ("NC",), ("TC",), ("CT",), ("CC",)])
def test_conjugate_transposes(subject, trans, rng):
    a = stored(numbers(rng, (7, 9), "c8"), trans[0])
    b = stored(numbers(rng, (9, 5), "c8"), trans[1])
    for x, y in ((a, b), (a.real.copy(), b)):
        want = expected(x, y, trans_a=trans[0], trans_b=trans[1])
        want.check(subject(x, y, trans_a=trans[0], trans_b=trans[1]))


STACKS = [
    ((4,), (4,)), ((), (5,)), ((5,), ()), ((3, 1), (1, 2)), ((2, 1, 3), (4, 3)), ((1,), (1,)), ((0,), (1,)),
    ((2, 0), (2, 1)),
]  # fmt: skip


@two_configs
def test_stacks_broadcast(subject, rng):
    for left, right in STACKS:
        a, b = small_integers(rng, (*left, 5, 6), "f4"), small_integers(rng, (*right, 6, 7), "f4")
        assert np.array_equal(subject(a, b), a @ b), (left, right)


@every_kernel
def test_a_stack_keeps_its_strides(subject, rng):
    a = numbers(rng, (3, 7, 4, 9), "f4")[::2, ::-3, :, ::1]
    b = numbers(rng, (9, 2, 3, 5), "f4").transpose(1, 2, 0, 3)
    memory = np.full((2, 4, 3, 5, 8), 7, "f4")
    out = memory[:, 1, :, :4, 1:6]
    subject(a, b, out=out)
    expected(a, b).check(out)
    memory[:, 1, :, :4, 1:6] = 7
    assert (memory == 7).all(), "gaps of a strided stack"


@rotated(["name"], [(name,) for name in ELEMENT_TYPES], by=2)
def test_every_dtype(subject, name, rng):
    dtype = dtype_of(name)
    m, n, k = subject.shape(9, 11, 17)
    a, b = numbers(rng, (m, k), dtype), numbers(rng, (k, n), dtype)
    got = subject(a, b)
    assert got.dtype == (np.float32 if dtype == BFLOAT16 else dtype)
    expected(a, b).check(got)


MIXED = [
    ("int8", "int32", None, None), ("uint8", "int16", None, None), ("uint64", "uint8", None, None),
    ("int64", "uint64", None, None), ("bool", "int8", None, None), ("bool", "float32", None, None),
    ("int8", "float16", None, None), ("float16", "float32", None, None), ("float32", "float64", None, None),
    ("float32", "complex64", None, None), ("complex64", "float64", None, None),
    ("complex128", "int32", None, None), ("int8", "int8", "int32", None),
    ("bfloat16", "bfloat16", "bfloat16", None), ("float16", "float16", "float32", "float32"),
    ("float32", "float32", None, "float16"), ("float32", "float32", None, "bfloat16"),
    ("float32", "float32", None, "float64"), ("float64", "float64", None, "float32"),
    ("complex64", "complex64", None, "complex128"), ("complex128", "complex128", None, "complex64"),
    ("int16", "int16", None, "int8"), ("int16", "int16", None, "float32"),
]  # fmt: skip


@rotated(["left", "right", "dtype", "out"], MIXED)
def test_mixed_dtypes_and_results(subject, left, right, dtype, out, rng):
    m, n, k = subject.shape(6, 10, 9)
    a, b = numbers(rng, (m, k), dtype_of(left)), numbers(rng, (k, n), dtype_of(right))
    wanted = dtype_of(dtype) if dtype else None
    target = np.zeros((m, n), dtype_of(out)) if out else None
    got = subject(a, b, dtype=wanted, out=target)
    if wanted is not None and wanted != BFLOAT16:
        a, b = a.astype(wanted), b.astype(wanted)
    computed = np.result_type(a, b) if wanted is None else wanted
    assert got.dtype == (dtype_of(out) if out else computed)
    want = expected(a, b)
    if got.dtype.kind in "biu" or computed.kind in "biu":
        assert np.array_equal(got, (a @ b).astype(got.dtype))
    else:
        want.check(got, summed=computed)


# Pairwise: activation and kind of bias, either with and without C, and the transposes.
EPILOGUES = [
    (activation, bias, beta, dtype, trans)
    for number, activation in enumerate([None, *ACTIVATIONS[1:]])
    for bias, beta, dtype, trans in (
        (
            ("none", "row", "column", "one")[number % 4],
            (0, 0.5)[number % 2],
            ("float32", "float64")[number // 2 % 2],
            ("NN", "TT")[number // 4],
        ),
        (
            ("row", "column", "none", "column")[number % 4],
            (0.5, 0)[number % 2],
            ("float16", "float32")[number // 2 % 2],
            "NN",
        ),
    )
]


@rotated(["activation", "bias", "beta", "dtype", "trans"], EPILOGUES)
def test_epilogues(subject, activation, bias, beta, dtype, trans, rng):
    m, n, k = subject.shape(11, 9, 6)
    a = stored(numbers(rng, (m, k), dtype), trans[0])
    b = stored(numbers(rng, (k, n), dtype), trans[1])
    c = numbers(rng, (m, n), dtype)
    shape = {"none": None, "row": (n,), "column": (m, 1), "one": (1, 1)}[bias]
    given = None if shape is None else numbers(rng, shape, dtype)
    call = {"alpha": 0.7, "beta": beta, "trans_a": trans[0], "trans_b": trans[1], "bias": given}
    got = subject(a, b, c, activation=activation, **call)
    expected(a, b, c, activation=activation, **call).check(got)
    if trans == "TT":
        column_major = np.zeros((n, m), dtype).T
        subject(a, b, c, activation=activation, out=column_major, **call)
        expected(a, b, c, activation=activation, **call).check(column_major, "column-major out")


@every_kernel
def test_epilogue_of_a_stack(subject, rng):
    a, b = numbers(rng, (3, 5, 6), "f4"), numbers(rng, (6, 7), "f4")
    c, bias = numbers(rng, (3, 5, 7), "f4"), numbers(rng, (5, 1), "f4")
    call = {"beta": 1.3, "bias": bias, "activation": "relu"}
    expected(a, b, c, **call).check(subject(a, b, c, **call))


@rotated(["activation"], [(name,) for name in ACTIVATIONS[1:]])
def test_activations_of_extreme_values(subject, activation):
    """Infinities and large numbers saturate, and NaN stays NaN."""
    x = np.array([[-np.inf, -200, -0.0, 0, 200, np.inf, np.nan]], "f4")
    got = subject(np.ones((1, 1), "f4"), x, activation=activation)
    low = {"leaky_relu": -np.inf, "tanh": -1}.get(activation, 0)
    high = {"sigmoid": 1, "tanh": 1}.get(activation, np.inf)
    assert np.isnan(got[0, 6])
    assert got[0, 5] == pytest.approx(high, rel=UNITS)
    slope = -2 if activation == "leaky_relu" else low
    assert got[0, 1] == pytest.approx(slope, rel=UNITS, abs=200 * UNITS), "a tanh may be a unit off -1"
    assert got[0, 0] == pytest.approx(low, rel=UNITS) or (
        np.isnan(got[0, 0]) and activation in ("gelu", "gelu_tanh", "silu")  # -inf times 0
    )


@every_kernel
def test_integer_epilogue_wraps(subject, rng):
    a, b, c, bias = (numbers(rng, s, "i4") for s in ((5, 6), (6, 7), (5, 7), (7,)))
    want = expected(a, b, c, alpha=3, beta=-2, bias=bias)
    want.check(subject(a, b, c, alpha=3, beta=-2, bias=bias))


@every_kernel
def test_bool_sum_of_256_is_true(subject):
    m, n, k = subject.shape(3, 2, 256)
    assert subject(np.ones((m, k), bool), np.ones((k, n), bool)).all()


@every_kernel
def test_complex_scalars(subject, rng):
    a, b, c = (numbers(rng, s, "c8") for s in ((5, 6), (6, 7), (5, 7)))
    want = expected(a, b, c, alpha=0.7 - 2j, beta=1j)
    want.check(subject(a, b, c, alpha=0.7 - 2j, beta=1j))


@every_kernel
def test_real_scalars_keep_complex_infinities(subject):
    """alpha = 1 + 0i must not turn inf + x i into NaN."""
    a = np.array([[complex(np.inf, 0)]], "c8")
    c = np.array([[complex(0, np.inf)]], "c8")
    got = subject(np.zeros((1, 1), "c8"), np.zeros((1, 1), "c8"), c, beta=1)
    assert got[0, 0].real == 0
    assert got[0, 0].imag == np.inf
    assert subject(a, np.ones((1, 1), "c8"))[0, 0].real == np.inf
