"""pyclmm.array_api: arrays with the standard's methods, products on the device, all else NumPy's.

array-api-tests run on it in `make strangers`. These are the parts that those do not look at, and views.
"""

from __future__ import annotations

import itertools
import operator
from contextlib import suppress
from typing import Any

import numpy as np
import pyopencl.array as cla
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import pyclmm
from pyclmm import array_api
from pyclmm.execution import kinds
from pyclmm.opencl.queues import default_queue
from tests.support.habits import drawn, fetched
from tests.support.selection import examples

xp: Any = array_api  # most of its functions are made from a list of names, which mypy does not see
randoms = st.randoms(use_true_random=False)
pytestmark = pytest.mark.skipif(not hasattr(np, "isdtype"), reason="NumPy 2.0 has the standard's functions")


def is_same(got, want):
    assert isinstance(got, xp.Array)
    want = np.asarray(want)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert np.array_equal(fetched(got), want)


@examples(60)
@given(r=randoms)
def test_products(r):
    a, b = drawn(r, (2, 3, 4), "f4", "C"), drawn(r, (4, 5), "f4", "C")
    x, y = xp.asarray(a), xp.asarray(b)
    is_same(xp.matmul(x, y), a @ b)
    is_same(x @ y, a @ b)
    is_same(xp.linalg.matmul(x.mT, x), a.mT @ a)
    is_same(xp.tensordot(x, y, axes=1), np.tensordot(a, b, 1))
    is_same(xp.vecdot(x, x[:1, ...], axis=1), np.vecdot(a, a[:1], axis=1))
    is_same(xp.linalg.outer(y[0, :], y[1, :]), np.outer(b[0], b[1]))
    is_same(xp.linalg.matrix_power(y[:, :4], 3), np.linalg.matrix_power(b[:, :4], 3))


def indices(r, shape):
    """An index that gives a view: integers, slices of any step, None, an ellipsis."""
    key = []
    for length in shape[: r.randint(0, len(shape))]:
        bounds = [r.choice([None, *range(-length - 1, length + 2)]) for _ in range(2)]
        key.append(
            r.randrange(-length, length)
            if length and r.random() < 0.3
            else slice(*bounds, r.choice([None, 1, 2, -1]))
        )
        if r.random() < 0.2:
            key.append(None)
    if r.random() < 0.3:
        key.insert(r.randint(0, len(key)), ...)
    return key[0] if len(key) == 1 and r.random() < 0.5 else tuple(key)


@examples(150)
@given(r=randoms)
def test_an_index_gives_the_view_that_numpy_gives(r):
    a = drawn(r, [r.choice((0, 1, 2, 3, 5)) for _ in range(r.randint(1, 3))], "f4", "C")
    x, key = xp.asarray(a), indices(r, a.shape)
    try:
        want = a[key]
    except IndexError:
        return
    got = x[key]
    is_same(got, want)
    if got.size:
        assert got.base_data is x.base_data


@pytest.mark.parametrize(
    "key", [True, False, np.True_, (True,), (0, True), (slice(None), True), (..., True), (True, 1)]
)
def test_true_and_false_are_masks_as_in_numpy(key):
    host = np.arange(6.0, dtype="f4").reshape(2, 3)
    got = xp.asarray(host)[key]
    is_same(got, host[key])
    assert got.offset >= 0 and got.offset + got.nbytes <= got.base_data.size if got.size else True


@pytest.mark.parametrize("key", [range(2), ((0, 2),), (0, (2, 1)), np.array([2, 0]).data, (None, ((0,),))])
def test_sequences_are_lists_of_places_as_in_numpy(key):
    host = np.arange(12.0, dtype="f4").reshape(3, 4)
    is_same(xp.asarray(host)[key], host[key])


def test_numpy_reads_an_array_and_its_views():
    host = np.arange(24.0, dtype="f4").reshape(2, 3, 4)
    x = xp.asarray(host)
    for got, want in ((x, host), (x.mT, host.swapaxes(1, 2)), (x[..., ::-2], host[..., ::-2])):
        assert type(np.asarray(got)) is np.ndarray
        assert np.array_equal(np.asarray(got), want)
        assert (str(got), repr(got)) == (str(want), f"cl.A{repr(want)[1:]}")
    assert np.asarray(x, "f8").dtype == np.float64
    with pytest.raises(ValueError, match="needs a copy"):
        np.asarray(x, copy=False)


@pytest.mark.parametrize("axes", [(0, 0, 1), (0, 1), (0, 1, 5), (0, 1, 2, 0), (-4, 0, 1)])
def test_axes_that_are_no_permutation_are_refused(axes):
    x = xp.asarray(np.zeros((2, 3, 4), "f4"))
    with pytest.raises((pyclmm.AxisError, pyclmm.ArgumentError), match="axes"):
        xp.permute_dims(x, axes)
    assert xp.permute_dims(x, (-1, 0, 1)).shape == (4, 2, 3)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
