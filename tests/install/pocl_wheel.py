"""Repairs the PoCL 3.0 of PyPI for processors that are newer than its compiler.

LLVM 14 names a processor that it does not know (for example AMD Zen 5) "generic", but its compiler does not
accept that name: "unknown target CPU 'generic'". So every build fails (pocl issue 1049). The name comes
from one function. This command replaces the function's body, so that it returns "haswell". Every x86-64
processor with AVX2, FMA and BMI2 runs code for haswell.

    python tests/install/pocl_wheel.py        repairs the driver in this environment, if it needs it

Nothing else in the library changes. The file is changed only if a build fails for this reason and its bytes
are those of that release. `make` runs this for the driver of its own environment; pyclmm never does.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

UNKNOWN = "unknown target CPU"
CPU = b"haswell"
_NEEDED = {"avx2", "fma", "bmi2"}
# llvm::sys::getHostCPUName() in pocl-binary-distribution 3.0 for x86_64: its place in the file and its
# first bytes.
_OFFSET = 0x42E6BC0
_ORIGINAL = bytes.fromhex("31c04889de0fa24887de85c0742d4189c181fe47656e75743781fa656e7469")
# lea rax, [rip + 6]; mov edx, length; ret; the name. A StringRef is returned in rax and rdx.
_REPLACEMENT = b"\x48\x8d\x05\x06\0\0\0\xba" + len(CPU).to_bytes(4, "little") + b"\xc3" + CPU

# Builds one kernel with the wheel's PoCL alone; prints the driver's log if that fails.
_TRIAL = """
import sys, pyopencl as cl
try:
    for platform in cl.get_platforms():
        cl.Program(cl.Context(platform.get_devices()), "kernel void f(global int *x) { *x = 1; }").build()
except cl.Error as error:
    print(error)
"""


def name_the_cpu(library: Path) -> bool:
    """Change *library*. It becomes a separate file. False if it is not the known release."""
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
    """The log of a build with that driver alone, in a process of its own; empty if it works."""
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
    """Repair the driver if it needs it, and return what was done. Raises SystemExit if that is impossible."""
    library = installed_library()
    if library is None:
        return "PoCL of PyPI is not installed here: nothing to do"
    if UNKNOWN not in build_log(library):
        return "PoCL of PyPI knows this processor: nothing to do"
    if not _processor_flags() >= _NEEDED:
        raise SystemExit(f"PoCL of PyPI does not know this processor, and it lacks {sorted(_NEEDED)}")
    if not name_the_cpu(library):
        raise SystemExit(
            f"{library.name} is not the release that this can repair; install Debian's pocl-opencl-icd"
        )
    if log := build_log(library):
        raise SystemExit(f"PoCL of PyPI still does not build:\n{log}")
    return f"PoCL of PyPI did not know this processor; it now builds for {CPU.decode()}"


if __name__ == "__main__":
    print(repair())
