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


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "numpy",
        "test_einsum.py::TestEinsum::test_einsum_views",
        "isinstance|^$",
        "the view of a diagonal shares the memory, but its base is an object of as_strided's",
    ),
    Difference(
        "numpy",
        "test_einsum.py::TestEinsum::test_einsum_0d_out",
        "with casting rule 'safe'",
        "einsum's casting is 'safe' for out too; NumPy forgets it where the product is tensordot's",
    ),
    Difference(
        "numpy",
        "test_einsum.py::TestEinsum::test_output_order",
        "isinstance|^$",
        "results are C-contiguous; there is no order=",
    ),
    Difference(
        "numpy",
        "test_einsum.py::TestEinsumPath::test_path_type_input_invalid",
        "optimize: the path leaves 2 operands",
        "a path that does not fit is an ArgumentError, which is a ValueError",
    ),
    Difference(
        "numpy",
        "test_einsum.py::test_einsum_chunking_precision",
        "not almost equal to 15 decimals",
        "sums run in another order; a million equal numbers are summed to 12 decimals",
    ),
    Difference(
        "numpy",
        "test_ufunc.py::TestUfunc::test_vecdot_subclass",
        "isinstance|^$",
        "subclasses of ndarray give an ndarray",
    ),
    *(
        Difference(
            "scikit-learn",
            test,
            "x has gaps or another order",
            "assignment to a view with gaps is refused: what lies between could be written by others",
        )
        for test in (
            "test_pairwise.py::test_pairwise_parallel_array_api",
            "test_array_api.py::test_fill_diagonal[pyclmm.array_api-None-None-transposed]",
            "test_array_api.py::test_fill_diagonal[pyclmm.array_api-None-None-non-contiguous]",
        )
    ),
)
