"""Runs kernels for a copy engine and asynchronous matrix units without the device.

The OpenCL C is compiled for the host, and its work-items take turns (interleaved_units.c)."""

import ctypes
import platform
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from pyclmm.opencl import compiler, program
from tests.simulators import entry

HERE = Path(__file__).parent
CLANG = next((found for v in ("", "-15", "-16", "-14") if (found := shutil.which(f"clang{v}"))), None)
needs_clang = pytest.mark.skipif(
    CLANG is None or platform.machine() != "x86_64", reason="needs clang on x86-64"
)
REPLACED = {  # headers, and what replaces them in addition to interleaved_units.h
    f"nvidia/{header}.h": (HERE / f"interleaved_{by}.h").read_text() if by else ""
    for header, by in (
        *(("ptx", ""), ("ptx_map", "cluster"), ("ptx_mma", "mma")),
        *(("ptx_wgmma", "wgmma"), ("ptx_wgmma_held", "held"), ("ptx_wgmma_bare", "bare")),
    )
}
# A kernel's array in local memory, of which each member of a cluster has its own.
_LOCAL = re.compile(r"^  __local (\w+) (\w+)\[(.*)\]( ALIGNED\(\d+\))?;", re.MULTILINE)
_PARTS = (
    r"  __local \1 \2_of[CLUSTER][((\3) + 1023) / 1024 * 1024]\4; __local \1 *const \2 = \2_of[member()];"
    r" emu_part((uint)(ulong)\2_of, sizeof \2_of[0]);"
)
_shipped = compiler.read_source
_FLAGS = ("-O1", "-fPIC", "-mf16c", "-w", "-fsanitize=alignment", "-fsanitize-trap=alignment")
_CL = ("-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header", "-Xclang", "-fgnu-keywords")


def _read(name):
    return REPLACED[name] if name in REPLACED else _shipped(name)


def _source(name):
    with mock.patch.object(compiler, "read_source", _read):
        return compiler.expanded.__wrapped__(name)


def _library(wanted, call, folder):
    """The compiled program *wanted*, with a function `entry` that makes *call*."""
    options = [o for o in program.build_options(wanted) if o.startswith("-D")]
    source = _source(wanted.source)
    if int(wanted.define("CLUSTER") or 1) > 1:
        source = _LOCAL.sub(_PARTS, source)
    return _compiled(source, options, call, folder)


def _compiled(source, options, call, folder):
    function = f"void entry(__global ulong *args)\n{{\n  {call}\n}}\n"
    text = "\n".join([(HERE / "interleaved_units.h").read_text(), source, function])
    return ctypes.CDLL(str(entry.library(folder, "host", text, options, _make)))


def _make(_, source, options):
    kernel, runtime = source.with_suffix(".o"), source.with_name("runtime.o")
    subprocess.run([CLANG, *_FLAGS, *_CL, *options, "-c", source, "-o", kernel], check=True)
    if not runtime.exists():
        units = HERE / "interleaved_units.c"
        subprocess.run([CLANG, *_FLAGS, "-O2", "-c", units, "-o", runtime], check=True)
    subprocess.run([CLANG, "-shared", kernel, runtime, "-o", source.with_suffix(".so")], check=True)


def run_one(wanted, call, words, folder):
    """One work-item makes *call* in the program *wanted*. *call* is OpenCL C and finds *words* in `args`."""
    args = np.array(words, np.uint64)
    _library(wanted, call, folder).run(ctypes.c_void_p(args.ctypes.data), 1, 1, 1, 1, 1)


def run_source(source, options, call, words, sizes, folder):
    """Work-items of OpenCL C make *call*, which finds *words* in `args`. *sizes*: the work-groups along each
    of two axes, and the work-items of one.
    """
    args, (groups, rows, items) = np.array(words, np.uint64), sizes
    library = _compiled(source, options, call, folder)
    library.run(ctypes.c_void_p(args.ctypes.data), groups, rows, 1, items, 1)


def run(work, arrays, folder):
    """Run all launches of *work*. *arrays* are by argument name, also "alpha" and "beta".

    Missing workspace is made, filled with NaN, or zeros as on a device. Returns the workspace by name."""
    return _run(work, arrays, folder)[0]


def copied(work, arrays, folder, stops=True):
    """The bytes that copies write to local memory in the last launch of *work*, and those that they read.

    *stops*: the launch ends when it first waits for copies."""
    return _run(replace(work, launches=work.launches[-1:]), arrays, folder, stops)[1][:2]


def unlike_meetings(work, arrays, folder):
    """How often work-items met at a barrier, in all launches of *work*, after unlike numbers of waits."""
    return _run(work, arrays, folder)[1][2]


def _run(work, arrays, folder, stops=False):
    counters, counted = ("emu_copied", "emu_read", "emu_unlike"), (0, 0, 0)
    spaces = {
        w.symbol: np.full(-(-w.nbytes // 4) + 32, 0 if w.zeroed else np.nan, np.float32)
        for w in work.workspace
    }
    arrays = {name: np.asarray(x) for name, x in arrays.items()}
    for launch in work.launches:
        words = np.zeros(len(launch.args), np.uint64)
        for i, arg in enumerate(launch.args):
            if isinstance(arg, np.generic):
                words[i] = int(arg) % 2**64
            elif not arg.endswith("_offset"):
                words[i] = (arrays[arg] if arg in arrays else spaces[arg]).ctypes.data
        library = _library(launch.program, entry.call(launch), folder)
        size = launch.local_size[0]
        rows, layers = (*launch.global_size[1:], 1, 1)[:2]
        ctypes.c_int.in_dll(library, "emu_stops").value = int(stops)
        for name in counters:
            ctypes.c_ulong.in_dll(library, name).value = 0
        groups = launch.global_size[0] // size
        library.run(ctypes.c_void_p(words.ctypes.data), groups, rows, layers, size, launch.cluster)
        seen = [ctypes.c_ulong.in_dll(library, name).value for name in counters]
        counted = tuple(map(sum, zip(counted, seen, strict=True)))
    assert not np.any(spaces.get("workspace:arrived", 0)), "the next call counts from zero"
    return spaces, counted
