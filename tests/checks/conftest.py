"""What tests of children share."""

import pytest

from pyclmm.checks import child


@pytest.fixture
def child_begins(monkeypatch):
    """A function: the next children begin with that source."""
    return lambda source: monkeypatch.setattr(child, "START", source)
