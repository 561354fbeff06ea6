"""What is taken in place of a NumPy array, what shares its memory, and what is refused with the cure."""

import array

import numpy as np
import pyopencl.array as cla
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import pyclmm
from pyclmm import array_api, linalg
from pyclmm.execution.array_likes import array_of
from tests.support.habits import same
from tests.support.optional import optional
from tests.support.selection import examples

bfloat16 = optional("ml_dtypes").bfloat16

numbers = st.one_of(
    st.booleans(), st.integers(-5, 5), st.floats(-4, 4, width=16), st.complex_numbers(max_magnitude=4)
)


class Tensor:
    """A tensor of another library in the host's memory, or, by its own word, on another device."""

    def __init__(self, x, kind=1):
        self.x, self.kind = x, kind

    def __dlpack__(self, **keywords):
        return self.x.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.kind, 0


class Likeness:
    """What has __array__ only."""

    def __init__(self, x):
        self.x = x

    def __array__(self, dtype=None, copy=None):
        if isinstance(self.x, Exception):
            raise self.x
        return self.x


class Typed(Likeness, Tensor):
    """A tensor of a dtype that DLPack does not have, such as JAX's of bfloat16."""

    __init__ = Tensor.__init__


@pytest.mark.parametrize("protocol", ["__array_interface__", "__array_struct__"])
def test_what_has_a_protocol_of_numpys_is_read(protocol):
    x = np.arange(6.0).reshape(2, 3)
    like = type("Like", (), {protocol: getattr(x, protocol)})()
    same(pyclmm.matmul(like, x.T), x @ x.T)
    same(pyclmm.linalg.einsum("ij,kj->ik", like, x), x @ x.T)


@examples(80)
@given(st.data(), st.integers(0, 3), st.integers(1, 3), st.integers(0, 3))
def test_lists_of_any_numbers(data, m, k, n):
    """Numbers of Python and of NumPy, mixed: the dtype is the one that NumPy finds."""
    kinds = st.sampled_from([lambda x: x, np.asarray, lambda x: np.asarray(x)[()]])
    a = [[data.draw(kinds)(data.draw(numbers)) for _ in range(k)] for _ in range(m)]
    b = tuple(tuple(data.draw(numbers) for _ in range(n)) for _ in range(k))
    try:
        want = np.matmul(a, b)
    except ValueError:  # no rows: a has one axis of length 0
        with pytest.raises(pyclmm.ShapeError):
            pyclmm.matmul(a, b, kernel="naive")
        return
    got = pyclmm.matmul(a, b, kernel="naive")
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert np.allclose(got, want, rtol=1e-12, atol=1e-12)


class Indexed:
    """What has a length and entries by their numbers, and is registered as no sequence."""

    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]


Y = np.arange(6, dtype=np.float32).reshape(2, 3)
LIKES = {
    "list": (Y.tolist(), "f8"),
    "range": (range(3), "i8"),
    "a length and entries": (Indexed(Y.tolist()), "f8"),
    "a length and entries in a list": ([Indexed([1.0, 2.0, 3.0])] * 2, "f8"),
    "memoryview": (memoryview(Y), "f4"),
    "bytearray": (bytearray(3), "u1"),
    "array.array": (array.array("d", [1, 2, 3]), "f8"),
    "__array__": (Likeness(Y), "f4"),
    "DLPack": (Tensor(Y), "f4"),
    "DLPack, transposed": (Tensor(Y.T[:, ::-1].T), "f4"),
    "a tensor of bfloat16": (Typed(Y.astype(bfloat16)), bfloat16),
    "a number of NumPy in a list": ([np.float32(1), np.int8(2), 3], "f8"),
}


@pytest.mark.parametrize("like", LIKES.values(), ids=LIKES)
def test_what_is_like_an_array(like):
    x, dtype = like
    y = array_of("a", x)
    assert y.dtype == dtype
    plain = np.asarray(x.x if isinstance(x, Tensor) else x)
    assert np.array_equal(y, plain)
    same(pyclmm.matmul(x, y.T), pyclmm.matmul(plain, plain.T))
    same(pyclmm.gemm(x, y.T), pyclmm.gemm(plain, plain.T))
    same(linalg.inner(x, x), linalg.inner(plain, plain))


@pytest.mark.parametrize("name", ["memoryview", "__array__", "DLPack", "DLPack, transposed"])
def test_memory_is_shared(name):
    """A change of the owner's elements is seen in the next product, and in the array itself."""
    x, _ = LIKES[name]
    y = array_of("a", x)
    assert np.shares_memory(y, Y)
    before = Y[0, 0]
    try:
        Y[0, 0] = 77
        assert 77 in pyclmm.matmul(x, np.eye(3, dtype="f4"))
    finally:
        Y[0, 0] = before


