"""Products with quantised weights: ``matmul(x, q.T)`` is ``x @ q.dequantize(x.dtype).T``."""

import re

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import ArgumentError, DTypeError, ShapeError, UnsupportedError
from pyclmm.checks.reference import chain, error_ratio, limit
from pyclmm.linalg import pairs
from pyclmm.problem.dtypes import dtype_of
from tests.support.faults import noted
from tests.support.optional import optional

N, K = 37, 192
MODES = (
    {"bits": 4, "group_size": 64}, {"bits": 3, "group_size": 32}, {"bits": 8}, {"mode": "mxfp4"},
    {"mode": "q8_0"},
)  # fmt: skip


@pytest.fixture
def x(rng):
    return rng.standard_normal((3, K), np.float32)


@pytest.fixture
def weights(rng):
    return pyclmm.quantize(rng.standard_normal((N, K), np.float32), bits=4, group_size=64)


def right(got, x, q, result=None):
    """Whether *got* is the product of *x* and the values of *q*, within the bound of float32 sums."""
    w = q.dequantize(x.dtype).T
    return error_ratio(got, x, w, result=result) <= limit(w.shape[0])


@pytest.mark.parametrize("how", MODES, ids=lambda how: "-".join(map(str, how.values())))
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("m", [1, 5, 70])
def test_the_product_is_that_with_the_weights_values(rng, how, dtype, m):
    q = pyclmm.quantize(rng.standard_normal((N, K), np.float32), **how)
    x = rng.standard_normal((m, K), np.float32).astype(dtype_of(dtype))
    got = pyclmm.matmul(x, q.T)
    assert got.dtype == x.dtype
    assert got.shape == (m, N)
    assert right(got, x, q)


@pytest.mark.parametrize("shape", [(K,), (0, K), (2, 3, K), (2, 1, 4, K)])
def test_shapes_are_those_of_numpy(rng, weights, shape):
    x = rng.standard_normal(shape, np.float32)
    got = pyclmm.matmul(x, weights.T)
    assert got.shape == (x @ weights.dequantize().T).shape
    assert right(got, x, weights)


@pytest.mark.parametrize("name", ["quantized", "dequantized"])
def test_a_single_row_is_a_matrix(x, weights, name):
    assert right(pyclmm.matmul(x, weights[4:5].T, kernel=name), x, weights[4:5])


def test_rows_of_the_weights_are_a_view(x, weights):
    part = weights[5:20]
    assert np.shares_memory(part.data, weights.data)
    np.testing.assert_array_equal(
        pyclmm.matmul(x, part.T, reproducible=True), pyclmm.matmul(x, weights.T, reproducible=True)[:, 5:20]
    )


def test_out_may_have_any_layout(rng, weights):
    x = rng.standard_normal((6, K), np.float32)
    for out in (np.empty((6, N), "f4"), np.empty((N, 6), "f4").T, np.empty((6, 2 * N), "f4")[:, ::2]):
        assert pyclmm.matmul(x, weights.T, out=out) is out
        assert right(out, x, weights)


def test_x_may_have_any_layout(rng, weights):
    for x in (rng.standard_normal((K, 6), np.float32).T, rng.standard_normal((6, 2 * K), np.float32)[:, ::2]):
        assert right(pyclmm.matmul(x, weights.T), x, weights)
    x = rng.standard_normal((K, 6), np.float32)
    assert right(pyclmm.gemm(x, weights.T, trans_a="T"), x.T, weights)


def test_dtype_says_in_which_type_weights_are_multiplied(rng, weights):
    x = rng.standard_normal((3, K), np.float32).astype(np.float16)
    got = pyclmm.matmul(x, weights.T, dtype=np.float32)
    assert got.dtype == np.float32
    assert right(got, x.astype(np.float32), weights)


