"""PyPI's PoCL without a linker, with which it would end the process."""

import os
import warnings
from pathlib import Path
from types import SimpleNamespace

import pyopencl as cl
import pytest

from pyclmm.opencl import devices, loader, pocl
from tests.support.driver import without_intels
from tests.support.processes import python

ROOT = Path(__file__).parent.parent.parent
PYPIS = any((Path(cl.__file__).parent / ".libs").glob("libpocl-*.so"))
needs_pocl = pytest.mark.skipif(not PYPIS, reason="PyPI's PoCL is not installed")

CODE = """
import pyclmm
try:
    print(len(pyclmm.devices()))
except pyclmm.NoDeviceError as error:
    print(error)
"""


@needs_pocl
@without_intels
def test_pocl_without_a_linker_is_left_out_and_says_what_would_do(tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OCL_ICD", "OPENCL_", "PYOPENCL_"))}
    env |= {"PATH": str(tmp_path), "OPENCL_VENDOR_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = python("-c", CODE, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "no OpenCL platform here has a device; PoCL of PyPI is left out, because it needs"
    )
    assert "`pip install intel-opencl-rt intel-cmplr-lib-rt`" in done.stdout
    assert "`apt install gcc libc6-dev`" in done.stdout


@pytest.fixture
def no_linker(monkeypatch):
    """Neither cached answers nor a linker."""
    kept = (pocl._fault, pocl.warn_once)
    for function in kept:
        function.cache_clear()
    monkeypatch.setenv("PATH", "")
    yield
    for function in kept:
        function.cache_clear()


def platform(version, found):
    return SimpleNamespace(name="x", version=version, get_devices=lambda: found)


@needs_pocl
def test_other_devices_are_used_with_one_warning(no_linker, monkeypatch):
    left_out = platform("OpenCL 3.0 PoCL 3.0-rc2  Linux", ["pocl"])
    others = [platform("OpenCL 3.1 LINUX", ["intel"]), platform("OpenCL 3.0 PoCL 7.0", ["newer"])]
    monkeypatch.setattr(loader, "platforms", lambda: [left_out, *others])
    with pytest.warns(RuntimeWarning, match="needs a linker"):
        assert devices.all_devices() == ["intel", "newer"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert devices.all_devices() == ["intel", "newer"]


@pytest.mark.parametrize("lacking", ["ld", "libgcc"])
def test_both_the_linker_and_gccs_libraries_are_needed(monkeypatch, tmp_path, lacking):
    gcc = tmp_path / "gcc" / "x86_64-linux-gnu" / "14"
    gcc.mkdir(parents=True)
    (gcc / "libgcc.a").touch()
    monkeypatch.setattr(pocl, "_GCC", (str(tmp_path / "absent"), str(tmp_path / "gcc")))
    linker = tmp_path / "bin" / "ld"
    linker.parent.mkdir()
    linker.touch(0o755)
    monkeypatch.setenv("PATH", str(linker.parent))
    assert pocl._has_linker()
    (linker if lacking == "ld" else gcc / "libgcc.a").unlink()
    assert not pocl._has_linker()
