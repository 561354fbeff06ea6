"""What a machine without a driver is told to install."""

import configparser
import platform
import re
from pathlib import Path

import pytest

from pyclmm.opencl import loader
from pyclmm.opencl.loader import Machine, install_hint
from tests.support.faults import Part

ROOT = Path(__file__).parent.parent.parent
PIP = "pip install "
INTEL = PIP + "intel-opencl-rt intel-cmplr-lib-rt"

# A machine, what its hint must name, what it must not name.
TABLE = [
    (Machine("Linux", "x86_64"), [INTEL, "nvidia-opencl-icd"], ["conda", "WSL"]),
    (Machine("Linux", "x86_64", libc=""), ["glibc"], [PIP]),
    (Machine("Linux", "x86_64", wsl=True), [INTEL, "Windows itself"], ["nvidia-opencl-icd"]),
    (Machine("Linux", "x86_64", conda=True), ["conda-forge pocl", "ocl-icd-system"], [PIP]),
    (Machine("Linux", "aarch64"), ["apt install pocl-opencl-icd", "aarch64"], [PIP, "nvidia"]),
    (Machine("Linux", "aarch64", conda=True), ["conda-forge pocl"], ["apt install pocl"]),
    (Machine("Linux", "riscv64"), ["apt install pocl-opencl-icd", "riscv64"], [PIP]),
    (Machine("Windows", "x86_64", libc=""), [INTEL, "graphics driver"], ["apt", "Debian", "glibc"]),
    (Machine("Windows", "arm64", libc=""), ["Microsoft's store", "arm64"], [PIP, "Debian"]),
    (Machine("Darwin", "arm64", libc=""), ["built in"], [PIP, "Debian"]),
    (Machine("Darwin", "x86_64", libc="", conda=True), ["conda-forge pyopencl pocl"], [PIP]),
    (Machine("Android", "aarch64", libc="libc"), ["/vendor/lib64"], [PIP, "Debian"]),
    (Machine("FreeBSD", "x86_64", libc=""), ["PoCL"], [PIP, "{processor}"]),
]


@pytest.mark.parametrize(("machine", "named", "not_named"), TABLE)
def test_a_platform_is_told_what_exists_for_it(machine, named, not_named):
    hint = install_hint(machine)
    assert hint.startswith("install a driver: ")
    assert "\n" not in hint
    for text in named:
        assert text in hint
    for text in not_named:
        assert text not in hint


def test_each_row_of_the_tables_is_somebodys_advice():
    texts = " ".join(install_hint(machine) for machine, _, _ in TABLE)
    for *_, text in (*loader._CPU, *loader._GPU):
        assert text.partition("{")[0] in texts


def extra_packages():
    """(system, processor) -> the packages that the extra "cpu" installs there."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    found = {}
    for line in setup["options.extras_require"]["cpu"].strip().splitlines():
        marker = r"([\w-]+).*; platform_system == '(\w+)' and platform_machine == '(\w+)'"
        package, system, processor = re.fullmatch(marker, line.strip()).groups()
        key = (system, processor.lower().replace("amd64", "x86_64"))
        found.setdefault(key, []).append(package)
    return found


def test_the_packages_advised_are_those_of_the_extra():
    advised = {
        (m.system, m.processor): re.search(r"`pip install ([^`]+)`", install_hint(m))[1].split()
        for m, _, _ in TABLE
        if PIP in install_hint(m)
    }
    assert advised == extra_packages()


def test_this_machine_is_known():
    here = loader.this_machine()
    assert here.system == platform.system()
    assert here.processor in platform.machine().lower().replace("amd64", "x86_64")
    assert install_hint() == install_hint(here)


def test_windows_spelling_of_the_processor(monkeypatch):
    windows = {"system": lambda: "Windows", "machine": lambda: "AMD64", "libc_ver": lambda: ("", "")}
    monkeypatch.setattr(loader, "platform", Part(platform, **windows))
    assert loader.this_machine().processor == "x86_64"
    assert PIP in install_hint()


def test_wsl_is_noticed(monkeypatch):
    monkeypatch.setattr(platform, "release", lambda: "5.15.167.4-microsoft-standard-WSL2")
    assert loader.this_machine().wsl
