"""The README's commands and snippets with the newest Python, in the second system of make conformance."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.conformance import newer

from .clean import Place, copied


class NewestPlace(Place):
    """A place whose commands run in that system, with an environment of its Python."""

    def run(self, words: Sequence[str | Path], where: Path) -> str:
        return super().run(newer.inside(words, where), where)


def follow(steps: Callable[[Place, Path], None]) -> str:
    """Do *steps* at such a place, from a folder elsewhere; returns what was done, or why it was left out."""
    if reason := newer.missing():
        return f"left out: {newer.PYTHON}: {reason}"
    with tempfile.TemporaryDirectory(prefix="pyclmm-newcomer-") as name:
        place = copied(NewestPlace(Path(name)))
        elsewhere = place.folder / "elsewhere"
        elsewhere.mkdir()
        place.run([newer.PYTHON, "-m", "venv", place.folder / "venv"], elsewhere)
        steps(place, elsewhere)
        version = place.run([place.python, "-V"], elsewhere).strip()
    return f"installed, snippets, commands and two kernels' selftest with {version}"
