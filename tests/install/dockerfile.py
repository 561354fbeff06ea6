"""Runs the steps of the Dockerfile without Docker: paths lie in a folder, Python is a fresh environment's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from .clean import ROOT, Place

FILE = ROOT / "Dockerfile"
FOLLOWED = ("ARG", "COPY", "RUN", "WORKDIR", "CMD")
ONLY_IN_AN_IMAGE = ("FROM", "ENV", "USER")  # the base image, the home, the user without rights


def steps(text: str) -> Iterator[tuple[str, str]]:
    """(instruction, the rest) of each line. Raises ValueError for an instruction that nothing follows."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word and not word.startswith("#"):
            if word not in (*FOLLOWED, *ONLY_IN_AN_IMAGE):
                raise ValueError(f"the Dockerfile has {word}, which dockerfile.py does not follow")
            yield word, rest.strip()


def follow(place: Place, file: Path = FILE) -> None:
    """Run every step that can run without an image. Raises clean.FailedError at the first that fails."""
    values, where = {}, place.folder
    for word, rest in steps(file.read_text(encoding="utf-8")):
        if word == "ARG":
            name, _, value = rest.partition("=")
            values[name] = value
        elif word == "COPY":
            values["/src"] = str(place.clone)
            assert rest == ". /src", rest
        elif word == "WORKDIR":
            where = place.folder / rest.lstrip("/")
            where.mkdir(parents=True, exist_ok=True)
        elif word == "RUN":
            place.run(["sh", "-c", filled(rest, values)], where)
        elif word == "CMD":
            assert place.run(json.loads(rest), where)


def filled(command: str, values: dict[str, str]) -> str:
    """*command* with the build's arguments, and the folders of this machine instead of the image's."""
    for name, value in values.items():
        command = command.replace(name if name.startswith("/") else f"${{{name}}}", value)
    return command
