"""The references of package and tests reject results that are slightly wrong, or wrong in one place."""

import inspect

import numpy as np
import pyopencl.array as cla
import pytest
import scipy.special

import pyclmm
from pyclmm.checks import reference
from pyclmm.problem.gemm import ACTIVATIONS
from tests.support.cases import numbers
from tests.support.optional import optional
from tests.support.oracle import gemm as expected

ml_dtypes = optional("ml_dtypes")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def ratio_by_library(got, a, b):
    return reference.error_ratio(got, a, b) / reference.limit(a.shape[-1])


def ratio_by_tests(got, a, b):
    want = expected(a, b)
    return want.ratio(got) / want.limit


both = pytest.mark.parametrize("ratio", [ratio_by_library, ratio_by_tests])


def operands(rng, dtype, k=200):
    return numbers(rng, (20, k), dtype), numbers(rng, (k, 30), dtype)


@both
@pytest.mark.parametrize("dtype", ["f2", BFLOAT16, "f4", "f8", "c8", "c16"])
def test_a_right_product_passes_and_one_wrong_element_is_refused(ratio, dtype, rng):
    a, b = operands(rng, dtype)
    wide = "c16" if np.dtype(dtype).kind == "c" else "f8"
    got = (a.astype(wide) @ b.astype(wide)).astype(dtype)
    assert ratio(got, a, b) < 1
    got[7, 11] += abs(got[7, 11]) * got.dtype.type(0.1) + got.dtype.type(0.1)
    assert ratio(got, a, b) > 1


def summed_in_float16(a, b):
    got = np.zeros((20, 30), "f2")
    for k in range(200):
        got += np.outer(a[:, k], b[k]).astype("f2")
    return got.astype("f4")


def with_one(a, b, value):
    """The product with that *value* in one place."""
    got = a @ b
    got[2, 2] = value
    return got


# The dtype of the operands, and what is no product of them.
WRONG = {
    "summed in float32": ("f8", lambda a, b: (a.astype("f4") @ b.astype("f4")).astype("f8")),
    "an operand rounded to float32 once": ("f8", lambda a, b: a.astype("f4").astype("f8") @ b),
    "summed in float16": ("f4", summed_in_float16),
    "a missing last term": ("f4", lambda a, b: a[:, :-1] @ b[:-1]),
    "a wrong shape": ("f4", lambda a, b: (a @ b).T),
    "an extra NaN": ("f4", lambda a, b: with_one(a, b, np.nan)),
    "an extra infinity": ("f4", lambda a, b: with_one(a, b, np.inf)),
}


@both
@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_right_product_is_refused(ratio, what, rng):
    dtype, wrong = WRONG[what]
    a, b = operands(rng, dtype)
    assert not ratio(wrong(a, b), a, b) <= 1


@both
@pytest.mark.parametrize("dtype", ["i1", "u4", "i8", "?"])
def test_one_wrong_integer_is_refused(ratio, dtype, rng):
    a, b = operands(rng, dtype, k=3)
    got = a @ b
    assert ratio(got, a, b) == 0
    got[3, 4] = ~got[3, 4]
    assert ratio(got, a, b) == np.inf


def test_a_missing_nan_is_refused(rng):
    a, b = operands(rng, "f4")
    a[3, 5] = np.nan
    got = a @ b
    assert ratio_by_library(got, a, b) < 1
    got[3, 7] = 1
    assert ratio_by_library(got, a, b) == np.inf


def test_an_infinity_of_the_wrong_sign_is_refused(rng):
    a, b = np.ones((1, 2), "f4"), np.ones((2, 1), "f4")
    a[0, 0] = np.inf
    assert ratio_by_library(np.array([[np.inf]], "f4"), a, b) < 1
    assert ratio_by_library(np.array([[-np.inf]], "f4"), a, b) == np.inf


def test_a_result_may_be_given_with_its_epilogue(rng):
    a, b = operands(rng, "f4")
    want = reference.matmul(a, b) + 1
    assert reference.error_ratio((a @ b + 1).astype("f4"), a, b, result=want) < reference.limit(200)
    assert reference.error_ratio((a @ b).astype("f4"), a, b, result=want) > reference.limit(200)


def test_unit_roundoff_and_limit():
    assert reference.unit_roundoff("f4") == 2.0**-24
    assert reference.unit_roundoff("f8") == 2.0**-53
    assert reference.unit_roundoff("f2") == 2.0**-11
    assert reference.unit_roundoff(BFLOAT16) == 2.0**-9 * 2  # 8 bits of significand
    assert reference.unit_roundoff("c8") == 2.0**-24
    assert reference.unit_roundoff("i4") == 0
    assert (reference.limit(0), reference.limit(14), reference.limit(1000)) == (16, 16, 1002)


