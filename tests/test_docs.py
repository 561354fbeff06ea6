"""What the pages name is there: files, folders, modules, classes, functions and tests; the example runs."""

import ast
import importlib
import importlib.util
import os
import re
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import pyclmm
from pyclmm.formats import FORMATS
from pyclmm.tools.own_kernel import STARTS
from tests.support.processes import python

ROOT = Path(__file__).parent.parent
# CHANGELOG.md names what was there then.
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
ADDING = ROOT / "docs" / "adding_a_kernel.md"
SOURCES = ("pyclmm", "cl", "tests", "benchmarks", "examples", "docs")
FILES = {path.relative_to(ROOT).as_posix() for name in SOURCES for path in (ROOT / name).rglob("*")}
# What the reader is to write: the example of docs/adding_a_kernel.md, and what `pyclmm road --start` begins.
WRITTEN = {"cl/textbook/column.cl", "pyclmm/kernels/textbook/column.py", "textbook/column.cl", "column.py"}
WRITTEN |= {f"step{step}.cl" for step in STARTS} | {"cl/formats/tq2_0.h"}
WRITTEN |= {"cl/units/dots.h"}
OTHER_DOTS = {"py", "cl", "h", "md", "json", "sync"}  # endings of files; mma.sync, an instruction


def spans(page):
    """The code in a page's text, without its blocks."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.findall(r"`([^`\n]+)`", text)


def written_out(name):
    return not re.search(r"[<>*{}]|\.\.\.", name)


@cache
def trees():
    """Name of each module of the package, without folders -> the trees of that name."""
    found = {}
    for path in (ROOT / "pyclmm").rglob("*.py"):
        found.setdefault(path.stem, []).append(ast.parse(path.read_text(encoding="utf-8")))
    return found


@cache
def names_of_tests():
    """Each test and each module of the tests."""
    paths = [*(ROOT / "tests").rglob("*.py")]
    words = [re.findall(r"\bdef (test_\w+)", path.read_text(encoding="utf-8")) for path in paths]
    return {path.stem for path in paths}.union(*words)


@cache
def members():
    """Module or class of the package -> the names in it."""
    found, bases = {}, []
    for name, parsed in trees().items():
        for tree in parsed:
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    inside = {x.attr for x in ast.walk(node) if isinstance(x, ast.Attribute)}
                    found.setdefault(node.name, set()).update(names_in(node), inside)
                    named = [base.id for base in node.bases if isinstance(base, ast.Name)]
                    bases += [(heir, base) for heir in (node.name, name) for base in named]
            found.setdefault(name, set()).update(names_in(tree))
    for heir, base in bases:
        found[heir] |= found.get(base, set())
    return found


def names_in(tree):
    defined = {x.name for x in ast.walk(tree) if isinstance(x, ast.FunctionDef | ast.ClassDef)}
    return defined | {
        x.id for x in ast.walk(tree) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
    }


def resolves(dotted):
    """Whether a name that begins with pyclmm is a module, or leads to something in one."""
    parts = dotted.split(".")
    if parts[:2] == ["pyclmm", "torch"] and importlib.util.find_spec("torch") is None:
        source = ast.parse((ROOT / "pyclmm/torch/__init__.py").read_text(encoding="utf-8"))
        names = [x.value for x in source.body if isinstance(x, ast.Assign)][-1]  # of __all__
        return set(parts[2:]) <= set(ast.literal_eval(names))
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
        stands_for_some = "*" in name and written_out(name.replace("*", ""))
        if (stands_for_some or written_out(name)) and name not in WRITTEN and not any(ROOT.glob(name)):
            yield name


def names_missing(span):
    """Modules, attributes and tests that a span of code names and that are not there."""
    for name in re.findall(r"(?<![\w./-])pyclmm(?:\.[A-Za-z_]\w*)+", span):
        if not resolves(name) and name != "pyclmm.cl":
            yield name
    for name in re.findall(r"\btest_\w+", span):
        if name not in names_of_tests():
            yield name
    for owner, name in re.findall(r"^(\w+)\.([a-z_]\w*)", span):
        own = members().get(owner)
        if own is not None and name not in own and name not in OTHER_DOTS:
            yield f"{owner}.{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_is_there(page):
    missing = {name for span in spans(page) for name in (*files_missing(span), *names_missing(span))}
    assert not missing, f"{page.name} names what is not there: {sorted(missing)}"


def test_what_a_kernels_source_names_is_there():
    named = {path: [*files_missing(path.read_text(encoding="utf-8"))] for path in (ROOT / "cl").rglob("*.*")}
    missing = {path.name: names for path, names in named.items() if names}
    assert not missing, f"what is not there is named: {missing}"


def test_the_glossary_has_each_word_once():
    page = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    rows = [row for row in re.findall(r"^\| ([^|]+) \|", page, re.M) if row != "word"]
    words = [word.strip() for row in rows for word in re.split(r"[,()]", row) if word.strip()]
    assert len(words) > 100
    twice = {word for word in words if words.count(word) > 1}
    assert not twice, f"of several meanings: {sorted(twice)}"


def test_the_page_of_quantised_weights_has_each_format_with_its_bits():
    page = (ROOT / "docs/quantised.md").read_text(encoding="utf-8").split("## Formats")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)`(.*)\|$", page, re.M)
    said = {}
    for mode, cells in rows:
        bits, weights, group, block, *_, made = (x.strip() for x in f"{mode}{cells}".split("|"))
        groups = [int(x) for x in group.split(", ")]
        for size, each in zip(groups, weights.split(", "), strict=True):
            name = bits if mode != "affine" else f"affine{bits.split()[1]}_g{size}_float16"
            depth = size if block == "the group" else int(block)
            said[name] = (float(each), size, depth, made == "yes")
    found = {
        form.name: (form.row_nbytes(4096) / 512, form.group_size, form.block, is_made(form))
        for form in FORMATS
        if form.mode != "affine" or form.dtype == "float16"
    }
    assert said == found


def is_made(form):
    try:
        form.quantize(np.zeros((1, 4096), np.float32))
    except pyclmm.UnsupportedError:
        return False
    return True


@pytest.fixture
def copied(tmp_path):
    """A copy of the package, to be changed."""
    for name in ("pyclmm", "cl"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def run_in(folder, program):
    """Run a program with the package in *folder*."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    program = f"{program}\nprint(pyclmm.__file__)"
    done = python("-W", "error", "-c", program, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(folder), "the copy"


def insert(path, before, text):
    """Put *text* before the line *before* of a file, which has it once."""
    content = path.read_text(encoding="utf-8")
    assert content.count(before) == 1, f"{path.name}: {before}"
    path.write_text(content.replace(before, text + before), encoding="utf-8")


def make_changes(folder, heading):
    """Make the changes to *folder* that the page shows under *heading*. What they replace is there once.
    Returns the names of the files."""
    section = ADDING.read_text(encoding="utf-8").split(heading)[1].split("\n## ")[0]
    files = re.findall(r"^\+\+\+ (\S+)\n(.*?)(?=^\+\+\+ |^```)", section, re.M | re.S)
    for name, hunks in files:
        for hunk in hunks.split("@@\n")[1:]:
            lines = hunk.splitlines(keepends=True)
            old, new = ("".join(x[1:] or x for x in lines if x[0] != mark) for mark in "+-")
            path = folder / name
            content = path.read_text(encoding="utf-8")
            assert content.count(old) == 1, f"{name}: {old}"
            path.write_text(content.replace(old, new), encoding="utf-8")
    return [name for name, _ in files]


def test_the_page_about_adding_a_kernel_adds_one(copied):
    """Its files and lines: the new kernel multiplies."""
    text = ADDING.read_text(encoding="utf-8").split("## 4.")[0]
    given = re.findall(r"^## \d\. .*?`((?:cl|pyclmm)/[\w/.]+)`.*?^```\w+\n(.*?)^```", text, re.M | re.S)
    (source, code), (module, family), (kernels, lines) = given
    (copied / source).write_text(code)
    (copied / module).write_text(family)
    imported, line = lines.splitlines()
    insert(copied / kernels, "from .textbook.blocks", f"{imported}\n")
    insert(copied / kernels, "    Naive(),\n", f"{line}\n")
    program = """
import numpy as np, pyclmm
rng = np.random.default_rng(0)
for dtype in ("float32", "complex64", "int16"):
    a, b, c = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((3, 7, 5), (3, 5, 9), (3, 7, 9)))
    assert np.array_equal(pyclmm.matmul(a, b, kernel="column"), a @ b)
    b = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
    assert np.array_equal(pyclmm.gemm(a, b, c, beta=2, kernel="column"), a @ b + 2 * c)
"""
    run_in(copied, program)


@pytest.mark.slow
def test_the_page_about_adding_a_kernel_adds_an_element_type(copied, device):
    """In the three files that it names: every number is loaded and stored right, in vectors or not."""
    pytest.importorskip("ml_dtypes")
    assert len(make_changes(copied, "## An element type")) == 3
    program = """
import ml_dtypes, numpy as np, pyclmm
dtype, rng = ml_dtypes.float8_e5m2, np.random.default_rng(0)
every, one = np.arange(256, dtype=np.uint8).view(dtype), np.ones((1, 1), np.float32)
for kernel in KERNELS:
    got = pyclmm.matmul(every[:, None], one.astype(dtype), kernel=kernel)
    assert got.dtype == np.float32 and np.array_equal(got[:, 0], every.astype(np.float32), equal_nan=True)
    a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((67, 35), (35, 53)))
    assert np.array_equal(pyclmm.matmul(a, b, kernel=kernel), np.float32(a) @ np.float32(b))
    x = rng.standard_normal(999) * 2.0 ** rng.integers(-20, 18, 999)
    x = np.append(x, [61439, 61440, 0, np.inf]).astype(np.float32)[:, None]
    for out in (np.empty((1003, 1), dtype), np.empty((1003, 2), dtype)[:, :1]):
        pyclmm.gemm(x, one, out=out, kernel=kernel, casting="unsafe")
        assert np.array_equal(out.view(np.uint8), x.astype(dtype).view(np.uint8))
a, b = a.astype(np.float32), b.astype(np.float32)
pyclmm.matmul(a, b, kernel="naive", reproducible=True)  # its fixed products are those of before
"""
    kernels = ("naive", "packed") if device.is_cpu else ("naive",)
    run_in(copied, program.replace("KERNELS", repr(kernels)))


@pytest.mark.slow
def test_the_page_about_adding_a_kernel_adds_a_matrix_unit(copied, device):
    """In three files. Its kernel multiplies what it accepts."""
    if device.vendor != "pocl":
        pytest.skip("the unit of the example is PoCL's")
    heading = "## A matrix unit"
    section = ADDING.read_text(encoding="utf-8").split(heading)[1]
    ((name, text),) = re.findall(r"^### .*?`(cl/units/\w+\.h)`\n\n```c\n(.*?)^```", section, re.M | re.S)
    (copied / name).write_text(text)
    assert len(make_changes(copied, heading)) == 2
    program = """
import numpy as np, pyclmm
rng = np.random.default_rng(0)
for m, n, k in ((70, 51, 37), (16, 64, 8), (1, 1, 5)):
    a, b, c = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((2, m, k), (2, k, n), (2, m, n)))
    for x in (a, np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2)):
        for y in (b, np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)):
            assert np.array_equal(pyclmm.gemm(x, y, c, beta=2, kernel="dots"), a @ b + 2 * c)
try:
    pyclmm.matmul(np.ones((8, 8)), np.ones((8, 8)), kernel="dots")
    raise SystemExit("float64 is no type of its")
except pyclmm.UnsupportedError as error:
    assert "dots multiplies float32" in str(error), error
"""
    run_in(copied, program)


def test_the_page_about_adding_a_kernel_adds_a_format(copied):
    """Its record and its header: the bits are those of gguf, and each kernel multiplies with them."""
    pytest.importorskip("gguf")
    heading = "## A format of quantised weights"
    section = ADDING.read_text(encoding="utf-8").split(heading)[1].split("\n## ")[0]
    [(name, text)] = re.findall(r"^### .*?`([\w/]+/tq2_0\.h)`\n\n```\w+\n(.*?)^```", section, re.M | re.S)
    assert text.count("\n") < 60
    (copied / name).write_text(text)
    make_changes(copied, heading)
    program = """
import gguf, numpy as np, pyclmm
from pyclmm.formats import format_named
kind, form, rng = gguf.GGMLQuantizationType.TQ2_0, format_named("tq2_0"), np.random.default_rng(0)
rows = rng.integers(0, 256, (20, form.row_nbytes(512)), np.uint8)
with np.errstate(all="ignore"):
    assert np.array_equal(form.dequantize(rows, 512), gguf.quants.dequantize(rows, kind), equal_nan=True)
w, x = rng.standard_normal((20, 512), np.float32), rng.standard_normal((3, 512), np.float32)
writer = gguf.GGUFWriter("x.gguf", "llama")
writer.add_tensor("w", gguf.quants.quantize(w, kind), raw_dtype=kind)
writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
made = pyclmm.quantize(w, mode="tq2_0")
for q in (made, pyclmm.from_gguf("x.gguf")["w"]):
    assert np.array_equal(q.dequantize(), made.dequantize())
    for kernel in ("quantized", "dequantized"):
        y = pyclmm.matmul(x, q.T, kernel=kernel)
        assert pyclmm.reference.error_ratio(y, x, q.dequantize().T) < pyclmm.reference.limit(512)
"""
    run_in(copied, program)


@pytest.mark.slow
def test_the_page_about_adding_a_kernel_adds_an_operand(copied):
    """In three files and a keyword. One family takes it, the others and products in tiles refuse it."""
    files = make_changes(copied, "## An operand")
    assert len(files) == 4
    assert files[-1] == "pyclmm/api.py"
    program = """
import numpy as np, pyclmm
rng = np.random.default_rng(0)
a, b, c = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((5, 7), (7, 9), (5, 9)))
scales = rng.integers(1, 5, 18).astype(np.float32)[::2]
for given in (scales, scales.astype(np.float16), scales.astype(np.int8)):
    for out in (None, np.empty((5, 9), np.float32, order="F")):
        assert np.array_equal(pyclmm.gemm(a, b, c, beta=2, scales=given, out=out), (a @ b) * scales + 2 * c)
for wrong, error in (
    ({"kernel": "tiled"}, "tiled does not take has_scales=True"),
    ({"memory_limit": "1 MiB"}, "scales is given for a product in tiles"),
    ({"scales": scales[1:]}, "scales has shape (8,); it must be (9,)"),
):
    try:
        pyclmm.gemm(a, b, **{"scales": scales, **wrong})
        raise SystemExit(f"{wrong}: no error")
    except ValueError as found:
        assert error in str(found), found
    except pyclmm.UnsupportedError as found:
        assert error in str(found), found
"""
    run_in(copied, program)
