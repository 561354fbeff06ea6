"""A plan of shapes: it is made without arrays, and takes any of these shapes and dtype."""

import re

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.many import ManyMatmul, plan
from pyclmm.many.lists import lists_of
from pyclmm.many.shapes import unwritten
from tests.many.drawn import check
from tests.support.cases import small_integers
from tests.support.faults import noted

SHAPES = [
    ((3, 5), (5, 4)), ((6, 2), (2, 7)), ((5,), (5, 3)), ((2, 1, 3, 4), (3, 4, 2)), ((3, 0), (0, 2)),
    ((0, 3), (3, 2)),
]  # fmt: skip
X = ((3, 3), (3, 3))
HUGE = "pairs[1]: a has shape (1099511627776, 1099511627776)"


def drawn(rng, shapes=SHAPES, dtype="f4"):
    """Pairs of NumPy arrays of *shapes*."""
    return [tuple(small_integers(rng, shape, dtype) for shape in pair) for pair in shapes]


@pytest.fixture
def planned(monkeypatch):
    """The lists that a plan was made for by a call."""
    return noted(monkeypatch, plan, "_planned")


@pytest.mark.parametrize("dtype", [np.float32, "float64", np.dtype("int32"), "bfloat16"])
def test_it_is_the_plan_of_contiguous_arrays(rng, planned, dtype):
    pairs = drawn(rng, dtype=pyclmm.problem.dtypes.named_dtype(dtype))
    plan = ManyMatmul(SHAPES, dtype=dtype)
    assert repr(plan) == repr(ManyMatmul(pairs))
    for _ in range(2):
        check(plan(pairs), [a @ b for a, b in pairs])
    assert not planned


def test_lists_beside_pairs_are_shapes(rng, planned):
    shapes, outs = SHAPES[:2], [[3, 4], None]
    plan = ManyMatmul(shapes, outs, c=[None, (6, 7)], beta=2.0, bias=[(4,), None], dtype=np.float32)
    pairs, out = drawn(rng, shapes), np.zeros((3, 4), np.float32)
    c, bias = small_integers(rng, (6, 7), "f4"), small_integers(rng, (4,), "f4")
    (a0, b0), (a1, b1) = pairs
    got = plan(pairs, [out, None], c=[None, c], bias=[bias, None])
    check(got, [a0 @ b0 + bias, a1 @ b1 + 2 * c])
    assert got[0] is out
    assert not planned


def test_it_takes_arrays_of_other_strides_and_places(rng, queue, planned):
    queue = cl.CommandQueue(cl.Context([queue.device]))
    plan, pairs = ManyMatmul(SHAPES, dtype=np.float32), drawn(rng)
    want = [a @ b for a, b in pairs]
    check(plan([(np.asfortranarray(a), b) for a, b in pairs]), want)
    on_device = [[_on_device(queue, x) for x in pair] for pair in pairs]
    for _ in range(2):
        results = plan(on_device)
        assert all(isinstance(x, cla.Array) and x.queue is queue for x in results)
        check([x.get() if x.size else np.zeros(x.shape, x.dtype) for x in results], want)
    made = [given.layouts.kind for given, _ in planned]
    assert made == [np.ndarray, cla.Array, cla.Array]
    assert {asked.queue for given, asked in planned if given.layouts.kind is cla.Array} == {queue}


def _on_device(queue, x):
    return cla.to_device(queue, x) if x.size else cla.empty(queue, x.shape, x.dtype)


