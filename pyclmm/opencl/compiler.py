"""Reads the sources of cl/ and calls the driver's compiler. The only module that calls ``cl.Program``.

A source includes the headers it needs, and ``#line`` directives let a build error name the real file and
line.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_to_bytes

import pyopencl as cl

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

MARK = b"//@sm_90a "
# Moves registers from one part of a work-group to another. The assembler ignores it unless the program says
# that one work-group on a compute unit is enough.
_REGISTERS = b"setmaxnreg"
_WORK_GROUP = re.compile(rb"^(\.reqntid[ \t].*)$", re.MULTILINE)
_TARGET_LINE = re.compile(rb"^(\.target[ \t]+)sm_90(?=[,\s])", re.MULTILINE)
_ADDED = re.compile(
    r"\n\(source saved as .+\)$|\n\(options: .*\)$|^Build on <pyopencl.Device .*>:$"
    r"|clBuildProgram failed: BUILD_PROGRAM_FAILURE(?: - )?",
    re.MULTILINE,
)
_LINE = re.compile(r'#line (\d+) "(.*)"')
_INCLUDE = re.compile(r'#include "([\w/.]+)"\s*')  # a path in cl/


class _Quiet:
    """Hides CompilerWarning while any thread is building. ``warnings.catch_warnings`` alone is not enough: if
    builds of several threads overlap, its filter is removed too early or never.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside = 0
        self._filters = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.simplefilter("ignore", cl.CompilerWarning)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._inside == 1:  # until then, so that a build within this begins no filters
                self._filters.__exit__(None, None, None)
            self._inside -= 1


quiet = _Quiet()


@cache
def _folder() -> Traversable:
    """The folder cl/: inside the installed package, or beside the package in a clone."""
    package = resources.files("pyclmm")
    installed = package.joinpath("cl")
    return installed if installed.is_dir() else Path(str(package)).parent / "cl"


def named(path: Path) -> str:
    """The name of a file outside of cl/, as a URL has it: spaces part names, and quotes end them in #line."""
    return quote(os.fsencode(path.resolve().as_posix()))


@cache
def read_source(name: str) -> str:
    """The text of one file of cl/, or of one that is :func:`named`."""
    path = os.fsdecode(unquote_to_bytes(name))
    return _folder().joinpath(path).read_text(encoding="utf-8-sig")  # a reader's may have a mark


@cache
def expanded(name: str) -> str:
    """The file *name* of cl/, or several, one after the other, with every header that it includes, each once,
    and ``#line`` directives; one after a header's ``#endif`` too, as compilers read none in a branch not
    taken.
    """
    lines: list[str] = []
    seen: set[str] = set()
    for one in name.split():
        _expand(one, seen, lines)
    return "\n".join(lines)


def _expand(name: str, seen: set[str], lines: list[str]) -> None:
    """Add the lines of *name* to *lines*, without the headers that were *seen*."""
    seen.add(name)
    branches: list[bool] = []  # whether a header was read in each conditional that is open
    lines.append(f'#line 1 "{name}"')
    for number, line in enumerate(read_source(name).splitlines(), 1):
        include = _INCLUDE.fullmatch(line) if line.startswith("#") else None
        if include is None:
            lines.append(line)
            if line.startswith("#if"):
                branches.append(False)
            elif line.startswith("#endif") and branches and branches.pop():
                branches[-1:] = [True] * bool(branches)
                lines.append(f'#line {number + 1} "{name}"')
        elif include[1] in seen:
            lines.append("")
        else:
            branches[-1:] = [True] * bool(branches)
            _expand(include[1], seen, lines)
            lines.append(f'#line {number + 1} "{name}"')


def compiled(context: cl.Context, source: str, options: Sequence[str]) -> cl.Program:
    """*source*, compiled. PyOpenCL keeps no binary: see docs/decisions/0001-dependencies.md."""
    none: Any = False  # PyOpenCL's annotation lacks it
    result: cl.Program = cl.Program(context, source).build(list(options), cache_dir=none)
    return result


def loaded(context: cl.Context, devices: Sequence[cl.Device], contents: Sequence[bytes]) -> cl.Program:
    """A program from binaries, one for each device."""
    result: cl.Program = cl.Program(context, devices, contents).build()
    return result


def logs(program: Any) -> list[str]:
    """What the driver's compiler said of a program that it built, where it said anything."""
    info = cl.program_build_info.LOG
    said = [str(program.get_build_info(device, info)).strip() for device in program.devices]
    return [log for log in said if log]


def driver_log(error: Exception) -> str:
    """What the driver says in PyOpenCL's *error*, without the status, device and options that PyOpenCL adds.
    It deletes the copy of the source that PyOpenCL names there.
    """
    text = str(error)
    if found := re.search(r"\n\(source saved as (.+\.cl)\)$", text):
        with contextlib.suppress(OSError):
            Path(found[1]).unlink()
    return _ADDED.sub("", text).strip() or text


def located(log: str, source: str) -> str:
    """*log* of the compiler of :func:`expanded` *source*, with files and their lines. NVIDIA's compiler
    ignores ``#line``: it names line 7 of the whole text ``<kernel>:7``.
    """
    lines = source.splitlines()

    def place(found: re.Match[str]) -> str:
        number = int(found[1])
        for above in range(min(number, len(lines)) - 1, 0, -1):
            if mark := _LINE.fullmatch(lines[above - 1]):
                return f"{mark[2]}:{int(mark[1]) + number - above - 1}"
        return found[0]

    return re.sub(r"<kernel>:(\d+)", place, log)


def rewritten(binary: bytes) -> bytes:
    """NVIDIA's program text for sm_90a. Raises ValueError if *binary* is not PTX for sm_90 with marks.

    NVIDIA's compiler turns OpenCL C into PTX, which is text, for ``.target sm_90``. The instructions of
    ``sm_90a`` (wgmma, tensormap.replace) exist only for that target, and no compiler option selects it. So
    sources write them as comments inside ``asm``, where the compiler still fills in operands::

        asm volatile("//@sm_90a wgmma.commit_group.sync.aligned;");

    The compiled text is rewritten before it is loaded: the marks are removed and the target is changed. With
    ``setmaxnreg`` every work-group of a required size also gets ``.minnctapersm 1``.
    """
    if b".version" not in binary[:4096]:
        raise ValueError("the program binary is not PTX text")
    if MARK not in binary:
        raise ValueError(f"the program text has no {MARK.decode().strip()} marks: the compiler dropped them")
    text, targets = _TARGET_LINE.subn(rb"\1sm_90a", binary)
    if targets != 1:
        raise ValueError("the program text was not compiled for sm_90")
    if _REGISTERS in text:
        text = _WORK_GROUP.sub(rb"\1\n.minnctapersm 1", text)
    return text.replace(MARK, b"")
