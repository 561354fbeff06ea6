"""The layers of the package: import contracts, names private to a folder, and jobs of a single module.

The contracts stand in setup.cfg and `make lint` checks them. Here a broken contract is shown to be found.
"""

import ast
import os
import re
import shutil
from pathlib import Path

import grimp
import pytest

from pyclmm.kernels import KERNELS
from tests.support.processes import python

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "pyclmm"
SPEAKS = {"tools.report", "tools.cli"}  # these may print


def name_of(path):
    """ "kernels.interface" of pyclmm/kernels/interface.py; "kernels" and "" of packages."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
FOLDERS = [
    name_of(path)
    for path in PACKAGE.rglob("__init__.py")
    if path.parent not in (PACKAGE, PACKAGE / "selection/tuned")
]
GRAPH = grimp.build_graph("pyclmm")


# the contracts of setup.cfg


def linted(root):
    """The import linter's report on the package in *root*, as one line."""
    command = "import sys; from importlinter.cli import lint_imports_command as c; c(['--no-cache'])"
    done = python("-c", command, cwd=root)
    assert done.returncode in (0, 1), done.stderr
    return " ".join(done.stdout.split())


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The root of a copy of the package with its contracts, and the linter's report on it."""
    root = tmp_path_factory.mktemp("copy")
    shutil.copytree(PACKAGE, root / "pyclmm")
    shutil.copy(ROOT / "setup.cfg", root)
    return root, linted(root)


def test_the_doors_may_be_deleted(tmp_path):
    """Without their folders the rest is imported and multiplies."""
    shutil.copytree(PACKAGE, tmp_path / "pyclmm")
    shutil.copytree(ROOT / "cl", tmp_path / "cl")
    for door in ("array_api", "dask", "linalg", "torch"):
        shutil.rmtree(tmp_path / "pyclmm" / door)
    program = """
import numpy as np, pyclmm, pyclmm.tools.cli
a = np.ones((3, 4), np.float32)
assert (pyclmm.matmul(a, a.T) == 4).all()
assert (pyclmm.matmul_many([(a, a.T)])[0] == 4).all()
print(pyclmm.__file__)
"""
    done = python("-c", program, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path), "the copy"


@pytest.mark.parametrize(
    ("contract", "module", "line", "arrow"),
    [
        ("Imports point down", "errors", "from .api import matmul", "pyclmm.errors -> pyclmm.api"),
        (
            "Folders of kernels/ do not import one another", "kernels/cpu/matvec",
            "from ..textbook.elements import Naive",
            "pyclmm.kernels.cpu.matvec -> pyclmm.kernels.textbook.elements",
        ),
        (
            "Nothing pure imports PyOpenCL", "problem/dtypes", "import pyopencl",
            "pyclmm.problem.dtypes -> pyopencl",
        ),
        (
            "The package imports nothing of its repository", "tools/plots",
            "from benchmarks.roofline import attainable", "pyclmm.tools.plots -> benchmarks",
        ),
        ("No circles within a folder", "problem/dtypes", "from . import gemm", ".gemm -> .dtypes"),
    ],
    ids=["folders", "kernels", "pure", "outside", "circles"],
)  # fmt: skip
def test_a_reversed_import_breaks_its_contract(copied, contract, module, line, arrow):
    root, before = copied
    assert arrow not in before
    path = root / "pyclmm" / f"{module}.py"
    text = path.read_text()
    path.write_text(f"{text}\n{line}\n")
    try:
        after = linted(root)
    finally:
        path.write_text(text)
    assert f"{contract} BROKEN" in after
    assert arrow in after


def test_a_class_name_stands_once():
    """With and without an underscore they are one name to a reader."""
    places = {}
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(module)
    assert not {name: modules for name, modules in places.items() if len(modules) > 1}


def test_no_family_imports_another():
    families = {type(kernel).__module__ for kernel in KERNELS}
    imported = {family: families & GRAPH.find_modules_directly_imported_by(family) for family in families}
    assert not {family: others for family, others in imported.items() if others}


def test_the_drawing_has_every_folder():
    drawn = set(re.findall(r"<title>(\w+)</title>", (ROOT / "docs/imports.svg").read_text()))
    assert {name for name in FOLDERS if "." not in name} | {"api", "plan", "errors"} <= drawn


# what is private to a folder


def for_others(folder):
    """What a folder's ``__init__`` says that others may import."""
    found = re.search(r"^Others import: (.*?)\.$", ast.get_docstring(MODULES[folder]), re.M | re.S)
    named = set(re.findall(r"\b[a-z]\w*", found[1].partition(", and what")[0]))
    return named - {"nothing"}


def crossings():
    """(importing module, folder, imported name) of every import from outside a folder."""
    for importer in GRAPH.modules:
        for imported in GRAPH.find_modules_directly_imported_by(importer):
            name = imported.removeprefix("pyclmm.")
            for folder in FOLDERS:
                inside = importer == f"pyclmm.{folder}" or importer.startswith(f"pyclmm.{folder}.")
                if name.startswith(f"{folder}.") and not inside:
                    yield importer, folder, name.removeprefix(f"{folder}.").partition(".")[0]


@pytest.mark.parametrize("folder", [f for f in FOLDERS if "." not in f])
def test_only_names_a_folder_lists_are_imported_from_outside(folder):
    named = for_others(folder)
    taken = {what: importer for importer, entered, what in crossings() if entered == folder}
    private = {what: importer for what, importer in taken.items() if what not in named}
    assert not private, f"private to {folder}: {private}"
    assert named == taken.keys(), f"{folder} names what no other imports: {named - taken.keys()}"


def test_only_kernels_imports_a_family():
    inner = {importer for importer, entered, _ in crossings() if entered.startswith("kernels.")}
    assert inner == {"pyclmm.kernels"}


# what only one module does


def calls_of(attribute):
    """The modules that use an attribute of this name."""
    return {
        name
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == attribute
    }


def test_one_module_compiles_one_launches_one_asks_about_memory():
    compiles = {
        name
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "cl.Program"
    }
    assert compiles == {"opencl.compiler"}
    assert calls_of("enqueue_nd_range_kernel") == {"opencl.binding"}
    assert calls_of("host_unified_memory") == {"opencl.devices"}


@pytest.mark.parametrize("name", MODULES)
def test_no_pickle_no_prompt_no_print_no_assert(name):
    for node in ast.walk(MODULES[name]):
        narrows = isinstance(node, ast.Assert) and ast.unparse(node.test).startswith("isinstance(")
        plain = not isinstance(node, ast.Assert) or narrows  # such an assert helps type checkers
        assert plain, f"{ast.unparse(node)}: what a user can cause needs an error"
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert "pickle" not in ast.unparse(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("input", "print"), f"line {node.lineno}"
