"""What to install where no OpenCL device is found, for this very platform."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from pathlib import Path

ANY = ""


@dataclass(frozen=True)
class Machine:
    """What decides which drivers there are. The names are those of Python's platform module."""

    system: str  # "Linux", "Windows", "Darwin", "Android", "FreeBSD"
    processor: str  # "x86_64" (also Windows's "AMD64"), "aarch64", "arm64", "riscv64"
    libc: str = "glibc"  # empty if it is another one, as musl
    wsl: bool = False
    conda: bool = False  # whether Python is conda's


def this_machine() -> Machine:
    """The machine that this process runs on."""
    return Machine(
        "Android" if hasattr(sys, "getandroidapilevel") else platform.system(),
        platform.machine().lower().replace("amd64", "x86_64"),
        platform.libc_ver()[0],
        "microsoft" in platform.release().lower(),
        Path(sys.prefix, "conda-meta").is_dir(),
    )


def install_hint(here: Machine | None = None) -> str:
    """What to install on this machine, in one line."""
    here = here or this_machine()
    return f"install a driver: {_first(_CPU, here)}; {_first(_GPU, here)} (see docs/install.md)"


# System, processor, further names of `_marks`; then what to do. The first row that fits counts.
_CPU = (
    (
        *("Linux", ANY, "conda"),
        "`conda install -c conda-forge pocl` brings one for the CPU, `conda install -c conda-forge "
        "ocl-icd-system` shows the system's drivers to a PyOpenCL of conda's",
    ),
    ("Darwin", ANY, "conda", "`conda install -c conda-forge pyopencl pocl` brings one for the CPU"),
    (
        *("Linux", "x86_64", "glibc"),
        "`pip install intel-opencl-rt intel-cmplr-lib-rt` brings one for the CPU, also for AMD's",
    ),
    (
        *("Linux", "x86_64", ANY),
        "PyPI's for the CPU need glibc: use a system that has it, as Debian, Ubuntu and Fedora",
    ),
    (
        *("Linux", ANY, ANY),
        "PyPI has none for this CPU ({processor}), Debian and Ubuntu have: `apt install pocl-opencl-icd`",
    ),
    (
        *("Windows", "x86_64", ANY),
        "`pip install intel-opencl-rt intel-cmplr-lib-rt` brings one for the CPU, also for AMD's",
    ),
    ("Windows", ANY, ANY, "PyPI has none for this CPU ({processor})"),
    ("Darwin", ANY, ANY, "macOS has OpenCL built in, but a virtual machine may have no device"),
    ("Android", ANY, ANY, "PyPI has none for Android's CPUs; look for pocl in Termux"),
    (ANY, ANY, ANY, "look for PoCL among your system's packages, for the CPU"),
)
_GPU = (
    (
        *("Linux", ANY, "wsl"),
        "for a GPU use Python on Windows itself, as in WSL only Intel's driver (intel-opencl-icd) has OpenCL",
    ),
    (
        *("Linux", "x86_64", ANY),
        "for a GPU install its vendor's OpenCL driver (on Debian: nvidia-opencl-icd, intel-opencl-icd, "
        "rocm-opencl-icd or mesa-opencl-icd)",
    ),
    ("Windows", "x86_64", ANY, "for a GPU install its vendor's graphics driver, which has OpenCL"),
    (
        *("Windows", ANY, ANY),
        'for a GPU install "OpenCL, OpenGL and Vulkan Compatibility Pack" from Microsoft\'s store',
    ),
    ("Darwin", ANY, ANY, "a GPU's driver is built in too"),
    ("Android", ANY, ANY, "for a GPU set LD_LIBRARY_PATH=/vendor/lib64 before Python starts"),
    (ANY, ANY, ANY, "for a GPU install its vendor's OpenCL driver, or Mesa's (on Debian: mesa-opencl-icd)"),
)


def _marks(here: Machine) -> set[str]:
    return {here.libc, "wsl" if here.wsl else "", "conda" if here.conda else "", ANY}


def _first(table: tuple[tuple[str, str, str, str], ...], here: Machine) -> str:
    for system, processor, mark, advice in table:
        fits = system in (here.system, ANY) and processor in (here.processor, ANY) and mark in _marks(here)
        if fits:
            return advice.format(processor=here.processor)
    raise AssertionError("the last row of a table fits every machine")
