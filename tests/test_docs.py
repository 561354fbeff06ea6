"""What the pages name is there: files, folders, modules, classes, functions and tests; the example runs."""

import ast
import importlib
import os
import re
import shutil
from functools import cache
from pathlib import Path

import pytest

from tests.support.processes import python

ROOT = Path(__file__).parent.parent
# CHANGELOG.md names what was there then.
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
ADDING = ROOT / "docs" / "adding_a_kernel.md"
SOURCES = ("pyclmm", "cl", "tests", "benchmarks", "examples", "docs")
FILES = {path.relative_to(ROOT).as_posix() for name in SOURCES for path in (ROOT / name).rglob("*")}
# Names in the example of docs/adding_a_kernel.md, which the reader is to write.
WRITTEN = {"cl/textbook/column.cl", "pyclmm/kernels/textbook/column.py", "textbook/column.cl", "column.py"}
OTHER_DOTS = {"py", "cl", "h", "md", "json", "sync"}  # endings of files; mma.sync, an instruction


def spans(page):
    """The code in a page's text, without its blocks."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.findall(r"`([^`\n]+)`", text)


def written_out(name):
    return not re.search(r"[<>*{}]|\.\.\.", name)


@cache
def trees():
    """Name of each module of the package and the tests, without folders -> the trees of that name."""
    found = {}
    for path in (*(ROOT / "pyclmm").rglob("*.py"), *(ROOT / "tests").rglob("*.py")):
        found.setdefault(path.stem, []).append(ast.parse(path.read_text(encoding="utf-8")))
    return found


@cache
def members():
    """Module or class of the package -> the names in it."""
    found = {}
    for name, parsed in trees().items():
        for tree in parsed:
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    inside = {x.attr for x in ast.walk(node) if isinstance(x, ast.Attribute)}
                    found.setdefault(node.name, set()).update(names_in(node), inside)
            found.setdefault(name, set()).update(names_in(tree))
    return found


def names_in(tree):
    defined = {x.name for x in ast.walk(tree) if isinstance(x, ast.FunctionDef | ast.ClassDef)}
    return defined | {
        x.id for x in ast.walk(tree) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
    }


def resolves(dotted):
    """Whether a name that begins with pyclmm is a module, or leads to something in one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def files_missing(span):
    """Files and folders that a span of code names and that are not there."""
    for name in re.findall(r"(?<![\w./<*-])[\w./<>*-]+\.(?:cl|h|py)\b", span):
        known = any(file == name or file.endswith(f"/{name}") for file in FILES)
        if written_out(name) and name not in WRITTEN and not known:
            yield name
    for name in re.findall(rf"(?<![\w./-])(?:{'|'.join(SOURCES)})/[\w./<>*-]*", span):
        if written_out(name) and name not in WRITTEN and not (ROOT / name).exists():
            yield name


def names_missing(span):
    """Modules, attributes and tests that a span of code names and that are not there."""
    for name in re.findall(r"(?<![\w./-])pyclmm(?:\.[A-Za-z_]\w*)+", span):
        if not resolves(name) and name != "pyclmm.cl":
            yield name
    for name in re.findall(r"\btest_\w+", span):
        if not any(name in found or name == module for module, found in members().items()):
            yield name
    for owner, name in re.findall(r"^(\w+)\.([a-z_]\w*)", span):
        own = members().get(owner)
        if own is not None and name not in own and name not in OTHER_DOTS:
            yield f"{owner}.{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_is_there(page):
    missing = {name for span in spans(page) for name in (*files_missing(span), *names_missing(span))}
    assert not missing, f"{page.name} names what is not there: {sorted(missing)}"


def test_the_page_about_adding_a_kernel_adds_one(tmp_path):
    """Its files and lines, in a copy of the package: the new kernel multiplies."""
    for name in ("pyclmm", "cl"):
        shutil.copytree(ROOT / name, tmp_path / name)
    text = ADDING.read_text(encoding="utf-8")
    given = re.findall(r"^## \d\. .*?`((?:cl|pyclmm)/[\w/.]+)`.*?^```\w+\n(.*?)^```", text, re.M | re.S)
    (source, code), (module, family), (kernels, lines) = given
    (tmp_path / source).write_text(code)
    (tmp_path / module).write_text(family)
    imported, line = lines.splitlines()
    listed = (tmp_path / kernels).read_text()
    listed = listed.replace("from .textbook.flat", f"{imported}\nfrom .textbook.flat", 1)
    (tmp_path / kernels).write_text(listed.replace("    Naive(),\n", f"    Naive(),\n{line}\n", 1))
    program = """
import numpy as np, pyclmm
rng = np.random.default_rng(0)
for dtype in ("float32", "complex64", "int16"):
    a, b, c = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((3, 7, 5), (3, 5, 9), (3, 7, 9)))
    assert np.array_equal(pyclmm.matmul(a, b, kernel="column"), a @ b)
    b = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
    assert np.array_equal(pyclmm.gemm(a, b, c, beta=2, kernel="column"), a @ b + 2 * c)
print(pyclmm.__file__)
"""
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = python("-W", "error", "-c", program, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path), "the copy"
