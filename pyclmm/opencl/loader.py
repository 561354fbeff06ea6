"""Asks the loader of OpenCL drivers for platforms. Before the first time it tells it of two more drivers.

PyPI's intel-opencl-rt lies where no loader looks, and its .icd file has a path of the machine that built it.
NVIDIA's container toolkit mounts the driver's library into a container, but not always its .icd file.
The loader in PyOpenCL's wheels for Linux reads the .icd files of the system's folder and of
PYOPENCL_HOME/.libs. Khronos's, which is in the wheels for Windows, also loads what OCL_ICD_FILENAMES lists.
Either does so once in a process, when it is first asked for platforms. Where no device is found,
:func:`install_hint` says what to install on this very platform.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import pyopencl as cl

from .. import environment
from ..errors import warn_caller

PLATFORM = "Intel(R) OpenCL"  # Intel's runtimes for GPUs have longer names
_PACKAGE = "intel-opencl-rt"
_LIBRARIES = ("libintelocl.so", "intelocl64.dll")  # Linux, Windows
_SYSTEM_FOLDER = "/etc/OpenCL/vendors"
_NVIDIAS = "libnvidia-opencl.so.1"  # on Windows its installer registers it

_asked = threading.RLock()
_was_asked = False
_kept: dict[str, ctypes.CDLL] = {}  # a library that nobody holds may be unloaded


def platforms() -> list[cl.Platform]:
    """Every platform. Raises cl.Error if there is none; then `cure` may know why."""
    global _was_asked  # noqa: PLW0603 - a fact of the process
    with _asked:
        if _was_asked:
            return list(cl.get_platforms())
        with _told():
            found = list(cl.get_platforms())
        _was_asked = True  # not if Ctrl-C came first: then the loader has not been told
    fault = intel_fault(found)
    if fault:
        warn_caller(fault, RuntimeWarning)
    return found


def intel_fault(found: Iterable[cl.Platform]) -> str | None:
    """Why the installed runtime of Intel is not among the platforms *found*, and what would do; else None."""
    library = _library()
    if library is None or any(platform.name.strip() == PLATFORM for platform in found):
        return None
    try:
        _load(library)
    except OSError as error:
        return (
            f"Intel's OpenCL runtime in {library.parent} cannot be loaded ({error}): "
            "`pip install intel-opencl-rt intel-cmplr-lib-rt` brings what it needs"
        )
    return (
        f"Intel's OpenCL runtime in {library.parent} is not used, because PyOpenCL listed platforms before "
        "pyclmm did, or no temporary folder can be written: call pyclmm.devices() first"
    )


def cure() -> str | None:
    """Why there is no platform at all, if that can be told, and what would do; else None."""
    chosen = environment.ICD_VENDORS.value
    if chosen:
        return f"OCL_ICD_VENDORS is {chosen!r}, and no driver is there: unset it, or name an .icd file"
    return intel_fault([])


@contextmanager
def _told() -> Iterator[None]:
    """In this block the loader knows of the runtime of `[intel]` and of NVIDIA's driver. Each only if it is
    there, is not registered and can be loaded.
    """
    libraries: list[str] = []
    for library in (_library(), _nvidias_library()):
        with suppress(OSError):  # `intel_fault` says why
            if library is not None:
                _load(library)
                libraries.append(str(library))
    with ExitStack() as stack:
        if libraries:
            with suppress(OSError):  # no folder can be written: `intel_fault` says so
                home = stack.enter_context(TemporaryDirectory(prefix="pyclmm-icd-"))
                stack.enter_context(_variable(libraries, Path(home)))
        yield


def _library() -> Path | None:
    """The library of intel-opencl-rt; None if it is absent, not wanted, or the system has the same one."""
    # Where the system has it too, two drivers would show the same device.
    if environment.ICD_VENDORS.value or _is_registered("libintelocl.so", _system_folder()):
        return None
    try:
        files = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(os.path.abspath(str(file.locate()))) for file in files if file.name in _LIBRARIES)
    return next((path for path in paths if path.exists()), None)


def _nvidias_library() -> str | None:
    """The name of NVIDIA's library; None if the user says where drivers are, or an .icd file names it."""
    if sys.platform != "linux" or environment.ICD_VENDORS.value:
        return None
    has_one = "libnvidia-opencl" in environment.ICD_FILENAMES.value
    has_one = has_one or _is_registered("libnvidia-opencl", _system_folder(), _own_folder())
    return None if has_one else _NVIDIAS


def _system_folder() -> Path:
    return Path(environment.VENDOR_PATH.value or _SYSTEM_FOLDER)


