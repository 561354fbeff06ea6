"""einsum against numpy.einsum: any subscripts, layouts and dtypes, on the host and on the device."""

import itertools

import numpy as np
import pyopencl.array as cla
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclmm
from pyclmm import linalg
from pyclmm.linalg import pairs
from pyclmm.linalg.einsum import path_of
from tests.support.einsums import LETTERS, draw_subscripts
from tests.support.habits import drawn, fetched, placed, same
from tests.support.optional import optional
from tests.support.selection import examples

ml_dtypes = optional("ml_dtypes")

randoms = st.randoms(use_true_random=False)
PLACES = ("host", "device")


@pytest.mark.parametrize("place", PLACES)
@examples(200)
@given(r=randoms, count=st.integers(1, 4))
def test_any_subscripts(place, queue, r, count):
    terms, out, shapes = draw_subscripts(r, count)
    subscripts = ",".join(terms) + ("" if out is None else f"->{out}")
    xs = [drawn(r, shape) for shape in shapes]
    want = np.einsum(subscripts, *xs)
    optimize = r.choice((True, False, "greedy", "optimal"))
    got = linalg.einsum(subscripts, *(placed(x, place, queue) for x in xs), optimize=optimize, kernel="naive")
    same(got, want)


@pytest.mark.parametrize("subscripts", ["ij->ji", " i j -> j i ", np.str_("ij->ji"), b"ij->ji"], ids=repr)
def test_what_numpy_takes_for_subscripts(subscripts):
    x = np.arange(6.0).reshape(2, 3)
    same(linalg.einsum(subscripts, x), x.T)
    with pytest.raises(pyclmm.ShapeError, match="operand 0 has 1 axis, but its subscripts name 2"):
        linalg.einsum(subscripts, x[0])


@pytest.mark.parametrize("place", PLACES)
@examples(40)
@given(
    r=randoms,
    types=st.lists(st.sampled_from(["bool", "int8", "uint16", "f2", "f4", "c8"]), min_size=1, max_size=3),
)
def test_any_dtypes(place, queue, r, types):
    terms = ["ij", "jk", "ki"][: len(types)]
    xs = [drawn(r, (2, 2), t) for t in types]
    subscripts = ",".join(terms) + "->" + r.choice(["i", "ij", "ji", ""])
    want = np.einsum(subscripts, *xs)
    same(linalg.einsum(subscripts, *(placed(x, place, queue) for x in xs), kernel="naive"), want)


@pytest.mark.parametrize("types", [("i1", "u2", "f4"), ("u1", "i1", "f2"), ("u2", "i2", "c8", "f4")])
def test_operands_are_promoted_at_once(types, rng):
    """Two by two some orders of these would give a wider dtype."""
    for order in itertools.permutations(types):
        xs = [rng.integers(0, 4, (2, 2)).astype(dtype) for dtype in order]
        subscripts = ",".join(["ij", "jk", "kl", "lm"][: len(xs)])
        same(linalg.einsum(subscripts, *xs), np.einsum(subscripts, *xs))


@pytest.mark.parametrize("place", PLACES)
@examples(60)
@given(r=randoms)
def test_out(place, queue, r):
    terms, out, shapes = draw_subscripts(r, r.randint(1, 3))
    xs = [drawn(r, shape) for shape in shapes]
    subscripts = ",".join(terms) + ("" if out is None else f"->{out}")
    shape = np.shape(np.einsum(subscripts, *xs))
    target = drawn(r, shape, "f8", r.choice(("C", "F", "sliced", "reversed", "permuted")))
    want = target.copy()
    np.einsum(subscripts, *xs, out=want)
    array = placed(target, place, queue)
    got = linalg.einsum(subscripts, *(placed(x, place, queue) for x in xs), out=array, kernel="naive")
    assert got is array
    assert np.array_equal(fetched(got), want)


