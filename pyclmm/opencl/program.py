"""Compiles programs and makes kernel objects. The only module that calls ``cl.Program``.

A source of cl/ includes the headers it needs, and ``#line`` directives let a build error name the real file
and line. A program is compiled once for each context and set of macros, whatever the shapes. The programs
used last are kept, and those of living plans; all others are released. Compiled programs are kept on disk for
drivers that do not keep them (see binaries.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import logging
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import pyopencl as cl

from ..errors import BuildError
from ..kernels import Program
from . import binaries, doubts, ptx
from .devices import device_info
from .disk_caches import pocl_fault, remove_stale_locks, with_pyopencl_caches
from .single_flight import SingleFlight

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_log = logging.getLogger(__name__)
_Key = tuple[cl.Context, Program, int]  # the last is the detour

OLD_POCL = "unknown target CPU"  # the error of PyPI's PoCL 3.0 on processors newer than its compiler

_PROGRAMS_KEPT = 64  # each takes 0.5 to 4 MB (PoCL 3.0 and 3.1, Intel's CPU runtime)
_GENERATED = "<generated: 'pyopencl invoker "  # how PyOpenCL names generated Python code
_INCLUDE = re.compile(r'#include "([\w/.]+)"\s*')  # a path in cl/
# The programs used last, and all that somebody holds: bindings hold those of their kernel objects.
_programs: SingleFlight[_Key, cl.Program] = SingleFlight(_PROGRAMS_KEPT)
_held: WeakValueDictionary[_Key, cl.Program] = WeakValueDictionary()
_marks: dict[tuple[cl.Context, Program], list[Path | None]] = {}  # of programs in doubt


class _Quiet:
    """Hides CompilerWarning while any thread is building.

    ``warnings.catch_warnings`` alone is not enough: if builds of several threads overlap, its filter is
    removed too early or never.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
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
            self._inside -= 1
            if self._inside == 0:
                self._filters.__exit__(None, None, None)


_quiet = _Quiet()


@cache
def _folder() -> Traversable:
    """The folder cl/: inside the installed package, or beside the package in a clone."""
    package = resources.files("pyclmm")
    installed = package.joinpath("cl")
    return installed if installed.is_dir() else Path(str(package)).parent / "cl"


@cache
def read_source(name: str) -> str:
    """The text of one file of cl/."""
    return _folder().joinpath(name).read_text(encoding="utf-8")


@cache
def expanded(name: str) -> str:
    """The file *name* of cl/ with every header that it includes, each once, and ``#line`` directives."""
    return "\n".join(_lines(name, set()))


def _lines(name: str, seen: set[str]) -> Iterator[str]:
    seen.add(name)
    yield f'#line 1 "{name}"'
    for number, line in enumerate(read_source(name).splitlines(), 1):
        include = _INCLUDE.fullmatch(line)
        if include is None:
            yield line
        elif include[1] in seen:
            yield ""
        else:
            yield from _lines(include[1], seen)
            yield f'#line {number + 1} "{name}"'


def build_options(program: Program, detour: int = 0) -> tuple[str, ...]:
    """The compiler's options: OpenCL C 1.2, then the macros in their order, then the detour's."""
    macros = [f"-D{name}={value}" for name, value in program.defines]
    return ("-cl-std=CL1.2", *macros, *([f"-DDETOUR={detour}"] if detour else []))


def source_hash(program: Program) -> str:
    """A digest of everything that the compiled program depends on."""
    target = str(program.ptx_target)
    text = "\n".join((expanded(program.source), *build_options(program), target))
    return hashlib.sha256(text.encode()).hexdigest()


def built(context: cl.Context, program: Program) -> cl.Program:
    """The compiled program: one that is kept or that a binding holds, or compiled now. Raises BuildError.

    The program is in doubt until :func:`settle` (see doubts.py).
    """
    return _built(context, program, _detour(context))


