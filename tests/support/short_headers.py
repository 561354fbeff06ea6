"""PyPI's PoCL with fewer declarations, so that a program of the tests is compiled in half of the time.

For each program Clang reads the 14,500 declarations of OpenCL's functions in PoCL 3.0's opencl-c.h. Without
optimization that takes 80 of 115 ms (AMD EPYC, 2026-11-26). Here the driver is linked into a folder where
this file declares only functions that a source names, and those of vectors only if it is one of _OF_VECTORS.
A program that calls another one does not compile.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyopencl as cl

_ROOT = Path(__file__).parents[2]
_FOLDERS = [_ROOT / name for name in ("cl", "pyclmm", "tests", "examples", "benchmarks", "docs")]
_SUFFIXES = {".cl", ".h", ".py", ".md", ".mako"}
_DATA = "pocl_binary_distribution/.libs"
_HEADER = "share/pocl/include/opencl-c.h"
# What programs of this repository call with vectors of 2, 4, 8 or 16. PyOpenCL's kernels have scalars only.
_OF_VECTORS = re.compile(r"(as|convert)_|v(load|store)|(fma|mad)$")
_VECTOR = re.compile(r"\w(?:2|3|4|8|16)\b(?=[ ,*)])")
_THREE = re.compile(r"\w3\b(?=[ ,*()])")
# A declaration stands between the ends of others. Directives and blank lines end one too.
_DECLARATION = re.compile(r"^\w[^;#{}]*?\b(\w+)\([^;#{}]*\);[^\n]*\n", re.MULTILINE)


def shortened(library: Path, folder: Path) -> Path:
    """The driver *library* in *folder*, with fewer declarations. *library* if it is not PyPI's PoCL."""
    if not library.is_file() or not library.name.startswith("libpocl"):
        return library
    packages = library.absolute().parent.parent.parent
    data = packages / _DATA
    if not (data / _HEADER).exists():
        return library
    folder /= "driver"
    own = folder / library.relative_to(packages)
    own.parent.mkdir(parents=True)
    own.symlink_to(library)
    for path in (path for path in data.rglob("*") if path.is_file()):
        link = folder / path.relative_to(packages)
        link.parent.mkdir(parents=True, exist_ok=True)
        if path != data / _HEADER:
            link.symlink_to(path)
    (folder / _DATA / _HEADER).write_text(_declarations((data / _HEADER).read_text()))
    return own


def _declarations(header: str) -> str:
    words = _words()

    def kept(name: str, declaration: str) -> bool:
        if _THREE.search(declaration) or (_VECTOR.search(declaration) and not _OF_VECTORS.match(name)):
            return False
        return name in words or name.rstrip("0123456789") in words  # macros put names together: vload##N

    return _DECLARATION.sub(lambda found: found[0] if kept(found[1], found[0]) else "", header)


def _words() -> set[str]:
    """Every word of the sources of this repository's programs and of PyOpenCL's."""
    found: set[str] = set()
    for folder in (*_FOLDERS, Path(cl.__file__).parent):
        for path in folder.rglob("*"):
            if path.suffix in _SUFFIXES:
                found.update(re.findall(r"\w+", path.read_text(encoding="utf-8", errors="ignore")))
    return found
