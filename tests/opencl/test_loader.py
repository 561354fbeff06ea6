"""Intel's runtime of pip, and NVIDIA's driver where nothing registers it, are shown to the loader of drivers.

PoCL's library stands for Intel's here, in an installed package that is made up, and for NVIDIA's. Each test
runs a process, because a loader looks for drivers once. tests/conformance/test_intel.py has Intel's own.
"""

import os
from pathlib import Path

import pyopencl as cl
import pytest

from pyclmm.opencl.loader import install_hint
from tests.support.driver import without_intels
from tests.support.processes import python

ROOT = Path(__file__).parent.parent.parent
POCL = sorted((Path(cl.__file__).parent / ".libs").glob("libpocl-*.so"))
pytestmark = pytest.mark.skipif(
    not POCL, reason="PyPI's PoCL, which stands for Intel's runtime, is not installed"
)

HEAD = """
import os, sys, pathlib, pyopencl as cl, pyclmm, numpy as np
from pyclmm.opencl import loader
loader.PLATFORM = "Portable Computing Language"
if "NVIDIAS" not in os.environ:  # one of this machine would be listed too
    loader._NVIDIAS = "libnvidia-opencl-of-no-machine.so.1"
before = dict(os.environ)
"""
LIST = "print(len(loader.platforms()), len(cl.get_platforms())); assert before == dict(os.environ)"


@pytest.fixture
def package(tmp_path):
    """An installed intel-opencl-rt. Returns the variables of a process that finds it."""
    lib, site = tmp_path / "prefix" / ".libs", tmp_path / "prefix" / "python3" / "site-packages"
    info = site / "intel_opencl_rt-2026.2.0.dist-info"
    for folder in (info, lib):
        folder.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: intel-opencl-rt\nVersion: 2026.2.0\n")
    (info / "RECORD").write_text(
        "../../.libs/libintelocl.so,,\nintel_opencl_rt-2026.2.0.dist-info/METADATA,,\n"
    )
    (lib / "libintelocl.so").symlink_to(POCL[0])
    # PoCL finds its files by the place of its library.
    (tmp_path / "pocl_binary_distribution").symlink_to(POCL[0].parents[2] / "pocl_binary_distribution")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OCL_ICD", "OPENCL_", "PYOPENCL_"))}
    return kept | {
        "PYTHONPATH": os.pathsep.join((str(site), str(ROOT), os.environ.get("PYTHONPATH", ""))),
        "OPENCL_VENDOR_PATH": str(tmp_path / "vendors"),
        "TMPDIR": str(tmp_path),
    }