def test_the_transpose_of_what_is_no_matrix_is_refused(shape):
    """By ``T``, as the standard says."""
    with pytest.raises(pyclmm.ArgumentError, match=r"^x has \d ax[ei]s; pass a matrix"):
        xp.zeros(shape).T  # noqa: B018
    assert xp.zeros((2, 3)).T.shape == (3, 2)


def test_views_of_views_and_arrays_as_indices():
    a = np.arange(24, dtype="f4").reshape(4, 6)
    x = xp.asarray(a)
    is_same(x[1:, ::-2][::-1, 1], a[1:, ::-2][::-1, 1])
    is_same(x[xp.asarray([2, 0]), :], a[[2, 0]])
    is_same(x[x > 7], a[a > 7])
    x[1, 2:4] = -1
    a[1, 2:4] = -1
    is_same(x, a)
    with pytest.raises(pyclmm.ArgumentError, match="gaps"):
        x.mT[0, 0] = 1


def test_numbers_and_truth():
    assert (float(xp.asarray(2.5)), int(xp.asarray(3)), complex(xp.asarray(1j))) == (2.5, 3, 1j)
    assert bool(xp.asarray([1, 2])[1] == 2)
    assert [7, 8, 9][xp.asarray(1)] == 8
    with pytest.raises(TypeError, match="without axes"):
        bool(xp.asarray([1, 2]))


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "eq", "ne", "ge"]
)
def test_operators_broadcast_and_promote(name):
    f = getattr(operator, name)
    a, b = np.arange(6, dtype="i4").reshape(2, 3) + 1, np.array([2.5, 1, 3], "f4")
    x, y = xp.asarray(a), xp.asarray(b)
    is_same(f(x, y), f(a, b))
    is_same(f(x, 2), f(a, 2))
    is_same(f(2, x), f(2, a))


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv", "ipow", "ior", "imatmul"])
def test_operators_in_place_keep_shape_and_dtype(name):
    f = getattr(operator, name)
    shapes = ((2, 2), (3, 2, 2), (2,), ())
    arrays = [np.ones(shape, dtype) for shape in shapes for dtype in ("f4", "f8", "i4")]
    for a, b in itertools.product(arrays, [*arrays, 1.5]):
        want = None
        with suppress(TypeError, ValueError):
            want = f(a.copy(), b)
        x, y = xp.asarray(a), xp.asarray(b) if isinstance(b, np.ndarray) else b
        if want is None:
            with pytest.raises((TypeError, ValueError)):
                f(x, y)
        else:
            is_same(f(x, y), want)


def test_a_product_with_an_array_of_pyopencl_first():
    host = np.arange(6.0, dtype="f4").reshape(2, 3)
    is_same(cla.to_device(default_queue(), host) @ xp.asarray(host).T, host @ host.T)
    with pytest.raises(TypeError, match="unsupported operand"):
        host @ xp.asarray(host).T


def test_asarray_refuses_what_has_more_than_elements():
    """NumPy would make one object of a sparse matrix, and forget a mask."""
    for wrong, words in (
        (scipy.sparse.eye_array(2), r"obj is a sparse .*obj\.toarray\(\)"),
        (np.ma.array([1.0], mask=[True]), "its mask would be ignored"),
        ("ab", "obj is a str"),
        (None, "obj is None; pass"),
    ):
        with pytest.raises(pyclmm.DTypeError, match=words):
            xp.asarray(wrong)


def test_numpy_arrays_are_refused():
    x = xp.asarray([[1.0]])
    for function in (xp.matmul, xp.tensordot, xp.vecdot):
        with pytest.raises(pyclmm.DTypeError, match=r"x2 is a ndarray; .*asarray\(x2\)"):
            function(x, np.ones((1, 1)))
    for pair in ((x, np.ones((1, 1))), (np.ones((1, 1)), x)):
        with pytest.raises(TypeError, match=r"unsupported operand|does not support ufuncs"):
            operator.mul(*pair)
    is_same(np.float32(2) * x, [[np.float32(2)]] * np.ones(1))


@pytest.mark.parametrize("wrong", [None, [1.0], 2.0, np.ones((2, 2))], ids=str)
def test_what_is_no_array_is_refused_by_name(wrong):
    calls = (
        lambda: xp.astype(wrong, xp.float32),
        lambda: xp.permute_dims(wrong, (1, 0)),
        lambda: xp.matrix_transpose(wrong),
        lambda: xp.linalg.matrix_power(wrong, 2),
        lambda: xp.linalg.matrix_power(wrong, -1),
    )
    for call in calls:
        with pytest.raises(pyclmm.DTypeError, match=r"x is a .*; pass an array of the namesp.*asarray\(x\)"):
            call()


