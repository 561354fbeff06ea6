"""Optional packages in tests: what needs one that is missing is skipped, by the package's name."""

import importlib
import re
from functools import cache

import pytest

PACKAGES = (
    "dask", "distributed", "gguf", "h5py", "jax", "matplotlib", "ml_dtypes", "mypy", "pandas", "safetensors",
    "sklearn", "torch", "zarr",
)  # fmt: skip


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


@cache
def is_missing(name):
    return isinstance(optional(name), _Missing)


def named_in(failure):
    """The optional package that is missing here, and that a failed test says is needed; None if none is."""
    said = (name for name in PACKAGES if re.search(rf"needs? {name}\b|No module named '{name}\b", failure))
    return next(filter(is_missing, said), None)
