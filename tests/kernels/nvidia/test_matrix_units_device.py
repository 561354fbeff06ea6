"""The laws on NVIDIA's matrix units. They run where the default device has some and are skipped elsewhere.

Integers whose products and sums are exact in every type used must give exact results, with every packing and
order of summation.
"""

from __future__ import annotations

import itertools

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.kernels import kernel_named
from pyclmm.problem.gemm import GemmProblem
from tests.support.cases import DEVICE, is_positive_zero, zero_products
from tests.support.optional import optional
from tests.support.oracle import one_by_one

ml_dtypes = optional("ml_dtypes")

pytestmark = pytest.mark.skipif(
    DEVICE.capability < (8, 0), reason="needs an NVIDIA device of compute capability 8.0 or more"
)

BFLOAT16 = ml_dtypes.bfloat16
# family, element type, precision, dtype of the result
KINDS = [
    ("wgmma", np.float16, "highest", None), ("wgmma", BFLOAT16, "highest", None),
    ("wgmma", np.float16, "highest", np.float32), ("wgmma", np.int8, "highest", np.int32),
    ("wgmma", np.uint8, "highest", None), ("wgmma", np.float32, "medium", None),
    ("wgmma_bare", np.float16, "highest", None), ("wgmma_bare", BFLOAT16, "highest", np.float32),
    ("mma", np.float16, "highest", None), ("mma", BFLOAT16, "highest", np.float32),
    ("mma", np.int8, "highest", np.int32), ("mma", np.float32, "medium", None),
    ("mma_double", np.float64, "highest", None), ("mma_double_bulk", np.float64, "highest", None),
    ("split", np.float32, "high", None), ("split", np.complex64, "high", None),
    ("split", np.complex64, "medium", None), ("mma_split", np.float32, "high", None),
    ("mma_split", np.complex64, "high", None),
]  # fmt: skip
kinds = pytest.mark.parametrize(
    ("name", "dtype", "precision", "result"), KINDS, ids=lambda x: getattr(x, "__name__", str(x))
)
SHAPES = [(200, 328, 456), (131, 77, 93), (1, 300, 64), (257, 1, 129), (64, 128, 32), (3, 2, 5), (1, 1, 1)]


def run(name, *args, config=None, **kw):
    try:
        return pyclmm.gemm(*args, kernel=(name, config) if config else name, **kw)
    except pyclmm.UnsupportedError as error:
        pytest.skip(str(error))


def integers(rng, shape, dtype):
    x = rng.integers(0 if np.dtype(dtype).kind == "u" else -2, 3, shape)
    return (x + 1j * rng.integers(-2, 3, shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def padded(queue, x, pad):
    """*x* on the device, with *pad* elements of value 7 behind each row."""
    wide = np.full((*x.shape[:-1], x.shape[-1] + pad), 7).astype(x.dtype)
    wide[..., : x.shape[-1]] = x
    return cla.to_device(queue, wide)[..., : x.shape[-1]]


def wide(x):
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def exact(a, b, dtype):
    value = wide(a) @ wide(b)
    return value.astype(np.int64).astype(dtype) if np.dtype(dtype).kind in "iu" else value.astype(dtype)


@kinds
@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT", "CC"])
def test_every_layout_is_exact(queue, rng, name, dtype, precision, result, trans):
    for (m, n, k), pad in itertools.product(SHAPES, (0, 3, 16)):
        a, b = integers(rng, (m, k), dtype), integers(rng, (k, n), dtype)
        as_stored = {"N": lambda x: x, "T": lambda x: x.T.copy(), "C": lambda x: x.conj().T.copy()}
        stored = [as_stored[t](x) for x, t in ((a, trans[0]), (b, trans[1]))]
        on_device = [padded(queue, x, pad) for x in stored]
        how = {"trans_a": trans[0], "trans_b": trans[1], "precision": precision, "dtype": result}
        got = run(name, *on_device, queue=queue, **how).get()
        assert np.array_equal(got, exact(a, b, got.dtype)), (m, n, k, pad)


@kinds
def test_the_sign_of_zero_is_positive(name, dtype, precision, result):
    """PTX does not say what a matrix unit gives for terms of -0.0; the sums that it adds to are +0.0."""
    for m, n, k in ((64, 128, 32), (9, 6, 1), (131, 77, 93)):
        for a, b in zero_products(m, n, k, np.dtype(dtype)):
            assert is_positive_zero(run(name, a, b, precision=precision, dtype=result)), (m, n, k)


@kinds
def test_every_configuration_is_exact(queue, rng, name, dtype, precision, result):
    m, n, k = 700, 530, 520
    a, b = integers(rng, (m, k), dtype), integers(rng, (k, n), dtype)
    kind = np.dtype(dtype).name
    acc = {"u": "uint32", "i": "uint32"}.get(np.dtype(dtype).kind, "float32")
    acc = kind if kind in ("float64", "complex64") else acc
    out = kind if result is None else np.dtype(result).name
    problem = GemmProblem(m, n, k, kind, kind, out, acc, lda=k, ldb=n, ldo=n, precision=precision)
    family = kernel_named(name)
    for config in [] if family.refuses(problem, DEVICE) else family.configs(problem, DEVICE):
        got = run(name, a, b, config=config, precision=precision, dtype=result, queue=queue)
        assert np.array_equal(got, exact(a, b, got.dtype)), config


ONE_PASS = [kind for kind in KINDS if kind[0] == "wgmma"]


def wgmma_configs(m, n, k, dtype, **more):
    """Every configuration of wgmma for that product of operands without padding."""
    name = np.dtype(dtype).name
    problem = GemmProblem(m, n, k, name, name, name, "float32", **({"lda": k, "ldb": n, "ldo": n} | more))
    family = kernel_named("wgmma")
    return [] if family.refuses(problem, DEVICE) else family.configs(problem, DEVICE)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16])
