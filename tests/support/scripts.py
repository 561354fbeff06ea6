"""Scripts of the repository as modules, whose functions tests call."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def script(path):
    """The module that the file at *path* in the repository makes, with what it imports from its folder."""
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(file.parent))
        patch.setitem(sys.modules, file.stem, module)  # dataclasses look their module up
        spec.loader.exec_module(module)
    return module
