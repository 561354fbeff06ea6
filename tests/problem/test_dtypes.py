"""Element types: results have NumPy's dtype, and loads and stores skip no rounding."""

from __future__ import annotations

import itertools
import re

import ml_dtypes
import numpy as np
import pytest

from pyclmm import DTypeError
from pyclmm.opencl.launches import intermediate_type
from pyclmm.problem import dtypes

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
    with pytest.raises(DTypeError, match="a: casting complex64 to bfloat16 would drop the imaginary part"):
        dtypes.result_dtype(np.dtype("c8"), BFLOAT16, BFLOAT16, None)
    with pytest.raises(DTypeError, match="out: cannot cast bfloat16 to int8"):
        dtypes.result_dtype(BFLOAT16, BFLOAT16, BFLOAT16, np.dtype("i1"))


def test_bfloat16_drops_imaginary_parts_only_when_asked_to():
    """ml_dtypes says that "same_kind" does."""
    for casting in dtypes.CASTINGS[:-1]:
        with pytest.raises(DTypeError):
            dtypes.check_cast(np.dtype("c8"), BFLOAT16, "a", casting)
    dtypes.check_cast(np.dtype("c8"), BFLOAT16, "a", "unsafe")
    dtypes.check_cast(BFLOAT16, np.dtype("f4"), "a", "safe")
    with pytest.raises(DTypeError, match="rule 'safe'"):
        dtypes.check_cast(np.dtype("f4"), BFLOAT16, "a", "safe")


def test_bfloat16_without_ml_dtypes_says_what_to_install(monkeypatch):
    monkeypatch.setattr(dtypes, "BFLOAT16", None)
    with pytest.raises(DTypeError, match=r'pip install "pyclmm\[bfloat16\]"'):
        dtypes.dtype_of("bfloat16")
    assert dtypes.type_name(np.dtype("f4"), "a") == "float32"


@pytest.mark.parametrize("name", dtypes.ELEMENT_TYPES)
def test_every_dtype_has_a_name_and_an_accumulator(name):
    assert dtypes.type_name(dtypes.dtype_of(name), "a") == name
    assert dtypes.ACCUMULATOR[name] in ("uint32", "uint64", "float32", "float64", "complex64", "complex128")


# Values for which rounding twice or truncating too early gives a wrong result.
TRICKY = np.array(
    [0, 1, -1, 2.5, -2.5, 1 + 2**-11, 1 + 2**-8, 1 + 2**-24, 300, -129, 2**31 - 1, -(2**31), 65519, 0.1]
)
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = [n for n in NUMPYS if np.dtype(n).kind in "iu"]


def converted(x, name):
    with np.errstate(all="ignore"):
        return x.astype(dtypes.dtype_of(name))


@pytest.mark.parametrize(("stored", "computed"), list(itertools.product(FLOATS, repeat=2)))
def test_direct_loads_of_floats_skip_no_rounding(stored, computed):
    """A load may skip *computed* only where conversion through it gives the same value."""
    x = converted(TRICKY, stored)
    accumulator = dtypes.ACCUMULATOR[computed]
    same = np.array_equal(
        converted(x, accumulator), converted(converted(x, computed), accumulator), equal_nan=True
    )
    assert same or not dtypes.loads_directly(stored, computed)
    if stored == computed:
        assert dtypes.loads_directly(stored, computed)


@pytest.mark.parametrize(("stored", "computed"), list(itertools.product(INTEGERS, repeat=2)))
def test_integers_load_directly(stored, computed):
    assert dtypes.loads_directly(stored, computed)
    info = np.iinfo(stored)
    x = np.array([info.min, info.max, 0, 1], stored)
    accumulator = dtypes.ACCUMULATOR[computed]
    through_computed = x.astype(computed).astype(accumulator)
    width = np.dtype(computed).itemsize
    assert np.array_equal(x.astype(accumulator).astype(f"u{width}"), through_computed.astype(f"u{width}"))


def test_loads_that_must_convert_first():
    assert not dtypes.loads_directly("float32", "float16")
    assert not dtypes.loads_directly("float64", "bfloat16")
    assert not dtypes.loads_directly("int8", "bool")
    assert dtypes.loads_directly("float16", "float32")
    assert dtypes.loads_directly("int8", "float16")
    assert dtypes.loads_directly("bool", "int8")


def test_stores_round_once():
    assert dtypes.stores_directly("float32", "float16")
    assert not dtypes.stores_directly("float16", "float32"), "that result is a float16 first"
    assert dtypes.stores_directly("int32", "int32")
    assert not dtypes.stores_directly("int32", "float32")
    assert not dtypes.stores_directly("float32", "complex64")


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
