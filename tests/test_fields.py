"""What JSON of others may hold: types, finite bounds, limits of length, and errors that name the value."""

from contextlib import suppress

import pytest
from hypothesis import given

import pyclmm
from pyclmm import fields
from tests.test_store import json_values

NESTED = fields.record({"rates": fields.list_of(fields.record({"launch": fields.number(1e6, 1e18)}), 1, 2)})


def is_allowed(check, value):
    with suppress(pyclmm.ArgumentError):
        check("value", value)
        return True
    with pytest.raises(pyclmm.ArgumentError, match=r"^value(\[\d\])? is [ -~]{1,140}$"):
        check("value", value)
    return False


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (fields.integer(0, 9), (0, 9), (-1, 10, True, 1.0, "1", None, 10**400)),
        (
            fields.number(1e6, 1e18),
            (10**6, 1e18),
            (0, 5e-324, 1e300, 10**400, float("nan"), float("inf"), True),
        ),
        (fields.number(1.0, 2.0, zero=True), (0, 0.0, 1.5), (0.5, -0.5, True, False)),
        (fields.text(3), ("abc", "\u00e9"), ("", "abcd", "\x1b", "\ud800", b"a", None)),
        (fields.one_of(1, "a"), (1, "a"), (1.0, True, "b", [])),
        (fields.optional(fields.integer(0, 1)), (None, 1), (2, "")),
        (fields.list_of(fields.integer(0, 1), 1, 2), ([1], [0, 1]), ([], [0, 1, 1], (1,), {})),
        (fields.DATE, ("2026-11-22",), ("2026-11-2", "2026-11-22\n", "\u0662026-11-22", 2026)),
    ],
)
def test_what_is_allowed_and_what_is_not(check, good, bad):
    assert all(is_allowed(check, value) for value in good)
    assert not any(is_allowed(check, value) for value in bad)


def test_an_error_names_the_value_within():
    with pytest.raises(pyclmm.ArgumentError, match=r"it\.rates\[1\]\.launch is 5, not a number from 1e\+06"):
        NESTED("it", {"rates": [{"launch": 1e9}, {"launch": 5}]})
    with pytest.raises(pyclmm.ArgumentError, match=r"it\.rates\[0\]: its keys are not launch"):
        NESTED("it", {"rates": [{}]})


@given(json_values)
def test_any_json_is_refused_with_a_reason(value):
    with pytest.raises(pyclmm.ArgumentError, match=r"^it: its keys are not rates$"):
        NESTED("it", value)