def settle(context: cl.Context, programs: Iterable[Program]) -> None:
    """Record that these programs have run to their end."""
    for program in programs:
        doubts.clear(_marks.pop((context, program), ()))


def in_doubt(context: cl.Context, programs: Iterable[Program]) -> set[Program]:
    """Those that have not run to their end yet, as far as is known (see doubts.py)."""
    return {program for program in programs if (context, program) in _marks}


def count() -> int:
    """How many programs are alive."""
    return len(_held)


def release() -> None:
    """Drop the programs that no binding holds."""
    _programs.forget(lambda _: True)


def forget(context: cl.Context) -> None:
    """Drop the programs of a lost context."""
    _programs.forget(lambda key: key[0] == context)
    for key in [key for key in _held if key[0] == context]:
        _held.pop(key, None)
    settle(context, [key[1] for key in list(_marks) if key[0] == context])


def _detour(context: cl.Context) -> int:
    return max(doubts.detour(device_info(device)) for device in context.devices)


def new_kernel(
    context: cl.Context, program: Program, name: str, scalar_dtypes: Sequence[np.dtype[Any] | None] = ()
) -> cl.Kernel:
    """A new kernel object, because threads cannot share PyOpenCL's safely. Raises BuildError.

    *scalar_dtypes*: the dtype that each argument is converted to, None for one that is not.

    A damaged cache of the driver can make a build fail. So it is repeated once by the next detour.
    """
    detour = _detour(context)
    try:
        kernel = _kernel(context, program, name, detour)
    except BuildError as error:
        try:
            kernel = _kernel(context, program, name, detour + 1)
        except BuildError:
            raise error from None
        for device in map(device_info, context.devices):
            doubts.take_detour(device, detour + 1, keep=True)
            doubts.warn(device, f"{name} did not build")
    if scalar_dtypes:
        with_pyopencl_caches(lambda: kernel.set_scalar_arg_dtypes(scalar_dtypes))
        _forget_generated_sources()
    return kernel


def _kernel(context: cl.Context, program: Program, name: str, detour: int) -> cl.Kernel:
    compiled = _built(context, program, detour)
    try:
        return with_pyopencl_caches(lambda: cl.Kernel(compiled, name))
    except cl.Error as error:
        raise _build_error(context, program, f"{name}: {error}") from error


def _forget_generated_sources() -> None:
    """Drop the Python source of the code that PyOpenCL generates for a kernel object.

    Without its cache of such code (PYOPENCL_NO_CACHE) it leaves 6 KB for each object, for ever. Only
    tracebacks read them.
    """
    for name in list(linecache.cache):
        if name.startswith(_GENERATED):
            linecache.cache.pop(name, None)


def _built(context: cl.Context, program: Program, detour: int) -> cl.Program:
    key = (context, program, detour)
    return _programs.get(key, lambda: _held_or_new(key))


def _held_or_new(key: _Key) -> cl.Program:
    found = _held.get(key)
    if found is None:
        found = _held[key] = _build(*key)
    return found


def _build_error(context: cl.Context, program: Program, log: str) -> BuildError:
    if OLD_POCL in log:
        log += "\nThis PoCL is older than the processor; `python -m pyclmm.tools.pocl_wheel` repairs PyPI's."
    fault = pocl_fault(device.platform for device in context.devices)
    if fault is not None:
        log += f"\nerror: {fault}"
    return BuildError(_names(context), " ".join(build_options(program)), log)


def _names(context: cl.Context) -> str:
    return ", ".join(d.name.strip() for d in context.devices)


def _build(context: cl.Context, program: Program, detour: int) -> cl.Program:
    """Build *program*, and mark that it is in doubt."""
    digest = source_hash(program)
    marks = [doubts.mark(device_info(device), digest) for device in context.devices]
    try:
        result = _compile(context, program, detour)
    except BaseException:  # Ctrl-C too
        doubts.clear(marks)
        raise
    _marks.setdefault((context, program), []).extend(marks)  # it may be built again before it has run
    return result


