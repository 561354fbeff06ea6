"""verify= of ragged_matmul: right products raise no alarm; a wrong element is named by its row and group."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.problem.dtypes import dtype_of
from tests.support.cases import laid_out, numbers
from tests.support.contexts import new_queue

ROWS, K, N = 50, 33, 21
SIZES = {"all": [10, 0, 25, 15], "some": [10, 0, 25, 7], "none": [0, 0, 0, 0]}
LAYOUTS = ("NN", "NT", "TN", "TT")


def operands(rng, divides, layout="NN", dtype="float32"):
    shapes = ((ROWS, K), (4, K, N)) if divides == "rows" else ((K, ROWS), (ROWS, N))
    both = [numbers(rng, shape, dtype_of(dtype)) for shape in shapes]
    return [laid_out(x, letter) for x, letter in zip(both, layout, strict=True)]


def wrong_element(rows, columns, group, call, *args, **kwargs):
    with pytest.raises(pyclmm.VerificationError, match=f"group {group} of|group {group}, computed") as caught:
        call(*args, **kwargs)
    error = caught.value
    found = error.rows, error.columns, error.stack
    assert found == ((rows, rows + 1), (columns, columns + 1), (group, group + 1))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("divides", ["rows", "K"])
def test_right_products_keep_their_bits(rng, divides, layout, form):
    dtypes = ("float32", "complex64", "float16", "int8")
    a, b = operands(rng, divides, layout, dtypes[(LAYOUTS.index(layout) + len(divides) + len(form)) % 4])
    for sizes in SIZES.values():
        got, want = (pyclmm.ragged_matmul(a, b, sizes, verify=how) for how in (True, False))
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", ["all", "some"])
def test_a_wrong_element_where_rows_are_divided(rng, layout, sizes, spoiler, form):
    a, b = operands(rng, "rows", layout)
    for row, group in ((0, 0), (9, 0), (10, 2), (34, 2), (35, 3), (49, 4 if sizes == "some" else 3)):
        spoiler.element(row * N + 6, "f", lambda x: x + 90)
        call = pyclmm.ragged_matmul
        wrong_element(row, 6, group, call, a, b, SIZES[sizes], verify=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_wrong_element_where_k_is_divided(rng, layout, spoiler, form):
    a, b = operands(rng, "K", layout)
    for row, group in ((0, 0), (K - 1, 1), (7, 2), (K - 1, 3)):  # group 1 is empty: its result are zeros
        spoiler.element((group * K + row) * N + 6, "f", lambda x: x + 90)
        wrong_element(row, 6, group, pyclmm.ragged_matmul, a, b, SIZES["some"], verify=True)


@pytest.mark.parametrize("where", ["a", "b"])
@pytest.mark.parametrize("layout", ["NN", "TT"])
@pytest.mark.parametrize("divides", ["rows", "K"])
def test_nan_and_infinity_belong_to_their_group(rng, divides, layout, where, spoiler, form):
    a, b = operands(rng, divides, layout)
    sizes = SIZES["some"]
    if where == "a":
        a[12 if divides == "rows" else (3, 12)] = np.inf
    else:
        b[(2, 5, 6) if divides == "rows" else (12, 6)] = np.nan
    got = pyclmm.ragged_matmul(a, b, sizes, verify=True)
    of_group_0 = got[:10] if divides == "rows" else got[0]
    assert not np.isfinite(got).all()
    assert np.isfinite(of_group_0).all()
    spoiler.element(3 * N + 6, "f", lambda x: np.float32(np.nan))
    wrong_element(3, 6, 0, pyclmm.ragged_matmul, a, b, sizes, verify=True)
    spoiler.element(4 * N + 6, "f", lambda x: x + 90)
    wrong_element(4, 6, 0, pyclmm.ragged_matmul, a, b, sizes, verify=True)


def test_arrays_tell_in_finish_and_of_sizes_apart(rng, spoiler):
    queue, (a, b) = new_queue(), operands(rng, "rows")
    a, b = (cla.to_device(queue, x) for x in (a, b))
    sizes = cla.to_device(queue, np.array(SIZES["some"], np.int32))
    with pyclmm.verified():
        pyclmm.ragged_matmul(a, b, sizes)
        pyclmm.finish()
        spoiler.element(12 * N + 6, "f", lambda x: x + 90)
        pyclmm.ragged_matmul(a, b, sizes)
        wrong_element(12, 6, 2, pyclmm.finish)
        sizes[3] = 99
        pyclmm.ragged_matmul(a, b, sizes)
        with pytest.raises(pyclmm.ArgumentError, match="group_sizes of an earlier call"):
            pyclmm.finish()
        pyclmm.finish()


@pytest.mark.parametrize("divides", ["rows", "K"])
def test_it_is_repaired(rng, divides, spoiler):
    a, b = operands(rng, divides)
    want = pyclmm.ragged_matmul(a, b, SIZES["some"])
    before = pyclmm.health()["repaired"]
    spoiler.element(12 * N + 6, "f", lambda x: x + 90)
    with pytest.warns(pyclmm.VerificationWarning, match="computed again by"):
        got = pyclmm.ragged_matmul(a, b, SIZES["some"], verify="repair")
    assert pyclmm.health()["repaired"] == before + 1
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_quantised_weights(rng, dtype, spoiler, form):
    q = pyclmm.quantize(rng.standard_normal((4, N, 192), np.float32), bits=4)
    x = rng.standard_normal((ROWS, 192), np.float32).astype(dtype)
    got, want = (pyclmm.ragged_matmul(x, q.mT, SIZES["some"], verify=how) for how in (True, False))
    assert got.tobytes() == want.tobytes()
    spoiler.element(12 * N + 6, dtype, lambda y: y + type(y)(900))
    wrong_element(12, 6, 2, pyclmm.ragged_matmul, x, q.mT, SIZES["some"], verify=True)
