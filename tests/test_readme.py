"""The pages are right: commands and the README's example work, and links lead to what is there."""

import configparser
import re
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.pages import blocks, commands
from tests.support.processes import ended

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = (README, ROOT / "docs/howto/use.md", ROOT / "CONTRIBUTING.md")
LONGEST = 120  # lines: the README is a first screen; references have pages of their own
BIN = Path(sys.executable).parent


COMMANDS = list(commands(*PAGES))


def run(words, **kwargs):
    done = ended(*words, cwd=ROOT, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def follow_make(arguments):
    """The target exists and its recipe starts programs that exist. CI runs it; here it would run itself."""
    recipe = run(["make", "--dry-run", *arguments])
    started = re.findall(r"\.venv/bin/([\w-]+)", recipe)
    assert started
    for program in started:
        installed(program)


def follow_pip(arguments):
    """The extras exist (`make newcomer` installs)."""
    assert arguments[0] == "install"
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = re.fullmatch(r"\.(?:\[(.*)\])?", arguments[1])[1]
    assert all(extra in setup["options.extras_require"] for extra in (extras or "cpu").split(","))


def follow_pyclmm(arguments):
    assert run([installed("pyclmm"), *arguments])


def installed(program):
    """The program in this Python environment. Where make has not made it, one may be missing."""
    if not (BIN / program).exists() and BIN.parent.name != ".venv":
        pytest.skip(f"needs {program} in this Python environment")
    assert (BIN / program).exists()
    return BIN / program


def follow_python(arguments):
    assert run([sys.executable, *arguments])


def follow_venv(arguments):
    """The environment is made, with the file that the next command reads. (`make newcomer` installs.)"""
    assert arguments == ["-m", "venv", ".venv"]
    assert [".", ".venv/bin/activate"] in [words for _, words in COMMANDS]
    with tempfile.TemporaryDirectory() as folder:
        run([sys.executable, "-m", "venv", "--without-pip", f"{folder}/.venv"])
        assert Path(folder, ".venv/bin/activate").is_file()


def follow_activate(arguments):
    """What `follow_venv` has made."""
    assert arguments == [".venv/bin/activate"]


FOLLOW = {
    "make": follow_make, "pip": follow_pip, "pyclmm": follow_pyclmm, "python": follow_python,
    "python3": follow_venv, ".": follow_activate,
}  # fmt: skip


# The benchmark takes a tenth of all tests' time; tests/tools/test_bench.py runs shorter ones.
MARKED = [
    pytest.param(
        page.name, words, id=" ".join(words), marks=[pytest.mark.slow] * (words[:2] == ["pyclmm", "bench"])
    )
    for page, words in COMMANDS
]


@pytest.mark.parametrize(("page", "words"), MARKED)
def test_every_command_of_the_pages_works(page, words):
    assert words[0] in FOLLOW, f"{page} has a command that nothing follows: say here how"
    FOLLOW[words[0]](words[1:])


def test_the_pages_have_commands():
    texts = {" ".join(words) for _, words in COMMANDS}
    assert {"make demo", "make test"} <= texts
    assert any(text.startswith("pyclmm bench") for text in texts)


def test_the_readme_is_a_first_screen():
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LONGEST
    assert lines.index("```python") < 10


def test_the_readmes_python_prints_true():
    (example,) = blocks(README, "python")
    assert len([line for line in example.splitlines() if line]) == 5
    assert run([sys.executable, "-W", "error", "-c", example]) == "True\n"


TEXTS = sorted(
    p.relative_to(ROOT).as_posix() for folder in ("*.md", "docs/**/*.md") for p in ROOT.glob(folder)
)


def headings(page):
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", TEXTS)
def test_links_point_to_pages_and_headings_that_exist(page):
    for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", (ROOT / page).read_text(encoding="utf-8")):
        if not link.startswith("https://"):
            target = (ROOT / page).parent / link if link else ROOT / page
            assert target.exists(), link
            assert not anchor or anchor in headings(target), f"{link}#{anchor}"
