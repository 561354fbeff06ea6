"""What pyclmm.linalg writes: a result that shares a file with an operand, or memory with itself; refusals."""

import re

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import pyclmm
from pyclmm import linalg
from pyclmm.errors import ArgumentError, DTypeError
from pyclmm.opencl.mappings import MAPS

# Sums and products that NumPy computes, products of a kernel, and several steps
SUBSCRIPTS = (
    "ij->i", "ij->j", "ij->", "ij->ji", "ii->i", "ij,ij->ij", "ij,i->ij", "ij,jk->ik", "ij,jk,kl->il",
)  # fmt: skip
N = 9


def _terms(subscripts):
    """Those of the operands."""
    return subscripts.partition("->")[0].split(",")


@pytest.fixture
def maps(tmp_path):
    """Makes two maps of one file: of the shapes that are given, the second that many elements further on."""
    np.zeros(4 * N * N, np.float32).tofile(tmp_path / "x")

    def made(shape, other, ahead):
        first = np.memmap(tmp_path / "x", np.float32, "r+", 0, shape)
        return np.asarray(first), np.asarray(np.memmap(tmp_path / "x", np.float32, "r+", 4 * ahead, other))

    return made


@pytest.mark.skipif(not MAPS.exists(), reason="no list of the process's maps")
@pytest.mark.parametrize("subscripts", SUBSCRIPTS)
def test_a_result_in_another_map_of_an_operands_file_is_right(subscripts, maps, rng):
    """Apart, then overlapping: the later calls repeat the first."""
    others = [rng.integers(-3, 4, (N,) * len(term)).astype("f4") for term in _terms(subscripts)[1:]]
    shape = np.einsum(subscripts, np.zeros((N, N), "f4"), *others).shape
    for ahead in (N * N, 0, 3, N):
        a, out = maps((N, N), shape, ahead)
        a[...] = rng.integers(-3, 4, a.shape)
        want = np.einsum(subscripts, a.copy(), *others)
        linalg.einsum(subscripts, a, *others, out=out)
        np.testing.assert_array_equal(out, want)


@pytest.mark.skipif(not MAPS.exists(), reason="no list of the process's maps")
def test_a_strided_view_of_a_map_as_matmuls_result_is_right(maps, rng):
    a, out = maps((N, N), (N, N), 3)
    a[...] = rng.integers(-3, 4, a.shape)
    b, want = np.eye(N, dtype="f4"), a.copy()
    pyclmm.matmul(a, b, out=as_strided(out, out.shape, out.strides))
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("subscripts", ["ij->i", "ijk->ik", "ij,ij->ij", "ij,ij->i"])
@pytest.mark.parametrize("step", [0, 8])
def test_results_whose_elements_share_memory_keep_the_last_in_c_order(subscripts, step, rng):
    operands = [rng.integers(-9, 9, (4, 5, 6)[: len(x)]).astype("f8") for x in _terms(subscripts)]
    want = np.einsum(subscripts, *operands)
    for _ in range(2):
        memory, expected = np.zeros((2, 20))
        as_strided(expected, want.shape, (step,) * want.ndim)[...] = want
        linalg.einsum(subscripts, *operands, out=as_strided(memory, want.shape, (step,) * want.ndim))
        np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize("kind", [np.matrix, np.memmap])
def test_out_of_a_subclass_is_written_and_returned(kind, tmp_path):
    a, x = np.arange(9.0).reshape(3, 3), np.arange(3.0)

    def made(*shape):
        if kind is np.memmap:
            return np.memmap(tmp_path / "out", "f8", "w+", shape=shape)
        return np.zeros(shape).view(kind)

    for shape, call, want in (
        ((3, 3), lambda out: linalg.dot(a, a, out), a @ a),
        ((3, 3), lambda out: linalg.outer(x, x, out=out), np.outer(x, x)),
        ((3, 3), lambda out: linalg.multi_dot([a, a, a], out=out), a @ a @ a),
        ((3, 3), lambda out: linalg.einsum("ij,jk", a, a, out=out), a @ a),
        ((1, 3), lambda out: linalg.matvec(a, x[None], out=out), [a @ x]),
        ((1, 3), lambda out: linalg.vecmat(x[None], a, out=(out,)), [x @ a]),
        ((3, 1), lambda out: linalg.vecdot(a.T, x, out=out, keepdims=True), (x @ a)[:, None]),
    ):
        out = made(*shape)
        assert call(out) is out
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("subscripts", SUBSCRIPTS)
def test_a_read_only_result_is_refused_by_name(subscripts):
    """In a first call, and in one that repeats it."""
    operands = [np.ones((N,) * len(term), "f4") for term in _terms(subscripts)]
    out = np.zeros(np.einsum(subscripts, *operands).shape, "f4")
    out.flags.writeable = False
    for _ in range(2):
        with pytest.raises(ArgumentError, match="out is read-only; pass a writeable array"):
            linalg.einsum(subscripts, *operands, out=out)
        linalg.einsum(subscripts, *operands, out=np.ones_like(out))
    assert not out.any()


@pytest.mark.parametrize("subscripts", SUBSCRIPTS)
def test_a_result_of_a_type_to_which_nothing_is_cast_is_refused_by_name(subscripts):
    operands = [np.ones((N,) * len(term), "f4") for term in _terms(subscripts)]
    shape = np.einsum(subscripts, *operands).shape
    for dtype, words in (("i4", "out: cannot cast"), ("U9", "out has dtype"), (object, "out has dtype")):
        out = np.zeros(shape, dtype)
        with pytest.raises(DTypeError, match=f"^{words}"):
            linalg.einsum(subscripts, *operands, out=out, casting="same_kind")
        assert (out == np.zeros(shape, dtype)).all()


A = np.ones((N, N), np.float32)


@pytest.mark.parametrize(
    "wrong", [A.astype(object), "abc", None, np.ma.array(A)], ids=lambda x: type(x).__name__
)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("operands[0]", lambda x: linalg.einsum("ij->i", x)),
        ("operands[2]", lambda x: linalg.einsum("ij,jk,kl", A, A, x)),
        ("arrays[2]", lambda x: linalg.multi_dot([A, A, x])),
        ("arrays[0]", lambda x: linalg.multi_dot([x, A, A], out=np.empty_like(A))),
        ("arrays[1]", lambda x: linalg.multi_dot([A, x])),
        ("b", lambda x: linalg.dot(A, x, out=np.empty_like(A))),
        ("x2", lambda x: linalg.vecdot(A, x)),
        ("x1", lambda x: linalg.matvec(x, A[0])),
        ("x2", lambda x: linalg.vecmat(A[0], x)),
    ],
)
def test_an_operand_is_refused_by_the_name_that_the_caller_knows(name, call, wrong):
    with pytest.raises(DTypeError, match=f"^{re.escape(name)} "):
        call(wrong)


def test_of_several_unknown_keywords_the_first_is_named():
    with pytest.raises(DTypeError, match="argument 'one'"):
        linalg.inner([1], [1], one=1, two=2, three=3, four=4, five=5)
