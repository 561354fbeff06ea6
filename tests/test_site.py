"""The site's contents and reference, without Sphinx. `make docs` builds it."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import pyclmm
from tests.support.scripts import script

pytest.importorskip("dask", reason="needs dask")
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def pages():
    return script("docs/site/pages.py")


def test_the_reference_has_every_public_name(pages):
    listed = set(re.findall(r"^\.\. auto\w+:: (\S+)$", pages.reference(), re.M))
    names = {name for name in pyclmm.__all__ if name != "__version__"}
    modules = {name for name in names if isinstance(getattr(pyclmm, name), ModuleType)}
    assert modules
    assert listed >= {f"pyclmm.{name}" for name in names - modules}
    for name in modules:
        assert listed >= {f"pyclmm.{name}.{inner}" for inner in getattr(pyclmm, name).__all__}
    assert listed >= {f"pyclmm.dask.{name}" for name in ("DevicePlugin", "backend", "matmul", "tensordot")}


def test_a_new_public_name_and_module_are_there_by_themselves(pages, monkeypatch):
    module = ModuleType("pyclmm.brandnew", "A module.")
    vars(module).update(__all__=["triple"], triple=lambda x: 3 * x)
    monkeypatch.setattr(pyclmm, "brandnew", module, raising=False)
    monkeypatch.setattr(pyclmm, "double", lambda x: 2 * x, raising=False)
    monkeypatch.setattr(pyclmm, "__all__", [*pyclmm.__all__, "brandnew", "double"])
    text = pages.reference()
    assert ".. autofunction:: pyclmm.double\n" in text
    assert ".. autofunction:: pyclmm.brandnew.triple\n" in text


def test_every_page_stands_once_in_the_contents(pages):
    found = [p.relative_to(ROOT).with_suffix("").as_posix() for p in (ROOT / "docs").rglob("*.md")]
    found += ["README", "CONTRIBUTING", "CHANGELOG", "docs/road/9-new", "docs/brand_new"]
    listed = [page for _, taken in pages.contents(found) for page in taken]
    assert sorted(listed) == sorted(set(found) - {pages.INDEX})
    headings = dict(pages.contents(found))
    assert "docs/road/9-new" in headings["Learn"]
    assert headings["Learn"][0] == "docs/road/index"
    assert "docs/brand_new" in headings["Contribute"]


def test_links_to_folders_lead_to_their_pages(pages):
    assert pages._folders("README", "[a](examples/)") == "[a](/docs/examples.md)"
    assert pages._folders("docs/mlp", "[a](../examples/mlp/)") == "[a](/examples/mlp/README.md)"
    assert pages._folders("docs/mlp", "[a](../benchmarks/results/)") == "[a]"


def test_titles_of_docstrings_become_rubrics(pages):
    lines = ["Sum.", "", "Returns", "-------", "The sum.", "--"]
    pages.sections(None, "", "", None, None, lines)
    assert lines == ["Sum.", "", ".. rubric:: Returns", "", "The sum.", "--"]


def test_a_site_without_a_name_or_with_a_dead_link_is_noticed(pages, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pages", pages)
    check = script("docs/site/check.py")
    entries = "".join(f'<dt class="sig x" id="{name}">' for name in pages.public_names())
    page = tmp_path / f"{pages.REFERENCE}.html"
    page.parent.mkdir()
    page.write_text(entries + '<a href="#pyclmm.matmul">')
    assert check.missing_names(tmp_path) == []
    assert check.broken_links(tmp_path) == []
    page.write_text(entries.replace("pyclmm.warm", "x") + '<a href="#nosuch"><a href="gone.html">')
    assert check.missing_names(tmp_path) == ["pyclmm.warm"]
    assert len(check.broken_links(tmp_path)) == 2
