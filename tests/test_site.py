"""The site's contents and reference, without Sphinx. `make docs` builds it."""

import json
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


def entries(pages, topics):
    text = "\n".join(map(pages.reference, topics))
    return re.findall(r"^\.\. auto(?!module)\w+:: (\S+)$", text, re.M)


def test_the_reference_has_every_public_name_once(pages):
    found = entries(pages, pages.TOPICS)
    listed = set(found)
    assert len(found) == len(listed)
    names = {name for name in pyclmm.__all__ if name != "__version__"}
    modules = {name for name in names if isinstance(getattr(pyclmm, name), ModuleType)}
    assert modules
    assert listed >= {f"pyclmm.{name}" for name in names - modules}
    for name in modules:
        assert listed >= {f"pyclmm.{name}.{inner}" for inner in getattr(pyclmm, name).__all__}
    assert listed >= {f"pyclmm.dask.{name}" for name in ("DevicePlugin", "backend", "matmul", "tensordot")}
    assert listed >= {f"pyclmm.torch.{name}" for name in ("gemm", "installed", "matmul")}


def test_the_reference_begins_with_the_two_functions(pages):
    first, *_ = pages.TOPICS
    assert entries(pages, [first])[:2] == ["pyclmm.matmul", "pyclmm.gemm"]
    linked = re.findall(
        r"\]\((reference/\w+)\.md\)", (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    )
    assert [f"docs/{page}" for page in linked] == list(pages.TOPICS)
    for page in pages.TOPICS:
        assert (ROOT / f"{page}.md").read_text(encoding="utf-8").count(pages.REFERENCE_MARK) == 1


def test_the_first_page_has_the_readmes_code(pages):
    index, readme = (
        (ROOT / page).read_text(encoding="utf-8").partition("```python")[2].partition("```")[0]
        for page in (f"{pages.INDEX}.md", "README.md")
    )
    assert index == readme != ""


def test_a_new_public_name_and_module_are_there_by_themselves(pages, monkeypatch):
    module = ModuleType("pyclmm.brandnew", "A module.")
    vars(module).update(__all__=["triple"], triple=lambda x: 3 * x)
    monkeypatch.setattr(pyclmm, "brandnew", module, raising=False)
    monkeypatch.setattr(pyclmm, "double", lambda x: 2 * x, raising=False)
    monkeypatch.setattr(pyclmm, "__all__", [*pyclmm.__all__, "brandnew", "double"])
    assert {"pyclmm.double", "pyclmm.brandnew.triple"} <= set(entries(pages, [*pages.TOPICS][-1:]))


def test_every_page_stands_once_in_the_contents(pages):
    found = [p.relative_to(ROOT).with_suffix("").as_posix() for p in (ROOT / "docs").rglob("*.md")]
    found += ["README", "CONTRIBUTING", "CHANGELOG", "docs/road/9-new", "docs/brand_new"]
    listed = [page for _, taken in pages.contents(found) for page in taken]
    assert sorted(listed) == sorted(set(found) - {pages.INDEX})
    headings = dict(pages.contents(found))
    assert "docs/road/9-new" in headings["Learn"]
    assert headings["Learn"][0] == "docs/road/index"
    assert "docs/brand_new" in headings["Contribute"]


@pytest.mark.parametrize(
    ("page", "link", "shown"),
    [
        ("README", "[a](examples/)", "[a](/docs/examples.md)"),
        ("docs/mlp", "[a](../examples/mlp/)", "[a](/examples/mlp/README.md)"),
        ("docs/mlp", "[a](../benchmarks/results/)", "a"),
    ],
)
def test_links_to_folders_lead_to_their_pages(pages, page, link, shown):
    assert pages.folders_linked(page, link) == shown


def test_titles_of_docstrings_become_rubrics(pages):
    lines = ["Sum.", "", "Returns", "-------", "The sum.", "--", "Others import: x."]
    pages.sections(None, "", "", None, None, lines)
    assert lines == ["Sum.", "", ".. rubric:: Returns", "", "The sum.", "--"]


def test_a_drawing_of_the_road_is_shown_whole_in_its_parts(pages):
    context = {"body": '<p><img alt="Tiles" src="../../_images/10_register.svg" /></p>'}
    pages.cut(None, "", "", context, None)
    widths = [int(width) for width in re.findall(r"--own: (\d+)px", context["body"])]
    assert len(widths) == context["body"].count("<img ") == 3
    drawn = re.search(r'width="(\d+)"', (ROOT / "docs/road/10_register.svg").read_text(encoding="utf-8"))
    assert sum(widths) == int(drawn[1])
    assert max(widths) <= 400
    places = re.findall(r"object-position: ([\d.]+)%", context["body"])
    assert [float(place) for place in places] == pytest.approx([0, 52, 100], abs=0.5)


def test_a_plot_is_a_link_to_itself(pages):
    context = {"body": '<p><img alt="Speed" src="../_images/road-h200.png" /></p>'}
    pages.cut(None, "", "", context, None)
    picture = '<img alt="Speed" src="../_images/road-h200.png" />'
    assert context["body"] == f'<p><a href="../_images/road-h200.png">{picture}</a></p>'


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("01_sequential", "out(0, 0), k = 0", "out(2, 2), k = 3"),
        ("04_flat", "k = 0", "k = 7"),
        ("05_tiled", "t = 0", "t = 4, k = 3"),
        ("09_double_buffer", "Before the loop", "t = 6"),
    ],
)
def test_a_drawing_of_steps_has_its_slider(pages, name, first, last):
    context = {"body": f'<p><img alt="Tiles" src="../../_images/{name}_steps.svg" /></p>'}
    pages.cut(None, "", "", context, None)
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', context["body"])[1])
    assert len(data["sides"]) == 3
    assert [data["frames"][at]["words"][0].partition(":")[0] for at in (0, -1)] == [first, last]
    assert 'type: "range"' in context["body"]
    assert '<img alt="Tiles"' in context["body"]


