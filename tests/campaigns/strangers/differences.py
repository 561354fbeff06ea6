"""The foreign tests that pyclmm fails on purpose, each with its reason. One that passes fails the run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """Tests of *suite* whose names (file::class::test) begin with *test* fail.

    Their message has *says*, a regular expression, in it.
    """

    suite: str
    test: str
    says: str
    reason: str


DIFFERENCES = (
    Difference(
        "numpy",
        "test_multiarray.py::TestMethods::test_dot_matmul_inner_array_casting_fails",
        "pass a NumPy array",
        "operands must be arrays: what has __array__ is not converted",
    ),
    Difference(
        "numpy",
        "test_multiarray.py::TestDot::test_dotcolumnvect",
        "is a list",
        "operands must be arrays: a list is not converted",
    ),
    Difference(
        "numpy",
        "test_linalg.py::TestPinv::test_sq_cases",
        "LinalgCase: nonarray",
        "operands must be arrays: a list is not converted",
    ),
    Difference(
        "numpy",
        "test_linalg.py::TestPinvHermitian::test_herm_cases",
        "LinalgCase: hnonarray",
        "operands must be arrays: a list is not converted",
    ),
)
