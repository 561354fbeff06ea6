"""What pages of documentation show: fenced blocks, and the commands in those of the shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of *language* in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def commands(*pages: Path) -> Iterator[tuple[Path, list[str]]]:
    """(page, the words of a command) of every line in the shell blocks of *pages*. Comments are dropped."""
    for page in pages:
        for line in "".join(blocks(page, "sh")).splitlines():
            if words := shlex.split(line, comments=True):
                yield page, words
