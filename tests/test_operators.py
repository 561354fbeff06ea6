"""install(): operators and ufuncs of PyOpenCL's Arrays; all else, and what uninstall leaves, is as it was."""

import operator
import warnings

import numpy as np
import pyopencl.array as cla
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyclmm
from tests.support.habits import drawn, fetched, placed, same
from tests.support.selection import examples
from tests.support.threads import in_threads

NAMES = ("__matmul__", "__rmatmul__", "__imatmul__", "__array_ufunc__")
randoms = st.randoms(use_true_random=False)
Array = cla.Array


@pytest.fixture
def x(queue):
    return cla.to_device(queue, np.arange(4, dtype=np.float32).reshape(2, 2))


@pytest.fixture
def y():
    return np.arange(4, dtype=np.float32).reshape(2, 2)


def state():
    return {name: Array.__dict__.get(name) for name in NAMES}


@pytest.fixture(autouse=True)
def unchanged():
    """No test leaves the class changed."""
    before = {**Array.__dict__, "__slotnames__": None}  # the module copy writes that one
    yield
    pyclmm.uninstall()
    assert {**Array.__dict__, "__slotnames__": None} == before


@examples(60)
@given(r=randoms)
def test_operators_and_matmul(queue, r):
    k = r.choice((0, 1, 3))
    a = drawn(r, [*[2] * r.randint(0, 1), 3, k][r.randint(0, 1) :], "f4")
    b = drawn(r, r.choice([[k], [k, 2], [2, k, 2]]), "f4")
    try:
        want = a @ b
    except ValueError:
        want = None
    p, q = (placed(x, "device", queue) for x in (a, b))
    with pyclmm.installed():
        for product in (operator.matmul, np.matmul):
            if want is None:
                with pytest.raises(ValueError):  # noqa: PT011 - other tests have the messages
                    product(p, q)
            else:
                same(product(p, q), want)


def test_in_place(x, y, queue):
    with pyclmm.installed():
        z = x
        z @= x
        assert z is x
        assert np.array_equal(x.get(), y @ y)
        with pytest.raises(pyclmm.ShapeError, match="at least two dimensions"):
            z @= cla.to_device(queue, np.ones(2, "f4"))
        with pytest.raises(pyclmm.ShapeError):
            z @= cla.to_device(queue, np.ones((2, 3), "f4"))


UFUNCS_THAT_MULTIPLY = {
    "vecdot": lambda x: (x, x),
    "matvec": lambda x: (x, x[0]),
    "vecmat": lambda x: (x[0], x),
}


def test_ufuncs_that_multiply(x, y):
    with pyclmm.installed():
        for name, operands in UFUNCS_THAT_MULTIPLY.items():
            ufunc = getattr(np, name, None)
            if ufunc:  # NumPy 2.2 has all of them
                same(ufunc(*operands(x)), ufunc(*operands(y)))
        out = cla.empty_like(x)
        assert np.matmul(x, x, out=out) is out
        assert np.array_equal(out.get(), y @ y)
        same(np.matmul(x, x, axes=[(1, 0), (0, 1), (0, 1)]), y.T @ y)
        same(np.matmul(x, x, dtype="f8", casting="safe"), np.matmul(y, y, dtype="f8"))
        with pytest.raises(TypeError, match="has no signature"):
            np.matmul(x, x, signature="ff->f")


def test_a_numpy_array_beside_an_array_is_refused_with_the_hint(x, y):
    with pyclmm.installed():
        for product in (operator.matmul, np.matmul):
            for pair in ((x, y), (y, x), (x, y.tolist())):
                with pytest.raises(pyclmm.DTypeError, match="mixed='copy'"):
                    product(*pair)


class Other:
    """A type with a product of its own."""

    def __matmul__(self, other):
        return "left"

    def __rmatmul__(self, other):
        return "right"


def test_other_types_are_asked(x):
    with pyclmm.installed():
        assert x @ Other() == "right"
        assert Other() @ x == "left"
        with pytest.raises(TypeError, match="unsupported operand"):
            x @ object()
        x0 = x
        with pytest.raises(TypeError, match="unsupported operand"):
            x0 @= object()


# ---- everything else is as before ------------------------------------------------------------

OPERATORS = [
    *(
        operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
        operator.pow,
    ),
    *(operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, divmod),
    *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
    *(operator.iadd, operator.isub, operator.imul, operator.itruediv),
]  # fmt: skip
UFUNCS = sorted(name for name in dir(np) if isinstance(getattr(np, name), np.ufunc))
PRODUCTS = {"matmul", "vecdot", "matvec", "vecmat"}


