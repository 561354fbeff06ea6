"""A pytest plugin for the foreign tests: replaces the products, marks the differences, writes the outcomes.

The environment tells it which suite it runs, the differences that are listed for it (JSON), and where to
write.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import pyclmm
from pyclmm import array_api, linalg

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


class UnderBackend:
    """Tests run with :func:`pyclmm.dask.backend`."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        with importlib.import_module("pyclmm.dask").backend():
            return (yield)


def in_place_of_numpys(config: pytest.Config) -> None:
    stack = ExitStack()
    stack.enter_context(products.replaced())
    config.add_cleanup(stack.close)
    config.pluginmanager.register(TestsOfOne())


def of_array_api(config: pytest.Config) -> None:
    modules = (
        (array_api, "_matmul"),
        (array_api.array, "matmul"),
        (linalg.products, "matmul"),
        (linalg.pairs, "gemm"),
        (linalg.pairs, "matmul"),
    )
    products.count_those_of(*modules)


def in_scikit_learn(config: pytest.Config) -> None:
    """Its tests of the array API are of this namespace alone, and those of estimators compare values too."""
    of_array_api(config)
    its = importlib.import_module("sklearn.utils._array_api")
    vars(its)["yield_namespaces"] = lambda include_numpy_namespaces=True: iter(["pyclmm.array_api"])
    checks = importlib.import_module("sklearn.utils.estimator_checks")
    check = checks.check_array_api_input

    @wraps(check)
    def with_values(*args: Any, array_namespace: str, **keywords: Any) -> Any:
        keywords.setdefault("check_values", array_namespace != "numpy")  # "numpy": estimators without the tag
        return check(*args, array_namespace=array_namespace, **keywords)

    vars(checks)["check_array_api_input"] = with_values


def in_dask(config: pytest.Config) -> None:
    products.count_those_of((importlib.import_module("pyclmm.dask.graph"), "multiply"))
    config.pluginmanager.register(UnderBackend())


# How a suite reaches pyclmm. The tests of this project on what strangers publish call it themselves.
WAYS: dict[str, Callable[[pytest.Config], None]] = {
    "cupy": lambda config: as_cupy.install(Path(os.environ[SOURCES])),
    "array-api": of_array_api,
    "scikit-learn": in_scikit_learn,
    "dask": in_dask,
    **dict.fromkeys(("opinfo", "netlib"), lambda config: None),
}


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before conftest.py, which may import what is replaced."""
    differences = [Difference(**each) for each in json.loads(os.environ[LISTED])]
    sys.meta_path.insert(0, Finder())
    WAYS.get(os.environ[SUITE], in_place_of_numpys)(early_config)
    early_config.pluginmanager.register(Strangers(Path(os.environ[LOG]), differences))
