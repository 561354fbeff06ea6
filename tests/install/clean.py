"""A fresh virtual environment, a copy of the clone and an empty home, in a folder that is gone afterwards."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parent.parent.parent
# What the outside says about drivers, Python and this checkout; the rest, such as pip's settings, stays.
_REMOVED = (
    "OCL_ICD",
    "OPENCL_",
    "PYOPENCL_",
    "POCL_",
    "PYCLMM_",
    "PYTHON",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "XDG_",
)
LIMIT_S = 1200


class FailedError(Exception):
    """A command of a page failed. The message has the command and the end of what it printed."""


@dataclass(frozen=True)
class Place:
    """Where a stranger works: a clone, an environment for Python, a home."""

    folder: Path

    @property
    def clone(self) -> Path:
        """A copy of this checkout. From its parent it looks like a namespace package of that name."""
        return self.folder / "somewhere" / "pyclmm"

    @property
    def python(self) -> Path:
        """The environment's Python."""
        return self.folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"

    def run(self, words: Sequence[str | Path], where: Path) -> str:
        """What a command prints that runs in the folder *where*. Raises FailedError."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(_REMOVED)}
        cache = os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
        env |= {
            "HOME": str(self.folder / "home"),
            "PIP_CACHE_DIR": cache,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        env["PATH"] = os.pathsep.join((str(self.python.parent), os.environ["PATH"]))
        command = [str(word) for word in words]
        done = subprocess.run(
            command, cwd=where, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        if done.returncode:
            raise FailedError(f"in {where}: {shlex.join(command)}\n{(done.stdout + done.stderr)[-3000:]}")
        return done.stdout


def files() -> list[str]:
    """The files that git knows or would add; in an unpacked sdist, where git knows none, all of them."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
        return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]
    made = (".venv", ".conformance", "__pycache__")
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return [str(path) for path in found if not set(path.parts) & set(made)]


P = TypeVar("P", bound=Place)


def make(folder: Path) -> Place:
    """Fill the empty *folder*."""
    place = copied(Place(folder))
    venv.create(folder / "venv", with_pip=True, symlinks=os.name != "nt")
    return place


def copied(place: P) -> P:
    """Copy the clone to *place*, whose folder is empty, and make a home."""
    (place.folder / "home").mkdir()
    for name in files():
        target = place.clone / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    return place
