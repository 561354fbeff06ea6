"""That strides say all they can: the fewest axes, and a copy only where no order of axes does without."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pyclmm.problem.contraction import Dense, contiguous, joined, stacked

LENGTHS = {0: 2, 1: 2, 2: 3, 3: 4, 4: 6}
ITEM = 4


@st.composite
def strides(draw, labels):
    """Strides in bytes of an array whose axes lie in any order, some reversed, sliced or repeated."""
    order = tuple(draw(st.permutations(sorted(labels))))
    steps = st.sampled_from([1, 1, 1, 1, 2, -1, 0])
    return {x: ITEM * s * draw(steps) for x, s in contiguous(order, LENGTHS).items()}


def fewest_axes(labels, arrays):
    """By trying every order of *labels*."""

    def axes(order):
        return len(order) - sum(
            all(x[first] == x[second] * LENGTHS[second] for x in arrays)
            for first, second in itertools.pairwise(order)
        )

    return min(map(axes, itertools.permutations(labels)))


@given(st.data(), st.sets(st.sampled_from(list(LENGTHS)), min_size=1, max_size=4), st.integers(1, 3))
def test_labels_become_the_fewest_axes(data, labels, count):
    arrays = [data.draw(strides(labels)) for _ in range(count)]
    found = joined(labels, LENGTHS, arrays)
    assert sorted(itertools.chain(*found)) == sorted(labels)
    assert len(found) == fewest_axes(labels, arrays)


@given(st.data())
def test_a_copy_only_where_the_sums_do_not_become_one_axis(data):
    """In every array *labels* stand where the first letter of their kind does: in a, b and the result."""
    kinds = {x: data.draw(st.sampled_from(["sum", "row", "column", "stack"])) for x in LENGTHS}
    a = data.draw(strides([x for x, kind in kinds.items() if kind != "column"]))
    b = data.draw(strides([x for x, kind in kinds.items() if kind != "row"]))
    order = data.draw(st.permutations([x for x, kind in kinds.items() if kind != "sum"]))
    out = {x: ITEM * step for x, step in contiguous(tuple(order), LENGTHS).items()}
    sums = [x for x, kind in kinds.items() if kind == "sum"]
    found = stacked(LENGTHS, a, b, out, (ITEM, ITEM, ITEM))
    assert isinstance(found, Dense) == (bool(sums) and fewest_axes(sums, (a, b)) > 1)
    if isinstance(found, Dense):
        return
    views = (found.a, found.b, found.out)
    mine = sum(has_unit(view.shape[-2:], view.strides[-2:]) for view in views)
    assert mine == most_units(kinds, a, b, out)


def has_unit(shape, steps):
    return 1 in shape or ITEM in steps


def most_units(kinds, a, b, out):
    """The most matrices with a unit stride, over every choice of one axis each of the rows and columns."""
    rows, columns, sums = (
        joined([x for x, kind in kinds.items() if kind == one], LENGTHS, arrays) or [()]
        for one, arrays in (("row", (out, a)), ("column", (out, b)), ("sum", (a, b)))
    )

    def units(m, n):
        return sum(
            not first or not second or ITEM in (x[first[-1]], x[second[-1]])
            for x, first, second in ((a, m, sums[0]), (b, sums[0], n), (out, m, n))
        )

    return max(units(m, n) for m, n in itertools.product(rows, columns))


def test_dot_products_follow_one_another_as_their_operands_lie():
    """They read more than they write. Where the operands differ the order is that of the result."""
    sizes = (ITEM, ITEM, ITEM)
    first, other = (contiguous(order, LENGTHS) for order in ((3, 2, 4), (2, 3, 4)))
    out = contiguous((2, 3), LENGTHS)
    found = stacked(LENGTHS, first, first, out, sizes)
    assert found.out.shape[:2] == (LENGTHS[3], LENGTHS[2])
    assert found.out.strides[:2] == (out[3], out[2])
    assert stacked(LENGTHS, first, other, out, sizes).out.shape[:2] in ((LENGTHS[2], LENGTHS[3]), (12,))
    matrices = contiguous((3, 2, 1, 4), LENGTHS), contiguous((3, 2, 4), LENGTHS)
    rows = contiguous((2, 3, 1), LENGTHS)
    assert stacked(LENGTHS, *matrices, rows, sizes).out.shape[:2] == (LENGTHS[2], LENGTHS[3])


def test_matrices_with_gaps_both_ways_are_dot_products_side_by_side():
    """Where elements are read again and again they stay matrices, and where neighbours are few or apart,
    unless one operand has vectors only.
    """
    sizes = (ITEM, ITEM, ITEM)

    def matrix(high, wide, stack, step=1, beside=True):
        lengths = {0: high, 1: wide, 2: 50, 3: stack}  # rows, columns, sums, and the stack, the innermost
        of_a, of_b, of_out = (
            {x: ITEM * step * at for x, at in contiguous(labels, lengths).items()}
            for labels in ((0, 2, 3), (2, 1, 3), (0, 1, 3))
        )
        found = stacked(lengths, of_a, of_b, of_out, sizes, beside)
        return found.out.shape[-2:]

    assert matrix(100, 1, 40) == (1, 1)
    assert matrix(1, 100, 40) == (1, 1)
    assert matrix(8, 8, 40) == (1, 1)
    assert matrix(8, 100, 40) == (8, 100)
    assert matrix(8, 8, 8) == matrix(8, 8, 40, step=2) == (8, 8)
    assert matrix(100, 1, 8) == matrix(1, 100, 40, step=2) == (1, 1)
    assert matrix(100, 1, 40, beside=False) == (100, 1)
