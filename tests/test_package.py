"""The wheel and the sdist hold all files and work in a clean environment."""

import json
import re
import shlex
import shutil
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.processes import ended

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("package")]


def run(*command, **kwargs):
    done = ended(*command, timeout=300, **kwargs)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(sdist, wheel). The wheel is built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def clean(built, tmp_path_factory):
    """A virtual environment with the wheel in it, and the packages that it needs by their path only."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "-q", str(built[1]))
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def sources():
    """The names of the files that a wheel must hold."""
    wanted = {f"pyclmm/{path.relative_to(ROOT / 'pyclmm')}" for path in (ROOT / "pyclmm").rglob("*.py")}
    wanted |= {
        f"pyclmm/cl/{path.relative_to(ROOT / 'cl')}" for path in (ROOT / "cl").rglob("*") if path.is_file()
    }
    wanted |= {
        f"pyclmm/selection/tuned/{path.name}" for path in (ROOT / "pyclmm/selection/tuned").glob("*.json")
    }
    return wanted | {"pyclmm/py.typed"}


def test_the_wheel_holds_everything(built):
    names = set(zipfile.ZipFile(built[1]).namelist())
    assert sources() <= names
    assert any(name.endswith("LICENSE") for name in names)
    assert not any(name.startswith("tests") for name in names)
    assert built[1].name.endswith("-py3-none-any.whl")


def test_the_sdist_holds_what_the_wheel_is_built_from(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "README.md", "LICENSE", "setup.cfg", "pyproject.toml", "cl/include/gemm.h", "cl/textbook/tiled.cl",
    } <= names  # fmt: skip


def test_the_sdist_holds_the_whole_clone(built):
    """What git knows, so that an unpacked sdist has the tests, pages, examples and recipes."""
    listed = ended("git", "ls-files", "-z", cwd=ROOT)
    if listed.returncode:
        pytest.skip("not a clone, so there is no list of files to compare with")
    known = {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert known - names == set()
    assert not [name for name in names if "__pycache__" in name or name.startswith((".venv", ".conformance"))]


def test_the_page_for_an_index_has_no_link_that_works_in_a_clone_only(built):
    text = metadata(built)
    assert "# pyclmm" in text
    assert "`docs/semantics.md`" in text
    assert not re.search(r"\]\((?!https://)", text)


def test_the_extras_are_in_the_metadata(built):
    text = metadata(built)
    for line in (
        'Requires-Dist: intel-opencl-rt>=2026.2; extra == "intel"',
        'Requires-Dist: intel-cmplr-lib-rt>=2026.2; extra == "intel"',
        'Requires-Dist: intel-opencl-rt>=2026.2; (platform_system == "Linux" and platform_machine == '
        '"x86_64") and extra == "cpu"',
    ):
        assert line in text


def test_the_wheel_works(clean, tmp_path):
    code = (
        "import json, numpy as np, pyclmm\n"
        "from pyclmm.opencl.compiler import read_source\n"
        "x = np.ones((3, 3), np.float32)\n"
        "print(json.dumps([pyclmm.__file__, pyclmm.__version__, len(read_source('include/gemm.h')),\n"
        "                  float(pyclmm.matmul(x, x).sum()), [k.name for k in pyclmm.KERNELS]]))"
    )
    output = run(str(clean / "bin" / "python"), "-W", "error", "-c", code, cwd=tmp_path)
    path, version, length, total, names = json.loads(output)
    assert Path(path).is_relative_to(clean), "not the one of this checkout"
    assert version
    assert length == len((ROOT / "cl/include/gemm.h").read_text())
    assert total == 27
    assert "tiled" in names


@pytest.mark.parametrize("command", [["bin/pyclmm"], ["bin/python", "-m", "pyclmm"]])
def test_the_command_works(clean, tmp_path, command):
    output = run(str(clean / command[0]), *command[1:], "info", "--json", cwd=tmp_path)
    assert json.loads(output)["platforms"]


def metadata(built):
    """The wheel's METADATA, with the page for a package index."""
    archive = zipfile.ZipFile(built[1])
    (name,) = [n for n in archive.namelist() if n.endswith("METADATA")]
    return archive.read(name).decode()


def test_the_metadata_is_complete(built):
    text = metadata(built)
    for line in ("Name: pyclmm", "Provides-Extra: pocl", "Requires-Dist: numpy"):
        assert line in text
    assert re.search(r"^License(-Expression)?: Apache-2.0$", text, re.MULTILINE)


PRODUCT = """
import numpy as np, pyclmm
x = np.ones((3, 3), np.float32)
print(pyclmm.matmul(x, x).sum(), pyclmm.__file__)
"""


@pytest.mark.parametrize("where", ["root", "parent"])
def test_an_ordinary_install_works_from_a_clones_root_and_parent(clean, where):
    """Python then imports the clone's package, which has no cl/ inside of it.

    From its parent the clone itself looks like a namespace package of that name, if it is called pyclmm.
    """
    folder = ROOT if where == "root" else ROOT.parent
    total, path = run(str(clean / "bin" / "python"), "-c", PRODUCT, cwd=folder).split()
    assert total == "27.0"
    assert Path(path).is_relative_to(ROOT / "pyclmm" if where == "root" else clean)


def test_what_make_installs_is_not_hidden_by_the_clone(tmp_path):
    """From the clone's parent folder, the clone itself looks like a namespace package of that name."""
    clone = tmp_path / "pyclmm"
    for name in ("pyclmm", "cl"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    recipes = re.findall(r"pip install .* -e \S+ (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert len(recipes) == 3  # what runs, the tests, the site
    assert len(set(recipes)) == 1
    python = tmp_path / "venv" / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv"))
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps")
    run(*pip, "--no-build-isolation", "-e", str(clone), *shlex.split(recipes[0]))
    total, path = run(str(python), "-c", PRODUCT, cwd=tmp_path).split()
    assert total == "27.0"
    assert Path(path) == clone / "pyclmm" / "__init__.py"