def _compile(context: cl.Context, program: Program, detour: int) -> cl.Program:
    """The program from its kept binary, or compiled."""
    place = _place(context, program, detour)
    kept = None if place is None else binaries.read(place)
    if place is not None and kept is not None:
        loaded = _loaded(context, program, place, kept)
        if loaded is not None:
            return loaded
    device, options = _names(context), build_options(program, detour)
    _log.info("compiling %s for %s", program.source, device)
    _log.debug("options for %s: %s", program.source, " ".join(options))
    start = time.perf_counter()
    try:
        with _quiet:
            result = _compiled(context, expanded(program.source), list(options), pyopencl_keeps=place is None)
            if program.ptx_target is not None:
                result = _rebuilt(context, result, ptx.rewritten, place)
            elif place is not None:
                result = _rebuilt_if_possible(context, result, place)
    except (cl.Error, ValueError) as error:
        _log.info("compiling %s for %s failed", program.source, device)
        raise _build_error(context, program, _without_file(str(error))) from error
    _log.info("compiled %s for %s in %.3f s", program.source, device, time.perf_counter() - start)
    return result


def _place(context: cl.Context, program: Program, detour: int) -> Path | None:
    """Where the binary of *program* is kept, or None. A detour is past this cache too."""
    [device, *others] = map(device_info, context.devices)
    if others or detour or not binaries.are_kept(device, program):
        return None
    return binaries.place(device, source_hash(program))


def _loaded(context: cl.Context, program: Program, place: Path, binary: bytes) -> cl.Program | None:
    """The program built from its kept binary; None if the driver rejects that."""
    start = time.perf_counter()
    try:
        with _quiet:
            result: cl.Program = cl.Program(context, context.devices, [binary]).build()
    except cl.Error as error:
        _log.info("%s rejects the kept binary of %s: %s", _names(context), program.source, error)
        binaries.drop(place)
        return None
    seconds = time.perf_counter() - start
    _log.info("loaded %s for %s in %.3f s", program.source, _names(context), seconds)
    return result


def _rebuilt_if_possible(context: cl.Context, compiled: cl.Program, place: Path) -> cl.Program:
    """The same program, built from its binary; *compiled* itself on a driver that rejects that.

    So the self-check that follows is of the program that later processes load.
    """
    try:
        return _rebuilt(context, compiled, bytes, place)
    except cl.Error as error:
        _log.info("%s rejects its own binary: %s", _names(context), error)
        return compiled


def _rebuilt(
    context: cl.Context, compiled: cl.Program, rewrite: Callable[[bytes], bytes], place: Path | None
) -> cl.Program:
    """The program built from its binaries after *rewrite*. What the driver takes is kept in *place*."""
    contents: Any = compiled.get_info(cl.program_info.BINARIES)
    devices: Any = compiled.get_info(cl.program_info.DEVICES)
    rewritten = [rewrite(content) for content in contents]
    result: cl.Program = cl.Program(context, devices, rewritten).build()
    if place is not None:
        binaries.keep(place, rewritten[0])
    return result


def _compiled(context: cl.Context, source: str, options: list[str], pyopencl_keeps: bool) -> cl.Program:
    """*source*, compiled. *pyopencl_keeps*: PyOpenCL may keep the binary, for drivers that do not."""

    folder: Any = None if pyopencl_keeps else False  # False: none; PyOpenCL's annotation lacks it

    def build() -> cl.Program:
        if pyopencl_keeps:
            remove_stale_locks()
        result: cl.Program = cl.Program(context, source).build(options, cache_dir=folder)
        return result

    return with_pyopencl_caches(build)


def _without_file(log: str) -> str:
    """*log* without its last line, after deleting the copy of the source that PyOpenCL names there."""
    found = re.search(r"\n\(source saved as (.+\.cl)\)$", log)
    if found is None:
        return log
    with contextlib.suppress(OSError):
        Path(found[1]).unlink()
    return log[: found.start()]