def test_the_reference_is_wider_than_the_operands(rng):
    a, b = operands(rng, "f8")
    assert reference.matmul(a, b).dtype == np.longdouble
    assert reference.matmul(*operands(rng, "f4")).dtype == np.float64
    assert reference.matmul(*operands(rng, "c16")).dtype == np.clongdouble
    assert reference.matmul(*operands(rng, "i4")).dtype == np.int32
    assert (reference.magnitude(a, b) >= abs(reference.matmul(a, b))).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_reference_and_tests_agree(name):
    x = np.linspace(-6, 6, 101)
    got = reference.activate(x, ACTIVATIONS.index(name))
    if name == "gelu":
        assert np.allclose(got, x * scipy.special.ndtr(x), rtol=1e-12)
    from tests.support.oracle import activated  # noqa: PLC0415

    assert np.allclose(got, activated(x, None if name == "none" else name), rtol=1e-9, atol=1e-15)


def test_rounding_of_operands_raises_the_limit():
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((50, 50)).astype("f4") for _ in "ab")
    half = np.float32(1 + 2.0**-11)  # off by half of TF32's last place
    got = ((a * half).astype("f8") @ b).astype("f4")
    assert reference.error_ratio(got, a, b) > reference.limit(50)
    assert reference.error_ratio(got, a, b, operands=2.0**-10) < reference.limit(50)
    assert reference.error_ratio(got * 2, a, b, operands=2.0**-10) > reference.limit(50)


def test_subnormal_results_have_a_larger_limit():
    """Found by fuzzing: below 2^-14 the rounding error of float16 is up to 2^-25, not relative."""
    a, b = np.full((1, 1), 2.0**-10, "f4"), np.full((1, 1), 3.3 * 2.0**-10, "f4")
    assert reference.error_ratio((a @ b).astype("f2"), a, b) < reference.limit(1)
    assert reference.error_ratio(((a @ b) * 1.02).astype("f2"), a, b) > reference.limit(1)


Q = pyclmm.quantize(np.ones((2, 64), "f4"))
WRONG_OPERANDS = {
    "weights": (Q, r"QuantizedArray: .*dequantize\(\)"),
    "a mask": (np.ma.array(np.ones((2, 2)), mask=np.eye(2)), r"masked array.*filled\(0\)"),
    "objects": (np.array([[None]]), "dtype object"),
    "text": ("abc", "str of dtype"),
    "None": (None, "NoneType"),
}


@pytest.mark.parametrize(
    "function", ["matmul", "magnitude", "error_ratio", "chain", "activate", "int8_groups"]
)
def test_lists_are_read_and_what_has_no_numbers_is_named(function, queue):
    function = getattr(reference, function)
    right = {"got": [[7.0]], "x": [[1.0, -2.0]], "activation": 1, "weights": Q, "b": [[2.0], [3.0]]}
    right["a"] = [[1.0] * 64] if function is reference.int8_groups else [[2.0, 1.0]]
    parameters = inspect.signature(function).parameters.values()
    taken = {its.name: right[its.name] for its in parameters if its.default is its.empty}
    np.testing.assert_array_equal(function(*taken.values()), function(*map(as_array, taken.values())))
    on_device = {"an Array": (cla.to_device(queue, np.ones((2, 2), "f4")), r"on a device; pass .*\.get\(\)")}
    for name in taken.keys() - {"activation", "weights"}:
        for wrong, words in (WRONG_OPERANDS | on_device).values():
            with pytest.raises(pyclmm.DTypeError, match=f"{name} is a .*{words}"):
                function(*(taken | {name: wrong}).values())


def as_array(x):
    return np.array(x) if isinstance(x, list) else x


def test_what_has_no_groups_and_no_known_rounding_is_named():
    with pytest.raises(pyclmm.DTypeError, match="weights is a ndarray"):
        reference.int8_groups(np.ones((2, 64)), np.ones((2, 64)))
    with pytest.raises(pyclmm.DTypeError, match="a: cannot cast complex128"):
        reference.int8_groups(np.ones((2, 64), complex), Q)
    with pytest.raises(pyclmm.DTypeError, match="dtype is float128"):
        reference.rounding([1.0], np.longdouble)
    assert reference.rounding([1.0], "f4") == 2.0**-24
