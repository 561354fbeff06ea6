"""Compilers for devices that we do not have, and the resources that they report.

AMD has clang 19, Intel ocloc, NVIDIA clang 15 and ptxas, Arm's CPUs clang 15 and lld. All come with `make
conformance` (prepare.py). For a GPU a program is compiled twice: as a driver does, for its resources, and
unoptimized, to be linked. An optimizer that inlines a function hides that the function has no external
definition. What is compiled for an Arm CPU also runs (simulators/arm.py).
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pyclmm.opencl.compiler import MARK

from .implementations import AMD_LIBRARIES, ARM_LIBC, DEBIAN, DEBIAN_LIB, NVIDIA

# A program need not call all functions of the headers that it includes.
_COMMON = ("-x", "cl", "-Wall", "-Werror", "-Wno-unused-function", "-fasm")
_ENV = {"LD_LIBRARY_PATH": str(DEBIAN / DEBIAN_LIB), "PATH": "/usr/bin:/bin"}
_NVIDIA_CLC = DEBIAN / "usr/lib/clc/nvptx64--nvidiacl.bc"
_FP64 = ("-Xclang", "-cl-ext=+cl_khr_fp64")
DPAS = "cl_intel_subgroup_matrix_multiply_accumulate"
_INTEL_REGISTERS = 128  # of every thread in every program


@dataclass(frozen=True)
class Resources:
    """Registers a work-item (Intel: a thread), spills, and bytes of local memory or None.

    Spills are in the compiler's unit, registers or bytes: it only matters whether they are 0. On an Arm CPU
    both numbers are of the innermost loop: its vector registers, and its stores and loads of spilled ones.
    """

    registers: int
    spilled: int
    local_bytes: int | None


NOTHING = Resources(0, 0, None)


def compiled(vendor: str, target: str, source: Path, options: Sequence[str], kernel: str) -> Resources:
    """Compile for *target*. Raises subprocess.CalledProcessError where the compiler fails."""
    compiler = {"amd": _amd, "intel": _intel, "nvidia": _nvidia, "pocl": _arm}[vendor]
    return compiler(target, source, options, kernel)


def link(vendor: str, target: str, source: Path, options: Sequence[str]) -> None:
    """Link for *target*. Raises subprocess.CalledProcessError where a called function has no definition."""
    linker = {"amd": _link_amd, "intel": _link_intel, "nvidia": _link_nvidia}.get(vendor)
    if linker:  # an Arm CPU's programs are linked to run
        linker(target, source, options)


def _said(command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return done.stdout + done.stderr


def _clang(version: int, *arguments: str | Path) -> str:
    return _said([DEBIAN / f"usr/bin/clang-{version}", *_COMMON, *arguments], _ENV)


def _for_amd(target: str) -> tuple[str, ...]:
    return ("-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", f"--rocm-device-lib-path={AMD_LIBRARIES}")


def _amd(target: str, source: Path, options: Sequence[str], kernel: str) -> Resources:
    remarks = ("-O3", "-Rpass-analysis=kernel-resource-usage")
    said = _clang(19, *_for_amd(target), *remarks, *options, "-c", source, "-o", source.with_suffix(".o"))
    part = re.split(rf"Function Name: {kernel}\b", said)[-1]
    # the sum over both kinds of registers, where a processor has two
    registers = _number(r" VGPRs: (\d+)", part) + _number(r"AGPRs: (\d+)", part)
    return Resources(registers, _number(r"VGPRs Spill: (\d+)", part), _number(r"LDS Size [^:]*: (\d+)", part))


def _link_amd(target: str, source: Path, options: Sequence[str]) -> None:
    """clang calls lld, which refuses undefined names."""
    _clang(19, *_for_amd(target), "-O0", *options, source, "-o", source.with_suffix(".so"))


def amd_library(target: str, source: Path, options: Sequence[str]) -> None:
    """Compile and link *source* as a driver does, to what a GPU loads, beside it with ending .so.

    The table of lines leaves the machine code as it is. clang that links too starts a process more.
    """
    compiled = source.with_suffix(".o")
    _clang(19, *_for_amd(target), "-O3", "-gline-tables-only", *options, "-c", source, "-o", compiled)
    linker = [DEBIAN / "usr/bin/ld.lld-19", "--no-undefined", "-shared"]
    _said([*linker, compiled, "-o", source.with_suffix(".so")], _ENV)


def _intel(target: str, source: Path, options: Sequence[str], kernel: str) -> Resources:
    said = _said(_ocloc(target, source, options, "-out_dir", f"{source}.out"), _ENV)
    spilled = _number(rf"kernel {kernel}\b.* spilled around (\d+)", said)
    return Resources(_INTEL_REGISTERS, spilled, None)


def _ocloc(target: str, source: Path, options: Sequence[str], *more: str) -> list[str]:
    """ocloc offers the matrix instructions only when told to."""
    given = " ".join((*options, f"-D{DPAS}=1"))
    compiled = (str(DEBIAN / "usr/bin/ocloc"), "compile", "-file", str(source), "-device", target)
    return [*compiled, "-options", given, "-internal_options", f"-cl-ext=+{DPAS}", *more]


def _link_intel(target: str, source: Path, options: Sequence[str]) -> None:
    """SPIR-V lists its imports. OpenCL's own functions are overloaded, so their names are mangled."""
    folder = Path(f"{source}.spv")
    unoptimized = (*options, "-cl-opt-disable")
    command = _ocloc(target, source, unoptimized, "-spv_only", "-out_dir", str(folder))
    _said(command, _ENV)
    names = [name for found in folder.glob("*.spv") for name in imports(found.read_bytes())]
    if ours := [name for name in names if not name.startswith(("_Z", "__spirv_"))]:
        raise subprocess.CalledProcessError(1, command, stderr=f"undefined: {', '.join(ours)}")


