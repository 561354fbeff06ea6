"""Values of any length in arguments: an error names the argument, and shows a part of the value."""

import numpy as np
import pytest

import pyclmm
from pyclmm import PyclmmError, QuantizedArray, StreamedMatmul, linalg

LONG = 10**5000  # Python refuses to print it
A = np.ones((4, 4), np.float32)
KEYWORDS = (
    "activation", "bias", "casting", "checkpoint", "device", "devices", "dtype", "kernel", "precision",
    "progress", "quantize_a", "reproducible", "trans_a", "trans_b", "verify", "wait_for",
)  # fmt: skip
GPTQ = {"packed": np.zeros((8, 8), "i4"), "scales": np.ones((1, 8), "f4"), "zeros": np.zeros((1, 1), "i4")}
CALLS = {
    **{name: lambda value, name=name: pyclmm.gemm(A, A, **{name: value}) for name in KEYWORDS},
    "axes": lambda value: pyclmm.matmul(A, A, axes=value),
    "axes of tensordot": lambda value: linalg.tensordot(A, A, axes=value),
    "optimize": lambda value: linalg.einsum("ij,jk,kl", A, A, A, optimize=value),
    "subscripts": lambda value: linalg.einsum(A, [0, value], A, [1, 2]),
    "mixed": lambda value: pyclmm.matmul(A, A, mixed=value),
    "shape": lambda value: pyclmm.warm((value, A)),
    "mode": lambda value: pyclmm.quantize(A, mode=value),
    "group_size": lambda value: QuantizedArray.from_parts(**GPTQ, layout="gptq", group_size=value),
    "shape of a list": lambda value: pyclmm.ManyMatmul([((4, value), (4, 4))], dtype="float32"),
    "shape of a list without dtype": lambda value: pyclmm.ManyMatmul([((4, 4), (value,))]),
    "tune's budget": lambda value: pyclmm.tune(budget=value),
    "tune's layout": lambda value: pyclmm.tune(layouts=[value], budget=1e-9),
    "tune's shape": lambda value: pyclmm.tune([(4, 4, value)], budget=1e-9),
    "path": QuantizedArray.load,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("value", [LONG, [LONG]], ids=["integer", "list"])
def test_a_long_value_is_an_error_that_shows_a_part_of_it(call, value):
    with pytest.raises(PyclmmError) as caught:
        call(value)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("call", ["checkpoint", "dtype", "mode", "optimize", "subscripts", "tune's layout"])
@pytest.mark.parametrize("value", [np.arange(2), np.zeros(0), set(), "\ud800"])
def test_a_value_of_another_kind_is_no_error_of_python_s_own(call, value):
    with pytest.raises(PyclmmError):
        CALLS[call](value)


@pytest.mark.parametrize("call", ["dtype", "mode", "optimize", "subscripts"])
def test_what_another_library_says_of_a_long_text_is_cut(call):
    with pytest.raises(PyclmmError) as caught:
        CALLS[call]("x" * 5000)
    assert len(str(caught.value)) < 1500


def test_a_long_text_is_cut():
    words = r"unknown kernel '9{119}\.\.\. \(5002 characters\): valid are"
    with pytest.raises(pyclmm.ArgumentError, match=words):
        pyclmm.matmul(A, A, kernel="9" * 5000)


def test_a_limit_of_any_size_is_none():
    for limit in (LONG, 10**400, 2**63):
        np.testing.assert_array_equal(StreamedMatmul(A, A, memory_limit=limit)(A, A), A @ A)