def test_more_tiles_than_compute_units_are_exact_with_and_without_split_k(queue, rng, dtype):
    m, n, k = 1500, 3000, 520
    a, b = (cla.to_device(queue, integers(rng, shape, dtype)) for shape in ((m, k), (k, n)))
    wanted = exact(a.get(), b.get(), dtype)
    for config in wgmma_configs(m, n, k, dtype):
        for _ in range(2):  # the second call finds the first one's workspace
            got = run("wgmma", a, b, config=config, queue=queue)
            assert np.array_equal(got.get(), wanted), config


@pytest.mark.parametrize(("dtype", "precision"), [(np.float16, "highest"), (np.float32, "medium")], ids=str)
@pytest.mark.parametrize("n", [1501, 1502])
def test_many_results_in_rows_that_begin_anywhere_are_exact(queue, rng, dtype, precision, n):
    m, k = 1500, 200
    a, b = (cla.to_device(queue, integers(rng, shape, dtype)) for shape in ((m, k), (k, n)))
    wanted, align = exact(a.get(), b.get(), dtype), np.dtype(dtype).itemsize * (2 - n % 2)
    for config in wgmma_configs(m, n, k, dtype, precision=precision, b_align=align, out_align=align):
        assert config.option("lines")
        assert np.array_equal(
            run("wgmma", a, b, config=config, precision=precision, queue=queue).get(), wanted
        ), config


@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(("m", "n"), [(16, 304), (304, 16)])
@pytest.mark.parametrize(("dtype", "precision"), [(np.float16, "highest"), (np.float32, "medium")], ids=str)
def test_few_rows_or_columns_are_exact_by_narrow_and_swapped_tiles(queue, rng, dtype, precision, m, n, trans):
    k = 1032
    a, b = integers(rng, (m, k), dtype), integers(rng, (k, n), dtype)
    stored = [x.T.copy() if t == "T" else x for x, t in ((a, trans[0]), (b, trans[1]))]
    operands = [cla.to_device(queue, x) for x in stored]
    flags = {"trans_a": trans[0] == "T", "trans_b": trans[1] == "T", "precision": precision}
    lines = {"lda": stored[0].shape[1], "ldb": stored[1].shape[1]}
    words = {"trans_a": trans[0], "trans_b": trans[1], "precision": precision}
    for config in wgmma_configs(m, n, k, dtype, **flags, **lines):
        if max(config.bm, config.bn) <= 64:
            got = run("wgmma", *operands, config=config, queue=queue, **words).get()
            assert np.array_equal(got, exact(a, b, dtype)), config


def test_partial_sums_are_added_in_the_same_order_in_every_call(queue, rng):
    a, b = (cla.to_device(queue, rng.standard_normal(s).astype("f2")) for s in ((300, 4000), (4000, 300)))
    for config in (c for c in wgmma_configs(300, 300, 4000, np.float16) if c.split_k > 1):
        results = {run("wgmma", a, b, config=config, queue=queue).get().tobytes() for _ in range(20)}
        assert len(results) == 1, config


