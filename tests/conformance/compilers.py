"""The compilers for devices that are not there, and what they say of a program: clang 19 for AMD, Intel's own
ocloc, clang 15 and ptxas for NVIDIA. All come with `make conformance` (prepare.py).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyclmm.opencl.ptx import MARK

from .implementations import AMD_LIBRARIES, DEBIAN, DEBIAN_LIB, NVIDIA

_COMMON = ("-x", "cl", "-O3", "-Wall", "-Werror", "-fasm")
_ENV = {"LD_LIBRARY_PATH": str(DEBIAN / DEBIAN_LIB), "PATH": "/usr/bin:/bin"}
_NVIDIA_CLC = DEBIAN / "usr/lib/clc/nvptx64--nvidiacl.bc"
DPAS = "cl_intel_subgroup_matrix_multiply_accumulate"
_INTEL_REGISTERS = 128  # of every thread, whatever the program


@dataclass(frozen=True)
class Resources:
    """Registers a work-item (Intel: a thread), what was spilled of them, bytes of local memory or None.

    Spills are counted as the compiler does, in registers or bytes: 0 is what matters.
    """

    registers: int
    spilled: int
    local_bytes: int | None


NOTHING = Resources(0, 0, None)


def compiled(vendor: str, target: str, source: Path, options: Sequence[str], kernel: str) -> Resources:
    """Compile for *target*; subprocess.CalledProcessError where the compiler does not."""
    return {"amd": _amd, "intel": _intel, "nvidia": _nvidia}[vendor](target, source, options, kernel)


def _said(command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return done.stdout + done.stderr


def _clang(version: int, *arguments: str | Path) -> str:
    return _said([DEBIAN / f"usr/bin/clang-{version}", *_COMMON, *arguments], _ENV)


def _amd(target: str, source: Path, options: Sequence[str], kernel: str) -> Resources:
    machine = ("-target", "amdgcn-amd-amdhsa", f"-mcpu={target}")
    libraries = f"--rocm-device-lib-path={AMD_LIBRARIES}"
    remarks = "-Rpass-analysis=kernel-resource-usage"
    said = _clang(19, *machine, libraries, remarks, *options, "-c", source, "-o", source.with_suffix(".o"))
    part = re.split(rf"Function Name: {kernel}\b", said)[-1]
    # a sum of both kinds of registers, where a processor has two
    registers = _number(r" VGPRs: (\d+)", part) + _number(r"AGPRs: (\d+)", part)
    return Resources(registers, _number(r"VGPRs Spill: (\d+)", part), _number(r"LDS Size [^:]*: (\d+)", part))


def _intel(target: str, source: Path, options: Sequence[str], kernel: str) -> Resources:
    """ocloc knows the matrix instructions, though it does not offer them without being told to."""
    given = " ".join((*options, f"-D{DPAS}=1"))
    command = [DEBIAN / "usr/bin/ocloc", "compile", "-file", source, "-device", target, "-options", given]
    said = _said([*command, "-internal_options", f"-cl-ext=+{DPAS}", "-out_dir", f"{source}.out"], _ENV)
    spilled = _number(rf"kernel {kernel}\b.* spilled around (\d+)", said)
    return Resources(_INTEL_REGISTERS, spilled, None)


def _nvidia(target: str, source: Path, options: Sequence[str], kernel: str) -> Resources:
    ptx = source.with_suffix(".ptx")
    builtins = ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(_NVIDIA_CLC), "-Wno-linker-warnings")
    machine = ("-target", "nvptx64-nvidia-nvcl", "-Xclang", "-target-cpu", "-Xclang", "sm_80")
    _clang(15, *machine, *builtins, *options, "-S", source, "-o", ptx)
    # The driver does the same: it names its own architecture, which clang 15 may not know.
    text = ptx.read_text().replace(".target sm_80", f".target {target}").replace(MARK.decode(), "")
    text, nbytes = _unlimited(text.replace(".version 7.5", ".version 8.3"))
    ptx.write_text(text)
    output = source.with_suffix(".o")
    said = _said([ptxas(), "-arch", target, "-v", "--warning-as-error", ptx, "-o", output])
    part = re.split(rf"Function properties for {kernel}\b", said)[-1]
    local = nbytes or _number(r"(\d+) bytes smem", part)
    return Resources(
        _number(r"Used (\d+) registers", part), _number(r"(\d+) bytes spill stores", part), local
    )


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def _unlimited(ptx: str) -> tuple[str, int]:
    """Large local arrays of unknown length, and their bytes: the driver takes up to 227 KiB, ptxas 48."""
    arrays = re.findall(r"^\s*\.shared .*\[(\d+)\];", ptx, re.M)
    nbytes = sum(map(int, arrays))
    if nbytes <= 48 << 10:
        return ptx, 0
    declared = re.compile(r"^\s*(\.shared .*)\[\d+\];\n", re.M)
    outside = "".join(f".extern {array}[];\n" for array in declared.findall(ptx))
    return re.sub(
        r"(?=^\s*(?:\.visible )?\.entry )", outside, declared.sub("", ptx), count=1, flags=re.M
    ), nbytes


def ptxas() -> str:
    ours = NVIDIA.glob("lib/python3*/site-packages/nvidia/cuda_nvcc/bin/ptxas")
    return str(next(ours, None) or shutil.which("ptxas") or "ptxas")
