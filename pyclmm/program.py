"""Programs and kernels: the only caller of ``cl.Program``.

Sources of cl/ are joined with ``#line`` marks, so that a build error names the real file and line.
A program is compiled once a context and set of macros, whatever the shapes; PyOpenCL keeps compiled
binaries on disk for drivers that do not.
"""

from __future__ import annotations

import hashlib
import threading
import warnings
from collections import OrderedDict
from functools import cache
from importlib import resources
from typing import Any

import pyopencl as cl

from . import ptx
from .errors import BuildError
from .kernels import Program

_CACHE_SIZE = 512
_programs: OrderedDict[tuple[cl.Context, Program], cl.Program] = OrderedDict()
_lock = threading.Lock()
_building: dict[tuple[cl.Context, Program], threading.Lock] = {}


@cache
def read_source(name: str) -> str:
    """The text of one file of cl/."""
    return resources.files("pyclmm.cl").joinpath(name).read_text(encoding="utf-8")


@cache
def joined_source(names: tuple[str, ...]) -> str:
    """Those files, one after the other, each with its own line numbers in messages."""
    return "\n".join(f'#line 1 "{name}"\n{read_source(name)}' for name in names)


def build_options(program: Program) -> tuple[str, ...]:
    """The compiler's options: OpenCL C 1.2, and the macros in their order."""
    macros = [f"-D{name}={value}" for name, value in program.defines]
    return ("-cl-std=CL1.2", *program.options, *macros)


def source_hash(program: Program) -> str:
    """A digest of everything that decides what is compiled."""
    target = str(program.ptx_target)
    text = "\n".join((joined_source(program.sources), *build_options(program), target))
    return hashlib.sha256(text.encode()).hexdigest()


def built(context: cl.Context, program: Program) -> cl.Program:
    """The compiled program, from the cache or built now. Raises BuildError."""
    key = (context, program)
    with _lock:
        if key in _programs:
            _programs.move_to_end(key)
            return _programs[key]
        mine = _building.setdefault(key, threading.Lock())
    with mine:  # one thread compiles, the others wait for it; other programs go on
        with _lock:
            if key in _programs:
                return _programs[key]
        result = _build(context, program)
        with _lock:
            _programs[key] = result
            _building.pop(key, None)
            while len(_programs) > _CACHE_SIZE:
                _programs.popitem(last=False)
    return result


def new_kernel(context: cl.Context, program: Program, name: str) -> cl.Kernel:
    """A kernel object of its own: PyOpenCL's are not safe to share between threads."""
    return cl.Kernel(built(context, program), name)


def _build(context: cl.Context, program: Program) -> cl.Program:
    options = build_options(program)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            source = joined_source(program.sources)
            result: cl.Program = cl.Program(context, source).build(list(options))
            return result if program.ptx_target is None else _rewritten(context, result)
    except (cl.Error, ValueError) as error:
        device = ", ".join(d.name.strip() for d in context.devices)
        raise BuildError(device, " ".join(options), str(error)) from error


def _rewritten(context: cl.Context, compiled: cl.Program) -> cl.Program:
    """The same program with the instructions in it that only ptx.TARGET has."""
    binaries: Any = compiled.get_info(cl.program_info.BINARIES)
    devices: Any = compiled.get_info(cl.program_info.DEVICES)
    texts = [ptx.rewritten(binary) for binary in binaries]
    result: cl.Program = cl.Program(context, devices, texts).build()
    return result