def imports(spirv: bytes) -> Iterator[str]:
    """The imports of a SPIR-V module: names in its decorations LinkageAttributes (41) of type Import (1)."""
    words = struct.unpack(f"<{len(spirv) // 4}I", spirv)
    at = 5
    while at < len(words):
        length, instruction = words[at] >> 16, words[at] & 0xFFFF
        if instruction == 71 and words[at + 2] == 41 and words[at + length - 1] == 1:  # OpDecorate
            yield spirv[4 * (at + 3) : 4 * (at + length - 1)].split(b"\0")[0].decode()
        at += length


def _nvidia(target: str, source: Path, options: Sequence[str], kernel: str) -> Resources:
    said, nbytes = _for_nvidia(target, source, ("-O3", *options))
    part = re.split(rf"Function properties for {kernel}\b", said)[-1]
    local = nbytes or _number(r"(\d+) bytes smem", part)
    return Resources(
        _number(r"Used (\d+) registers", part), _number(r"(\d+) bytes spill stores", part), local
    )


def _link_nvidia(target: str, source: Path, options: Sequence[str]) -> None:
    """ptxas refuses undefined names."""
    _for_nvidia(target, source, ("-O0", *options))


def _for_nvidia(target: str, source: Path, options: Sequence[str]) -> tuple[str, int]:
    """The report of ptxas, and the bytes of local memory that it cannot see."""
    ptx = source.with_suffix(".ptx")
    # The driver also replaces the target: clang 15 may not know its architecture.
    text = _ptx(source.read_text(), tuple(options)).replace(".target sm_80", f".target {target}")
    text, nbytes = _unlimited(text.replace(MARK.decode(), "").replace(".version 7.5", ".version 8.3"))
    ptx.write_text(text)
    output = source.with_suffix(".o")
    said = _said([ptxas(), "-arch", target, "-v", "--warning-as-error", ptx, "-o", output])
    return said, nbytes


