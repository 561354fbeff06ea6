"""Sizes in bytes: the same text means the same number wherever one may write it."""

import numpy as np
import pytest

import pyclmm
from pyclmm import byte_sizes, environment

SIZES = {
    "9": 9, " 1000 ": 1000, "1e9": 10**9, "1E+9": 10**9, "1G": 10**9, "1 gb": 10**9, "1.5kB": 1500,
    "0.5 T": 5 * 10**11, "1 GiB": 1 << 30, "1gi": 1 << 30, "2.5 MiB": 5 << 19,
    "18446744073709551615": (1 << 64) - 1,
}  # fmt: skip
NO_SIZES = (
    "", "GB", "iB", "1 i", "1 iB", "-1", "+1", "1,5 GB", "1 GO", "1 EB", "1e", "1e-3", "1e999", "nan", "٣",
    "9" * 21,
)  # fmt: skip


@pytest.mark.parametrize(("text", "number"), SIZES.items())
def test_a_text_means_the_same_everywhere(monkeypatch, text, number):
    assert byte_sizes.parse_bytes("memory_limit", text) == number
    monkeypatch.setenv("PYCLMM_KEEP_WORKSPACE", text)
    assert environment.KEEP_WORKSPACE.nbytes == number


OTHER_TYPES = (None, True, 1.5, float("inf"), float("nan"), b"1", [1], 1j)


@pytest.mark.parametrize("value", [*NO_SIZES, *OTHER_TYPES])
def test_what_is_no_size_is_refused(value):
    error = pyclmm.ArgumentError if isinstance(value, str) else pyclmm.DTypeError
    with pytest.raises(error, match=r"limit is .+; set a number of bytes, such as"):
        byte_sizes.parse_bytes("limit", value)


@pytest.mark.parametrize("value", [7, 7.0, np.int64(7), np.float64(7)])
def test_a_whole_number_is_taken(value):
    assert byte_sizes.parse_bytes("limit", value) == 7


def test_the_least_is_the_callers():
    assert byte_sizes.parse_bytes("limit", 0, least=0) == 0
    with pytest.raises(pyclmm.ArgumentError, match=r"limit is 0; .+ of 1 or more"):
        byte_sizes.parse_bytes("limit", 0)


def test_a_plan_takes_a_text():
    x = np.ones((2, 2), np.float32)
    assert pyclmm.Matmul(x, x, workspace_limit="1 GiB")(x, x).tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1536 << 20, "1.5 GiB"),
        (3 << 50, "3072 TiB"),
    ],
)
def test_what_is_printed(number, text):
    assert byte_sizes.format_bytes(number) == text