@pytest.mark.parametrize("shared", ["", "a", "b"])
def test_a_stack_by_one_set_of_work_groups_is_exact(queue, rng, shared):
    z, m, n, k = 40, 200, 136, 152
    a = integers(rng, (m, k) if shared == "a" else (z, m, k), np.float16)
    b = integers(rng, (k, n) if shared == "b" else (z, k, n), np.float16)
    strides = ((0 if shared == "a" else m * k,), (0 if shared == "b" else k * n,), (0,), (m * n,))
    c, bias = integers(rng, (z, m, n), np.float16), integers(rng, (n,), np.float16)
    on_device = [cla.to_device(queue, x) for x in (a, b)]
    for config in wgmma_configs(m, n, k, np.float16, batch_shape=(z,), batch_strides=strides):
        got = run("wgmma", *on_device, config=config, queue=queue).get()
        assert np.array_equal(got, exact(a, b, np.float16)), config
    got = run("wgmma", a, b, c, beta=1.0, bias=bias, queue=queue)
    wanted = a.astype("f8") @ b.astype("f8") + c.astype("f8") + bias.astype("f8")
    assert np.array_equal(got, wanted.astype("f2"))


@pytest.mark.parametrize(("name", "dtype", "precision", "result"), ONE_PASS, ids=str)
def test_a_plan_takes_operands_at_other_addresses(queue, rng, name, dtype, precision, result):
    shape = (96, 96)
    operands = [cla.to_device(queue, integers(rng, shape, dtype)) for _ in range(3)]
    out = cla.empty(queue, shape, np.dtype(result or dtype))
    try:
        how = {"out": out, "kernel": name, "precision": precision, "dtype": result}
        plan = pyclmm.Matmul(operands[0], operands[1], **how)
    except pyclmm.UnsupportedError as error:
        pytest.skip(str(error))
    for i, j in ((0, 1), (0, 2), (0, 2), (1, 0), (1, 0), (0, 1)):
        got = plan(operands[i], operands[j], out=out).get()
        assert np.array_equal(got, exact(operands[i].get(), operands[j].get(), got.dtype)), (i, j)


@kinds
def test_epilogue_and_stacks(queue, rng, name, dtype, precision, result):
    a, b = integers(rng, (3, 2, 67, 45), dtype), integers(rng, (2, 45, 83), dtype)
    c, bias = integers(rng, (3, 2, 67, 83), result or dtype), integers(rng, (83,), result or dtype)
    how = {"precision": precision, "dtype": result, "queue": queue}
    got = run(name, a, b, c, alpha=2, beta=3, bias=bias, **how)
    value = 2 * (wide(a) @ wide(b)) + 3 * wide(c) + wide(bias)
    wanted = value.astype("i8").astype(got.dtype) if got.dtype.kind in "iu" else value.astype(got.dtype)
    assert np.array_equal(got, wanted)
    if got.dtype.kind == "f":
        got = run(name, a, b, bias=bias[:1] - bias[1:2], activation="relu", **how)
        wanted = np.maximum(a.astype("f8") @ b.astype("f8") + float(bias[0] - bias[1]), 0)
        assert np.array_equal(got, wanted.astype(got.dtype))


@kinds
def test_c_may_be_out_and_nothing_else_is_written(queue, rng, name, dtype, precision, result):
    m, n, k, ld = 70, 75, 40, 96
    a, b = integers(rng, (m, k), dtype), integers(rng, (k, n), dtype)
    memory = cla.to_device(queue, np.full(3 + m * ld + 127, 7).astype(result or dtype))
    out = memory[3 : 3 + m * ld].reshape(m, ld)[:, :n]
    on_device = [cla.to_device(queue, x) for x in (a, b)]
    run(name, *on_device, out, beta=1.0, out=out, precision=precision, dtype=result, queue=queue)
    after = memory.get()
    rows = after[3 : 3 + m * ld].reshape(m, ld)
    wanted = wide(a) @ wide(b) + 7
    if rows.dtype.kind in "iu":
        wanted = wanted.astype("i8")
    assert np.array_equal(rows[:, :n], wanted.astype(rows.dtype))
    assert (rows[:, n:] == 7).all()
    assert (after[:3] == 7).all()
    assert (after[3 + m * ld :] == 7).all()


def classes(rng, m=300, n=260, k=400):
    a, b = rng.standard_normal((m, k), dtype="f4"), rng.standard_normal((k, n), dtype="f4")
    two, s = np.float32(2), rng.integers(0, 31, k)
    spoiled = a.copy()
    spoiled[3, 5], spoiled[7, 9] = np.inf, np.nan
    return {
        "normal": (a, b),
        "uniform": (rng.random((m, k), dtype="f4"), rng.random((k, n), dtype="f4")),
        "each element": (
            a * two ** rng.integers(-20, 21, a.shape),
            b * two ** rng.integers(-20, 21, b.shape),
        ),
        "rows, columns": (a * two ** rng.integers(-30, 31, (m, 1)), b * two ** rng.integers(-30, 31, (1, n))),
        "along K": (a * two**s, b * two ** -s[:, None]),
        "infinity and NaN": (spoiled, b),
        "large": (a * np.float32(1e18), b * np.float32(1e18)),
        "overflow": (abs(a) * np.float32(1e21), abs(b) * np.float32(1e19)),
        "tiny": (a * np.float32(1e-37), b * np.float32(1e10)),
        "denormal": (a * np.float32(1e-40), b),
        "zeros": (a * 0, b),
    }


