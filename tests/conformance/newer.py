"""Debian's newest suite beside this system: newer drivers, the drivers' own compilers, and a newer Python.

Its C library is newer than this machine's. So it is unpacked as a root of its own, and what runs there gets
a mount namespace, in which all other folders of this machine lie at the same path, and changes its root. The
mounts are gone with the process. This needs root; where it cannot be, missing() says why.

    python -m tests.conformance.newer COMMAND ...        runs a command there
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from .implementations import HOME, ROOT
from .packages import SetupError, stamp_of, unpack, wheels

SUITE = "sid"
NEWER = HOME / "newer"
VERSIONS = HOME / "newer.json"
SITE = HOME / "newer-python"  # what PyPI has for that Python
PYTHON = "python3.14"
PACKAGES = (
    *("base-files", "dash", "coreutils", f"{PYTHON}-venv", "ca-certificates"),
    *("pocl-opencl-icd", "mesa-opencl-icd"),
    *("intel-ocloc", "libigc2", "libigdfcl2"),  # what Intel's driver compiles with
    "libamd-comgr3",  # what AMD's driver compiles with; the driver's package conflicts with the others
)
PYTHON_PACKAGES = (
    *("numpy", "pyopencl", "click", "opt_einsum", "platformdirs", "rich"),  # pyclmm's own
    *("ml_dtypes", "pytest", "hypothesis", "scipy"),
)
_FOR_PYTHON = (
    *("--python-version", PYTHON.removeprefix("python"), "--only-binary=:all:"),
    *(f"--platform=manylinux_2_{minor}_x86_64" for minor in (28, 17)),
)

# The other root; where to begin; the command.
_ENTER = """
root=$1 where=$2
shift 2
for folder in /*; do
  case $folder in
    /bin | /boot | /etc | /lib* | /lost+found | /sbin | /usr | /var) continue ;;
  esac
  [ -d "$folder" ] || continue
  mkdir -p "$root$folder" && mount --rbind "$folder" "$root$folder" || exit 125
done
for file in resolv.conf hosts passwd group ssl; do
  [ -e "/etc/$file" ] || continue
  [ -d "/etc/$file" ] && mkdir -p "$root/etc/$file" || touch "$root/etc/$file"
  mount --bind "$(realpath "/etc/$file")" "$root/etc/$file" || exit 125
done
exec chroot "$root" /usr/bin/env -C "$where" "$@"
"""


def inside(command: Sequence[str | Path], where: Path = ROOT) -> list[str]:
    """The command that runs *command* there, in the folder *where*. missing() must have said nothing."""
    own = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "newer"]
    return [*own, str(NEWER), str(where), *map(str, command)]


@cache
def missing() -> str:
    """Fill the folder, quick if it is complete. Says why it cannot be had here; empty if it can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "it is for Linux on x86-64"
    if os.geteuid():
        return "it needs root, to change the root"
    if not shutil.which("unshare") or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        return "this machine lets nobody mount"
    try:
        _fill()
    except SetupError as error:
        return str(error)
    return ""


def _fill() -> None:
    import fcntl  # noqa: PLC0415 - missing() has said that this is Linux

    HOME.mkdir(exist_ok=True)
    with (HOME / "newer.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # `make newcomer` and `make conformance` may begin together
        _unpack()


def _unpack() -> None:
    stamp, text, done = stamp_of(NEWER, (SUITE, *PACKAGES))
    if not done:
        found = unpack(NEWER, PACKAGES, f"It comes from Debian's {SUITE}, by a Debian system's apt.", SUITE)
        VERSIONS.write_text(json.dumps(found, indent=1) + "\n")
        stamp.write_text(text)
    wheels(SITE, PYTHON_PACKAGES, *_FOR_PYTHON)


def version(package: str) -> str:
    """The version of a Debian package there, without Debian's own part: 7.1."""
    found = json.loads(VERSIONS.read_text())[package]
    return str(found).partition(":")[2].partition("-")[0] or str(found).partition("-")[0]


if __name__ == "__main__":
    if reason := missing():
        sys.exit(reason)
    sys.exit(subprocess.run(inside(sys.argv[1:], Path.cwd()), check=False).returncode)
