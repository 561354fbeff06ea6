"""Asks the loader of OpenCL drivers for platforms. Before the first time it tells it of two more drivers.

PyPI's intel-opencl-rt lies where no loader looks, and its .icd file has a path of the machine that built it.
NVIDIA's container toolkit mounts the driver's library into a container, but not always its .icd file.
The loader in PyOpenCL's wheels for Linux reads the .icd files of the system's folder and of
PYOPENCL_HOME/.libs. Khronos's, which is in the wheels for Windows, also loads what OCL_ICD_FILENAMES lists.
Either does so once in a process, when it is first asked for platforms.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import pyopencl as cl

from .. import environment

PLATFORM = "Intel(R) OpenCL"  # Intel's runtimes for GPUs have longer names
_PACKAGE = "intel-opencl-rt"
_LIBRARIES = ("libintelocl.so", "intelocl64.dll")  # Linux, Windows
_SYSTEM_FOLDER = "/etc/OpenCL/vendors"
_NVIDIAS = "libnvidia-opencl.so.1"  # on Windows its installer registers it

_asked = threading.Lock()
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
        warnings.warn(fault, RuntimeWarning, stacklevel=2)
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
    """In this block the loader knows of the runtime of `[intel]` and of NVIDIA's driver.

    Each only if it is there, is not registered and can be loaded.
    """
    libraries: list[str] = []
    for library in (_library(), _nvidias_library()):
        with suppress(OSError):  # `intel_fault` says why
            if library is not None:
                _load(library)
                libraries.append(str(library))
    home = None
    with suppress(OSError):
        home = TemporaryDirectory(prefix="pyclmm-icd-") if libraries else None
    if home is None:
        yield
        return
    with home, _variable(libraries, Path(home.name)):
        yield


def _library() -> Path | None:
    """The library of intel-opencl-rt in this Python environment.

    None if there is none, if the user has said where drivers are, or if the system has the same runtime.
    """
    if environment.ICD_VENDORS.value or _system_has_one():
        return None
    try:
        files = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(os.path.abspath(str(file.locate()))) for file in files if file.name in _LIBRARIES)
    return next((path for path in paths if path.exists()), None)


def _system_has_one() -> bool:
    """Whether a driver of the system is Intel's runtime for CPUs: two would show the same device twice."""
    return _is_registered("libintelocl.so", _system_folder())


def _nvidias_library() -> str | None:
    """The name of NVIDIA's library, which may be there.

    None if the user has said where drivers are, or if an .icd file names it.
    """
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
    """Load a library: Intel's by its path, with what it needs from its own folder. Raises OSError.

    On Windows the loader's own call would look for them in the folders of PATH.
    """
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
