"""Whether a built site shows what a visitor looks for, has every public name, and has no dead link."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from urllib.parse import unquote

import pages

# What the first page shows, and what a search for some words must lead to, by a heading of that page.
FIRST_PAGE = ("pip install", "import pyclmm", "<img ")
SEARCHES = {
    ("first", "product", "slow"): "docs/howto/troubleshooting",
    ("matmul",): "docs/reference/products",
}


def missing_names(site: Path) -> list[str]:
    """Public names without an entry on a page of the reference."""
    anchors = {name for topic in pages.TOPICS for name in _entries(site, topic)}
    return [name for name in pages.public_names() if name not in anchors]


def _entries(site: Path, topic: str) -> list[str]:
    text = (site / f"{topic}.html").read_text(encoding="utf-8")
    return re.findall(r'<dt class="sig[^>]*\bid="([^"]+)"', text)


def wrong_first_things(site: Path) -> list[str]:
    """What the first page lacks, and whether the reference begins with the two functions."""
    article = re.sub(r"<(/?)span[^>]*>", "", (site / f"{pages.INDEX}.html").read_text(encoding="utf-8"))
    article = article[article.find("<article") :]
    missing = [f"{pages.INDEX}: no {words!r}" for words in FIRST_PAGE if words not in article]
    first = next(iter(pages.TOPICS))
    if _entries(site, first)[:2] != ["pyclmm.matmul", "pyclmm.gemm"]:
        missing.append(f"{first}: does not begin with matmul and gemm")
    return missing


def missed_searches(site: Path) -> list[str]:
    """Searches whose words are in no heading of the page that answers them."""
    index = json.loads((site / "searchindex.js").read_text(encoding="utf-8")[len("Search.setIndex(") : -1])
    missed = []
    for words, page in SEARCHES.items():
        number = index["docnames"].index(page)
        for word in words:
            found = index["titleterms"].get(word, [])
            if number not in (found if isinstance(found, list) else [found]):
                missed.append(f"search for {' '.join(words)}: {word!r} is in no heading of {page}")
    return missed


def stray_brackets(site: Path) -> list[str]:
    """Words in brackets outside code, where a link of Markdown's was not made one."""
    stray = []
    for page in sorted(site.glob("docs/**/*.html")):
        article = page.read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
        text = re.sub(r"<(pre|code|dt|script)\b.*?</\1>", "", article, flags=re.S)
        words = re.sub(r"<[^>]*>", "", text)
        stray += [
            f"{page.relative_to(site)}: {found}" for found in re.findall(r"(?<![\w.])\[[a-z][a-z ]+\]", words)
        ]
    return stray


def broken_links(site: Path) -> list[str]:
    """Links within the site to files or anchors that are not there. Pages of sources are left out."""
    anchors = {}
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        anchors[page.resolve()] = set(re.findall(r'\bid="([^"]+)"', text)), text
    broken = []
    for page, (own, text) in anchors.items():
        if "_modules" in page.parts:
            continue
        for link, anchor in re.findall(r'\bhref="(?!\w+:)([^"#?]*)[^"#]*#?([^"]*)"', text):
            target = (page.parent / unquote(link)).resolve() if link else page
            there = own if target == page else anchors.get(target, (None, ""))[0]
            if not target.exists() or (anchor and there is not None and unquote(anchor) not in there):
                broken.append(f"{page.relative_to(site.resolve())}: {link}#{anchor}")
    return sorted(set(broken))


if __name__ == "__main__":
    built = Path(sys.argv[1])
    checks = (missing_names, wrong_first_things, missed_searches, stray_brackets, broken_links)
    wrong = [line for check in checks for line in check(built)]
    print("\n".join(wrong) or f"{built}: every public name and link is there, and what a visitor looks for")
    sys.exit(bool(wrong))