def test_what_becomes_no_array_is_refused_by_name():
    x, z = xp.asarray([1.0]), xp.asarray([1j])
    for call, words in (
        (lambda: xp.astype(x, "nosuch"), "dtype is 'nosuch'"),
        (lambda: xp.astype(x, None), "dtype is None"),
        (lambda: xp.asarray([1.0], dtype="nosuch"), "dtype is 'nosuch'"),
        (lambda: xp.astype(z, xp.float32), r"x has dtype complex128 and dtype is float32; pass real\(x\)"),
        (lambda: xp.asarray(z, dtype=xp.float32), r"obj has dtype complex128 .*; pass real\(obj\)"),
        (lambda: xp.add(x, np.ma.array([1.0], mask=[True])), "its mask would be ignored"),
        (lambda: xp.asarray(2**70), "obj has dtype object"),
        (lambda: xp.from_dlpack(None), "x is a NoneType without DLPack"),
        (lambda: xp.sum(None), "x has dtype object"),
        (lambda: xp.linalg.matrix_power(xp.eye(2), None), "n is None"),
        (lambda: xp.linalg.matrix_power(xp.eye(2), np.array(2.0)), "n is array"),
    ):
        with pytest.raises(pyclmm.DTypeError, match=words):
            call()
    is_same(xp.astype(z, xp.complex64), np.array([1j], "c8"))
    is_same(xp.from_dlpack(x), [1.0])


def test_an_inverse_is_not_reproducible_here_either():
    x = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
    with pyclmm.default_reproducible(), pytest.raises(pyclmm.UnsupportedError, match="n is negative"):
        xp.linalg.matrix_power(x, -1)
    is_same(xp.linalg.matrix_power(x, -1), np.linalg.inv([[1.0, 2.0], [3.0, 4.0]]))


def test_functions_have_the_signatures_of_the_standard():
    x = xp.asarray([1.0, 5.0, 0.0])
    is_same(xp.clip(x, 2.0), [2.0, 5.0, 2.0])
    is_same(xp.clip(x, max=2.0), [1.0, 2.0, 0.0])
    is_same(xp.clip(x, min=xp.asarray(1.0), max=2.0), [1.0, 2.0, 1.0])
    is_same(xp.expand_dims(x), [[1.0, 5.0, 0.0]])
    is_same(xp.expand_dims(x, axis=1), [[1.0], [5.0], [0.0]])
    is_same(xp.count_nonzero(x), np.int64(2))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: xp.add(x, x, out=x),
        lambda x: xp.add(x, x, x),
        lambda x: xp.add(x, x, out=np.zeros(2)),
        lambda x: xp.sum(x, out=x[0]),
        lambda x: xp.sum(x, None, None, x[0]),
        lambda x: xp.concat([x[:1], x[1:]], 0, x),
        lambda x: xp.take(x, xp.asarray([1, 0]), 0, x),
        lambda x: xp.argmax(xp.linalg.outer(x, x), 0, xp.asarray([1, 2])),
    ],
)
def test_an_out_which_the_standard_lacks_is_refused(call):
    """An Array would get nothing: NumPy writes to a copy on the host."""
    with pytest.raises(pyclmm.DTypeError, match="leave out"):
        call(xp.asarray([1.0, 2.0]))


def test_a_result_is_a_copy_and_numbers_fit_their_dtype():
    x = xp.asarray([[1.0, 2.0]])
    with pytest.raises(pyclmm.ArgumentError, match="copy is False, but reshape returns a new array"):
        xp.reshape(x, (2,), copy=False)
    is_same(xp.reshape(x, (2,), copy=None), [1.0, 2.0])
    for numbers in (300, [[300]]):
        with pytest.raises(pyclmm.ArgumentError, match=r"obj: .* out of bounds for int8; pass a wider dtype"):
            xp.asarray(numbers, dtype=xp.int8)
    is_same(xp.asarray(np.array([300]), dtype=xp.int8), np.array([44], "i1"))
    for numbers in (np.nan, [np.inf]):
        with pytest.raises(pyclmm.ArgumentError, match=r"obj: cannot convert float \w+ to integer"):
            xp.asarray(numbers, dtype=xp.int8)
    is_same(xp.asarray([xp.asarray(7), 3], dtype=xp.int8), np.array([7, 3], "i1"))


def test_arrays_of_pyopencl_are_taken_as_they_are(queue):
    plain = cla.to_device(queue, np.ones((2, 2), "f4"))
    x = xp.asarray(plain)
    assert x.base_data is plain.base_data
    assert x.events is plain.events
    is_same(x @ plain, np.full((2, 2), 2, "f4"))
    assert pyclmm.matmul(x, plain)[0, 0].get() == 2
    is_same(xp.asarray(plain, dtype=xp.float64), np.ones((2, 2)))


