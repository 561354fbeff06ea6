"""Kernels that need a device's copy engine, its asynchronous matrix units and work-items that wait for each
other, run without the device: OpenCL C compiled for the host, a thread a work-item (threaded_units.c)."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from pathlib import Path
from unittest import mock

import numpy as np

from pyclmm.opencl import program

HERE = Path(__file__).parent
CLANG = next((found for v in ("", "-15", "-16", "-14") if (found := shutil.which(f"clang{v}"))), None)
REPLACED = (
    "nvidia/ptx_copy.h",
    "nvidia/ptx_map.h",
    "nvidia/ptx_wgmma.h",
    "nvidia/ptx_mma.h",
    "nvidia/ptx_group.h",
)
_shipped = program.read_source
_FLAGS = ("-O1", "-fPIC", "-mf16c", "-w")
_CL = ("-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header", "-Xclang", "-fgnu-keywords")


def _text(launch, alpha_type):
    """The program, and `entry`, which calls its kernel with 64-bit words as arguments."""
    parts = [(HERE / "threaded_units.h").read_text()]
    with mock.patch.object(program, "read_source", lambda name: "" if name in REPLACED else _shipped(name)):
        parts.append(program.expanded.__wrapped__(launch.program.source))
    words = []
    for i, arg in enumerate(launch.args):
        if isinstance(arg, np.generic):
            words.append(f"({'int' if arg.itemsize == 4 else 'long'})args[{i}]")
        elif arg in ("alpha", "beta"):
            words.append(f"as_{alpha_type}(({'uint' if alpha_type == 'float' else 'ulong'})args[{i}])")
        elif arg.endswith("_offset"):
            words.append(f"(long)args[{i}]")
        else:
            words.append(f"(__global void *)args[{i}]")
    parts.append(f"void entry(__global ulong *args)\n{{\n  {launch.kernel}({', '.join(words)});\n}}\n")
    return "\n".join(parts)


def _library(launch, alpha_type, folder):
    text = _text(launch, alpha_type)
    options = [o for o in program.build_options(launch.program) if o.startswith("-D")]
    path = folder / f"{hashlib.sha256((text + str(options)).encode()).hexdigest()[:20]}.so"
    if not path.exists():
        kernel, runtime = path.with_suffix(".kernel.o"), folder / "runtime.o"
        subprocess.run(
            [CLANG, *_FLAGS, *_CL, *options, "-c", "-", "-o", kernel], input=text, text=True, check=True
        )
        if not runtime.exists():
            source = HERE / "threaded_units.c"
            subprocess.run([CLANG, *_FLAGS, "-O2", "-c", source, "-o", runtime], check=True)
        subprocess.run([CLANG, "-shared", "-pthread", kernel, runtime, "-o", path], check=True)
    return ctypes.CDLL(str(path))


def run(work, arrays, folder):
    """All launches of *work*. *arrays*: by argument name, "alpha" and "beta" too; workspace that is not
    there is made here, full of NaN. Returns it by name."""
    spaces = {w.symbol: np.full(-(-w.nbytes // 4) + 32, np.nan, np.float32) for w in work.workspace}
    alpha_type = "float2" if arrays["alpha"].dtype.kind == "c" else "float"
    for launch in work.launches:
        words = np.zeros(len(launch.args), np.uint64)
        for i, arg in enumerate(launch.args):
            if isinstance(arg, np.generic):
                words[i] = int(arg)
            elif arg in ("alpha", "beta"):
                words[i : i + 1].view(arrays[arg].dtype)[0] = arrays[arg]
            elif not arg.endswith("_offset"):
                words[i] = (arrays[arg] if arg in arrays else spaces[arg]).ctypes.data
        library = _library(launch, alpha_type, folder)
        size = launch.local_size[0]
        layers = launch.global_size[2] if len(launch.global_size) > 2 else 1
        library.run(ctypes.c_void_p(words.ctypes.data), launch.global_size[0] // size, layers, size)
    return spaces
