"""What a list refuses: the error is that of one product, and names the pair."""

import inspect
import re

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.many import ManyMatmul

X = np.ones((3, 3), np.float32)
P = [(X, X), (X, X)]
Y, Q = X.copy(), pyclmm.quantize(np.zeros((32, 64), np.float32))
ANY = (pyclmm.ArgumentError, pyclmm.DTypeError, pyclmm.ShapeError, pyclmm.UnsupportedError)


def zeros(*shape):
    return np.zeros(shape, np.float32)


def overlapping():
    whole = zeros(3, 5)
    return [whole[:, :3], whole[:, 2:]]


def read_only():
    x = zeros(3, 3)
    x.flags.writeable = False
    return x


CASES = {
    "lists of unequal lengths": [
        ((P, [X.copy()]), {}, pyclmm.ArgumentError, "out has 1 entry, pairs has 2"),
        ((P,), {"c": [X] * 3, "beta": 1.0}, pyclmm.ArgumentError, "c has 3 entries, pairs has 2"),
        ((P,), {"bias": []}, pyclmm.ArgumentError, "bias has 0 entries, pairs has 2"),
        ((P,), {"alpha": [1.0]}, pyclmm.ArgumentError, "alpha has 1 entry, pairs has 2"),
        ((P,), {"c": [X, X], "beta": [1.0]}, pyclmm.ArgumentError, "beta has 1 entry, pairs has 2"),
    ],
    "no lists": [
        ((3,), {}, pyclmm.DTypeError, "pairs is a int; pass a list of pairs"),
        (([(X, X), X],), {}, pyclmm.ArgumentError, "pairs[1] is a ndarray that has not two entries"),
        (([(X, X), 5],), {}, pyclmm.ArgumentError, "pairs[1] is a int that has not two entries"),
        (([np.stack([X, X]), (X,)],), {}, pyclmm.ArgumentError, "pairs[1] is a tuple that has not"),
        ((P, X), {}, pyclmm.DTypeError, "out is a ndarray; pass a list with an entry for each pair"),
    ],
    "one pair": [
        (([*P, (X, zeros(4, 3))],), {}, pyclmm.ShapeError, "pairs[2]: b has a mismatch"),
        (([*P, (X, np.float32(3))],), {}, pyclmm.ShapeError, "pairs[2]: b is 0-dimensional"),
        (([*P, (X, None)],), {}, pyclmm.DTypeError, "pairs[2]: b is None"),
        (([*P, (X, X.astype(object))],), {}, pyclmm.DTypeError, "pairs[2]: b has dtype object"),
        (([*P, (X, np.zeros((3, 3), "V0"))],), {}, pyclmm.DTypeError, "pairs[2]: b has dtype"),
        ((P, [None, np.zeros((3, 3), "V0")]), {}, pyclmm.DTypeError, "pairs[1]: out has dtype"),
        (([*P, (X, Q.T)],), {}, pyclmm.UnsupportedError, "pairs[2]: b is a QuantizedArray"),
        ((P, [None, zeros(3, 4)]), {}, pyclmm.ShapeError, "pairs[1]: non-broadcastable output operand"),
        ((P, [None, np.zeros((3, 3), np.int32)]), {}, pyclmm.DTypeError, "pairs[1]: "),
        ((P, [None, read_only()]), {}, pyclmm.ArgumentError, "pairs[1]: out is read-only"),
        ((P,), {"c": [None, zeros(3, 4)], "beta": 1.0}, pyclmm.ShapeError, "pairs[1]: c has shape (3, 4)"),
        ((P,), {"bias": [None, zeros(4)]}, pyclmm.ShapeError, "pairs[1]: bias has shape (4,)"),
        ((P,), {"c": [None, X]}, pyclmm.ArgumentError, "pairs[1]: c is given without beta"),
        ((P,), {"c": [None, X], "beta": [1.0, 1.0]}, pyclmm.ArgumentError, "pairs[0]: beta is 1.0 but"),
        ((P,), {"beta": 1.0}, pyclmm.ArgumentError, "pairs[0]: beta is 1.0 but"),
        ((P,), {"alpha": [1.0, 1j]}, pyclmm.DTypeError, "pairs[1]: alpha is complex"),
        ((P,), {"alpha": [1.0, None]}, pyclmm.DTypeError, "pairs[1]: alpha is a NoneType; pass a number"),
        ((P,), {"c": [X, X], "beta": np.ones((2, 1))}, pyclmm.DTypeError, "beta is a ndarray; pass a number"),
    ],
    "outs that overlap": [
        ((P, overlapping()), {}, pyclmm.ArgumentError, "out[1] overlaps out[0]"),
        ((P, [zeros(3, 3)] * 2), {}, pyclmm.ArgumentError, "] overlaps out["),
        (([(X, X), (Y, X)], [X, None]), {}, pyclmm.ArgumentError, "out[0] overlaps b of pairs[1]"),
    ],
    "options": [
        ((P,), {"alpha": "x"}, pyclmm.DTypeError, "alpha is a str"),
        ((P,), {"kernel": "nosuch"}, pyclmm.ArgumentError, "unknown kernel 'nosuch'"),
        ((P,), {"kernel": "naive"}, pyclmm.UnsupportedError, "does not compute lists of products"),
        ((P,), {"activation": "nosuch"}, pyclmm.ArgumentError, "unknown activation"),
        ((P,), {"precision": "nosuch"}, pyclmm.ArgumentError, "unknown precision"),
        ((P,), {"wait_for": 3}, pyclmm.DTypeError, "wait_for is 3"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "keywords", "error", "text"),
    [
        pytest.param(*case, id=f"{group}-{i}")
        for group, cases in CASES.items()
        for i, case in enumerate(cases)
    ],
)
def test_refused(given, keywords, error, text):
    with pytest.raises(error, match=re.escape(text)) as caught:
        pyclmm.matmul_many(*given, **keywords)
    assert type(caught.value) is error
    if "wait_for" not in keywords and "out is read-only" not in text and "overlaps" not in text:
        with pytest.raises(error, match=re.escape(text)):
            ManyMatmul(*given, **keywords)


def test_numpy_arrays_beside_arrays(queue):
    x = cla.zeros(queue, (3, 3), np.float32)
    words = r"pairs\[1\]: pyopencl Arrays and NumPy arrays are in one list"
    with pytest.raises(pyclmm.DTypeError, match=words):
        pyclmm.matmul_many([(X, X), (x, x)])
    words = r"pairs\[1\]: .*pass all NumPy arrays or all pyopencl Arrays"
    with pytest.raises(pyclmm.DTypeError, match=words):
        pyclmm.matmul_many([(x, x), (X, x)])


def test_a_pair_that_only_its_launch_refuses_is_named():
    bools = np.ones((3, 3), bool)
    with pytest.raises(pyclmm.UnsupportedError, match=r"^pairs\[1\]: verify: a product of bools"):
        pyclmm.matmul_many([(X, X), (bools, bools)], verify=True)
    with pytest.raises(pyclmm.UnsupportedError, match=r"^pairs\[0\]: kernel 'naive' cannot compute"):
        pyclmm.matmul_many([(X, X), (X, X)], kernel="naive")


def test_an_error_of_the_callers_generator_is_raised():
    own = ValueError("the caller's own")

    def pairs():
        yield X, X
        raise own

    for call in (pyclmm.matmul_many, ManyMatmul):
        with pytest.raises(ValueError, match="the caller's own") as caught:
            call(pairs())
        assert caught.value is own


def test_lists_with_an_activation_are_not_verified():
    with pyclmm.verified(), pytest.raises(pyclmm.UnsupportedError, match="apply 'relu' to the results"):
        pyclmm.matmul_many([(X, X)], activation="relu")


def test_another_list_than_the_plans():
    plan = ManyMatmul(P)
    for pairs, keywords, text in (
        (
            [(X, X), (zeros(2, 3), X)],
            {},
            "pairs[1]: a is (2, 3) float32, strides (12, 4), alignment 16, the plan is for (3, 3) float32",
        ),
        ([(X, X), (X, X.astype("f8"))], {}, "pairs[1]: b is (3, 3) float64"),
        ([(X, X)], {}, "pairs has 1 entry, the plan is for 2"),
        (
            P,
            {"out": [zeros(3, 3), None]},
            "pairs[0]: out is (3, 3) float32, strides (12, 4), alignment 16, the plan is for none",
        ),
    ):
        with pytest.raises(pyclmm.ArgumentError, match=re.escape(text)):
            plan(pairs, **keywords)


def test_a_call_that_fails_leaves_outs_as_they_were():
    outs = [zeros(3, 3), zeros(3, 3)]
    for pairs in ([(X, X), (X, zeros(4, 4))], [(X, X), (X, None)]):
        with pytest.raises(ANY):
            pyclmm.matmul_many(pairs, outs)
    assert not np.any(outs)


def test_a_plan_tells_what_it_takes():
    """For help(), and where another keyword is refused."""
    taken, unknown = inspect.signature(pyclmm.matmul_many).parameters, {"casting": "safe"}
    own = [*(name for name in taken if name != "wait_for"), "dtype"]
    assert [*inspect.signature(ManyMatmul).parameters] == own
    with pytest.raises(TypeError, match=r"ManyMatmul.*unexpected keyword argument 'casting'"):
        ManyMatmul(P, **unknown)
