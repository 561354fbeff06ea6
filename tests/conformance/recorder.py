"""A pytest plugin: writes one JSON line when a test starts and one when it ends.

Lines are flushed, so that they remain if a driver ends the process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

LOG = "CONFORMANCE_LOG"


class Recorder:
    def __init__(self, path: str) -> None:
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open for the whole session

    def write(self, **event: Any) -> None:
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        self.write(event="start", test=item.nodeid, **labels(item))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.write(event="end", test=report.nodeid, outcome=report.outcome, reason=reason(report))

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.write(event="finished", status=int(exitstatus))


def labels(item: pytest.Item) -> dict[str, str]:
    """The kernel and dtype of a test, from its parameters, or from its Subject (tests/support/cases.py)."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    kernel = params.get("kernel") or getattr(params.get("subject"), "kernel", None)
    dtype = params.get("dtype", "(laws)")
    return {"kernel": getattr(kernel, "name", kernel) or "", "dtype": str(dtype)}


def reason(report: pytest.TestReport) -> str:
    if report.outcome == "passed":
        return ""
    if isinstance(report.longrepr, tuple):  # a skip: file, line, text
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longreprtext)[:1000]


def pytest_configure(config: pytest.Config) -> None:
    if path := os.environ.get(LOG):
        config.pluginmanager.register(Recorder(path))
