"""The files of an install agree with setup.cfg and with one another."""

import configparser
import re
import sys
from pathlib import Path

import pytest

import pyclmm
from tests.support.pages import blocks
from tests.support.processes import python

from . import clean, dockerfile, newcomer

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def setup():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    return config


def recipe_section(name):
    """The items of a list in the recipe."""
    text = (ROOT / "recipe/recipe.yaml").read_text(encoding="utf-8")
    block = re.search(rf"^  {name}:\n((?:    - .*\n)+)", text, re.MULTILINE)
    return [line.strip()[2:] for line in block[1].splitlines()]


def test_the_recipe_has_the_dependencies_of_setup_cfg(setup):
    needed = setup["options"]["install_requires"].strip().splitlines()
    python = f"python {setup['options']['python_requires']}"
    assert sorted(recipe_section("run")) == sorted([python, *(re.sub(r"(>=)", r" \1", n) for n in needed)])


def test_the_recipe_has_the_build_system_of_pyproject():
    required = re.findall(
        r'^requires = \["(\w+)(>=\d+)"\]', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert [f"{name} {version}" for name, version in required] == recipe_section("host")[2:]


def test_the_recipe_has_version_license_summary_and_command(setup):
    text = (ROOT / "recipe/recipe.yaml").read_text(encoding="utf-8")
    assert f'version: "{pyclmm.__version__}"' in text
    assert f"license: {setup['metadata']['license']}\n" in text
    assert f"summary: {setup['metadata']['description']}\n" in text
    assert f"- {setup['options.entry_points']['console_scripts'].strip()}\n" in text


def test_intel_has_what_it_needs_and_the_same_versions_everywhere(setup):
    extras = setup["options.extras_require"]
    intel = extras["intel"].split()
    assert {re.match(r"[\w-]+", line)[0] for line in intel} == {"intel-opencl-rt", "intel-cmplr-lib-rt"}
    for line in intel:
        for system in ("Linux", "Windows"):
            assert f"{line}; platform_system == '{system}'" in extras["cpu"]


def test_every_command_of_the_readme_is_followed_by_someone():
    words = {command[0] for command in newcomer.commands()}
    assert words == {"pip", "pyclmm"}
    assert blocks(newcomer.README, "python")


def test_every_extra_for_users_is_put_to_use():
    assert set(newcomer.USES_OF) == set(newcomer.extras()) - {"cpu", "intel"}  # which bring nothing more


def test_steps_of_the_dockerfile(setup):
    steps = list(dockerfile.steps(dockerfile.FILE.read_text(encoding="utf-8")))
    assert [word for word, _ in steps if word == "RUN"]
    (default,) = (rest.partition("=")[2] for word, rest in steps if word == "ARG")
    assert default in setup["options.extras_require"]
    assert steps[-1] == ("CMD", '["pyclmm", "info"]')


def test_an_instruction_that_nothing_follows_is_noticed():
    with pytest.raises(ValueError, match="HEALTHCHECK"):
        list(dockerfile.steps("FROM x\nHEALTHCHECK CMD true\n"))


def test_steps_of_a_dockerfile_run_in_order_and_end_at_a_failure(tmp_path):
    place = clean.Place(tmp_path)
    place.clone.mkdir(parents=True)
    (place.folder / "home").mkdir()
    file = tmp_path / "Dockerfile"
    text = (
        "FROM x\nARG EXTRA=cpu\nCOPY . /src\nWORKDIR /work\nRUN echo ${EXTRA} \\\n > seen && test -d /src\n"
    )
    file.write_text(text + 'CMD ["cat", "seen"]\n')
    dockerfile.follow(place, file)
    assert (tmp_path / "work/seen").read_text() == "cpu\n"
    file.write_text(text + "RUN echo broken >&2; false\n")
    with pytest.raises(clean.FailedError, match="broken"):
        dockerfile.follow(place, file)


def test_a_place_hides_what_the_outside_says_of_drivers(tmp_path, monkeypatch):
    monkeypatch.setenv("OCL_ICD_VENDORS", "/elsewhere")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    place = clean.Place(tmp_path)
    seen = place.run([sys.executable, "-c", "import os; print(os.environ)"], tmp_path)
    assert "OCL_ICD_VENDORS" not in seen
    assert "PYTHONPATH" not in seen
    assert f"'HOME': '{tmp_path / 'home'}'" in seen


PAGE = "# t\n\n[a](docs/a.md#b), [`docs/c.md`](docs/c.md), ![p](x.png), [w](https://w.example/y)\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (None, "a (`docs/a.md`), `docs/c.md`, p (`x.png`), [w](https://w.example/y)\n"),
        (
            "https://s.example/main/",
            "[a](https://s.example/main/docs/a.md#b), [`docs/c.md`](https://s.example/main/docs/c.md), "
            "![p](https://s.example/main/x.png), [w](https://w.example/y)\n",
        ),
    ],
)
def test_links_of_the_index_page(source, expected):
    code = f"import setup; print(setup.for_an_index({PAGE!r}, {source!r}), end='')"
    done = python("-c", code, cwd=ROOT, check=True)
    assert done.stdout.startswith("# t\n\n")
    assert done.stdout.endswith(expected)


def test_each_failure_of_the_install_page_says_what_is_printed_and_cites():
    """A cure stands under each heading; those that are not ours cite where they come from."""
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8").partition("## Known failures")[2]
    parts = re.split(r"^### ", page, flags=re.MULTILINE)[1:]
    assert len(parts) >= 10
    for part in parts:
        assert "https://github.com/" in part or "pyclmm:" in part, part.splitlines()[0]