@examples(60)
@given(r=randoms)
def test_sublists(r):
    terms, out, shapes = draw_subscripts(r, r.randint(1, 3))
    number = {letter: 26 * letter.islower() + ord(letter.upper()) - 65 for letter in LETTERS}

    def sublist(term):
        before, dots, after = term.partition("...")
        return [*(number[x] for x in before), *([...] if dots else []), *(number[x] for x in after)]

    arguments = [each for term, s in zip(terms, shapes, strict=True) for each in (drawn(r, s), sublist(term))]
    arguments += [] if out is None else [sublist(out)]
    same(linalg.einsum(*arguments, kernel="naive"), np.einsum(*arguments))


def test_a_sublist_may_be_an_array_of_integers():
    a = np.arange(4, dtype=np.float32).reshape(2, 2)
    assert linalg.einsum(a, np.array([0, 0])) == np.einsum(a, np.array([0, 0])) == 3
    for wrong in (np.array([0.0, 0]), np.array([[0, 0]])):
        with pytest.raises(pyclmm.PyclmmError, match=r"subscript|sublist"):
            linalg.einsum(a, wrong)


@pytest.mark.parametrize(
    ("sublists", "kind"),
    [
        ([[None, 1]], TypeError), ([[0.0, 1]], TypeError), ([["i", 1]], TypeError), ([[True, 0]], TypeError),
        ([[0, 1], [None]], TypeError), ([None], TypeError), ([0], TypeError), ([[0, 52]], ValueError),
        ([[-1, 0]], ValueError), ([[..., ...]], ValueError), ([[0, 1], [2]], ValueError),
    ],
)  # fmt: skip
def test_sublists_that_numpy_refuses_are_refused(sublists, kind):
    a = np.ones((2, 3), np.float32)
    with pytest.raises(kind):
        np.einsum(a, *sublists)
    with pytest.raises(kind) as raised:
        linalg.einsum(a, *sublists)
    assert isinstance(raised.value, pyclmm.PyclmmError)


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk->ii", ((2, 3), (3, 2))), ("ij,jk->x", ((2, 3), (3, 2))), ("ij,jk", ((2, 3), (2, 2))),
        ("ij,jk", ((2, 3),)), ("ij", ((2, 3), (2, 3))), ("i", ((2, 3),)), ("ijk", ((2, 3),)),
        ("ii", ((2, 3),)), ("i..j", ((2, 3),)), ("i$", ((2, 3),)), ("...i->i", ((2, 3),)),
        ("......", ((2, 3),)), ("ij->->", ((2, 3),)), ("i,i", ()), ("ij->...i...", ((2, 3),)),
    ],
)  # fmt: skip
def test_what_numpy_refuses_is_refused(subscripts, shapes):
    xs = [np.ones(shape, np.float32) for shape in shapes]
    with pytest.raises(ValueError):  # noqa: PT011 - NumPy's messages differ between its versions
        np.einsum(subscripts, *xs)
    with pytest.raises(pyclmm.ArgumentError):
        linalg.einsum(subscripts, *xs)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "ij,jk,k->ik", "i,j->ij", "ij,ij->ij", "ij->i"])
@pytest.mark.parametrize(("dtype", "into"), [("i1", "i4"), ("i1", "f4"), ("f2", "f4"), ("f4", "f8")])
def test_the_dtype_of_out_counts(place, subscripts, dtype, into, queue, rng):
    """The products and sums are beyond what the operands' own dtype has."""
    terms = subscripts.partition("->")[0].split(",")
    values = rng.integers(90, 100, (3, 3)) if dtype != "f4" else rng.integers(9_000, 10_000, (3, 3)) * 2 + 1
    xs = [(values if len(term) == 2 else values[0]).astype(dtype) for term in terms]
    want = np.einsum(subscripts, *(x.astype("f8") for x in xs))
    if "," in subscripts:
        with np.errstate(over="ignore"):
            assert not np.array_equal(np.einsum(subscripts, *xs, optimize=True), want)
    out = placed(np.zeros(want.shape, into), place, queue)
    linalg.einsum(subscripts, *(placed(x, place, queue) for x in xs), out=out)
    same(fetched(out), want.astype(into))