@pytest.mark.parametrize(("dtype", "wide"), [("f4", "f8"), ("c8", "c16")])
def test_high_is_as_accurate_as_float32(queue, rng, dtype, wide):
    for about, operands in classes(rng).items():
        with np.errstate(all="ignore"):  # an infinity times 1j is a NaN
            a, b = (x + 1j * rng.permuted(x, axis=1) if dtype == "c8" else x for x in operands)
            a, b = a.astype(dtype), b.astype(dtype)
            exactly = a.astype(wide) @ b.astype(wide)
        got, one = run("split", a, b, precision="high", queue=queue), one_by_one(a, b)
        finite = np.isfinite(one)
        assert np.array_equal(np.isfinite(got), finite), about
        assert dtype == "c8" or np.array_equal(np.isnan(got), np.isnan(one)), about
        error, theirs = (np.linalg.norm(x[finite] - exactly[finite]) for x in (got, one))
        assert error <= 1.001 * theirs, about  # these have only the rounding of the result


def classes_of_rows(rng, m=300, n=260, k=400):
    """Products in which some rows, columns or elements depend on values of k that hardly affect others."""
    a, b = rng.standard_normal((m, k), dtype="f4"), rng.standard_normal((k, n), dtype="f4")
    one_large, small = a.copy(), b.copy()
    one_large[7] *= np.float32(2.0**-26)
    one_large[7, 0] = 1  # row 7 depends on k = 0 alone where b is not small there ...
    small[0] *= np.float32(2.0**-34)  # ... but it is
    column = b.copy()
    column[:, 9] *= np.float32(2.0) ** -rng.integers(0, 40, k)
    triangle = np.triu(a[:, :m])
    return {
        "a row": (one_large, small),
        "a column": (a, column),
        "a triangle": (triangle, b[:m]),
        "two triangles": (triangle, np.tril(b[:m, :m])),
        "each element": (
            a * np.exp2(rng.integers(-20, 21, a.shape)),
            b * np.exp2(rng.integers(-20, 21, b.shape)),
        ),
        "sparse": (a * (rng.random(a.shape) < 0.1), b * (rng.random(b.shape) < 0.1)),
        "few values": (np.round(a * 4) / 4 * (rng.random(a.shape) < 0.5), np.round(b * 4) / 4),
        "normal": (a, b),
    }


def test_high_bounds_the_error_of_each_element(queue, rng):
    for about, operands in classes_of_rows(rng).items():
        a, b = (x.astype("f4") for x in operands)
        got = run("split", a, b, precision="high", queue=queue)
        exactly, scale = a.astype("f8") @ b.astype("f8"), abs(a.astype("f8")) @ abs(b.astype("f8"))
        assert (abs(got - exactly) <= (2.0**-20 + 2.0**-23) * scale).all(), about
        one = one_by_one(a, b)
        rows, theirs = (np.linalg.norm(x - exactly, axis=1) for x in (got, one))
        assert (rows <= 2 * theirs + 2.0**-23 * np.linalg.norm(scale, axis=1)).all(), about


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_complex_infinities_and_nan_go_where_other_kernels_send_them(queue, rng, precision):
    a, b = integers(rng, (70, 40), "c8"), integers(rng, (40, 90), "c8")
    a[3, 5], a[7, 9], b[11, 13] = np.inf, complex(1, np.nan), complex(0, -np.inf)
    got = run("split", a, b, precision=precision, queue=queue)
    want = pyclmm.matmul(a, b, kernel="naive", queue=queue)
    assert np.array_equal(got, want, equal_nan=True)


def test_complex_medium_is_as_accurate_as_its_operands(queue, rng):
    a, b = (rng.standard_normal((*s, 2), dtype="f4").view("c8")[..., 0] for s in ((300, 400), (400, 260)))
    got = run("split", a, b, precision="medium", queue=queue)
    exactly = a.astype("c16") @ b.astype("c16")
    assert np.linalg.norm(got - exactly) < 5e-4 * np.linalg.norm(exactly)
