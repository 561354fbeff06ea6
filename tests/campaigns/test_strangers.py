"""`make strangers` on a made-up foreign suite: what is seen, what is accepted, what is told."""

import os
import sys
from pathlib import Path

import pytest

from tests.campaigns.strangers import __main__ as command
from tests.campaigns.strangers import run as runner
from tests.campaigns.strangers.differences import DIFFERENCES, Difference
from tests.campaigns.strangers.suites import SUITES, MissingError, prepare

pytestmark = pytest.mark.slow  # no function of pyclmm: what runs the tests of others

HEAD = """
import operator, os
import numpy as np

a, b, product = np.array([[1.0, 2], [3, 4]]), np.array([[5.0, 6], [7, 8]]), [[19, 22], [43, 50]]
"""
FUNCTION = "def test_function(): assert (np.matmul(a, b, out=np.empty((2, 2))) == product).all()\n"
METHOD = """
class TestMethod:
    matmul = np.matmul
    def test_it(self): assert (self.matmul(a, b) == product).all()
"""
OPERATOR = "def test_operator(): assert (operator.matmul(a, b) == product).all()\n"
IN_PLACE = "def test_in_place():\n    c = a.copy()\n    c @= b\n    assert (c == a @ b).all()\n"
POWER = "def test_power(): assert (np.linalg.matrix_power(a, 2) == [[7, 10], [15, 22]]).all()\n"
KEPT = "def test_kept():\n    from conftest import matmul\n    assert (matmul(a, b) == product).all()\n"
DOT = """
from numpy import dot

class TestDot:
    def test_dot(self):
        assert (np.dot(a, b) == product).all()
        assert (dot(a, b, out=np.empty((2, 2))) == product).all()

    def test_its_rule_for_out(self):
        with np.testing.assert_raises(ValueError):
            dot(a, b, np.empty((2, 2), np.float32))
"""
INNER = """
class TestInner:
    def test_inner(self): assert (np.inner(a, b) == [[17, 23], [39, 53]]).all()
    def test_against_outer(self): assert np.outer(a, b)[3, 3] == 32
    def test_numpys(self): assert np.vdot(a, b) == 70
"""
ALL = FUNCTION + METHOD + OPERATOR + IN_PLACE + POWER + DOT + KEPT
NO_PRODUCT = "def test_no_product(): pass\n"
OBJECTS = "def test_objects(): assert np.matmul(a.astype(object), b)[0, 0] == 19\n"
MASKS = "def test_masks(): assert np.matmul(np.ma.array([1, 2]), np.array([3, 4])) == 11\n"
DIES = "def test_dies(): os.abort()\n"
# Products by pyclmm, and only those, are one too large.
WRONG = """
import pyclmm

def wrong(right):
    return lambda *args, **keywords: np.add(x := right(*args, **keywords), 1, out=x)

pyclmm.matmul = wrong(pyclmm.matmul)
for name in ("dot", "einsum", "inner", "multi_dot", "outer", "tensordot", "vdot"):
    setattr(pyclmm.linalg, name, wrong(getattr(pyclmm.linalg, name)))
"""
CUPY = """
import cupy
from cupy import testing

def test_products():
    c, d = cupy.array(a), cupy.array(b)
    for x in (c @ d, cupy.matmul(c, d), cupy.dot(c, d), cupy.tensordot(c, d, 1), np.matmul(c, d), c.dot(d)):
        assert type(x) is cupy.ndarray
        testing.same(x, np.matmul(a, b))

def test_einsum(): testing.same(cupy.einsum("ij,jk", cupy.array(a), cupy.array(b)), a @ b)
def test_inner(): testing.same(cupy.inner(cupy.array(a), cupy.array(b)), a @ b.T)
def test_outer(): testing.same(cupy.outer(cupy.array(a), 2), 2 * a.reshape(4, 1))
def test_vdot(): testing.same(cupy.vdot(cupy.array(a), cupy.array(b)), np.sum(a * b))
def test_multi_dot():
    testing.same(cupy.linalg.multi_dot([cupy.array(x) for x in (a, b, a)]), a @ b @ a)
"""
ARRAY_API = """
from pyclmm import array_api as xp

def test_matmul(): assert float(xp.matmul(xp.asarray(a), xp.asarray(b))[0, 0]) == 19
def test_operator(): assert float((xp.asarray(a) @ xp.asarray(b))[0, 0]) == 19
def test_vecdot(): assert float(xp.vecdot(xp.asarray(a), xp.asarray(b))[0]) == 17
def test_power(): assert float(xp.linalg.matrix_power(xp.asarray(a), 2)[0, 0]) == 7
def test_view(): assert xp.matrix_transpose(xp.asarray(a)).shape == (2, 2)
"""
SCIKIT_LEARN = """
from pyclmm import array_api as xp
from sklearn.utils._array_api import yield_namespace_device_dtype_combinations as combinations

def test_names():
    assert list(combinations()) == [("pyclmm.array_api", None, None)]
    assert float((xp.asarray(a) @ xp.asarray(b))[0, 0]) == 19
"""
DASK = """
import dask.array as da

def test_matmul(): assert ((da.asarray(a) @ da.asarray(b)).compute() == product).all()
def test_dot(): assert (da.dot(da.asarray(a), da.asarray(b)).compute() == product).all()
def test_sum(): assert da.asarray(a).sum().compute() == 10
"""
TESTING = "def same(x, y): assert (x.get() == y).all()\n"


