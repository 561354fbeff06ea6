"""PyPI's and Debian's PoCL with fewer declarations, so that a program of the tests is compiled sooner.

For each program Clang reads the 14,500 declarations of OpenCL's functions in PoCL's opencl-c.h. In PoCL 3.0,
without optimization, that takes 80 of 115 ms (AMD EPYC, 2026-11-26). Here the driver is linked into a folder
where this file declares only functions that a source names, and those of vectors only if it is one of
_OF_VECTORS. A program that calls another one does not compile.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyopencl as cl

_ROOT = Path(__file__).parents[2]
_FOLDERS = [_ROOT / name for name in ("cl", "pyclmm", "tests", "examples", "benchmarks", "docs")]
_SUFFIXES = {".cl", ".h", ".py", ".md", ".mako"}
_HEADER = "opencl-c.h"
# A library's name, and the folders that it needs, below the one that is three above it.
_LAYOUTS = {
    "libpocl-*.so": ("pocl_binary_distribution/.libs",),
    "libpocl.so.2.10.0": ("share/pocl", "lib/x86_64-linux-gnu/pocl"),  # Debian's PoCL 3.1
}
# What programs of this repository call with vectors of 2, 4, 8 or 16. PyOpenCL's kernels have scalars only.
_OF_VECTORS = re.compile(r"(as|convert)_|v(load|store)|(fma|mad)$")
_VECTOR = re.compile(r"\w(?:2|3|4|8|16)\b(?=[ ,*)])")
_THREE = re.compile(r"\w3\b(?=[ ,*()])")
# A declaration stands between the ends of others. Directives and blank lines end one too.
_DECLARATION = re.compile(r"^\w[^;#{}]*?\b(\w+)\([^;#{}]*\);[^\n]*\n", re.MULTILINE)


def shortened(library: Path, folder: Path) -> Path:
    """The driver *library* in *folder*, with fewer declarations. *library* if it is none of _LAYOUTS."""
    root = library.absolute().parent.parent.parent
    folders = next((folders for name, folders in _LAYOUTS.items() if library.match(name)), ())
    needed = [path for name in folders for path in (root / name).rglob("*") if path.is_file()]
    if not (library.is_file() and any(path.name == _HEADER for path in needed)):
        return library
    own = folder / "driver" / library.absolute().relative_to(root)
    for path in (library.absolute(), *needed):
        place = folder / "driver" / path.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.name == _HEADER:
            place.write_text(declarations(path.read_text()))
        else:
            place.symlink_to(path)
    return own


def declarations(header: str) -> str:
    known = words()

    def kept(name: str, declaration: str) -> bool:
        if _THREE.search(declaration) or (_VECTOR.search(declaration) and not _OF_VECTORS.match(name)):
            return False
        return name in known or name.rstrip("0123456789") in known  # macros put names together: vload##N

    return _DECLARATION.sub(lambda found: found[0] if kept(found[1], found[0]) else "", header)


def words() -> set[str]:
    """Every word of the sources of this repository's programs and of PyOpenCL's."""
    found: set[str] = set()
    for folder in (*_FOLDERS, Path(cl.__file__).parent):
        for path in folder.rglob("*"):
            if path.suffix in _SUFFIXES:
                found.update(re.findall(r"\w+", path.read_text(encoding="utf-8", errors="ignore")))
    return found
