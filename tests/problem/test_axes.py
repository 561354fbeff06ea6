"""axes and axis, read as numpy.matmul reads them. Pure."""

import pytest

from pyclmm.errors import AxisError, DTypeError, ShapeError
from pyclmm.problem.axes import core_axes


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
