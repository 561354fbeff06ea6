"""Keeps compiled programs, and makes kernel objects.

A program is compiled once for each context and set of macros, whatever the shapes. The programs used last
are kept, and those of living plans; all others are released. Compiled programs are kept on disk for drivers
that do not keep them (see binaries.py).
"""

from __future__ import annotations

import linecache
import logging
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pyopencl as cl

from .. import environment, store
from ..errors import BuildError, brief
from ..kernels import Program
from . import binaries, compiler, crash_marks
from .binaries import with_pyopencl_caches
from .devices import device_info
from .pocl import pocl_fault
from .queues import at_loss, at_release
from .single_flight import SingleFlight

_log = logging.getLogger(__name__)
_Key = tuple[cl.Context, Program, int]  # the last is the detour

BUILD_LOG = "the compiler says of %s: %s"  # logged where it says anything of a program that it builds
_OLD_POCL = "unknown target CPU"  # the error of PyPI's PoCL 3.0 on processors newer than its compiler

_PROGRAMS_KEPT = 64  # each takes 0.5 to 4 MB (PoCL 3.0 and 3.1, Intel's CPU runtime)
_GENERATED = "<generated: 'pyopencl invoker "  # how PyOpenCL names generated Python code
# The programs used last, and all that somebody holds: bindings hold those of their kernel objects.
_programs: SingleFlight[_Key, cl.Program] = SingleFlight(_PROGRAMS_KEPT)
_held: WeakValueDictionary[_Key, cl.Program] = WeakValueDictionary()
_marks: dict[tuple[cl.Context, Program], list[Path | None]] = {}  # of programs in doubt


def build_options(program: Program, detour: int = 0) -> tuple[str, ...]:
    """The compiler's options: OpenCL C 1.2, then the macros in their order, then the detour's. Dot products
    of bytes (cl/include/dot_bytes.h) are functions of OpenCL C 3.0.
    """
    macros = [f"-D{name}={value}" for name, value in program.defines]
    standard = "CL3.0" if ("DOT_BYTES", 1) in program.defines else "CL1.2"
    return (f"-cl-std={standard}", *macros, *([f"-DDETOUR={detour}"] if detour else []))


_digest_of = lru_cache(maxsize=_PROGRAMS_KEPT)(store.digest_of)


def source_hash(program: Program) -> str:
    """A digest of everything that the compiled program depends on."""
    target = str(program.ptx_target)
    return _digest_of((compiler.expanded(program.source), *build_options(program), target))


def built(context: cl.Context, program: Program) -> cl.Program:
    """The compiled program, kept or compiled now, in doubt until :func:`settle`. Raises BuildError."""
    return _built(context, program, _detour(context))


def text(device: cl.Device, program: Program) -> bytes:
    """What the driver compiled *program* to, for another loader: PTX on NVIDIA's. Raises BuildError. It is
    kept on disk, so that later processes need no context of OpenCL to get it.
    """
    info, digest = device_info(device), source_hash(program)
    detour = crash_marks.detour(info)
    place = binaries.place(info, digest, detour)
    kept = binaries.read(place)
    if kept is None:
        mark = crash_marks.mark(info, digest)
        try:  # a context for this alone, as it takes memory of the device
            found: Any = _compile(cl.Context([device]), program, detour).get_info(cl.program_info.BINARIES)
        except cl.Error as error:
            raise rejected(device, program, f"no context of OpenCL to compile in ({error})") from error
        finally:
            crash_marks.clear([mark])
        kept = bytes(found[0])
        binaries.keep(place, kept)
    return kept


def rejected(device: cl.Device, program: Program, log: str) -> BuildError:
    """The error for a program that another loader does not take."""
    return BuildError(device.name.strip(), " ".join(build_options(program)), log)


def settle(context: cl.Context, programs: Iterable[Program]) -> None:
    """Record that these programs have run to their end."""
    for program in programs:
        crash_marks.clear(_marks.pop((context, program), ()))


def in_doubt(context: cl.Context, programs: Iterable[Program]) -> set[Program]:
    """Those that have not run to their end yet, as far as is known (see crash_marks.py)."""
    return {program for program in programs if (context, program) in _marks}


def count() -> int:
    """How many programs are alive."""
    return len(_held)


def _alive() -> list[_Key]:
    """The keys of programs that somebody holds, taken at once: other threads build meanwhile."""
    return [one.key for one in _held.valuerefs()]


@at_release
def release() -> None:
    """Drop the programs that no binding holds."""
    _programs.forget()
    _settle_dropped()


def _settle_dropped() -> None:
    """Let those in doubt go that nobody holds any more: they will not run. A mark would keep their context.
    A product of Arrays is known to have ended when the next one asks, and there may be no next one.
    """
    held = {key[:2] for key in _alive()}
    for context, program in [key for key in list(_marks) if key not in held]:
        settle(context, [program])


@at_loss
def _forget(context: cl.Context) -> None:
    """Drop the programs of a lost context."""
    _programs.forget(lambda key: key[0] == context)
    for key in [key for key in _alive() if key[0] == context]:
        _held.pop(key, None)
    settle(context, [key[1] for key in list(_marks) if key[0] == context])