@pytest.mark.parametrize(
    ("own", "into", "casting"), [("int8", "uint16", "same_kind"), ("float32", "float64", "no")]
)
def test_an_out_that_no_cast_allows_is_named_with_a_dtype_that_would_do(own, into, casting, rng):
    x = rng.integers(0, 9, (3, 3)).astype(own)
    words = f"^out: cannot cast {own} to {into} .*; pass out of dtype {own}$"
    with pytest.raises(pyclmm.DTypeError, match=words):
        linalg.einsum("ij,jk->ik", x, x, out=np.empty((3, 3), into), casting=casting)
    out = np.empty((3, 3), own)
    linalg.einsum("ij,jk->ik", x, x, out=out, casting=casting)
    np.testing.assert_array_equal(out, np.einsum("ij,jk->ik", x, x))


def test_a_dtype_that_is_asked_for_is_kept_whatever_out_has():
    x, out = np.full(3, 100, "i1"), np.zeros(3, "i4")
    linalg.einsum("i,i->i", x, x, out=out, dtype="i1")
    assert out.tolist() == [16, 16, 16]


def test_an_out_of_another_shape_and_a_narrower_dtype_are_refused():
    a = np.ones((2, 3), np.float32)
    with pytest.raises(pyclmm.ShapeError, match=r"out has shape \(3, 2\)"):
        linalg.einsum("ij->ij", a, out=np.empty((3, 2), np.float32))
    with pytest.raises(pyclmm.DTypeError, match="safe"):
        linalg.einsum("ij,kj->ik", a, a, out=np.empty((2, 2), np.float16))
    with pytest.raises(pyclmm.DTypeError, match="safe"):
        linalg.einsum("ij,kj->ik", a, a, dtype="f2")
    assert linalg.einsum("ij,kj->ik", a, a, dtype="f2", casting="same_kind").dtype == np.float16
    assert linalg.einsum("ij,kj->ik", a, a, dtype="f8").dtype == np.float64


@pytest.mark.parametrize("place", PLACES)
def test_one_operand_gives_a_view(place, queue):
    a = np.arange(9, dtype=np.float32).reshape(3, 3)
    x = placed(a, place, queue)
    same(linalg.einsum("ii->i", x), np.array([0, 4, 8], "f4"))
    turned = linalg.einsum("ij->ji", x)
    same(turned, a.T)
    if place == "host":
        linalg.einsum("ii->i", a)[...] = 7
        assert a.trace() == 21
    else:
        assert turned.base_data is x.base_data


@pytest.mark.parametrize("dtype", [">f8", ">i4", "bfloat16", "f2"])
def test_a_view_of_one_operand_keeps_its_dtype(dtype):
    x = np.arange(9).reshape(3, 3).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    diagonal = linalg.einsum("ii->i", x)
    assert diagonal.dtype == x.dtype
    diagonal[...] = 0
    assert not np.diag(x).any()
    assert linalg.einsum("ij->ji", x, dtype="f4", casting="unsafe").dtype == np.float32


def test_the_base_of_a_view_is_that_of_the_operand():
    a = np.arange(6).reshape(2, 3)
    for subscripts in ("...", "ij", "ij->ji"):
        assert linalg.einsum(subscripts, a).base is a.base is np.einsum(subscripts, a).base


