"""Debian's and PyPI's packages, unpacked into folders and not installed. It needs no root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
AT_ONCE = 2


class SetupError(Exception):
    """Something could not be fetched. The message says what to do."""


def run(command: Sequence[str | Path], advice: str) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, check=False, text=True)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-1500:]
        raise SetupError(f"{' '.join(map(str, command[:3]))} ... failed:\n{said}\n{advice}")


def stamp_of(folder: Path, content: Sequence[str]) -> tuple[Path, str, bool]:
    """The stamp of a complete *folder*, its text, and whether it is there. The text is what was asked for."""
    stamp, text = folder.with_suffix(".stamp"), "\n".join(content)
    return stamp, text, stamp.exists() and stamp.read_text() == text


def wheels(folder: Path, packages: Sequence[str], *options: str) -> None:
    """Unpack *packages* of PyPI into *folder*, outside the environment of the tests. *options* are pip's."""
    stamp, text, done = stamp_of(folder, (*packages, *options))
    if done:
        return
    shutil.rmtree(folder, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--ignore-installed"]
    where = [*options, "--target", folder] if options else ["--prefix", folder]
    run([*pip, *where, *packages], f"pip could not fetch {', '.join(packages)}.")
    stamp.write_text(text)


def unpack(
    folder: Path, packages: Sequence[str], advice: str, suite: str = "", left: tuple[str, ...] = ()
) -> dict[str, str]:
    """Unpack *packages* of Debian's *suite* into *folder*, with all that they need. Returns their versions.

    They are resolved against an empty system and downloaded with apt's files beside *folder*. No *suite*:
    this system's. Files of packages whose names begin with one of *left* are left out.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise SetupError(f"There is no apt-get here. {advice}")
    apt_files = folder.with_suffix(".apt")
    for old in (folder, apt_files):
        shutil.rmtree(old, ignore_errors=True)
    for name in ("state/lists/partial", "cache/archives/partial"):
        (apt_files / name).mkdir(parents=True)
    (apt_files / "status").touch()
    apt = ["apt-get", "-qq"]
    for option in (
        f"Dir::State={apt_files / 'state'}",
        f"Dir::State::status={apt_files / 'status'}",
        f"Dir::Cache={apt_files / 'cache'}",
        "Debug::NoLocking=1",
        "APT::Sandbox::User=" + ("root" if os.geteuid() == 0 else ""),
        "APT::Architectures=amd64",
        *(_only(suite, apt_files) if suite else ()),
    ):
        apt += ["-o", option]
    run([*apt, "update"], advice)
    run([*apt, "install", "-y", "-d", "--no-install-recommends", *packages], advice)
    found = sorted((apt_files / "cache" / "archives").glob("*.deb"))
    kept = [package for package in found if not (left and package.name.startswith(left))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda package: run(["dpkg", "-x", package, folder], advice), kept))
    shutil.rmtree(apt_files)
    names = [package.name.split("_") for package in kept]
    return {name: version.replace("%3a", ":") for name, version, _ in names}


def _only(suite: str, apt_files: Path) -> tuple[str, ...]:
    """Options with which apt sees *suite* and nothing else."""
    source = apt_files / "only.list"
    source.write_text(f"deb [signed-by={KEYS}] http://deb.debian.org/debian {suite} main\n")
    none = apt_files / "none"
    none.mkdir()
    return (
        f"Dir::Etc::sourcelist={source}",
        f"Dir::Etc::sourceparts={none}",
        f"Dir::Etc::preferencesparts={none}",
    )
