"""What tests of kernels share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tests/simulators/interleaved.py keeps what it compiles."""
    return tmp_path_factory.mktemp("interleaved")
