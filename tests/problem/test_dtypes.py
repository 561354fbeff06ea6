"""Element types: results have NumPy's dtype, and loads and stores skip no rounding."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from pyclmm import DTypeError
from pyclmm.kernels.launches import intermediate_type
from pyclmm.problem import dtypes
from tests.support.made_up import H200
from tests.support.optional import optional

ml_dtypes = optional("ml_dtypes")

NUMPYS = [name for name in dtypes.ELEMENT_TYPES if name != "bfloat16"]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(("a", "b"), list(itertools.product(NUMPYS, repeat=2)))
def test_the_result_dtype_is_numpys(a, b):
    a, b = np.dtype(a), np.dtype(b)
    want = np.matmul(np.ones((1, 1), a), np.ones((1, 1), b)).dtype
    assert dtypes.result_dtype(a, b, None, None) == want


@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize("casting", dtypes.CASTINGS)
def test_dtype_and_out_are_refused_where_numpy_refuses_them(casting):
    for a, b in itertools.product(map(np.dtype, NUMPYS), repeat=2):
        x, y = np.ones((1, 1), a), np.ones((1, 1), b)
        for dtype, out in ((b, None), (None, y)):
            try:
                np.matmul(x, x, dtype=dtype, out=out, casting=casting)
            except TypeError as error:
                with pytest.raises(DTypeError, match=re.escape(str(error))):
                    dtypes.result_dtype(a, a, dtype, out if out is None else b, casting)
            else:
                found = dtypes.result_dtype(a, a, dtype, out if out is None else b, casting)
                assert found == (a if dtype is None else b)


@pytest.mark.parametrize("other", dtypes.ELEMENT_TYPES)
def test_bfloat16_results(other):
    other = dtypes.dtype_of(other)
    try:
        want = np.matmul(np.ones((1, 1), BFLOAT16), np.ones((1, 1), other)).dtype
    except TypeError:
        with pytest.raises(DTypeError):
            dtypes.result_dtype(BFLOAT16, other, None, None)
    else:
        assert dtypes.result_dtype(BFLOAT16, other, None, None) == want


def test_bfloat16_as_the_result_dtype():
    assert dtypes.result_dtype(BFLOAT16, BFLOAT16, BFLOAT16, None) == BFLOAT16
    assert dtypes.result_dtype(BFLOAT16, BFLOAT16, BFLOAT16, np.dtype("f4")) == BFLOAT16
    with pytest.raises(DTypeError, match="a: cannot cast complex64 to bfloat16 by the rule"):
        dtypes.result_dtype(np.dtype("c8"), BFLOAT16, BFLOAT16, None)
    with pytest.raises(DTypeError, match="out: cannot cast bfloat16 to int8"):
        dtypes.result_dtype(BFLOAT16, BFLOAT16, BFLOAT16, np.dtype("i1"))


def test_bfloat16_drops_imaginary_parts_only_when_asked_to():
    """ml_dtypes before 0.7 says that "same_kind" does."""
    for casting in dtypes.CASTINGS[:-1]:
        with pytest.raises(DTypeError):
            dtypes.check_cast(np.dtype("c8"), BFLOAT16, "a", casting)
    dtypes.check_cast(np.dtype("c8"), BFLOAT16, "a", "unsafe")
    dtypes.check_cast(BFLOAT16, np.dtype("f4"), "a", "safe")
    with pytest.raises(DTypeError, match="rule 'safe'"):
        dtypes.check_cast(np.dtype("f4"), BFLOAT16, "a", "safe")


def test_bfloat16_without_ml_dtypes_says_what_to_install(without_ml_dtypes):
    with pytest.raises(DTypeError, match=r'pip install "pyclmm\[bfloat16\]"'):
        dtypes.dtype_of("bfloat16")
    assert dtypes.type_name(np.dtype("f4"), "a") == "float32"


@pytest.mark.parametrize("name", dtypes.ELEMENT_TYPES)
def test_every_dtype_has_a_name_and_an_accumulator(name):
    assert dtypes.type_name(dtypes.dtype_of(name), "a") == name
    accumulator = dtypes.ELEMENTS[name].accumulator
    assert accumulator in ("uint32", "uint64", "float32", "float64", "complex64", "complex128")
    assert dtypes.ELEMENTS[name].nbytes == dtypes.dtype_of(name).itemsize


# Values for which rounding twice or truncating too early gives a wrong result.
TRICKY = np.array(
    [0, 1, -1, 2.5, -2.5, 1 + 2**-11, 1 + 2**-8, 1 + 2**-24, 300, -129, 2**31 - 1, -(2**31), 65519, 0.1]
)
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = [n for n in NUMPYS if np.dtype(n).kind in "iu"]


def converted(x, name):
    with np.errstate(all="ignore"):
        return x.astype(dtypes.dtype_of(name))


DIRECT = [p for p in itertools.product(dtypes.ELEMENT_TYPES, repeat=2) if dtypes.is_direct(*p)]


def test_kernels_take_the_computed_type_and_narrow_types_of_float32_and_int32():
    others = {(stored, computed) for stored, computed in DIRECT if stored != computed}
    assert len(DIRECT) - len(others) == len(dtypes.ELEMENT_TYPES)
    assert others == {
        *itertools.product(("float16", "bfloat16"), ("float32",)),
        *itertools.product(("int8", "uint8"), ("int32",)),
    }


@pytest.mark.parametrize(("stored", "computed"), [p for p in DIRECT if p[0] in FLOATS])
def test_direct_loads_and_stores_of_floats_skip_no_rounding(stored, computed):
    """Loads and stores may skip *computed* only where conversion through it gives the same value."""
    accumulator = dtypes.ELEMENTS[computed].accumulator
    x = converted(TRICKY, stored)
    loaded = converted(x, accumulator)
    assert np.array_equal(loaded, converted(converted(x, computed), accumulator), equal_nan=True)
    y = converted(TRICKY, accumulator)
    through_computed = converted(converted(y, computed), stored)
    assert np.array_equal(converted(y, stored), through_computed, equal_nan=True)


@pytest.mark.parametrize(("stored", "computed"), [p for p in DIRECT if p[0] in INTEGERS])
def test_direct_loads_and_stores_of_integers_wrap_alike(stored, computed):
    accumulator = dtypes.ELEMENTS[computed].accumulator
    info, width = np.iinfo(stored), np.dtype(computed).itemsize
    x = np.array([info.min, info.max, 0, 1], stored)
    through_computed = x.astype(computed).astype(accumulator)
    assert np.array_equal(x.astype(accumulator).astype(f"u{width}"), through_computed.astype(f"u{width}"))
    y = np.array([0, 1, 127, 128, 255, 256, 2**31, 2**32 - 1], accumulator)
    assert np.array_equal(y.astype(stored), y.astype(computed).astype(stored))


CASTS = [(s, t) for s, t in itertools.product(NUMPYS, repeat=2) if np.can_cast(s, t, "same_kind")]


@pytest.mark.parametrize(("source", "target"), CASTS)
def test_copies_convert_through_a_type_that_loses_nothing(source, target):
    name = intermediate_type(source, target)
    kind = np.dtype(source).kind
    x = converted(TRICKY, source)
    if kind in "iu":
        info = np.iinfo(source)
        x = np.array([info.min, info.max, 0, 1, info.max // 3], source)
    want = converted(x, target)
    got = converted(converted(x, name), target)
    assert np.array_equal(got, want, equal_nan=True), name


def test_every_unit_of_an_element_type_has_a_rate():
    rates = replace(H200.rates, matrix8=1.0, matrix16=2.0, matrix32=3.0, matrix64=4.0)
    known = {name: rates.matrix(one.unit) for name, one in dtypes.ELEMENTS.items() if one.unit}
    assert {known[name] for name in ("int8", "uint8")} == {1.0}
    assert {known[name] for name in ("float16", "bfloat16")} == {2.0}
    assert (known["float32"], known["float64"]) == (3.0, 4.0)
    with pytest.raises(KeyError):
        rates.matrix(dtypes.ElementType("float8", 1, "float32", 4).unit)  # of a byte, but not of bytes


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "complex64", "complex128"])
def test_significands_are_numpys(name):
    assert 2.0 ** (1 - dtypes.ELEMENTS[name].significand) == np.finfo(name).eps
