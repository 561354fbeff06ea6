"""Fills .conformance/ with the implementations and compilers that conformance needs.

It needs no root (packages.py); what newer.py has needs it. A complete folder gets a stamp.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.install import pocl_wheel

from .implementations import (
    AMD_LIBRARIES,
    DEBIAN,
    DEBIAN_LIB,
    DEBIAN_PACKAGES,
    HOME,
    POCL_WHEEL,
    ROOT,
    WHEELS,
)
from .packages import SetupError, stamp_of, unpack, wheels

# These stay the running system's, as a process cannot have two C libraries.
NOT_UNPACKED = ("libc6_", "libc6-i386_", "lib32", "libgcc-s1_", "libstdc++6_", "libssl3_", "dpkg_", "tar_")
MESA_DATA = b"/usr/lib/clc/"  # where rusticl looks for its built-in functions
CLANG_HEADERS = b"/usr/lib/llvm-15/lib/clang/15.0.6/include"  # and for clang's headers


def debian() -> None:
    """Unpack DEBIAN_PACKAGES and all that they need."""
    stamp, text, done = stamp_of(DEBIAN, DEBIAN_PACKAGES)
    if done:
        return
    advice = (
        "The conformance run takes its OpenCL implementations from Debian 12 (bookworm), x86_64. On "
        "such a machine run it again with access to a Debian mirror; or provide a root file system "
        f"with {', '.join(DEBIAN_PACKAGES)} and their dependencies as {DEBIAN}."
    )
    unpack(DEBIAN, DEBIAN_PACKAGES, advice, left=NOT_UNPACKED)
    name_younger_processors()
    stamp.write_text(text)


def relocate_rusticl() -> None:
    """Make rusticl find its built-in functions and clang's headers in .conformance/ of the working directory.

    The paths are compiled in, so what replaces them has the same length. Does nothing the second time.
    """
    here = f"{HOME.name}/".encode()
    headers = HOME / "clang-15"
    headers.unlink(missing_ok=True)
    headers.symlink_to(DEBIAN / CLANG_HEADERS.decode()[1:])
    library = DEBIAN / DEBIAN_LIB / "libRusticlOpenCL.so.1.0.0"
    content = library.read_bytes()
    for old, path in ((MESA_DATA, here), (CLANG_HEADERS, here + headers.name.encode())):
        new = path.ljust(len(old), b"/")  # more slashes are the same path
        if len(old) != len(new) or (old in content) == (new in content):
            raise SetupError(f"{library} is not the rusticl of Mesa 22.3 that this knows how to unpack")
        content = content.replace(old, new)
    library.write_bytes(content)
    for data in (DEBIAN / "usr/lib/clc").glob("spirv*-mesa3d-.spv"):
        shutil.copy(data, HOME)


def name_younger_processors() -> None:
    """Give newer AMD processors the libraries of older ones, which differ only in a number."""
    for younger, older in (("942", "940"), ("1100", "1036"), ("1201", "1036")):
        link = AMD_LIBRARIES / f"oclc_isa_version_{younger}.bc"
        link.unlink(missing_ok=True)
        link.symlink_to(f"oclc_isa_version_{older}.bc")


def pocl_of_pypi() -> None:
    """Patch the PoCL of the wheel where its LLVM does not know this processor."""
    ask = "import pyopencl as cl; print(cl.get_platforms()[0].get_devices()[0].version)"
    for library in POCL_WHEEL.glob("**/libpocl-*.so"):
        icd = HOME / "pocl-wheel.icd"
        icd.write_text(f"{library}\n")
        env = os.environ | {"OCL_ICD_VENDORS": str(icd)}
        device = subprocess.run([sys.executable, "-c", ask], capture_output=True, check=True, env=env)
        if device.stdout.strip().endswith(b"-generic"):
            pocl_wheel.name_the_cpu(library)


def prepare() -> None:
    """Prepare all folders; quick if they are complete. Raises SetupError with what to do."""
    HOME.mkdir(exist_ok=True)
    debian()
    relocate_rusticl()
    for folder, packages in WHEELS.items():
        wheels(folder, packages)
    pocl_of_pypi()
    assert HOME.parent == ROOT
