"""Makes the PoCL 3.0 of PyPI work on processors that are younger than its compiler.

LLVM 14 calls a processor that it does not know (AMD Zen 5, for one) "generic", and its compiler then
refuses that very name: "unknown target CPU 'generic'", so that every build fails (pocl issue 1049). The
name comes from one function. This puts another body there, which answers "haswell"; every x86-64
processor with AVX2, FMA and BMI2 runs that code.

    python -m pyclmm.tools.pocl_wheel         the driver in this environment, if it needs it

Nothing else of the library changes. It is only done where a build was seen to fail for this reason, where
the bytes are those of that release, and never by itself: somebody runs the command.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..opencl.program import OLD_POCL

CPU = b"haswell"
_NEEDED = {"avx2", "fma", "bmi2"}
# llvm::sys::getHostCPUName() in pocl-binary-distribution 3.0 for x86_64: where it is in the file,
# and how it starts.
_OFFSET = 0x42E6BC0
_ORIGINAL = bytes.fromhex("31c04889de0fa24887de85c0742d4189c181fe47656e75743781fa656e7469")
# lea rax, [rip + 6]; mov edx, length; ret; then the name: a StringRef is returned in rax and rdx.
_REPLACEMENT = b"\x48\x8d\x05\x06\0\0\0\xba" + len(CPU).to_bytes(4, "little") + b"\xc3" + CPU

# Builds one kernel on the wheel's PoCL alone; prints the driver's log where that fails.
_TRIAL = """
import sys, pyopencl as cl
try:
    for platform in cl.get_platforms():
        cl.Program(cl.Context(platform.get_devices()), "kernel void f(global int *x) { *x = 1; }").build()
except cl.Error as error:
    print(error)
"""


def name_the_cpu(library: Path) -> bool:
    """Change *library*, a file of its own afterwards; False where it is not the one that this knows."""
    with library.open("rb") as file:
        file.seek(_OFFSET)
        found = file.read(len(_ORIGINAL))
    if found.startswith(_REPLACEMENT):
        return True
    if found != _ORIGINAL:
        return False
    changed = library.with_suffix(".new")  # an installer may share the file with its cache
    shutil.copy2(library, changed)
    with changed.open("r+b") as file:
        file.seek(_OFFSET)
        file.write(_REPLACEMENT)
    os.replace(changed, library)
    return True


def installed_library() -> Path | None:
    """The wheel's library in this environment."""
    spec = importlib.util.find_spec("pyopencl")
    if spec is None or spec.origin is None:
        return None
    return next((Path(spec.origin).parent / ".libs").glob("libpocl-*.so"), None)


def build_log(library: Path) -> str:
    """What a build on that driver alone says, in a process of its own; nothing if it works."""
    environment = os.environ | {"OCL_ICD_VENDORS": str(library), "POCL_KERNEL_CACHE": "0"}
    trial = [sys.executable, "-c", _TRIAL]
    done = subprocess.run(trial, capture_output=True, text=True, env=environment, check=False)
    return done.stdout + done.stderr


def _processor_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    return set(next((line for line in text.splitlines() if line.startswith("flags")), "").split())


def repair() -> str:
    """Do what is needed here, and say what that was. SystemExit where it cannot be done."""
    library = installed_library()
    if library is None:
        return "PoCL of PyPI is not installed here: nothing to do"
    if OLD_POCL not in build_log(library):
        return "PoCL of PyPI knows this processor: nothing to do"
    if not _processor_flags() >= _NEEDED:
        raise SystemExit(f"PoCL of PyPI does not know this processor, and it lacks {sorted(_NEEDED)}")
    if not name_the_cpu(library):
        raise SystemExit(
            f"{library.name} is not the release that this knows; install Debian's pocl-opencl-icd"
        )
    if log := build_log(library):
        raise SystemExit(f"PoCL of PyPI still does not build:\n{log}")
    return f"PoCL of PyPI did not know this processor; it now builds for {CPU.decode()}"


if __name__ == "__main__":
    print(repair())