@pytest.fixture
def ran(tmp_path):
    """A function that runs the text of a foreign test module."""

    def ran(text, *differences, suite="made-up"):
        sources = tmp_path / "sources"
        sources.mkdir()
        if suite == "cupy":
            (sources / "cupy" / "testing").mkdir(parents=True)
            (sources / "cupy" / "testing" / "__init__.py").write_text(TESTING)
        (sources / "pytest.ini").touch()
        (sources / "conftest.py").write_text("from numpy import matmul")  # it may keep what is replaced
        (sources / "test_foreign.py").write_text(HEAD + text)
        listed = [Difference("made-up", f"test_foreign.py::{test}", *others) for test, *others in differences]
        return runner.run(
            suite,
            Path(sys.executable),
            sources,
            ("test_foreign.py",),
            os.environ,
            listed,
            tmp_path / "log.json",
        )

    return ran


def outcomes(found):
    return {each["test"].rpartition("::")[2]: each["outcome"] for each in found.outcomes}


def test_right_products_pass_and_are_counted(ran):
    found = ran(ALL + INNER + NO_PRODUCT + OBJECTS)
    names = ("inner", "function", "it", "operator", "in_place", "power", "dot", "its_rule_for_out", "kept")
    passed = [f"test_{name}" for name in names]
    others = ("test_against_outer", "test_numpys", "test_no_product", "test_objects")
    assert outcomes(found) == {**dict.fromkeys(passed, "passed"), **dict.fromkeys(others, "other")}
    assert found.products == len(passed) + 1
    assert not found.failures
    assert found.driver != runner.Run().driver


def test_a_wrong_product_is_seen_wherever_it_is_called(ran):
    found = ran(WRONG + ALL + NO_PRODUCT)
    right = [name for name, outcome in outcomes(found).items() if outcome != "failed"]
    assert right == ["test_its_rule_for_out", "test_no_product"]
    assert any("test_in_place" in failure for failure in found.failures)


def test_a_function_is_pyclmms_in_tests_of_it_alone(ran):
    """The others, with which those tests compare, are NumPy's, and a product of NumPy's is not counted."""
    found = outcomes(ran(WRONG + INNER))
    assert found == {"test_inner": "failed", "test_against_outer": "other", "test_numpys": "other"}


def test_a_listed_difference_is_accepted(ran):
    found = ran(FUNCTION + MASKS, ("test_masks", "masked array", "a mask would be ignored"))
    assert outcomes(found)["test_masks"] == "difference"
    assert not found.failures


def test_a_failure_that_is_not_listed_fails(ran):
    assert "masked array" in ran(FUNCTION + MASKS).failures[0]


def test_a_list_that_is_no_longer_true_is_told(ran):
    """A listed difference passes, one fails for another reason, one names no test."""
    found = ran(
        FUNCTION + MASKS,
        ("test_function", "masked array", "it used to differ"),
        ("test_masks", "another message", "a mask would be ignored"),
        ("test_that_was", "", "gone"),
    )
    assert outcomes(found) == {"test_function": "failed", "test_masks": "failed"}
    assert "it used to differ" in found.failures[0]
    assert any("names no test: test_foreign.py::test_that_was" in failure for failure in found.failures)


def test_tests_of_cupy_compare_pyclmm_with_numpy(ran):
    found = ran(CUPY, suite="cupy")
    assert not found.failures
    assert found.products == 11


def test_a_wrong_product_of_cupy_is_seen_wherever_it_is_called(ran):
    assert set(outcomes(ran(WRONG + CUPY, suite="cupy")).values()) == {"failed"}


def test_products_of_the_array_api_are_counted(ran):
    found = ran(ARRAY_API, suite="array-api")
    views = [name for name, outcome in outcomes(found).items() if outcome == "other"]
    assert (views, found.products, found.failures) == (["test_view"], 4, [])


@pytest.mark.parametrize(
    ("suite", "text", "products"), [("scikit-learn", SCIKIT_LEARN, 1), ("dask", DASK, 2)]
)
def test_products_behind_other_libraries_are_counted(ran, suite, text, products):
    found = ran(text, suite=suite)
    assert (found.products, found.failures) == (products, [])


@pytest.mark.skipif(sys.platform == "win32", reason="signals are another matter there")
def test_a_process_that_dies_fails(ran):
    assert "SIGABRT" in ran(FUNCTION + DIES).failures[0]


def test_a_run_without_products_fails(ran):
    assert "no test passed that multiplies" in ran(NO_PRODUCT).failures[0]


def test_differences_are_of_a_suite():
    assert {each.suite for each in DIFFERENCES} <= {suite.name for suite in SUITES}


def test_a_checkout_that_is_not_named_is_told():
    with pytest.raises(MissingError, match="make strangers ARRAY_API_TESTS="):
        prepare(next(each for each in SUITES if each.checkout), None)


@pytest.mark.parametrize(
    ("given", "outcome", "status"),
    [([], "passed", 0), ([], "failed", 1), (["--suites", "array-api-tests"], "passed", 2)],
)
def test_exit_codes(monkeypatch, capsys, given, outcome, status):
    """The packages of array-api-tests cannot be had."""

    def prepared(suite, checkout):
        if suite.checkout:
            raise MissingError("not on PyPI")
        return Path(), Path()

    one = {"test": "test_one", "outcome": outcome, "products": 1, "reason": "off by one"}
    monkeypatch.setattr(command, "prepare", prepared)
    monkeypatch.setattr(command, "run", lambda *_: runner.Run("driver", [one]))
    assert command.main(given) == status
    shown = capsys.readouterr().out
    assert "array-api-tests is not run: not on PyPI" in shown
    assert ("off by one" in shown) == (outcome == "failed")