def test_the_order_is_that_with_the_fewest_operations(monkeypatch):
    """(1000 x 2) (2 x 1000) (1000 x 1) from the right; from the left it would make a 1000 x 1000 matrix."""
    lengths = {0: 1000, 1: 2, 2: 1000, 3: 1}
    operands, out = [(0, 1), (1, 2), (2, 3)], (0, 3)
    assert path_of(operands, out, lengths, True)[0] == (1, 2)
    assert path_of(operands, out, lengths, False) == [(0, 1, 2)]
    given = ["einsum_path", (0, 1), (0, 1)]
    assert path_of(operands, out, lengths, given) == [(0, 1), (0, 1)]
    for wrong in ("nosuch", ["einsum_path", (0, 3), (0, 1)], ["einsum_path", (0, 1)], 3.5):
        with pytest.raises(pyclmm.ArgumentError, match="optimize"):
            path_of(operands, out, lengths, wrong)


def test_a_path_of_numpys_is_taken(rng):
    xs = [np.asarray(rng.integers(-3, 4, s), "f4") for s in ((2, 3), (3, 4), (4, 5))]
    path, _ = np.einsum_path("ab,bc,cd->da", *xs)
    same(linalg.einsum("ab,bc,cd->da", *xs, optimize=path), np.einsum("ab,bc,cd->da", *xs))


@pytest.mark.parametrize("limit", [0, 1, 5, -1])
def test_a_limit_of_memory_is_taken(limit, rng):
    xs = [rng.standard_normal(n) for n in (2, 3, 4)]
    want = np.einsum("a,b,c->abc", *xs)
    assert np.allclose(linalg.einsum("a,b,c->abc", *xs, optimize=("greedy", limit), kernel="naive"), want)


@pytest.mark.parametrize(
    "optimize",
    ["best", 7, ("greedy",), ("greedy", 1, 2), ("best", 1), ("greedy", np.ones(2)), ("greedy", np.inf)],
)
def test_a_word_that_is_no_order_is_refused(optimize):
    with pytest.raises(pyclmm.ArgumentError, match=r"optimize is .*pass True, False, 'greedy'") as caught:
        linalg.einsum("a,b,c->abc", [1.0], [1.0], [1.0], optimize=optimize)
    assert not any(mark in str(caught.value) for mark in ('"Path', ".;", '.";')), "quoted, or two sentences"


@pytest.mark.parametrize(
    "path",
    [
        (), [], [(0, 1)], [(0, 3), (0, 1)], (1, 2), ["einsum_path"], ["einsum_path", 1], [("a", "b")],
        [np.array([0, 1]), (0, 1)], [(10**5000,)], [(0.0, 1.0), (0, 1)], [([0], 1), (0, 1)],
    ],
)  # fmt: skip
def test_a_path_that_leaves_operands_is_refused(path):
    with pytest.raises(pyclmm.ArgumentError, match="optimize"):
        linalg.einsum("a,b,c->abc", [1.0, 2], [1.0], [3.0], optimize=path)


@pytest.mark.parametrize(
    "optimize", [5, 0, 2.5, {}, set(), b"greedy", ["nosuch", (0, 1)], ("greedy",)], ids=str
)
@pytest.mark.parametrize("subscripts", ["ij->i", "ij->ji", "ij,jk->ik"])
def test_what_says_no_order_is_refused_of_one_operand_and_two_as_well(subscripts, optimize):
    """By numpy.einsum, too, which takes each word there."""
    xs = [np.ones((2, 2), np.float32)] * (1 + subscripts.count(","))
    with pytest.raises(pyclmm.ArgumentError, match=r"^optimize is .*pass True"):
        linalg.einsum(subscripts, *xs, optimize=optimize)
    with pytest.raises((TypeError, KeyError)):
        np.einsum(subscripts, *xs, optimize=optimize)
    for taken in ("nosuch", ("greedy", 10), ["greedy", 10], None, ["einsum_path", (0, 1)[: len(xs)]]):
        same(linalg.einsum(subscripts, *xs, optimize=taken), np.einsum(subscripts, *xs))


def test_a_path_without_steps_suits_one_operand(rng):
    x = rng.standard_normal((3, 4))
    for path in ([], ["einsum_path"]):
        np.testing.assert_allclose(linalg.einsum("ij->i", x, optimize=path), x.sum(1))


