"""Calls of pyclmm.linalg that repeat an earlier one on other arrays of the same layouts."""

import numpy as np
import pytest

import pyclmm
from pyclmm import api, linalg
from pyclmm.linalg import products, repeated
from tests.support.faults import noted
from tests.support.processes import nothing_repeated

CASES = {
    "vecdot": (linalg.vecdot, np.vecdot, (7, 5), (7, 5), {}),
    "vecdot with keepdims": (linalg.vecdot, np.vecdot, (7, 5), (5,), {"keepdims": True}),
    "vecdot along an axis": (linalg.vecdot, np.vecdot, (5, 7), (5, 7), {"axis": 0}),
    "dot": (linalg.dot, np.dot, (9,), (9,), {}),
    "inner": (linalg.inner, np.inner, (3, 4), (5, 4), {}),
    "outer": (linalg.outer, np.outer, (3, 4), (5,), {}),
    "tensordot": (linalg.tensordot, np.tensordot, (3, 4, 5), (4, 5, 2), {}),
    "tensordot of all": (linalg.tensordot, np.tensordot, (4, 5), (4, 5), {"axes": 2}),
    "tensordot of axes": (linalg.tensordot, np.tensordot, (3, 4, 5), (5, 4), {"axes": ((2,), [0])}),
    "einsum of lists": (
        lambda a, b: linalg.einsum(a, [0, 1], b, [1, 2], [2, 0]),
        lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [2, 0]), (3, 4), (4, 5), {},
    ),
    "multi_dot": (
        lambda a, b: linalg.multi_dot([a, b]), lambda a, b: np.linalg.multi_dot([a, b]), (3, 4), (4, 5), {}
    ),
    "matvec": (linalg.matvec, np.matvec, (2, 3, 4), (4,), {}),
    "vdot": (linalg.vdot, np.vdot, (3, 4), (3, 4), {}),
    "vdot of vectors": (linalg.vdot, np.vdot, (9,), (9,), {}),
    "vecdot of vectors": (linalg.vecdot, np.vecdot, (9,), (9,), {}),
    "einsum of a vector and one element": (
        lambda a, b: linalg.einsum("i,i->", a, b), lambda a, b: np.einsum("i,i->", a, b), (9,), (1,), {}
    ),
}  # fmt: skip
TYPES = ["f4", "c8"]


@pytest.fixture
def contracted(monkeypatch):
    """The calls that went the whole way. There is no earlier one."""
    nothing_repeated(monkeypatch)
    return noted(monkeypatch, products, "contract")


def operand(rng, shape, dtype):
    return (rng.integers(-3, 4, shape) * (1 - 2j if dtype == "c8" else 1)).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", CASES)
def test_a_call_like_an_earlier_one_goes_straight_to_its_product(case, dtype, contracted, rng):
    mine, numpys, of_a, of_b, keywords = CASES[case]
    for turn in range(3):
        a, b = operand(rng, of_a, dtype), operand(rng, of_b, dtype)
        got, want = mine(a, b, **keywords), numpys(a, b, **keywords)
        assert type(got) is type(want)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_array_equal(got, want)
        assert turn == 0 or len(contracted) == 1


@pytest.mark.parametrize("dtype", ["f4", "f2", "c8", "i8", "q", ">f4", "?"])
@pytest.mark.parametrize("function", [linalg.dot, linalg.inner, linalg.vdot, linalg.vecdot])
def test_a_product_of_two_vectors_has_the_bits_and_the_dtype_of_the_first_call(function, dtype, rng):
    for step in (1, -1, 3):
        a, b = ((rng.random(3000 * abs(step)) - 0.5).astype(dtype)[::step] for _ in "ab")
        first, *others = (function(a, b) for _ in range(3))
        assert {(x.tobytes(), x.dtype.char) for x in others} == {(first.tobytes(), first.dtype.char)}


@pytest.mark.parametrize("function", [linalg.dot, linalg.vecdot, linalg.inner])
def test_a_repeated_call_looks_no_options_up(function, rng, monkeypatch):
    a, b = (rng.random((30, 30), "f4") for _ in "ab")
    for _ in range(2):
        function(a, b)
    looked = [noted(monkeypatch, api, name) for name in ("gemm", "options_of")]
    function(a, b)
    assert looked == [[], []]


SUMS = ("ijk->", "ijk->j", "ijk->ki", "iji->j", "ijk,ijk->ijk", "ijk,j->kij")


