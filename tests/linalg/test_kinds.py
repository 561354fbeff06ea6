"""The functions of pyclmm.linalg on other libraries' host arrays: JAX's, a made-up one's.

tests/frameworks/test_torch_linalg.py has PyTorch's, tests/cuda/test_linalg.py those on CUDA devices.
"""

import random

import numpy as np
import pytest
from ml_dtypes import bfloat16

import pyclmm
from pyclmm import linalg
from pyclmm.execution import kinds
from tests.support.habits import drawn
from tests.support.linalg_calls import CALLS, NAIVE, every_call
from tests.support.optional import optional

jax = optional("jax")


class HostArray:
    """An array of a made-up library that keeps NumPy's arrays."""

    def __init__(self, x):
        self.x, self.dtype, self.shape, self.ndim = x, x.dtype, x.shape, x.ndim

    def __array__(self, dtype=None, copy=None):
        return self.x


class HostLib(kinds.Kind):
    advice_for_mixed = "HostArray(x) makes one"

    def on_host(self, name, x):
        return True

    def host_array(self, name, x):
        return x.x

    def of_host(self, array, given):
        return HostArray(array)

    cuda_array = stream = new = block = back = None


HostLib.__abstractmethods__ = frozenset()


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(kinds, "_kinds", {**kinds._kinds, HostArray: HostLib()})
    return HostArray


@every_call
def test_a_made_up_librarys_arrays_give_its_own(name, made_up):
    shapes, call = CALLS[name]
    r = random.Random(name)
    xs = [drawn(r, shape) for shape in shapes]
    got, want = call(linalg, *map(made_up, xs), **NAIVE), np.asarray(call(np, *xs))
    assert type(got) is made_up
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got.x, want)


def test_out_is_the_callers_own_object(made_up):
    a, out = made_up(np.ones((3, 3), np.float32)), made_up(np.zeros((3, 3), np.float32))
    for call in (
        lambda: linalg.dot(a, a, out, **NAIVE),
        lambda: linalg.dot(a, a, out=out, **NAIVE),
        lambda: linalg.einsum("ij,jk", a, a, out=out, **NAIVE),
        lambda: linalg.multi_dot([a, a], out=out, **NAIVE),
    ):
        out.x[...] = 0
        assert call() is out
        assert (out.x == 3).all()


def test_a_dtype_of_the_librarys_own_rule(made_up):
    """bfloat16 stays bfloat16, as in PyTorch; NumPy's rule is float32."""
    a = np.ones((3, 3), bfloat16)
    for call in (
        lambda x: linalg.dot(x, x), lambda x: linalg.einsum("ij,jk", x, x),
        lambda x: linalg.einsum("ij->i", x), lambda x: linalg.einsum("ij,ij->ij", x, x),
        lambda x: linalg.multi_dot([x, x, x]), lambda x: linalg.matrix_power(x, 2),
    ):  # fmt: skip
        assert call(made_up(a)).dtype == bfloat16
        if call(a).ndim == 2:
            assert call(a).dtype == np.float32
    out = made_up(np.zeros((3, 3), bfloat16))
    assert linalg.dot(made_up(a), made_up(a), out=out) is out
    assert (out.x == 3).all()


def test_a_mixture_is_refused_with_what_would_do(made_up):
    a = np.ones((3, 3), np.float32)
    for operands in ((made_up(a), a), (a, made_up(a)), (made_up(a), 2.0)):
        with pytest.raises(pyclmm.DTypeError, match=r"pass arrays of one library; HostArray\(x\) makes one"):
            linalg.dot(*operands)


@every_call
def test_arrays_of_jax_give_arrays_of_jax(name):
    shapes, call = CALLS[name]
    r = random.Random(name)
    xs = [drawn(r, shape, layout="C") for shape in shapes]
    got, want = call(linalg, *map(jax.numpy.asarray, xs), **NAIVE), np.asarray(call(np, *xs))
    assert isinstance(got, jax.Array)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(np.asarray(got), want)


def test_a_product_of_the_same_layout_by_numpys_rule_has_numpys_dtype(made_up):
    """Before and after one by the library's own rule: both are NumPy arrays of bfloat16 inside."""
    a, b = np.ones((3, 3), bfloat16), made_up(np.ones((3, 3), bfloat16))
    for operand, dtype in ((a, np.float32), (b, bfloat16), (b, bfloat16), (a, np.float32), (a, np.float32)):
        assert pyclmm.matmul(operand, operand).dtype == dtype
        assert pyclmm.gemm(operand, operand).dtype == dtype


@pytest.mark.parametrize("dtype", ["float32", bfloat16])
def test_a_product_in_tiles_is_of_the_callers_kind(dtype, made_up):
    a = (np.arange(64 * 48, dtype=np.float32).reshape(64, 48) % 7).astype(dtype)
    x, want = made_up(a), (a.astype(np.float32) @ a.T.astype(np.float32)).astype(dtype)
    for got in (
        pyclmm.matmul(x, made_up(a.T), memory_limit="1 MiB"),
        pyclmm.gemm(x, x, trans_b="T", memory_limit="1 MiB"),
    ):
        assert type(got) is made_up
        assert got.dtype == dtype
        assert np.array_equal(got.x, want)