def done(function):
    """What a call does, in a form that compares."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = function()
        except Exception as error:
            return "TypeError" if isinstance(error, TypeError) else type(error).__name__
    return type(result).__name__, shown(result)


def shown(result):
    if isinstance(result, Array):
        return result.dtype.name, result.get().tolist()
    if isinstance(result, np.ndarray) and result.dtype == object:
        return "object", [str(each) for each in result.flat]
    return str(result)


def test_operators_with_numpys_numbers_and_arrays_are_as_before(queue):
    def outcomes():
        x = np.array([1, 2], np.int32)
        made = {}
        for function in OPERATORS:
            for left, right in ((x[1], 0), (x, 0), (0, x), (0, x[1]), (2, 0), (0, 2), (0, 0)):
                a, b = (
                    cla.to_device(queue, x) if type(each) is int and each == 0 else each
                    for each in (left, right)
                )
                a = a.copy() if isinstance(a, np.ndarray) else a
                key = f"{function.__name__} {type(left).__name__} {type(right).__name__}"
                made[key] = done(lambda: function(a, b))  # noqa: B023 - called at once
        return made

    before = outcomes()
    with pyclmm.installed():
        assert outcomes() == before


@pytest.mark.parametrize("name", UFUNCS)
def test_every_other_ufunc_is_as_before(name, x, y):
    """Called by its name on Arrays: with one alone, with two, with a NumPy array second, and its methods."""
    ufunc = getattr(np, name)
    calls = [
        lambda: ufunc(*[x] * ufunc.nin), lambda: ufunc(*[x, *[y] * (ufunc.nin - 1)]),
        lambda: ufunc(*[y] * ufunc.nin, out=x), lambda: ufunc.reduce(x), lambda: ufunc.accumulate(x),
        lambda: ufunc.outer(x, x), lambda: ufunc.at(y.copy(), 0, x),
    ]  # fmt: skip
    before = [done(call) for call in calls]
    with pyclmm.installed():
        after = [done(call) for call in calls]
    if name in PRODUCTS:
        assert after[0] != before[0]
    else:
        assert after == before


def test_a_ufunc_by_name_with_an_array_second_is_its_operator(x, y):
    before = done(lambda: np.add(y, x))
    with pyclmm.installed():
        assert done(lambda: np.add(y, x)) == "TypeError" == done(lambda: y + x)
        same(np.multiply(np.float32(2), x), 2 * y)
    assert before[0] == "ndarray"  # of objects


# ---- install, uninstall, blocks, threads ----------------------------------------------------------


def test_it_is_undone_exactly(x):
    nothing = state()
    pyclmm.install()
    pyclmm.install()
    assert all(state().values())
    with pyclmm.installed(), pyclmm.installed():
        pass
    assert all(state().values()), "a block took away what install() gave"
    pyclmm.uninstall()
    assert state() == nothing
    pyclmm.uninstall()
    with pytest.raises(TypeError, match="unsupported operand"):
        x @ x
    with pytest.raises(KeyError), pyclmm.installed():
        raise KeyError
    assert state() == nothing


def test_uninstall_within_a_block(x):
    with pyclmm.installed():
        pyclmm.install()
        pyclmm.uninstall()
        assert (x @ x).shape == (2, 2)
    assert not any(state().values())


def test_methods_of_others_are_kept(monkeypatch, x):
    """What the class has by these names, as a later PyOpenCL may, comes back."""
    monkeypatch.setattr(Array, "__matmul__", lambda self, other: "its own", raising=False)
    with pyclmm.installed():
        assert isinstance(x @ x, Array)
    assert x @ x == "its own"
    with pyclmm.installed():
        monkeypatch.setattr(Array, "__matmul__", lambda self, other: "a later one")
    assert x @ x == "a later one"
    monkeypatch.undo()


def test_blocks_of_several_threads(x, y):
    """While any block lasts, every thread has the operators; after the last, none."""

    def work(_):
        for _ in range(30):
            with pyclmm.installed():
                assert np.array_equal((x @ x).get(), y @ y)

    in_threads(6, work)
    assert not any(state().values())


def test_subclasses_of_array_have_it_too(queue):
    class Mine(Array):
        pass

    x = Mine(queue, (2, 2), np.float32)
    x.fill(1)
    with pyclmm.installed():
        assert fetched(x @ x)[0, 0] == 2