def _detour(context: cl.Context) -> int:
    return max(crash_marks.detour(device_info(device)) for device in context.devices)


def new_kernel(context: cl.Context, program: Program, name: str) -> cl.Kernel:
    """A new kernel object, because threads cannot share PyOpenCL's safely. A build that fails is repeated by
    the next detour, as the driver's cache may be damaged. Raises BuildError.
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
            crash_marks.take_detour(device, detour + 1, keep=True)
            crash_marks.warn(device, f"{name} did not build")
    _forget_generated_sources()
    return kernel


def _kernel(context: cl.Context, program: Program, name: str, detour: int) -> cl.Kernel:
    compiled = _built(context, program, detour)
    try:
        return with_pyopencl_caches(lambda: cl.Kernel(compiled, name))
    except cl.Error as error:
        raise _build_error(context, program, f"{name}: {error}") from error


def _forget_generated_sources() -> None:
    """Drop the Python source of the code that PyOpenCL generates for a kernel object. Without its cache of
    such code (PYOPENCL_NO_CACHE) it leaves 6 KB for each object, for ever. Only tracebacks read them.
    """
    for name in list(linecache.cache):
        if name.startswith(_GENERATED):
            linecache.cache.pop(name, None)


def _built(context: cl.Context, program: Program, detour: int) -> cl.Program:
    key = (context, program, detour)
    return _programs.get(key, lambda: _held.get(key) or _build(*key))


def _build_error(context: cl.Context, program: Program, log: str) -> BuildError:
    if _OLD_POCL in log:
        log += (
            "\nThis PoCL is older than the processor: install a newer one, or, on x86-64, "
            "`pip install intel-opencl-rt intel-cmplr-lib-rt`"
        )
    fault = pocl_fault(device.platform for device in context.devices)
    if fault is not None:
        log += f"\nerror: {fault}"
    added = environment.BUILD_OPTIONS
    if added.value.strip():
        said = BuildError("", "", log).complaint.partition(": ")[2]
        said = said if "error:" in said else f"error: {said}"
        log = f"{said}; {added.name} adds {brief(added.value)}: unset it if that is why\n{log}"
    return BuildError(_names(context), " ".join(build_options(program)), log)


def _names(context: cl.Context) -> str:
    return ", ".join(d.name.strip() for d in context.devices)


def _build(context: cl.Context, program: Program, detour: int) -> cl.Program:
    """Build *program*, and mark that it is in doubt."""
    _settle_dropped()
    digest = source_hash(program)
    marks = [crash_marks.mark(device_info(device), digest) for device in context.devices]
    try:
        result = _compile(context, program, detour)
    except BaseException:  # Ctrl-C too
        crash_marks.clear(marks)
        raise
    held = _held.setdefault((context, program, detour), result)  # before its mark, which others let go else
    _marks.setdefault((context, program), []).extend(marks)  # it may be built again before it has run
    return held


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
        with compiler.quiet:
            result = compiler.compiled(context, compiler.expanded(program.source), options)
            for said in compiler.logs(result) if _log.isEnabledFor(logging.INFO) else ():
                _log.info(
                    BUILD_LOG, program.source, compiler.located(said, compiler.expanded(program.source))
                )
            if program.ptx_target is not None or place is not None:
                result = _rebuilt(context, program, result, place)
    except (cl.Error, ValueError) as error:
        _log.info("compiling %s for %s failed", program.source, device)
        log = compiler.located(compiler.driver_log(error), compiler.expanded(program.source))
        raise _build_error(context, program, log) from error
    _log.info("compiled %s for %s in %.3f s", program.source, device, time.perf_counter() - start)
    return result


def _place(context: cl.Context, program: Program, detour: int) -> Path | None:
    """Where the binary of *program* is kept, or None."""
    [device, *others] = map(device_info, context.devices)
    if others or not binaries.are_kept(device, program):
        return None
    return binaries.place(device, source_hash(program), detour)


def _loaded(context: cl.Context, program: Program, place: Path, binary: bytes) -> cl.Program | None:
    """The program built from its kept binary; None if the driver rejects that."""
    start = time.perf_counter()
    try:
        with compiler.quiet:
            result = compiler.loaded(context, context.devices, [binary])
    except cl.Error as error:
        _log.info("%s rejects the kept binary of %s: %s", _names(context), program.source, error)
        binaries.drop(place)
        return None
    seconds = time.perf_counter() - start
    _log.info("loaded %s for %s in %.3f s", program.source, _names(context), seconds)
    return result


def _rebuilt(context: cl.Context, program: Program, compiled: cl.Program, place: Path | None) -> cl.Program:
    """The program built from its binaries, as later processes load it, or after they were rewritten. What the
    driver takes is kept in *place*. *compiled* if it rejects its own."""
    contents: Any = compiled.get_info(cl.program_info.BINARIES)
    devices: Any = compiled.get_info(cl.program_info.DEVICES)
    if program.ptx_target is not None:
        contents = [compiler.rewritten(content) for content in contents]
    try:
        result = compiler.loaded(context, devices, contents)
    except cl.Error as error:
        if program.ptx_target is not None:
            raise
        _log.info("%s rejects its own binary: %s", _names(context), error)
        return compiled
    if place is not None:
        binaries.keep(place, contents[0])
    return result