def _own_folder() -> Path:
    """Where PyOpenCL's wheels for Linux have their loader, and pip the .icd files of drivers."""
    return Path(cl.__file__).parent / ".libs"


def _is_registered(library: str, *folders: Path) -> bool:
    """Whether an .icd file in *folders* names *library*."""
    for icd in (icd for folder in folders for icd in folder.glob("*.icd")):
        with suppress(OSError):
            if library in icd.read_text(errors="replace"):
                return True
    return False


def _load(library: Path | str) -> None:
    """Load a library, Intel's by its path: Windows would look for what it needs in PATH. Raises OSError."""
    if str(library) not in _kept:
        _kept[str(library)] = ctypes.CDLL(str(library))


def _variable(libraries: list[str], home: Path) -> AbstractContextManager[None]:
    """What tells the loader of *libraries*; *home* is an empty folder for it."""
    own = _own_folder()
    if not any(own.glob("libOpenCL*")):  # not the loader of PyOpenCL's wheels for Linux
        listed = environment.ICD_FILENAMES.value.split(os.pathsep)
        return environment.ICD_FILENAMES.replaced(os.pathsep.join(filter(None, [*listed, *libraries])))
    folder = home / ".libs"
    folder.mkdir()
    for icd in own.glob("*.icd"):  # drivers that pip installed, such as PoCL
        shutil.copy(icd, folder)
    for number, library in enumerate(libraries):
        (folder / f"pyclmm-{number}.icd").write_text(f"{library}\n")
    return environment.PYOPENCL_HOME.replaced(str(home))


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


_INTEL = "`pip install intel-opencl-rt intel-cmplr-lib-rt` brings one for the CPU, also for AMD's"
# System, processor, a mark of the machine (see `_first`); then what to do. The first row that fits counts.
_CPU = (
    ("Linux", ANY, "conda", "`conda install -c conda-forge pocl` brings one for the CPU, `conda install -c "
     "conda-forge ocl-icd-system` shows the system's drivers to a PyOpenCL of conda's"),
    ("Darwin", ANY, "conda", "`conda install -c conda-forge pyopencl pocl` brings one for the CPU"),
    ("Linux", "x86_64", "glibc", _INTEL),
    ("Linux", "x86_64", ANY, "PyPI's for the CPU need glibc: use a system that has it, as Debian, Ubuntu and "
     "Fedora"),
    ("Linux", ANY, ANY, "PyPI has none for this CPU ({processor}), Debian and Ubuntu have: `apt install "
     "pocl-opencl-icd`"),
    ("Windows", "x86_64", ANY, _INTEL),
    ("Windows", ANY, ANY, "PyPI has none for this CPU ({processor})"),
    ("Darwin", ANY, ANY, "macOS has OpenCL built in, but a virtual machine may have no device"),
    ("Android", ANY, ANY, "PyPI has none for Android's CPUs; look for pocl in Termux"),
    (ANY, ANY, ANY, "look for PoCL among your system's packages, for the CPU"),
)  # fmt: skip
_GPU = (
    ("Linux", ANY, "wsl", "for a GPU use Python on Windows itself, as in WSL only Intel's driver "
     "(intel-opencl-icd) has OpenCL"),
    ("Linux", "x86_64", ANY, "for a GPU install its vendor's OpenCL driver (on Debian: nvidia-opencl-icd, "
     "intel-opencl-icd, rocm-opencl-icd or mesa-opencl-icd)"),
    ("Windows", "x86_64", ANY, "for a GPU install its vendor's graphics driver, which has OpenCL"),
    ("Windows", ANY, ANY, 'for a GPU install "OpenCL, OpenGL and Vulkan Compatibility Pack" from '
     "Microsoft's store"),
    ("Darwin", ANY, ANY, "a GPU's driver is built in too"),
    ("Android", ANY, ANY, "for a GPU set LD_LIBRARY_PATH=/vendor/lib64 before Python starts"),
    (ANY, ANY, ANY, "for a GPU install its vendor's OpenCL driver, or Mesa's (on Debian: mesa-opencl-icd)"),
)  # fmt: skip


def _first(table: tuple[tuple[str, str, str, str], ...], here: Machine) -> str:
    """The advice of the first row that fits; the last one fits every machine."""
    marks = {here.libc, "wsl" if here.wsl else ANY, "conda" if here.conda else ANY, ANY}
    return next(
        advice.format(processor=here.processor)
        for system, processor, mark, advice in table
        if system in (here.system, ANY) and processor in (here.processor, ANY) and mark in marks
    )
