"""A pytest plugin for the foreign tests: replaces the products, marks the differences, writes the outcomes.

The environment tells it which suite it runs, the differences that are listed for it (JSON), and where to
write.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import pyclmm

from ...conformance.recorder import reason
from . import as_cupy, products
from .differences import Difference
from .in_place import Finder

SUITE, LISTED, LOG, SOURCES = (f"STRANGERS_{what}" for what in ("SUITE", "LISTED", "LOG", "SOURCES"))


def name_of(item: pytest.Item) -> str:
    return f"{item.path.name}::{item.nodeid.partition('::')[2]}"


class Strangers:
    """One run. An outcome is passed, failed, difference (a listed one), or other.

    Other: skipped, or no product of the test was computed by pyclmm.
    """

    def __init__(self, log: Path, differences: Sequence[Difference]) -> None:
        self.log = log
        self.differences = differences
        self.outcomes: list[dict[str, Any]] = []
        self.not_found: list[str] = []

    @pytest.hookimpl(trylast=True)  # after -k has left out its tests
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for difference in self.differences:
            tests = [item for item in items if name_of(item).startswith(difference.test)]
            expected = pytest.RaisesExc(BaseException, match=difference.says)
            for item in tests:
                item.add_marker(pytest.mark.xfail(raises=expected, reason=difference.reason, strict=True))
            if not tests:
                self.not_found.append(difference.test)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        report.user_properties += [("test", name_of(item)), ("products", products.Product.computed)]
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        products.Product.computed = 0
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            known = dict(report.user_properties)
            outcome = self.outcome(report, known["products"])
            why = getattr(report, "wasxfail", None) or reason(report)
            self.outcomes.append({**known, "outcome": outcome, "reason": why})

    def outcome(self, report: pytest.TestReport, computed: int) -> str:
        if report.failed:
            return "failed"
        if getattr(report, "wasxfail", None) in {difference.reason for difference in self.differences}:
            return "difference"
        return "passed" if report.passed and computed else "other"

    def pytest_sessionfinish(self) -> None:
        device = pyclmm.default_queue().device
        driver = f"{device.platform.name} {device.driver_version}"
        content = {"driver": driver, "outcomes": self.outcomes, "not_found": self.not_found}
        self.log.write_text(json.dumps(content))


class TestsOfOne:
    """In tests of one function, that is pyclmm's too."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        places: dict[str, products.Product] = {}
        for word, functions in products.OF_TESTS.items():
            if word in name_of(item):
                places |= functions
        module = item.obj.__module__  # type: ignore[attr-defined]
        for place, product in list(places.items()):
            name = place.rpartition(".")[2]
            if hasattr(importlib.import_module(module), name):
                places[f"{module}.{name}"] = product
        with products.replaced(places):
            return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before conftest.py, which may import what is replaced."""
    differences = [Difference(**each) for each in json.loads(os.environ[LISTED])]
    sys.meta_path.insert(0, Finder())
    if os.environ[SUITE] == "cupy":
        as_cupy.install(Path(os.environ[SOURCES]))
    elif os.environ[SUITE] == "array-api":
        products.count_those_of_array_api()
    else:
        stack = ExitStack()
        stack.enter_context(products.replaced())
        early_config.add_cleanup(stack.close)
        early_config.pluginmanager.register(TestsOfOne())
    early_config.pluginmanager.register(Strangers(Path(os.environ[LOG]), differences))
