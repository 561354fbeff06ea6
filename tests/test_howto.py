"""The snippets of docs/howto/ and of two pages of docs/ run as they stand; its commands exist and run."""

from pathlib import Path

import pytest

import pyclmm
from tests.support.commands import command
from tests.support.pages import blocks, commands

FOLDER = Path(__file__).parents[1] / "docs/howto"
PAGES = [*sorted(FOLDER.glob("*.md")), *(FOLDER.parent / f"{name}.md" for name in ("many", "quantised"))]


WITH_PYTHON = [page for page in PAGES if blocks(page, "python")]


@pytest.fixture
def as_it_was(tmp_path, monkeypatch):
    """Settings and the working folder, in which snippets write files."""
    monkeypatch.chdir(tmp_path)
    yield
    pyclmm.keep_workspace(None)


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_snippets_run_as_they_stand(page, as_it_was):
    names = {}
    for number, code in enumerate(blocks(page, "python")):
        exec(compile(code, f"{page.name}, snippet {number}", "exec"), names)


def test_there_are_snippets_and_commands():
    assert {"service", "pytorch", "jax", "precision", "tuning", "many", "quantised"} <= {
        page.stem for page in WITH_PYTHON
    }
    assert {page.stem for page in PAGES if blocks(page, "sh")} == {"amd", "intel", "use"}


@pytest.mark.parametrize("vendor", ["amd", "intel"])
def test_every_option_of_the_commands_exists(vendor):
    found = [words for _, words in commands(FOLDER / f"{vendor}.md")]
    assert [words[1] for words in found] == ["selftest", "tune", "bench", "tune"]
    for words in found:
        done = command(words[1], "--help")
        for option in words:
            assert not option.startswith("--") or option in done.output, option