SUMMED = [np.dtype(name) for name in ("bool", "i1", "u2", "i8", "f2", "f4", "f8", "c8", "c16")]


@pytest.mark.parametrize("dtype", SUMMED, ids=str)
def test_numpy_sums_one_array_of_the_host_as_a_product_would(dtype, rng, monkeypatch):
    x = rng.integers(-3, 4, (3, 40, 70)).astype(dtype)
    for subscripts in ("ijk->", "ijk->j", "ijk->ki", "ijk->k"):
        want = linalg.einsum(subscripts, x, kernel="naive")
        with monkeypatch.context() as patch:
            for product in ("gemm", "matmul"):
                patch.setattr(pairs, product, None)
            got, out = linalg.einsum(subscripts, x), np.empty(np.shape(want), dtype)
            linalg.einsum(subscripts, x, out=out)
        same(got, want)
        same(out[()], want)


def test_numpy_sums_narrow_floats_in_float32_from_positive_zero(recwarn):
    assert linalg.einsum("i->", np.full(5000, 1, np.float16)) == 5000  # of float16 alone it is 2048
    if ml_dtypes:
        x = np.full(3000, 1, ml_dtypes.bfloat16)
        assert linalg.einsum("i->", x, dtype=x.dtype) == ml_dtypes.bfloat16(3000)
    assert not np.signbit(linalg.einsum("ij->i", np.full((3, 1), -0.0, np.float32))).any()
    assert np.isinf(linalg.einsum("i->", np.full(3, 3e38, np.float32)))
    assert np.isnan(linalg.einsum("ij->j", np.array([[np.nan, np.inf], [1, -np.inf]]))).all()
    assert not recwarn.list


@pytest.mark.parametrize("asked", [{"kernel": "naive"}, {"reproducible": True}, {"verify": True}])
def test_a_sum_of_which_something_is_asked_is_a_product(asked, monkeypatch):
    calls = []
    for product in ("gemm", "matmul"):
        monkeypatch.setattr(pairs, product, lambda *args, **keywords: calls.append(keywords))
    linalg.einsum("ij->i", np.ones((2, 3)), **asked)
    assert len(calls) == 1
    with pytest.raises(pyclmm.ArgumentError):
        linalg.einsum("ij->i", np.ones((2, 3)), precision="no")


@pytest.mark.parametrize("dtype", ["c8", "c16", "f2", "f4", "f8"])
@pytest.mark.parametrize("subscripts", ["i,i->i", "i,ij->ji"])
def test_reproducible_products_of_elements_have_the_bits_of_a_chain(rng, dtype, subscripts):
    """Those of NumPy's complex products depend on the processor."""
    x, y = rng.standard_normal((2, 7, 5)) + (1j * rng.standard_normal((2, 7, 5)) if dtype[0] == "c" else 0)
    x, y = (each.astype(dtype) for each in (x[:, 0], y if "j" in subscripts else y[:, 0]))
    got = linalg.einsum(subscripts, x, y, reproducible=True)
    one, other = np.broadcast_arrays(x, y.T)
    pairs_of = zip(one.ravel()[:, None, None], other.ravel()[:, None, None], strict=True)
    want = [pyclmm.reference.chain(*pair) for pair in pairs_of]
    np.testing.assert_array_equal(got, np.reshape(want, got.shape))


@pytest.mark.parametrize("dtype", ["c8", "f4", "i4"])
def test_numpy_multiplies_where_each_sum_has_one_term(rng, dtype):
    """The result lies as the operands do, and a sum of zeros is +0.0, also in a repeated call."""
    x, y = (rng.integers(-3, 4, (40, 1, 30)).astype(dtype).transpose(2, 1, 0) for _ in range(2))
    expected = x[:, 0] * y[:, 0] + np.dtype(dtype).type(0)
    for _ in range(2):
        got = linalg.einsum("ijk,ijk->ik", x, y)
        assert got.flags.f_contiguous
        same(got, expected)
        same(linalg.einsum("ijk,ijk->ik", x, y, out=np.ones_like(expected)), expected)
        zeros = got[got == 0]
        assert zeros.size
        assert not np.signbit([zeros.real, zeros.imag]).any()