@cache
def _ptx(source: str, options: tuple[str, ...]) -> str:
    """What clang makes of *source* for NVIDIA's devices: they share it, and only ptxas knows them apart."""
    builtins = ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(_NVIDIA_CLC), "-Wno-linker-warnings")
    machine = ("-target", "nvptx64-nvidia-nvcl", "-Xclang", "-target-cpu", "-Xclang", "sm_80")
    with tempfile.TemporaryDirectory() as folder:
        given, ptx = Path(folder) / "program.cl", Path(folder) / "program.ptx"
        given.write_text(source)
        _clang(15, *machine, *builtins, *options, "-S", given, "-o", ptx)
        return ptx.read_text()


def _arm(target: str, source: Path, options: Sequence[str], kernel: str) -> Resources:
    text = arm_assembly(target, source, options)
    function = text[text.index(f"\n{kernel}:") :].split(".Lfunc_end")[0]
    blocks = re.split(r"^\.LBB\w+:|^// %bb", function, flags=re.M)
    loop = max(blocks, key=lambda block: len(re.findall(r"\bfmla\b", block)))
    spilled = sum(int(nbytes) // 16 for nbytes in re.findall(r"(16|32)-byte Folded", loop))
    return Resources(len(set(re.findall(r"\b[vq](\d+)\b", loop))), spilled, None)


def arm_assembly(target: str, source: Path, options: Sequence[str]) -> str:
    """The assembly text."""
    output = source.with_suffix(".s")
    text = _arm_text(target, source, options)
    _said([*_generate_for_arm(target), "-S", text, "-o", output], _ENV)
    return output.read_text()


def arm_library(target: str, source: Path, options: Sequence[str]) -> None:
    """Compile *source* to a shared library beside it, with ending .so."""
    text = _arm_text(target, source, options)
    _link_arm(target, text, source.with_suffix(".so"), "-shared")


def _arm_text(target: str, source: Path, options: Sequence[str]) -> Path:
    """LLVM's text, optimized. As in PoCL, kernel functions get C's calling convention there.

    Only functions that are `always_inline` are inlined, so that a kernel that is called is compiled once.
    """
    text = source.with_suffix(".ll")
    flags = (*_FP64, "-fno-inline-functions")
    _clang(15, *_for_arm(target), *flags, *options, "-emit-llvm", "-S", source, "-o", text)
    text.write_text(re.sub(r"\bspir_(kernel|func) ", "", text.read_text()))
    return text


def arm_program(target: str, source: Path, program: Path) -> None:
    """Compile *source*, in C, to *program*, whose functions its shared libraries can call."""
    start = [ARM_LIBC / "lib" / name for name in ("crt1.o", "crti.o", "crtn.o")]
    headers = ("-isystem", ARM_LIBC / "include")
    _link_arm(target, source, program, *headers, "-rdynamic", *start)


def _link_arm(target: str, source: Path, output: Path, *arguments: str | Path) -> None:
    lld = f"--ld-path={DEBIAN / 'usr/bin/ld.lld-19'}"
    libraries = [ARM_LIBC / "lib" / name for name in ("libc.so.6", "libm.so.6")]
    warnings = ("-Wall", "-Werror", lld, "-fPIC", "-nostdlib")
    command = [*_generate_for_arm(target), *warnings, *arguments, source, *libraries]
    _said([*command, "-o", output], _ENV)


def _generate_for_arm(target: str) -> list[str | Path]:
    """clang for what is in C or in optimized LLVM text."""
    return [DEBIAN / "usr/bin/clang-15", *_for_arm(target), "-Xclang", "-disable-llvm-passes"]


def _for_arm(target: str) -> tuple[str, ...]:
    machine = f"-march={target}" if target.startswith("armv") else f"-mcpu={target}"
    return ("-target", "aarch64-linux-gnu", machine, "-O3")


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def _unlimited(ptx: str) -> tuple[str, int]:
    """PTX with large local arrays of unknown length, and their bytes: ptxas allows 48 KiB, the driver 227."""
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