def run(code, env, head=HEAD):
    done = python("-c", head + code, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_the_runtime_is_listed_beside_what_was_there(package, tmp_path):
    """Once as PoCL, once as the made-up package. No variable and no folder is left."""
    assert run(LIST, package) == ("2 2", "")
    assert not list(tmp_path.glob("pyclmm-icd-*"))


@without_intels
def test_without_the_package_nothing_is_added(package):
    assert run(LIST, package | {"PYTHONPATH": str(ROOT)}) == ("1 1", "")


def test_several_threads_may_list_first(package):
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    print({len(found) for found in pool.map(lambda _: loader.platforms(), range(8))})
"""
    assert run(code, package) == ("{2}", "")


def test_the_runtime_is_listed_after_an_interrupt(package):
    code = """
def interrupted(): raise KeyboardInterrupt
real, loader._library = loader._library, interrupted
try:
    loader.platforms()
except KeyboardInterrupt:
    loader._library = real
print(len(loader.platforms()))
"""
    assert run(code, package) == ("2", "")


def test_what_the_user_chose_is_left_alone(package, tmp_path):
    chosen = tmp_path / "chosen.icd"
    chosen.write_text(f"{POCL[0]}\n")
    assert run(LIST, package | {"OCL_ICD_VENDORS": str(chosen)}) == ("1 1", "")


@pytest.mark.parametrize("own", [False, True], ids=["another driver", "its own runtime of the same kind"])
def test_drivers_of_the_system_are_still_seen(package, tmp_path, own):
    vendors = tmp_path / "vendors"
    vendors.mkdir()
    (vendors / "other.icd").write_text(f"{tmp_path}/prefix/.libs/libintelocl.so\n" if own else f"{POCL[0]}\n")
    assert run(LIST, package) == ("2 2" if own else "3 3", "")


def test_the_wrong_path_in_the_packages_own_file_does_no_harm(package, tmp_path):
    wrong = tmp_path / "prefix/etc/OpenCL/vendors/intel-cpu.icd"
    wrong.parent.mkdir(parents=True)
    wrong.write_text("/opt/anaconda1anaconda2anaconda3/lib/libintelocl.so\n")
    assert run(LIST, package) == ("2 2", "")


LATE = HEAD + "loader.PLATFORM = 'Intel(R) OpenCL'\n"


def test_platforms_that_were_listed_before_are_told_of(package):
    said, warned = run("cl.get_platforms(); print(len(loader.platforms()))", package, LATE)
    assert said == "1"
    assert warned.count("RuntimeWarning: Intel's OpenCL runtime in ") == 1
    assert "call pyclmm.devices() first" in warned


def test_without_a_folder_to_write_the_reason_is_told(package):
    code = "import tempfile; tempfile.tempdir = '/does/not/exist'; print(len(loader.platforms()))"
    said, warned = run(code, package, LATE)
    assert said == "1"
    assert "no temporary folder can be written" in warned


def test_a_library_that_cannot_be_loaded_is_named_with_its_cure(package, tmp_path):
    library = tmp_path / "prefix/.libs/libintelocl.so"
    library.unlink()
    library.write_bytes(b"not a library")
    said, warned = run("print(len(loader.platforms()))", package, LATE)
    assert said == "1"
    assert "libintelocl.so: file too short" in warned
    assert "pip install intel-opencl-rt intel-cmplr-lib-rt" in warned


def test_an_error_without_any_platform_has_the_same_cure(package, tmp_path):
    library = tmp_path / "prefix/.libs/libintelocl.so"
    library.unlink()
    library.write_bytes(b"not a library")
    code = """
os.environ["PYOPENCL_HOME"] = "/does/not/exist"  # no PoCL
try:
    pyclmm.devices()
except pyclmm.NoDeviceError as error:
    print(error)
"""
    said, _ = run(code, package, LATE)
    assert said.startswith("no OpenCL platform was found; Intel's OpenCL runtime in ")
    assert said.endswith("`pip install intel-opencl-rt intel-cmplr-lib-rt` brings what it needs")


@without_intels
def test_the_command_says_what_to_install(package, tmp_path):
    """`pyclmm info` on a machine without a driver: no package, and no PoCL for PyOpenCL's loader to find."""
    code = """
os.environ["PYOPENCL_HOME"] = "/does/not/exist"
from pyclmm.tools.cli import main
sys.argv = ["pyclmm", "info"]
main()
"""
    head = "import os, sys, pyclmm\n"
    env = package | {"PYTHONPATH": str(ROOT)}
    done = python("-c", head + code, env=env)
    assert done.returncode not in (0, -6, -11)
    assert install_hint() in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_khronos_loader_is_told_by_its_own_variable(package, tmp_path):
    """The loader of Windows's wheels is not here, so what it would be told is looked at."""
    code = f"""
loader.cl.__file__ = {str(tmp_path / "elsewhere.py")!r}  # no loader of PyOpenCL's beside it
os.environ["OCL_ICD_FILENAMES"] = "/users/own.so"
with loader._told():
    print(os.environ["OCL_ICD_FILENAMES"], os.environ["PYOPENCL_HOME"] == before["PYOPENCL_HOME"])
print(os.environ["OCL_ICD_FILENAMES"])
"""
    said, _ = run(code, package)
    library = tmp_path / "prefix/.libs/libintelocl.so"
    assert said.splitlines() == [f"/users/own.so{os.pathsep}{library} True", "/users/own.so"]


def test_intels_runtime_is_the_default_among_cpus(package):
    """Whichever stands first. A GPU comes before it."""
    code = """
from types import SimpleNamespace as Fake
from pyclmm.opencl import devices
def fake(name, kind):
    return Fake(platform=Fake(name=name), type=kind, max_compute_units=1, max_clock_frequency=1)
cpu, gpu = cl.device_type.CPU, cl.device_type.GPU
pocl, intel = fake("Portable Computing Language", cpu), fake("Intel(R) OpenCL ", cpu)
graphics = fake("Intel(R) OpenCL Graphics", gpu)
for found in ([pocl, intel], [intel, pocl], [pocl], [pocl, intel, graphics]):
    devices.all_devices = lambda: found
    print(devices.default_device().platform.name.strip())
"""
    said, _ = run(code, {k: v for k, v in package.items() if k != "PYOPENCL_CTX"}, LATE)
    assert said.splitlines() == [
        *("Intel(R) OpenCL", "Intel(R) OpenCL"),
        *("Portable Computing Language", "Intel(R) OpenCL Graphics"),
    ]


@pytest.fixture
def nvidias(package, tmp_path):
    """NVIDIA's library on the path of libraries, without an .icd file. Returns the variables of a process."""
    folder = tmp_path / "prefix" / "nvidia"
    folder.mkdir()
    (folder / "libnvidia-opencl.so.1").symlink_to(POCL[0])
    return package | {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(ROOT), "NVIDIAS": "yes"}


@without_intels
def test_nvidias_driver_that_is_not_registered_is_listed(nvidias, tmp_path):
    """As in a container: the library is there, and no nvidia.icd."""
    assert run(LIST, nvidias) == ("2 2", "")
    assert not list(tmp_path.glob("pyclmm-icd-*"))


def test_nvidias_driver_and_intels_are_listed_together(nvidias, package):
    assert run(LIST, nvidias | {"PYTHONPATH": package["PYTHONPATH"]}) == ("3 3", "")


@without_intels
@pytest.mark.parametrize("text", ["libnvidia-opencl.so.1\n", "/usr/lib/libnvidia-opencl.so.580.159.04\n"])
def test_nvidias_driver_that_is_registered_is_listed_once(text, nvidias, tmp_path):
    vendors = tmp_path / "vendors"
    vendors.mkdir()
    (vendors / "any-name.icd").write_text(text)
    registered = 1 + ("/" not in text)  # there is no such file
    assert run(LIST, nvidias) == (f"{registered} {registered}", "")


@without_intels
def test_nvidias_library_that_cannot_be_loaded_is_left_alone(nvidias, tmp_path):
    library = tmp_path / "prefix/nvidia/libnvidia-opencl.so.1"
    library.unlink()
    library.write_bytes(b"not a library")
    assert run(LIST, nvidias) == ("1 1", "")


@without_intels
@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "OCL_ICD_VENDORS"])
def test_without_nvidias_library_and_where_the_user_chose_no_folder_is_made(variable, nvidias, tmp_path):
    """It costs a machine without NVIDIA's driver one search for the library."""
    chosen = tmp_path / "chosen.icd"
    chosen.write_text(f"{POCL[0]}\n")
    code = """
def refused(**_): raise AssertionError
loader.TemporaryDirectory = refused
print(len(loader.platforms()))
"""
    assert run(code, nvidias | {variable: str(chosen)}) == ("1", "")