@pytest.mark.parametrize("subscripts", ["ijk->ik", "ijk->ij", "kji->jk"])
def test_what_numpy_sums_lies_in_the_order_of_the_operand(rng, subscripts):
    """Also in a repeated call. An out of another order is written as it lies."""
    x = rng.integers(-9, 9, (4, 5, 6)).astype(np.float32).T
    expected = np.einsum(subscripts, x)
    for _ in range(2):
        got = linalg.einsum(subscripts, x)
        assert got.strides == expected.strides
        same(got, expected)
        out = np.empty(expected.shape, np.float32)
        same(linalg.einsum(subscripts, x, out=out), expected)


def test_elementwise_arrays_of_the_host_warn_as_einsum_does(recwarn):
    x = np.full(3, 3e38, np.float32)
    assert np.isinf(linalg.einsum("i,i->i", x, x)).all()
    assert not recwarn.list


def test_the_events_of_an_out_are_those_of_the_product(queue):
    x = cla.to_device(queue, np.ones((4, 4), np.float32))
    out = cla.empty_like(x)
    linalg.einsum("ij,jk->ki", x, x, out=out)
    assert len(out.events) == 1


@pytest.mark.parametrize("into", ["new", "out", "mixed"])
@pytest.mark.parametrize(
    ("subscripts", "first", "second"),
    [
        ("abe,bae->e", (2, 3, 4), (3, 2, 1)),
        ("abe,bae->e", (2, 3, 1), (3, 2, 4)),
        ("ab...,b...a", (2, 3, 4), (3, 1, 2)),
        ("abef,bafe->fe", (2, 3, 4, 1), (3, 2, 5, 1)),
        ("cabe,ebac->ec", (5, 2, 3, 4), (1, 3, 2, 1)),
    ],
)
def test_a_kept_axis_that_one_operand_broadcasts_is_not_summed(queue, subscripts, first, second, into):
    """Not even where the sums are in another order in each operand, so that one is copied."""
    a, b = (np.arange(np.prod(shape), dtype="f4").reshape(shape) % 7 for shape in (first, second))
    want = np.einsum(subscripts, a, b)
    x, y = (placed(z, "device", queue) for z in (a, b))
    if into == "mixed":
        same(linalg.einsum(subscripts, a, y, mixed="copy", kernel="naive"), want)
    elif into == "out":
        out = placed(np.zeros_like(want), "device", queue)
        same(linalg.einsum(subscripts, x, y, out=out, kernel="naive"), want)
    else:
        same(linalg.einsum(subscripts, x, y, kernel="naive"), want)


def test_an_axis_of_stride_zero_that_both_operands_keep_is_not_summed(queue):
    a, b = np.ones((2, 3, 4), "f4"), np.broadcast_to(np.arange(6, dtype="f4").reshape(3, 2, 1), (3, 2, 4))
    x, y = (placed(z, "device", queue) for z in (a, b))
    same(linalg.einsum("abe,bae->e", x, y, kernel="naive"), np.einsum("abe,bae->e", a, b))


@pytest.mark.parametrize(
    ("subscripts", "x", "y"), [("i,->i", [-1.0, 2.0], 0.0), (",i->i", -2.0, [0.0]), (",->", -1.0, 0.0)]
)
def test_an_array_times_a_number_has_a_kernels_bits_if_these_are_asked_for(subscripts, x, y):
    assert not np.signbit(linalg.einsum(subscripts, np.array(x), np.array(y), reproducible=True)).any()
