"""The functions of pyclmm.linalg on arrays of a CUDA device, by the made-up driver, against NumPy's."""

import random

import numpy as np
import pytest
from ml_dtypes import bfloat16

import pyclmm
from pyclmm import linalg
from pyclmm.execution import kinds
from tests.support.fake_cuda import LibArray
from tests.support.habits import drawn
from tests.support.linalg_calls import CALLS, NAIVE, every_call


def same(got, want):
    assert type(got) is LibArray
    want = np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got.get(), want)


@every_call
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32"])
def test_arrays_of_any_layout_give_numpys_values_in_their_own_kind(name, dtype, lib):
    shapes, call = CALLS[name]
    r = random.Random(f"{name} {dtype}")
    xs = [drawn(r, shape, dtype) for shape in shapes]
    same(call(linalg, *(lib.laid_out(x) for x in xs), **NAIVE), call(np, *xs))


@every_call
def test_all_is_launched_in_the_librarys_stream(name, cuda, lib):
    shapes, call = CALLS[name]
    xs = [lib.array(np.ones(shape, np.float32)) for shape in shapes]
    call(linalg, *xs, **NAIVE)  # checks and tables have streams of their own
    lib.current, before = 0x72, len(cuda.launches)
    cuda.synchronized.clear()
    call(linalg, *xs, **NAIVE)
    assert {stream for *_, stream in cuda.launches[before:]} <= {0x72}
    assert 0x72 not in cuda.synchronized


@pytest.mark.parametrize("name", ["einsum", "a sum", "matrix_power 0", "einsum element by element"])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_call_is_captured_and_replayed(name, is_first, cuda, lib):
    shapes, call = CALLS[name]
    r = random.Random(name)
    xs = [drawn(r, shape, "float32", "C") for shape in shapes]
    mine = [lib.array(np.zeros_like(x)) for x in xs]
    if not is_first:
        call(linalg, *mine, **NAIVE)
    with cuda.capture(lib.current) as graph:
        result = call(linalg, *mine, **NAIVE)
    for own, x in zip(mine, xs, strict=True):
        cuda.view(own.address, x.shape, x.dtype)[...] = x
    cuda.replay(graph)
    same(result, call(np, *xs))


def test_out_is_written_and_returned(lib):
    a, b = drawn(random.Random(1), (3, 4), layout="C"), drawn(random.Random(2), (4, 5), layout="C")
    mine = lib.array(a), lib.array(b)
    for call in (linalg.dot, lambda *xs, **k: linalg.einsum("ij,jk", *xs, **k)):
        out = lib.array(np.zeros((3, 5), np.float32))
        assert call(*mine, out=out, **NAIVE) is out
        same(out, a @ b)
    out = lib.array(np.zeros((3, 5), np.float32))
    assert linalg.dot(*mine, out, **NAIVE) is out
    flat = lib.array(np.zeros(3, np.float32))
    assert linalg.vecdot(mine[0], mine[0], out=(flat,), **NAIVE) is flat
    same(flat, (a * a).sum(1))


def test_out_of_dot_that_is_not_c_contiguous_is_refused(lib):
    a = lib.array(np.ones((3, 3), np.float32))
    with pytest.raises(pyclmm.ArgumentError, match="C-contiguous"):
        linalg.dot(a, a, out=lib.array(np.ones((3, 3), np.float32)).T)


def test_a_view_of_one_operand_shares_its_memory(cuda, lib):
    a = lib.array(np.zeros((3, 4), np.float32))
    turned = linalg.einsum("ij->ji", a)
    cuda.view(a.address, (3, 4), np.float32)[1, 2] = 5
    assert turned.get()[2, 1] == 5


def test_a_library_that_takes_no_view_gets_a_copy(cuda, lib, monkeypatch):
    monkeypatch.setattr(type(lib), "has_views", False, raising=False)
    a = lib.array(np.arange(12, dtype=np.float32).reshape(3, 4))
    turned = linalg.einsum("ij->ji", a, **NAIVE)
    assert turned.address != a.address
    same(turned, np.arange(12, dtype=np.float32).reshape(3, 4).T)


def test_the_first_power_is_the_callers_own_array(lib):
    a = lib.array(np.ones((3, 3), np.float32))
    assert linalg.matrix_power(a, 1) is a


def test_bfloat16_stays_bfloat16(lib):
    """By the rule of the libraries that have it; NumPy's is float32."""
    ones = np.ones((3, 3), bfloat16)
    a, out = lib.array(ones), lib.array(ones)
    for call in (
        lambda: linalg.dot(a, a),
        lambda: linalg.inner(a, a),
        lambda: linalg.einsum("ij,jk", a, a),
        lambda: linalg.multi_dot([a, a, a]),
        lambda: linalg.vecdot(a, a),
        lambda: linalg.matrix_power(a, 2),
        lambda: linalg.dot(a, a, out=out),
        lambda: linalg.multi_dot([a, a, a], out=out),
    ):
        assert call().dtype == bfloat16
    assert linalg.dot(a, a, dtype="float32").dtype == np.float32
    assert linalg.dot(a, lib.array(ones.astype(np.float32))).dtype == np.float32


@pytest.mark.parametrize("other", [np.ones((3, 3), np.float32), [[1.0] * 3] * 3, 2.0])
def test_a_mixture_is_refused_with_what_would_do(lib, other):
    a = lib.array(np.ones((3, 3), np.float32))
    for call in (linalg.dot, linalg.inner, linalg.vdot, lambda x, y: linalg.multi_dot([x, y, x])):
        for operands in ((a, other), (other, a)):
            with pytest.raises(pyclmm.DTypeError, match=r"pass arrays of one library; lib\.array\(x\)"):
                call(*operands)


def test_a_negative_power_names_the_host(lib):
    with pytest.raises(pyclmm.UnsupportedError, match="inverts no matrix"):
        linalg.matrix_power(lib.array(np.ones((3, 3), np.float32)), -1)


def test_the_number_one_is_kept_for_a_context_and_dtype(cuda, lib):
    a = lib.array(np.ones((3, 4), np.float32))
    linalg.einsum("ij->i", a, **NAIVE)
    before = len([1 for name, _ in cuda.calls if name == "cuMemAlloc_v2"])
    linalg.einsum("ij->i", a, **NAIVE)
    assert len([1 for name, _ in cuda.calls if name == "cuMemAlloc_v2"]) == before
    assert kinds.kind_of(a) is lib


def test_operands_by_their_names(lib):
    a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    got = linalg.dot(a=lib.array(a), b=lib.array(b))
    assert type(got) is LibArray
    assert np.array_equal(got.get(), a @ b)
    chain = [lib.array(x) for x in (a, b, b.T.copy())]
    assert type(linalg.multi_dot(arrays=chain)) is LibArray