@pytest.fixture
def check(pages, monkeypatch):
    monkeypatch.setitem(sys.modules, "pages", pages)
    return script("docs/site/check.py")


@pytest.fixture
def site(pages, tmp_path):
    """A site of little but what is looked for."""
    for topic in (pages.INDEX, *pages.TOPICS):
        (tmp_path / topic).parent.mkdir(parents=True, exist_ok=True)
        names = re.findall(r"::? (pyclmm\S+)$", pages.reference(topic), re.M) if topic in pages.TOPICS else []
        names = "".join(f'<dt class="sig x" id="{name}"></dt>' for name in names)
        (tmp_path / f"{topic}.html").write_text(f"<article>{names}</article>")
    index = "<article>pip install <span>import</span> pyclmm <img src=''></article>"
    (tmp_path / f"{pages.INDEX}.html").write_text(index)
    return tmp_path


def test_a_site_without_a_name_or_with_a_dead_link_is_noticed(check, site):
    assert check.missing_names(site) == []
    assert check.broken_links(site) == []
    page = site / "docs/reference/plans.html"
    text = page.read_text().replace('"pyclmm.warm"', '"x"')
    page.write_text(text + '<a href="#nosuch"><a href="gone.html"><a href="#x">')
    assert check.missing_names(site) == ["pyclmm.warm"]
    assert len(check.broken_links(site)) == 2


def test_a_site_whose_first_pages_lack_something_is_noticed(check, site):
    assert check.wrong_first_things(site) == []
    (site / "docs/index.html").write_text("<article>pip install</article>")
    products = site / "docs/reference/products.html"
    products.write_text(products.read_text().replace('"pyclmm.gemm"', '"x"'))
    assert len(check.wrong_first_things(site)) == 3


def test_a_search_that_misses_its_page_is_noticed(check, tmp_path):
    index = {"docnames": list(check.SEARCHES.values())}
    index["titleterms"] = {"first": 0, "product": [0, 1], "slow": 0, "matmul": 1}
    path = tmp_path / "searchindex.js"
    path.write_text(f"Search.setIndex({json.dumps(index)})")
    assert check.missed_searches(tmp_path) == []
    path.write_text(path.read_text().replace('"slow": 0', '"slow": 1'))
    (missed,) = check.missed_searches(tmp_path)
    assert "'slow'" in missed


def test_brackets_of_a_link_that_was_not_made_are_noticed(check, site):
    page = site / "docs/index.html"
    page.write_text("<article><p>D[last], <code>[x y]</code>, <pre>[z]</pre>; </p></article>")
    assert check.stray_brackets(site) == []
    page.write_text("<article><p>It measures; [results].</p></article>")
    assert check.stray_brackets(site) == ["docs/index.html: [results]"]
