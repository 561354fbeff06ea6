"""Optional packages in tests: what needs one that is missing is skipped, by the package's name."""

from __future__ import annotations

import importlib

import pytest


class _Missing:
    def __init__(self, name):
        self._name = name

    def __getattr__(self, _):
        pytest.skip(f"needs {self._name}", allow_module_level=True)


def optional(name):
    """The module *name*. Where it is missing, the first use of it skips the test, or the module of tests."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return _Missing(name.partition(".")[0])