@pytest.mark.parametrize(
    ("pairs", "keywords", "error", "text"),
    [
        ([X, ((3, -1), (3, 3))], {}, pyclmm.ShapeError, "pairs[1]: a has shape (3, -1); pass lengths of"),
        ([X, ((3, 3), (3.0, 3))], {}, pyclmm.DTypeError, "pairs[1]: b has shape (3.0, 3); pass whole"),
        ([X, (3, 3)], {}, pyclmm.DTypeError, "pairs[1]: a is a int; with dtype= pass its shape"),
        ([X, (np.ones((3, 3)), X[0])], {}, pyclmm.DTypeError, "pairs[1]: a is a ndarray; with dtype= pass"),
        ([X, (X[0], None)], {}, pyclmm.DTypeError, "pairs[1]: b is a NoneType; with dtype= pass"),
        ([X, X[0]], {}, pyclmm.DTypeError, "pairs[1]: a is a int; with dtype= pass"),
        ([X, X[:1]], {}, pyclmm.ArgumentError, "pairs[1] is a tuple that has not two entries"),
        ([X, ((3, 4), (3, 3))], {}, pyclmm.ShapeError, "pairs[1]: b has a mismatch in its core dimension"),
        ([X, ((), (3, 3))], {}, pyclmm.ShapeError, "pairs[1]: a is 0-dimensional"),
        ([X, ((2**40, 2**40), X[0])], {}, pyclmm.ShapeError, f"{HUGE}; NumPy has no array of it: "),
        ([X, ((2**30, 2**31), X[0])], {}, pyclmm.ShapeError, "pairs[1]: a has shape (1073741824, 214748364"),
        ([X, ((1,) * 70, X[0])], {}, pyclmm.ShapeError, "pairs[1]: a has shape (1, 1, 1, 1, 1"),
        ([X, ((2**33, 0), (0, 3))], {}, pyclmm.UnsupportedError, "pairs[1]: a has shape (8589934592, 0)"),
        ([X], {"out": [(3, 4)]}, pyclmm.ShapeError, "pairs[0]: non-broadcastable output operand"),
        ([X], {"c": [(3, -3)], "beta": 1.0}, pyclmm.ShapeError, "pairs[0]: c has shape (3, -3)"),
        ([X], {"bias": [(3,)] * 2}, pyclmm.ArgumentError, "bias has 2 entries, pairs has 1"),
        ([X], {"dtype": "nosuch"}, pyclmm.DTypeError, "dtype is 'nosuch'"),
        ([X], {"dtype": object}, pyclmm.DTypeError, "dtype is object"),
    ],
)
def test_what_is_no_shape_is_refused(pairs, keywords, error, text):
    with pytest.raises(error, match=re.escape(text)) as caught:
        ManyMatmul(pairs, **{"dtype": np.float32} | keywords)
    assert type(caught.value) is error


def test_operands_of_a_plan_share_memory():
    """Those of many experts would not fit."""
    lists = unwritten(lists_of([((300, 200), (200, 40))] * 3, None, None, [(300, 40)] * 3), np.float32)
    first, outs = lists.arrays[0], lists.named("out")
    assert all(np.shares_memory(first, x) for x in (*lists.named("a"), *lists.named("b")))
    assert not any(np.shares_memory(first, x) for x in outs)
    assert not np.shares_memory(*outs[:2])


def test_a_call_with_other_arrays_is_refused(rng, queue):
    plan, pairs = ManyMatmul(SHAPES[:2], dtype=np.float32), drawn(rng, SHAPES[:2])
    (a, b), second = pairs
    on_device = [tuple(cla.to_device(queue, x) for x in pair) for pair in pairs]
    for given, text in (
        ([second, second], "pairs[0]: a is (6, 2) float32, strides (8, 4), alignment 16, the plan"),
        ([(a.astype("f8"), b), second], "pairs[0]: a is (3, 5) float64"),
        ([(a, b)], "pairs has 1 entry, the plan is for 2"),
        ([on_device[0], on_device[0]], "pairs[1]: a is (3, 5) float32"),
        (SHAPES[:2], "pairs[0]: a is (2,) int64"),
    ):
        with pytest.raises(pyclmm.ArgumentError, match=re.escape(text)):
            plan(given)
    with pytest.raises(pyclmm.ArgumentError, match=r"pairs\[1\]: out is \(6, 7\) float32"):
        plan(pairs, [None, np.zeros((6, 7), np.float32)])


def test_a_closed_plan_takes_none(rng):
    with ManyMatmul(SHAPES, dtype=np.float32) as plan:
        pass
    with pytest.raises(pyclmm.ArgumentError, match="the plan is closed"):
        plan(drawn(rng))


@pytest.mark.parametrize(
    "pairs",
    [
        [((3, 4), (4, 5))],
        [((3,), (3,))],
        [((np.int64(3),), (3,))],
        [(np.ones(2), np.ones(2)), [(2, 2), (2, 2)]],
    ],
)
def test_shapes_without_a_dtype_are_not_multiplied_as_vectors(pairs):
    number = len(pairs) - 1
    with pytest.raises(pyclmm.ArgumentError, match=rf"^pairs\[{number}\] is .*pass dtype= too"):
        ManyMatmul(pairs)
