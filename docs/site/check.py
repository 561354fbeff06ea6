"""Whether a built site has every public name, and whether its own links lead to something."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import unquote

import pages


def missing_names(site: Path) -> list[str]:
    """Public names without an entry in the reference."""
    text = (site / f"{pages.REFERENCE}.html").read_text(encoding="utf-8")
    anchors = set(re.findall(r'<dt class="sig[^>]*\bid="([^"]+)"', text))
    return [name for name in pages.public_names() if name not in anchors]


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
    wrong = [*missing_names(built), *broken_links(built)]
    print("\n".join(wrong) or f"{built}: every public name and link is there")
    sys.exit(bool(wrong))
