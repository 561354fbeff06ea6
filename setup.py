"""The description for a package index: README.md without links that work in a clone only.

setup.cfg has all the rest. Once its project_urls names where the source is read ("Source"), links lead there.
"""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://)([^)\s]+)\)")


def for_an_index(text: str, source: str | None) -> str:
    """*text*, a page of Markdown, its relative links made absolute, or named as files if *source* is None."""

    def replaced(link: re.Match[str]) -> str:
        image, words, path = link.groups()
        if source:
            return f"{image}[{words}]({source.rstrip('/')}/{path})"
        path = path.partition("#")[0]
        return f"`{path}`" if words.strip("`") == path else f"{words} (`{path}`)"

    note = "" if source else "Paths on this page are files of the source distribution.\n\n"
    title, _, rest = text.partition("\n\n")
    return f"{title}\n\n{note}{LINK.sub(replaced, rest)}"


def source_url() -> str | None:
    """Where the files are read on the web, from setup.cfg; None as long as there is no such place."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = config.get("metadata", "project_urls", fallback="").strip().splitlines()
    return dict(re.split(r"\s*=\s*", line.strip(), maxsplit=1) for line in lines).get("Source")


if __name__ == "__main__":
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup(
        long_description=for_an_index(readme, source_url()),
        long_description_content_type="text/markdown",
    )