@pytest.mark.parametrize("dtype", ["i1", "f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("subscripts", SUMS)
def test_what_numpy_computes_is_repeated_too(subscripts, dtype, contracted, rng):
    """Of an array, then of views: with gaps, backwards, and read-only."""
    whole = rng.integers(-3, 4, (10, 9, 10)).astype(dtype)
    parts = (np.s_[:5, :4, :5], np.s_[::-2, 1:5, 1::2], np.s_[:5, :4, :5])
    views = [*(whole[part] for part in parts), whole[parts[0]].copy()]
    views[2].flags.writeable = False
    before = None
    number, wide = subscripts.count(",") + 1, "16" if dtype in ("c8", "c16") else "8"
    for turn in range(3):
        for x in views:
            given = [x, rng.integers(-3, 4, 4).astype(dtype) if ",j->" in subscripts else x][:number]
            want = np.einsum(subscripts, *[y.astype(x.dtype.kind + wide) for y in given])
            got = linalg.einsum(subscripts, *given)
            assert (got.shape, got.dtype) == (want.shape, np.dtype(dtype))
            np.testing.assert_array_equal(got, want.astype(dtype))
            out = np.full((*want.shape, 2), 7, dtype)[..., 0]
            assert linalg.einsum(subscripts, *given, out=out) is out
            np.testing.assert_array_equal(out, want.astype(dtype))
        before = len(contracted) if turn == 0 else before
        assert len(contracted) == before


@pytest.mark.parametrize("subscripts", ["ij,ij->ji", "ij,ji->ij", "ij,j->ji"])
def test_what_numpy_multiplies_lies_as_the_operands_do(subscripts, contracted, rng):
    """As NumPy's result: in C order each element would be written to another line of the caches."""
    terms = subscripts.partition("->")[0].split(",")
    for turn in range(3):
        given = [operand(rng, [{"i": 4, "j": 5}[x] for x in term], "f4") for term in terms]
        given = [np.asfortranarray(x) if term == "ji" else x for x, term in zip(given, terms, strict=True)]
        got, want = linalg.einsum(subscripts, *given), np.einsum(subscripts, *given)
        np.testing.assert_array_equal(got, want)
        assert got.strides == want.strides
        assert turn == 0 or len(contracted) == 1


@pytest.mark.usefixtures("contracted")
def test_a_result_in_c_order_owns_its_memory():
    for _ in range(2):
        assert linalg.einsum("ij,ij->ij", np.ones((2, 3)), np.ones((2, 3))).flags.owndata


def test_lists_without_an_end_are_refused_by_name():
    circular = [1]
    circular.append(circular)
    deep = 1
    for _ in range(3000):
        deep = [deep]
    for given in (circular, deep):
        with pytest.raises(pyclmm.ShapeError, match="a is a list"):
            linalg.dot(given, 1)
        with pytest.raises(pyclmm.ArgumentError, match=r"^axes is "):
            linalg.tensordot(np.ones((2, 2)), np.ones((2, 2)), (given,))


def test_a_repeated_sum_whose_out_is_its_operand(contracted, rng):
    for _ in range(3):
        x = operand(rng, (4, 5), "f4")
        want = x.sum(axis=1)
        linalg.einsum("ij->i", x, out=x[:, 0])
        np.testing.assert_array_equal(x[:, 0], want)


def test_a_sum_of_which_a_block_asks_something_is_a_product(contracted):
    """Of the setting that the context has now: a product, whose kernel adds one after the other."""
    x = np.ones((3, 5), np.float32)
    for block in (pyclmm.default_reproducible(), pyclmm.verified(), pyclmm.default_reproducible(False)):
        linalg.einsum("ij->i", x)
        before = len(contracted)
        with block:
            linalg.einsum("ij->i", x)
        is_asked = before < len(contracted)
    assert not is_asked
    assert len(contracted) == 3


def test_a_read_only_out_of_a_sum_is_refused_again(contracted):
    out = np.empty(3, np.float32)
    linalg.einsum("ij->i", np.ones((3, 2), np.float32), out=out)
    out.flags.writeable = False
    for _ in range(2):
        with pytest.raises(ValueError, match="read-only"):
            linalg.einsum("ij->i", np.ones((3, 2), np.float32), out=out)


@pytest.mark.parametrize("shape", [(7,), (7, 1)])
def test_out_is_written_and_returned(shape, contracted, rng):
    keywords = {"keepdims": True} if len(shape) == 2 else {}
    for _ in range(3):
        a, b, out = operand(rng, (7, 5), "f4"), operand(rng, (7, 5), "f4"), np.full(shape, np.nan, "f4")
        assert linalg.vecdot(a, b, out=out, **keywords) is out
        np.testing.assert_array_equal(out, np.vecdot(a, b, **keywords))
    assert len(contracted) == 1


def test_out_that_is_an_operand_of_a_repeated_call(contracted, rng):
    a, b, out = (operand(rng, (4, 4), "f4") for _ in range(3))
    for _ in range(2):
        linalg.dot(a, b, out)
    want = a @ b
    linalg.dot(a, b, a)
    np.testing.assert_array_equal(a, want)
    want = a @ b
    linalg.dot(a, b, a)
    np.testing.assert_array_equal(a, want)
    assert len(contracted) == 3


def test_one_array_twice_and_then_two(contracted, rng):
    a, b = operand(rng, (6, 5), "f4"), operand(rng, (6, 5), "f4")
    for x, y in ((a, a), (a, b), (b, a), (b, b)):
        assert linalg.einsum("ij,ij->", x, y) == (x * y).sum()
    assert len(contracted) == 2


def test_calls_that_differ_in_an_argument_or_a_layout_are_others(contracted, rng):
    x = operand(rng, (6, 6), "f4")
    for subscripts in ("ij,jk->ik", "ij,kj->ik", "ij,jk->ki", "ij,ij->i"):
        np.testing.assert_array_equal(linalg.einsum(subscripts, x, x), np.einsum(subscripts, x, x))
    for axes in (True, 1, 2):  # True is 1, and no number of axes
        got = linalg.tensordot(x, x, axes)
        np.testing.assert_array_equal(got, np.tensordot(x, x, axes))
    for y in (x.T, x[::-1], x.astype(">f4"), x.astype("f8"), x[:, ::-1]):
        np.testing.assert_array_equal(linalg.dot(x, y), np.dot(x, y))
    assert len(contracted) == 12


def test_a_product_of_copies_is_not_repeated_without_them(contracted, rng):
    for _ in range(2):
        x, y = operand(rng, (5, 2, 4), "f4"), operand(rng, (4, 3, 5), "f4")
        np.testing.assert_array_equal(linalg.einsum("imk,kni->mn", x, y), np.einsum("imk,kni->mn", x, y))
        np.testing.assert_array_equal(linalg.vecdot(x[:, 0], [1, 2, 3, 4]), x[:, 0] @ [1, 2, 3, 4])
    assert len(contracted) == 4


SEVERAL = {
    "sums of both operands, and their product": ("imk,knj->mn", (5, 2, 4), (4, 3, 5)),
    "a product, and a sum of what it made": ("ij,ij->", (50, 40), (50, 40)),
    "three operands": ("ij,jk,kl->il", (3, 40), (40, 5), (5, 6)),
    "three of one array": ("ij,ij,ij->i", (6, 7), (6, 7), (6, 7)),
}


@pytest.mark.parametrize("with_out", [False, True])
@pytest.mark.parametrize("case", SEVERAL)
def test_several_steps_are_repeated(case, with_out, contracted, rng):
    """On arrays that differ, that are one array, and on views, whose layouts are others."""
    subscripts, *shapes = SEVERAL[case]
    for turn in range(4):
        arrays = [operand(rng, shape, "f4") for shape in shapes]
        if turn == 2 and len(set(shapes)) == 1:
            arrays = [arrays[0]] * len(arrays)
        if turn == 3:
            arrays = [operand(rng, (*shape[:-1], 2 * shape[-1]), "f4")[..., ::2] for shape in shapes]
        want = np.einsum(subscripts, *arrays)
        out = np.full(np.shape(want), np.nan, "f4")
        for _ in range(2):
            got = linalg.einsum(subscripts, *arrays, **({"out": out} if with_out else {}))
            assert not with_out or got is out
            np.testing.assert_array_equal(got, want)
    assert len(contracted) < 4 * 2


def test_steps_of_a_type_that_is_not_numpys(contracted, rng):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    for _ in range(3):
        x, y, z = (rng.integers(-1, 2, (3, 3)).astype(bfloat16) for _ in range(3))
        got = linalg.einsum("ij,jk,kl->il", x, y, z)
        np.testing.assert_array_equal(got.astype("f4"), x.astype("f4") @ y.astype("f4") @ z.astype("f4"))


def test_an_operand_that_begins_where_another_does(contracted, rng):
    """It is not known which of the two a later step reads."""
    for _ in range(2):
        x, z = operand(rng, (6, 6), "f4"), operand(rng, (6, 6), "f4")
        for a, b in ((x, x.T), (x, z.T), (x, x[:]), (z, x)):
            np.testing.assert_array_equal(linalg.einsum("ij,ij->", a, b), (a * b).sum())
            np.testing.assert_array_equal(linalg.dot(a, b), a @ b)


def test_what_a_call_asks_for_is_asked_again(contracted, rng):
    x = operand(rng, (6, 6), "f4")
    linalg.dot(x, x)
    with pytest.raises(pyclmm.ArgumentError):
        linalg.dot(x, x, kernel="none of ours")
    linalg.dot(x, x, kernel="naive")
    assert len(contracted) == 3


def test_an_error_is_raised_again(contracted):
    for _ in range(2):
        with pytest.raises(pyclmm.ShapeError):
            linalg.vecdot(np.ones((2, 3)), np.ones((2, 4)))
    read_only = np.empty(2)
    linalg.vecdot(np.ones((2, 3)), np.ones((2, 3)), out=read_only)
    read_only.flags.writeable = False
    with pytest.raises(pyclmm.ArgumentError, match="read-only"):
        linalg.vecdot(np.ones((2, 3)), np.ones((2, 3)), out=read_only)


def test_a_list_that_holds_itself_is_refused_as_any_ragged_one():
    endless = [1, 2]
    endless.append(endless)
    with pytest.raises(pyclmm.ShapeError, match="pass rows of one length"):
        linalg.dot(endless, [1, 2, 3])
    with pytest.raises(pyclmm.ArgumentError, match="axes is"):
        linalg.tensordot(np.ones((2, 2)), np.ones((2, 2)), axes=endless)


def test_only_so_many_calls_are_kept(contracted, limits):
    limits(calls=3)
    for n in (*range(1, 9), 8):
        assert linalg.dot(np.ones(n), np.ones(n)) == n
    assert len(repeated._known) <= 3
    assert len(contracted) == 8
