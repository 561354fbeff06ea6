"""A newcomer's first hour: the README's commands and snippets, in a fresh environment and from three folders.

    python -m tests.install.newcomer [--no-pocl] [--no-dockerfile]

From the clone's root, its parent and elsewhere: in the first two Python finds folders named like the package.
Then the steps of the Dockerfile, and PoCL beside Intel's runtime. `make demo` and `make test` are CI's own.
"""

from __future__ import annotations

import argparse
import re
import shlex
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from . import clean, dockerfile
from .clean import ROOT, Place

README = ROOT / "README.md"
OTHERS = ("make",)  # commands that CI follows by themselves

BOTH = """
import pyclmm
found = {d.platform: d for d in pyclmm.devices()}
assert set(found) == {"Portable Computing Language", "Intel(R) OpenCL"}, found
assert found["Intel(R) OpenCL"].default, found
import numpy as np
x = np.ones((300, 300), np.float32)
for d in found.values():
    assert (pyclmm.matmul(x, x, device=d) == 300).all(), d
"""


def blocks(language: str, page: Path = README) -> list[str]:
    """The fenced blocks of *language* in a page."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def commands() -> Iterator[list[str]]:
    """The README's shell commands, but for OTHERS."""
    for block in blocks("sh"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] not in OTHERS:
                yield words


def install(place: Place) -> None:
    """Follow the README's commands up to the first snippet: those of pip, and of Python."""
    for words in commands():
        if words[0] in ("pip", "python"):
            place.run(words, place.clone)


def follow(place: Place, where: Path) -> None:
    """Run the README's snippets, as one program, and its commands of pyclmm."""
    place.run([place.python, "-W", "error", "-c", "\n".join(blocks("python"))], where)
    for words in commands():
        if words[0] == "pyclmm":
            assert place.run(words, where), words


def main() -> None:
    """Do everything, with a line for each step. A command that fails ends it with its output."""
    parser = argparse.ArgumentParser(prog="python -m tests.install.newcomer")
    parser.add_argument("--no-pocl", action="store_true", help="leave out PoCL beside it")
    parser.add_argument("--no-dockerfile", action="store_true", help="leave out the steps of the Dockerfile")
    options = parser.parse_args()
    start = time.monotonic()

    def told(what: str) -> None:
        print(f"{time.monotonic() - start:5.0f} s  {what}", flush=True)

    with tempfile.TemporaryDirectory(prefix="pyclmm-newcomer-") as name:
        place = clean.make(Path(name))
        elsewhere = place.folder / "elsewhere"
        elsewhere.mkdir()
        told("a copy of the clone, an empty environment")
        install(place)
        told("installed by the README's commands")
        for where in (place.clone, place.clone.parent, elsewhere):
            follow(place, where)
            told(f"snippets and commands from {where.relative_to(place.folder)}")
        if not options.no_pocl:
            place.run(["pip", "install", "-q", ".[pocl]"], place.clone)
            place.run([place.python, "-m", "pyclmm.tools.pocl_wheel"], elsewhere)
            place.run([place.python, "-W", "error", "-c", BOTH], elsewhere)
            told("[pocl] beside [cpu]: both listed and right, Intel's the default")
    if not options.no_dockerfile:
        with tempfile.TemporaryDirectory(prefix="pyclmm-newcomer-") as name:
            dockerfile.follow(clean.make(Path(name)))
            told("the steps of the Dockerfile")


if __name__ == "__main__":
    try:
        main()
    except clean.FailedError as error:
        raise SystemExit(str(error)) from None
