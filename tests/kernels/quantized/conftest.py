"""Products with quantised weights, as kernels see them."""

import pytest

from pyclmm.formats import format_named
from pyclmm.problem.gemm import GemmProblem


@pytest.fixture
def weights():
    """Makes a product of A, M x K, with N rows of K weights."""

    def problem(m, n, k, name="q8_0", a_type="float32", **given):
        nbytes = format_named(name).row_nbytes(k)
        layout = {"lda": k, "ldb": nbytes, "ldo": n, "b_align": nbytes & -nbytes} | given
        types = {"a_type": a_type, "b_type": "uint8", "out_type": a_type, "acc_type": "float32"}
        return GemmProblem(m, n, k, **types, trans_b=True, b_format=name, **layout)

    return problem
