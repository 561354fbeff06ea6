"""A box: processes with a home and caches of their own, in a folder that is removed afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).parent / "child.py"
LIMIT_S = 300  # seconds until a process counts as hanging
MARK = "CAMPAIGN_BOX"  # in the environment of every process of a box
# Variables that lead to a cache, or turn off what the campaign is about.
DROPPED = (
    *("XDG_CACHE_HOME", "POCL_CACHE_DIR", "PYOPENCL_NO_CACHE"),
    *("PYCLMM_CACHE_DIR", "PYCLMM_SELFCHECK", "PYCLMM_TRIAL", "PYCLMM_TUNED"),
)


class Failed(Exception):  # noqa: N818 - an outcome, as in pytest
    """A promise was broken."""


@dataclass(frozen=True)
class Said:
    """What a process of a box said when it ended well."""

    kernels: dict[str, str]
    warnings: list[str]


class Box:
    """A folder with a home. *base*: the environment that chooses the driver; *like*: a box to copy.

    Drivers keep their caches below the home, PoCL in the subfolder "pocl".
    """

    def __init__(self, base, like=None):
        self.folder = Path(tempfile.mkdtemp(prefix="pyclmm-campaign-"))
        self.home = self.folder / "home"
        if like is None:
            self.home.mkdir()
        else:
            shutil.copytree(like.home, self.home)
        self.base = base
        kept = {name: value for name, value in base.items() if name not in DROPPED}
        path = os.pathsep.join(filter(None, [kept.get("PYTHONPATH", ""), str(ROOT)]))
        self.environment = kept | {
            "PYTHONPATH": path,
            "HOME": str(self.home),
            "POCL_CACHE_DIR": str(self.home / "pocl"),
            MARK: str(self.folder),
        }

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    def files(self):
        """Every file below the home, sorted."""
        return sorted(path for path in self.home.rglob("*") if path.is_file())

    def start(self, *arguments, before=()):
        """Start a process. *before*: a command that starts it, such as unshare."""
        return subprocess.Popen(
            [*before, sys.executable, str(CHILD), *arguments],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ended(self, process):
        """(exit code, standard output, standard error) of a process. Raises Failed if it hangs."""
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill_all()
            process.communicate()
            raise Failed(f"no end after {LIMIT_S} s") from None
        return process.returncode, out, err

    def multiply(self, *arguments, before=()):
        """Run a process to its end; what it said. Raises Failed if it dies or a product is wrong."""
        code, out, err = self.ended(self.start(*arguments, before=before))
        if code != 0:
            ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            last = (err.strip().splitlines() or ["nothing said"])[-1].replace(str(self.folder), "<box>")
            raise Failed(f"a process ended with {ended}: {last[:300]}")
        if "Exception ignored" in err:
            raise Failed(f"an error on stderr: {err.strip().splitlines()[-1][:300]}")
        return Said(**json.loads(out.splitlines()[-1]))

    def kill_all(self):
        """End every process of this box, those too that its processes have started."""
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # it has ended, or is not ours
                if f"{MARK}={self.folder}\0".encode() in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)
