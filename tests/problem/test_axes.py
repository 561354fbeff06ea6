"""axes and axis, read as numpy.matmul reads them. Pure."""

import itertools

import numpy as np
import pytest

from pyclmm.errors import AxisError, DTypeError, ShapeError
from pyclmm.problem.axes import back, core_axes, last


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
def test_the_core_axes_go_last_and_back(ndim):
    x = np.empty(range(2, 2 + ndim))
    for count in range(min(2, ndim) + 1):
        for core in itertools.permutations(range(ndim), count):
            for item in (core, tuple(axis - ndim for axis in core)):
                want = np.moveaxis(x, item, range(-count, 0))
                assert x.transpose(last(ndim, item)).strides == want.strides
                assert want.transpose(back(ndim, item)).strides == x.strides


def test_a_single_axis_may_be_an_int():
    found = core_axes({"a": 1, "b": 3}, [0, (np.int64(0), -1), (1,)])
    assert found == {"a": (0,), "b": (0, -1), "out": (1,)}


@pytest.mark.parametrize(
    ("ndims", "axes", "kind", "words"),
    [
        ((2, 2), ((0, 1),) * 3, DTypeError, "axes should be a list"),
        ((2, 2), [(0, 1)] * 2, ShapeError, "can only be omitted if none of them has core axes"),
        ((2, 2), [[0, 1]] * 3, DTypeError, "axes item 0 should be a tuple"),
        ((2, 2), [(0, 2)] * 3, AxisError, "axis 2 is out of bounds for array of dimension 2"),
        ((0, 2), [(), (0, 1), (0,)], ShapeError, "does not have enough dimensions"),
    ],
)
def test_numpys_words(ndims, axes, kind, words):
    with pytest.raises(kind) as error:
        core_axes(dict(zip("ab", ndims, strict=True)), axes)
    assert words in str(error.value)
    assert "pass a list of" in str(error.value)