def test_devices_and_what_the_namespace_says(queue):
    info = xp.__array_namespace_info__()
    x = xp.zeros((2,), device=info.default_device())
    assert x.__array_namespace__() is xp
    assert x.device in info.devices() or x.device.device in [q.device for q in info.devices()]
    assert x.to_device(queue).device is queue
    assert xp.asarray(x, device=queue).device is queue
    assert info.dtypes(kind="bool") == {"bool": np.dtype(bool)}
    assert xp.result_type(x, xp.float32) == info.default_dtypes()["real floating"]
    with pytest.raises(pyclmm.ArgumentError, match="2019"):
        x.__array_namespace__(api_version="2019.12")
    with pytest.raises(pyclmm.ArgumentError, match="copy is False"):
        xp.asarray([1.0], copy=False)


def test_all_else_is_numpys():
    x = xp.asarray([[3.0, 1.0], [2.0, 4.0]])
    is_same(xp.sum(x, axis=0), [5.0, 5.0])
    is_same(xp.concat([x, x]), np.concat([fetched(x)] * 2))
    is_same(xp.linalg.inv(x), np.linalg.inv(fetched(x)))
    assert [type(each) for each in xp.linalg.svd(x)] == [xp.Array] * 3
    assert xp.unique_counts(x).counts.shape == (4,)
    is_same(xp.astype(x, xp.int8), fetched(x).astype("i1"))
    is_same(xp.from_dlpack(np.ones(3)), np.ones(3))
    is_same(xp.permute_dims(x, (1, 0)), fetched(x).T)


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i8", "f4", "c8"])
def test_unique_values_are_sorted(rng, dtype):
    """NumPy's unique_values are not; scikit-learn takes its classes from here and finds each by its place."""
    host = (rng.integers(0, 99, (8, 9)) - 50).astype(dtype)
    x = xp.asarray(host)
    values, indices, inverse, counts = np.unique(
        host, return_index=True, return_inverse=True, return_counts=True
    )
    found = xp.unique_all(x)
    is_same(xp.unique_values(x), values)
    for got, want in zip(found, (values, indices, inverse.reshape(host.shape), counts), strict=True):
        is_same(got, want)
    assert found._fields == ("values", "indices", "inverse_indices", "counts")
    is_same(xp.unique_counts(x).counts, counts)
    is_same(xp.unique_inverse(x).inverse_indices, inverse.reshape(host.shape))
    is_same(xp.unique_values(xp.asarray([np.nan, 1.0, np.nan]))[:1], [1.0])


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_keeps_the_order_of_equal_elements(rng, descending):
    host = rng.integers(0, 3, (40, 50)).astype("f4") * 0.0
    host[:, ::2] *= -1  # zeros of both signs are equal
    host[::7] += rng.integers(0, 3, 50)
    order = np.argsort(-host if descending else host, axis=0, kind="stable")
    x = xp.asarray(host)
    is_same(xp.argsort(x, axis=0, descending=descending), order)
    got = xp.sort(x, axis=0, descending=descending)
    is_same(got, np.take_along_axis(host, order, 0))
    assert np.array_equal(np.signbit(fetched(got)), np.signbit(np.take_along_axis(host, order, 0)))


def test_an_array_is_a_sequence_of_its_rows():
    x = xp.asarray([[1, 2], [3, 4]])
    for got, want in zip(x, fetched(x), strict=True):
        is_same(got, want)
    for call in (iter, len):
        with pytest.raises(TypeError, match="no length"):
            call(x[0, 0])


class Negated:
    """A library's view that notes a sign, of which DLPack and ``__array__`` say nothing, as PyTorch's do."""

    def __init__(self, x):
        self.x = x

    def __array__(self, dtype=None, copy=None):
        return self.x

    def __dlpack__(self, **keywords):
        return self.x.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


class Adapter(kinds.Kind):
    advice_for_mixed = ""
    cuda_array = stream = new = back = None

    def on_host(self, name, x):
        return True

    def host_array(self, name, x):
        return -x.x


Adapter.__abstractmethods__ = frozenset()


@pytest.mark.parametrize("read", [xp.asarray, xp.from_dlpack], ids=["asarray", "from_dlpack"])
def test_arrays_of_a_library_are_read_by_its_adapter(monkeypatch, read):
    monkeypatch.setattr(kinds, "_kinds", {**kinds._kinds, Negated: Adapter()})
    x = np.array([[1.0, -2.0]], np.float32)
    is_same(read(Negated(x)), -x)