def test_gemm_has_its_epilogue(rng, weights):
    x, c = rng.standard_normal((5, K), np.float32), rng.standard_normal((5, N), np.float32)
    bias = rng.standard_normal(N, np.float32)
    got = pyclmm.gemm(x, weights.T, c, alpha=0.5, beta=-2.0, bias=bias, activation="relu")
    product = x.astype(np.float64) @ weights.dequantize().T.astype(np.float64)
    np.testing.assert_allclose(got, np.maximum(0.5 * product - 2 * c + bias, 0), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kernel", ["auto", "quantized", "dequantized"])
def test_each_kernel_multiplies_arrays_of_a_device(queue, rng, weights, kernel):
    x = cla.to_device(queue, rng.standard_normal((4, K), np.float32))
    on_device = weights.to(x)
    got = pyclmm.matmul(x, on_device.T, kernel=kernel)
    assert isinstance(got, cla.Array)
    assert right(got.get(), x.get(), weights)
    assert right(pyclmm.matmul(x, on_device[3:30].T, kernel=kernel).get(), x.get(), weights[3:30])


def test_reproducible_products_have_the_bits_of_a_chain_over_k(x, weights):
    got = pyclmm.matmul(x, weights.T, reproducible=True)
    np.testing.assert_array_equal(got, chain(x, weights.dequantize().T, dtype=np.dtype("f4")))
    np.testing.assert_array_equal(got[1], pyclmm.matmul(x[1], weights.T, reproducible=True))


def test_a_plan_takes_weights_of_its_format(rng, x, weights):
    for constant in (False, True):
        plan = pyclmm.Matmul(x, weights.T, constant_b=constant)
        assert right(plan(x, weights.T), x, weights)
        other = pyclmm.quantize(rng.standard_normal((N, K), np.float32), bits=4, group_size=64)
        assert right(plan(x, other.T), x, other)
    for wrong in (pyclmm.quantize(weights.dequantize(), bits=8).T, weights.dequantize().T):
        with pytest.raises(ArgumentError, match="the plan is for affine4_g64"):
            plan(x, wrong)
    for wrong, its in (
        (weights[2:], f"({K}, {N - 2})"),
        (pyclmm.quantize(np.ones((N, 64), "f4")), f"(64, {N})"),
    ):
        words = re.escape(f"its shape is {its}, the plan's ({K}, {N})")
        with pytest.raises(ArgumentError, match=words):
            plan(np.ones((3, wrong.shape[1]), "f4"), wrong.T)
    with pytest.raises(ArgumentError, match="the plan is for no quantised weights"):
        pyclmm.Matmul(x, weights.dequantize().T)(x, weights.T)


def test_a_call_after_one_with_other_weights_reads_its_own(rng, x, weights):
    """The bytes of two formats may have one shape."""
    same = [pyclmm.quantize(weights.dequantize(), mode=mode) for mode in ("q8_0", "q8_0")]
    same[1] = pyclmm.quantize(rng.standard_normal((N, K), np.float32), mode="q8_0")
    for q in (*same, weights, *same, weights):
        assert right(pyclmm.matmul(x, q.T), x, q)


@pytest.mark.parametrize(
    ("subscripts", "shape"),
    [
        ("mk,nk->mn", (5, K)), ("mk,nk->nm", (5, K)), ("km,nk->mn", (K, 5)), ("akb,nk->nab", (2, K, 3)),
        ("k,nk->n", (K,)),
    ],
)  # fmt: skip
def test_einsum_multiplies_weights(rng, queue, weights, subscripts, shape):
    x = rng.standard_normal(shape, np.float32)
    want = np.einsum(subscripts, x.astype("f8"), weights.dequantize().astype("f8"))
    for a, q in ((x, weights), (cla.to_device(queue, x), weights.to(queue))):
        got = pyclmm.linalg.einsum(subscripts, a, q)
        assert got.flags.c_contiguous  # PyOpenCL's get() takes no other Array
        np.testing.assert_allclose(got if a is x else got.get(), want, rtol=1e-4, atol=1e-4)
    first, second = subscripts.split("->")[0].split(",")
    exchanged = f"{second[::-1]},{first}->{subscripts.split('->')[1]}"
    out = np.empty_like(want, np.float32)
    assert pyclmm.linalg.einsum(exchanged, weights.T, x, out=out) is out
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("x", [None, "x", {1}, [[1.0] * K]], ids=["None", "text", "set", "list"])
@pytest.mark.parametrize("place", [0, 1])
def test_einsum_takes_and_refuses_beside_weights_what_matmul_does(weights, x, place):
    terms = ["mk", "nk"] if place == 0 else ["nk", "mk"]
    operands = [x, weights] if place == 0 else [weights, x]
    words = rf"operands\[{place}\] is .*; pass a NumPy array"
    if isinstance(x, list):
        words = rf"operands\[{place}\] is a, operands\[{1 - place}\] is b: a has .*pass a.astype"
    with pytest.raises(DTypeError, match=words):
        pyclmm.linalg.einsum(f"{','.join(terms)}->mn", *operands)


def test_einsum_reads_beside_weights_what_it_reads_beside_an_array(tmp_path, rng, weights):
    x = rng.standard_normal((K, 3), np.float32)
    want = pyclmm.linalg.einsum("km,nk->nm", x, weights)
    with optional("h5py").File(tmp_path / "x.h5", "w") as file:
        for like in (memoryview(x), optional("pandas").DataFrame(x), file.create_dataset("x", data=x)):
            got = pyclmm.linalg.einsum("km,nk->nm", like, weights)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        with pytest.raises(DTypeError, match="out is a Dataset"):
            pyclmm.linalg.einsum("km,nk->nm", x, weights, out=file.create_dataset("out", want.shape, "f4"))


@pytest.mark.parametrize("term", ["mn", "nm"])
def test_an_out_of_einsum_that_is_no_array_of_the_axes_is_refused(x, weights, term):
    for out in (3, [[0.0]], (np.zeros((3, N), "f4"),)):
        with pytest.raises(DTypeError, match="out is a"):
            pyclmm.linalg.einsum(f"mk,nk->{term}", x, weights, out=out)
    shape = {"mn": (3, N), "nm": (N, 3)}[term]
    for wrong in ((6,), shape[::-1]):
        words = re.escape(f"out has shape {wrong}, but the result has shape {shape}")
        with pytest.raises(ShapeError, match=words):
            pyclmm.linalg.einsum(f"mk,nk->{term}", x, weights, out=np.zeros(wrong, "f4"))


@pytest.mark.parametrize("term", ["mn", "nm"])
def test_an_error_of_einsum_without_out_names_none(x, weights, term):
    with pytest.raises(DTypeError, match=r"casting rule 'safe'$"):
        pyclmm.linalg.einsum(f"mk,nk->{term}", x, weights, dtype=np.float16, casting="safe")


def test_a_result_of_einsum_in_c_order_is_no_less_exact(monkeypatch, queue, x, weights):
    """The copy is a product by 1."""
    asked = noted(monkeypatch, pairs, "matmul")
    with pyclmm.default_precision("medium"):
        pyclmm.linalg.einsum("mk,nk->nm", cla.to_device(queue, x), weights.to(queue))
    assert [each.keywords["precision"] for each in asked] == ["highest"]


@pytest.mark.parametrize("subscripts", ["mn,nk->mk", "mk,nk->mk", "mk,nk->m", "mk,nk->mnk"])
def test_einsum_refuses_what_is_no_product_along_k(rng, weights, subscripts):
    x = rng.standard_normal([{"m": 4, "n": N, "k": K}[c] for c in subscripts.split(",")[0]])
    with pytest.raises(UnsupportedError, match="weights whose K alone is summed"):
        pyclmm.linalg.einsum(subscripts, x.astype("f4"), weights)


WRONG = [
    (lambda x, q: pyclmm.matmul(q, x), UnsupportedError, "a is a QuantizedArray, .* one operand of einsum"),
    (pyclmm.matmul, ShapeError, r"matmul\(x, q.T\)"),
    (lambda x, q: pyclmm.matmul(x[:, 1:], q.T), ShapeError, "K is 192 in b"),
    (lambda x, q: pyclmm.gemm(x, q.T, trans_b="T"), ArgumentError, "trans_b is 'T'"),
    (lambda x, q: pyclmm.Matmul(x, q.T, trans_a="t"), ArgumentError, "unknown trans_a 't'"),
    (lambda x, q: pyclmm.Matmul(x, q.T, trans_b=x), DTypeError, "trans_b is array"),
    (lambda x, q: pyclmm.matmul(x.astype("f8"), q.T), DTypeError, r"pass a.astype\(np.float32\)"),
    (
        lambda x, q: pyclmm.matmul(x.astype("f8"), q.T, dtype="f4", casting="safe"),
        DTypeError,
        "^a has dtype float64: Cannot cast",  # b has none that is cast
    ),
    (
        lambda x, q: pyclmm.linalg.einsum("mk,nk->mn", x.astype("f8"), q),
        DTypeError,
        "or dtype=np.float32, casting='same_kind'$",  # its rule is "safe"
    ),
    (lambda x, q: pyclmm.matmul(np.float32, q.T), DTypeError, "a is a type"),
    (lambda x, q: pyclmm.linalg.einsum("mk,nk->mn", np.float32, q), DTypeError, r"operands\[0\] is a type"),
    (lambda x, q: pyclmm.linalg.einsum("mk,nk->mn", x, q, out=np.float32), DTypeError, "out is a type"),
    (lambda x, q: pyclmm.linalg.einsum("mk,nk->mn", x, q, optimize=5), ArgumentError, "optimize is 5: "),
    (lambda x, q: pyclmm.matmul(x.astype("i4"), q.T), DTypeError, r"pass a.astype\(np.float32\)"),
    (
        lambda x, q: pyclmm.matmul(x.astype("c8"), q.T),
        DTypeError, r"pass a.astype\(np.float32\), or dtype=np.float32, casting='unsafe'$",
    ),
    (lambda x, q: pyclmm.matmul(x, q.T, memory_limit="1 MiB"), UnsupportedError, "memory_limit"),
    (lambda x, q: pyclmm.matmul(x, q.T, axes=[(0, 1)] * 3), UnsupportedError, "axes"),
    (lambda x, q: pyclmm.matmul(x, q.T, kernel="packed"), UnsupportedError, "quantised weights"),
    (
        lambda x, q: pyclmm.matmul(x, x.T, kernel="quantized"),
        UnsupportedError,
        "quantized multiplies float32 or float16 or bfloat16 by quantised weights, not float32 by float32",
    ),
    (pyclmm.linalg.dot, UnsupportedError, "b is a QuantizedArray"),
    (lambda x, q: pyclmm.gemm(x, q.T, q, beta=1.0), UnsupportedError, "c is a QuantizedArray"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "words"), WRONG, ids=[words for *_, words in WRONG])
def test_what_is_not_offered_is_refused_by_name(x, weights, call, error, words):
    with pytest.raises(error, match=words):
        call(x, weights)


def test_installed_leaves_weights_to_numpy_which_refuses_them(x, weights):
    with pyclmm.installed():
        for multiply in (np.matmul, np.dot, np.inner, np.tensordot):
            with pytest.raises(DTypeError, match="QuantizedArray"):
                multiply(x, weights.T)


OPERATORS = [
    lambda x, q: x @ q.T, lambda x, q: q @ x.T, lambda x, q: np.matmul(x, q.T), lambda x, q: np.asarray(q),
]  # fmt: skip


@pytest.mark.parametrize("call", OPERATORS, ids=["x @ q", "q @ x", "np.matmul", "asarray"])
def test_operators_name_the_function_that_multiplies(queue, x, weights, call):
    for a, q in ((x, weights), (cla.to_device(queue, x), weights.to(queue))):
        with pytest.raises(DTypeError, match=r"pyclmm\.matmul\(x, q\.T\)"):
            call(a, q)


def test_products_in_tiles_and_graphs_refuse_weights(x, weights):
    with pytest.raises(UnsupportedError, match=r"use matmul"):
        pyclmm.StreamedMatmul(x, weights.T)
    with pytest.raises(UnsupportedError, match=r"a is a QuantizedArray"):
        pyclmm.StreamedMatmul(weights, x.T)
    da = optional("dask.array")
    chunks = da.from_array(x, chunks=(2, K))
    with pytest.raises(UnsupportedError, match=r"map_blocks\(pyclmm\.matmul") as raised:
        optional("pyclmm.dask").matmul(chunks, weights.T)
    advice = str(raised.value).partition("in one: ")[2]
    got = eval(advice, {"x": chunks, "q": weights, "pyclmm": pyclmm})
    assert (got.shape, got.dtype) == ((3, N), np.float32)
    assert right(got.compute(), x, weights)


def test_x_in_a_file_is_to_be_read_first(tmp_path, rng, weights):
    with optional("h5py").File(tmp_path / "x.h5", "w") as file:
        x = file.create_dataset("x", data=rng.standard_normal((3, K), np.float32))
        with pytest.raises(UnsupportedError, match=r"read it first, a\[\.\.\.\]"):
            pyclmm.matmul(x, weights.T)
        assert right(pyclmm.matmul(x[...], weights.T), x[...], weights)


def test_warm_takes_weights(queue, x, weights):
    for products in ((x, weights.T), ((x.shape, x.dtype), weights.T)):
        (plan,) = pyclmm.warm(products)
        assert right(plan(x, weights.T), x, weights)
    on_device = cla.to_device(queue, x)
    (plan,) = pyclmm.warm(((x.shape, x.dtype), weights.to(queue).T), queue=queue, on_device=True)
    assert right(plan(on_device, weights.to(queue).T).get(), x, weights)


def test_x_of_another_byte_order_gives_the_same(x, weights):
    got = pyclmm.matmul(x.astype(">f4"), weights.T)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, pyclmm.matmul(x, weights.T))


def test_what_is_no_array_of_numbers_is_not_quantised(queue):
    for w in ("model.gguf", cla.zeros(queue, (4, 64), np.float32)):
        with pytest.raises(DTypeError, match=r"pass a NumPy array .*from_gguf"):
            pyclmm.quantize(w)


def test_weights_elsewhere_than_x_are_refused(queue, x, weights):
    for a, q in ((cla.to_device(queue, x), weights), (x, weights.to(queue))):
        with pytest.raises(DTypeError, match=r"q\.to\(a\)"):
            pyclmm.matmul(a, q.T)


def test_torch_tensors_on_the_host(x, weights):
    torch = pytest.importorskip("torch")
    for _ in range(2):  # the second call is like the first
        got = pyclmm.matmul(torch.from_numpy(x), weights.T)
        assert isinstance(got, torch.Tensor)
        assert right(got.numpy(), x, weights)
