"""benchmarks/ratios.py: ratios in a few numbers."""

import pytest

from benchmarks import ratios


def test_spread():
    found = ratios.spread([4.0, *(1.0 for _ in range(9)), 0.25])
    assert found == pytest.approx((1.0, 1.0, 0.25))
    assert ratios.spread([2.0, 8.0])[0] == pytest.approx(4.0)
    assert ratios.spread([1.0, 2.0])[1] == pytest.approx(1.1)  # between the two


def test_a_table_has_a_line_for_each_kind_in_their_order():
    table = ratios.by_kind([("high", 2.0), ("float16", 0.5), ("high", 8.0)]).split("\n")
    assert [line.split() for line in table[1:]] == [
        ["high", "2", "4.00", "2.60", "2.00"],
        ["float16", "1", "0.50", "0.50", "0.50"],
    ]
