"""Offsets of more than 2^31 elements between two rows, or within one."""

import numpy as np
import pytest

import pyclmm
from pyclmm.formats import affine
from tests.support.cases import DEVICE, defaults, small_integers

APART = 2**31 + 64  # elements from one row to the next


@pytest.fixture(scope="module")
def far():
    """Two rows of int8. Only pages that are touched take memory."""
    if not DEVICE.in_place or DEVICE.max_mem_alloc_size < 2 * APART:
        pytest.skip(f"{DEVICE.name!r} cannot use {2 * APART} bytes of host memory where they lie")
    return np.zeros((2, APART), np.int8)


@defaults
@pytest.mark.parametrize("operand", ["a", "b", "c", "out"])
def test_rows_may_lie_more_than_2_31_elements_apart(subject, far, rng, operand):
    if subject.kernel.name == "matvec":
        pytest.skip("matvec takes one vector, or operands that are both stored along K")
    shapes = {"a": (2, 3), "b": (2, 5), "c": (2, 5), "out": (2, 5)}
    rows, columns = shapes[operand]
    view = far[:rows, 8 : 8 + columns]
    view[...] = small_integers(rng, (rows, columns), "i1")
    m, k = (2, 3) if operand != "b" else (4, 2)
    a = view if operand == "a" else small_integers(rng, (m, k), "i1")
    b = view if operand == "b" else small_integers(rng, (k, 5), "i1")
    c = view if operand == "c" else small_integers(rng, (m, 5), "i1")
    right = a @ b + 2 * c
    out = view if operand == "out" else None
    got = subject(a, b, c, beta=2, out=out)
    assert np.array_equal(got, right)


def test_a_row_of_weights_may_have_more_than_2_30(far):
    k, form = 2**30 + 2**20, affine.FORMATS[1]  # float16 scales for 32
    rows = np.zeros((1, form.row_nbytes(k)), np.uint8)
    form.parts(rows, k).biases.view(np.float16)[0, -1] = 3
    far[:, :16] = 0  # what the other test has left
    x = far.reshape(-1)[: 2 * k].view(np.float16)
    x[-32:] = 2
    assert pyclmm.matmul(x, pyclmm.QuantizedArray.of_rows(rows, form, k).T) == 3 * 2 * 32
