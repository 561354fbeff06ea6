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


DIFFERENCES: tuple[Difference, ...] = ()