def test_dataframes_are_their_values():
    pandas = optional("pandas")  # it takes half a second to import, and no other test needs it
    frame = pandas.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]}, index=[5, 9])
    same(pyclmm.matmul(frame, frame), frame.to_numpy() @ frame.to_numpy())
    same(pyclmm.matmul(frame["x"], frame), frame["x"].to_numpy() @ frame.to_numpy())
    with pytest.raises(pyclmm.DTypeError, match="a has dtype object"):
        pyclmm.matmul(pandas.DataFrame({"x": [1], "y": ["two"]}), [[1.0], [2.0]])


REFUSED = {
    "sparse matrix": (scipy.sparse.csr_matrix(Y), "a is a sparse csr_matrix", r"a\.toarray\(\)"),
    "sparse array": (scipy.sparse.coo_array(Y), "a is a sparse coo_array", r"a\.toarray\(\)"),
    "another device": (Tensor(Y, 10), "memory of another device", r"a\.cpu\(\)"),  # ROCm's
    "a CUDA device": (Tensor(Y, 2), "pass arrays of one library", "brings an array there"),
    "a string": ("abc", "a is a str", "NumPy array"),
    "bytes": ([b"ab", b"c", b"d"], "a has dtype", "convert it to one of"),
    "strings": ([["a", "b", "c"]], "a has dtype <U1", "convert it to one of"),
    "nothing": (None, "a is None", "NumPy array"),
    "an object": (object(), "a is a object", "NumPy array"),
    "a set": ({1, 2}, "a is a set", "NumPy array"),
    "a generator": ((x for x in "ab"), "a is a generator", "NumPy array"),
    "an __array__ that fails": (Likeness(TypeError("no dtype")), "a is a Likeness: no dtype", "NumPy array"),
    "one that needs gradients": (Likeness(RuntimeError("use detach()")), r"use detach\(\)", "NumPy array"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(case):
    x, *words = case
    for function in (pyclmm.matmul, pyclmm.gemm, linalg.dot, linalg.inner):
        with pytest.raises(pyclmm.DTypeError) as raised:
            function(x, Y.T)
        for each in words:
            assert raised.match(each)


def test_an_array_that_refuses_says_so_itself():
    with pytest.raises(NotImplementedError, match="not here"):
        pyclmm.matmul(Likeness(NotImplementedError("not here")), Y)


def test_numbers_have_no_axes():
    for x in (3, 2.5, 1j, True, np.float32(2)):
        with pytest.raises(pyclmm.ShapeError, match="0-dimensional"):
            pyclmm.matmul(x, Y)


@pytest.mark.parametrize(
    "out", [[[0.0] * 2] * 2, Likeness(np.zeros((2, 2), "f4")), Tensor(np.zeros((2, 2), "f4"))]
)
def test_out_is_an_array(out):
    """What is written to a copy would be lost."""
    with pytest.raises(pyclmm.DTypeError, match="out is a"):
        pyclmm.matmul(Y, Y.T, out=out)


# ---- NumPy arrays beside Arrays ------------------------------------------------------------------


def test_a_mixture_is_refused_with_the_hint(queue):
    x = cla.to_device(queue, Y)
    for pair in ((x, Y.T), (Y, x.T), (x, Y.T.tolist()), (Tensor(Y), x.T)):
        with pytest.raises(pyclmm.DTypeError, match="mixed='copy'"):
            pyclmm.matmul(*pair)


@examples(30)
@given(st.sampled_from(["C", "F", ">f4", "list", "0 rows"]), st.booleans())
def test_a_mixture_is_copied_where_that_is_asked_for(queue, layout, first):
    y = {"C": Y, "F": np.asfortranarray(Y), ">f4": Y.astype(">f4"), "list": Y.tolist(), "0 rows": Y[:0]}[
        layout
    ]
    x = cla.to_device(queue, Y.T.copy())
    host = np.asarray(y, "f8" if layout == "list" else "f4")
    first = first or layout == "0 rows"
    got = pyclmm.matmul(y, x, mixed="copy") if first else pyclmm.matmul(x, y, mixed="copy")
    same(got, host @ Y.T if first else Y.T @ host)


def test_a_mixture_in_gemm_and_into_an_out(queue):
    x = cla.to_device(queue, Y)
    out = cla.to_device(queue, np.zeros((2, 2), "f4"))
    bias = np.ones(2, np.float32)
    assert pyclmm.gemm(x, Y.T, bias=bias, out=out, mixed="copy") is out
    assert np.array_equal(out.get(), Y @ Y.T + 1)
    with pytest.raises(pyclmm.DTypeError, match=r"out is a numpy\.ndarray.*out must be an Array"):
        pyclmm.matmul(x, Y.T, out=np.zeros((2, 2), "f4"), mixed="copy")
    for _ in range(2):  # the second call is like one before it
        with pytest.raises(pyclmm.ArgumentError, match="pass 'copy'"):
            pyclmm.matmul(Y, Y.T, mixed="move")
        same(pyclmm.matmul(Y, Y.T, mixed="copy"), Y @ Y.T)  # nothing is mixed


def test_a_shape_may_be_a_list():
    """As of libraries that write it so."""
    x = np.ones((2, 2), "f4")

    class Listed(Likeness):
        @property
        def shape(self):
            return list(self.x.shape)

    y = Listed(x)
    same(pyclmm.matmul(y, y), x @ x)
    same(pyclmm.matmul_many([(y, y)])[0], x @ x)
    same(pyclmm.ManyMatmul([(y, y)])([(y, y)])[0], x @ x)


def test_a_list_of_arrays_is_refused_before_it_is_fetched(queue, monkeypatch):
    x = cla.to_device(queue, Y)
    monkeypatch.setattr(cla.Array, "get", lambda *_: pytest.fail("fetched"))
    for each in ([x, x], ([x],)):
        with pytest.raises(pyclmm.DTypeError, match=r"of pyopencl Arrays; stack them"):
            pyclmm.matmul(each, Y.T)


def test_a_list_of_sparse_matrices_is_refused_as_one_is():
    sparse = scipy.sparse.csr_matrix(Y)
    for each in ([sparse, sparse], ([Y, sparse],)):
        with pytest.raises(pyclmm.DTypeError, match=r"with a sparse csr_matrix; .*each\.toarray\(\)"):
            pyclmm.matmul(Y.T, each)


# ---- out=(x,) ----------------------------------------------------------------------------------


def test_out_in_a_tuple(queue):
    out = np.zeros((2, 2), np.float32)
    assert pyclmm.matmul(Y, Y.T, out=(out,)) is out
    assert np.array_equal(out, Y @ Y.T)
    x, z = cla.to_device(queue, Y), cla.to_device(queue, out)
    for _ in range(3):  # the last call is remembered
        assert pyclmm.matmul(x, x.T, out=(z,)) is z
    same(pyclmm.matmul(Y, Y.T, out=(None,)), Y @ Y.T)
    for wrong in ((), (out, out)):
        for function in (np.matmul, pyclmm.matmul):
            with pytest.raises(ValueError, match="exactly one entry"):
                function(Y, Y.T, out=wrong)


class WithoutMethod:
    """It has one of DLPack's two methods."""

    def __dlpack_device__(self):
        return 1, 0


def test_a_capsule_is_refused_and_what_it_was_made_of_is_taken():
    x = np.eye(3, dtype=np.float32)
    for call in (
        lambda capsule: pyclmm.matmul(capsule, x),
        lambda capsule: pyclmm.matmul(x, x, out=capsule),
        lambda capsule: pyclmm.gemm(x, x, capsule, beta=1),
        lambda capsule: linalg.einsum("ij,jk", x, capsule),
        lambda capsule: pyclmm.matmul_many([(x, capsule)]),
        lambda capsule: pyclmm.ragged_matmul(x, np.ones((2, 3, 3)), capsule),
    ):
        with pytest.raises(pyclmm.DTypeError, match=r"is a PyCapsule, .*; pass the array that it was made"):
            call(x.__dlpack__())
    assert np.array_equal(pyclmm.matmul(Tensor(x), x), x)


class Failing(WithoutMethod):
    def __dlpack__(self, **_):
        raise AssertionError("of its library")


class FailingToTell(Failing):
    def __dlpack_device__(self):
        self.__dlpack__()


@pytest.mark.parametrize("kind", [WithoutMethod, Failing, FailingToTell])
def test_what_dlpack_does_not_give_is_refused(kind):
    for call in (pyclmm.matmul, lambda a, b: linalg.dot(b, a), lambda a, b: pyclmm.matmul_many([(a, b)])):
        with pytest.raises(pyclmm.DTypeError, match=rf"is a {kind.__name__}: .*pass a NumPy array"):
            call(kind(), np.eye(3))
    with pytest.raises(pyclmm.DTypeError, match=f"x is a {kind.__name__} without DLPack"):
        array_api.from_dlpack(kind())


def test_a_read_only_export_is_read_and_not_written():
    x = np.eye(3, dtype=np.float32)
    x.flags.writeable = False
    assert np.array_equal(pyclmm.matmul(Tensor(x), np.eye(3)), x)
    with pytest.raises(pyclmm.ArgumentError, match="out is read-only"):
        pyclmm.matmul(np.eye(3, dtype=np.float32), 2 * x, out=np.from_dlpack(Tensor(x)))
    assert np.array_equal(x, np.eye(3))
