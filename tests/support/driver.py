"""The one OpenCL driver that the tests run on, in each process, whatever else is installed."""

import ctypes
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pyopencl as cl
import pytest

from pyclmm.opencl import loader
from tests.support.short_headers import shortened

_SYSTEM = "/etc/OpenCL/vendors"
without_intels = pytest.mark.skipif(
    any(metadata.distributions(name="intel-opencl-rt")), reason="a driver more: intel-opencl-rt is installed"
)
# Prints what tells the default device from those of other drivers.
_DEFAULT = """
from pyclmm.opencl.devices import default_device
device = default_device()
print(device.platform.name, device.platform.version, device.name, device.driver_version)
"""


def name_it(folder):
    """Set OCL_ICD_VENDORS to the default device's driver alone, if there are several and the user has not.

    A PoCL that short_headers.py knows is replaced by one that compiles faster. *folder*: for what this needs.
    """
    named = os.environ.get("OCL_ICD_VENDORS")
    found = _named(Path(named)) if named else libraries()
    several = len(found) > 1
    wanted = default_device() if several else ""
    icd = Path(folder) / "tested.icd"
    alone = {"OCL_ICD_VENDORS": str(icd)} | ({"PYOPENCL_CTX": ""} if several else {})
    for library in found if wanted or not several else ():
        icd.write_text(f"{library}\n")
        if several and default_device(**alone) != wanted:
            continue
        quick = shortened(Path(library), Path(folder))
        if several or quick != library:
            icd.write_text(f"{quick}\n")
            os.environ.update(alone)
        return


def _named(icd):
    """The library that one .icd file names. None of a folder, whose drivers the user chose."""
    return [icd.read_text(encoding="utf-8").strip()] if icd.is_file() and icd.suffix == ".icd" else []


def _nvidias():
    """NVIDIA's library, if it is there and not registered."""
    library = loader._nvidias_library()
    if library is None:
        return None
    try:
        ctypes.CDLL(library)
    except OSError:
        return None
    return library


def libraries():
    """The libraries of the drivers that a process finds: the system's, and those that pip installed."""
    folders = (Path(os.environ.get("OPENCL_VENDOR_PATH") or _SYSTEM), Path(cl.__file__).parent / ".libs")
    found = []
    for icd in (icd for folder in folders for icd in sorted(folder.glob("*.icd"))):
        name = icd.read_text(encoding="utf-8").strip()
        beside = icd.parent / name
        found.append(beside if beside.exists() else name)
    return list(filter(None, [*found, loader._library(), _nvidias()]))


def default_device(**variables):
    command = [sys.executable, "-c", _DEFAULT]
    done = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout
