"""Imports point one way, and what only one module may do is done by no other."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "pyclmm"

# Each line may import from the lines above it, never from its own or those below.
LAYERS = (
    ("errors", "child", "ptx", "pocl_wheel", "cache"),
    ("device", "dtypes", "forks", "precision"),
    ("problem",),
    ("config", "canonical"),
    ("kernels",),
    ("copies", "schema"),
    ("tables",),
    ("select",),
    ("recipe", "program", "driver", "silent"),
    ("transfer", "queues", "reference"),
    ("host",),
    ("arrays", "binding"),
    ("verify", "trial"),
    ("selfcheck",),
    ("trial_child", "execute", "options"),
    ("operands",),
    ("array_way", "numpy_way"),
    ("plan",),
    ("api", "tuner"),
    ("",),  # pyclmm itself, the public names
    ("roofline", "digits"),
    ("contest", "workloads"),
    ("bench", "cold", "laws", "tuner_child"),
    ("report", "plots"),
    ("info", "demo", "selftest"),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
WITHOUT_OPENCL = (
    "errors",
    "dtypes",
    "precision",
    "problem",
    "canonical",
    "config",
    "kernels",
    "copies",
    "recipe",
    "schema",
    "cache",
    "tables",
    "select",
    "reference",
)
SPEAKS = ("report", "cli", "demo", "cold", "info", "pocl_wheel")  # the command line, which may print


def modules():
    """Module name in the package ("kernels.base", "" for the package itself) -> its tree."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


MODULES = modules()


def top(name):
    """The layer's name of a module: a package counts as one."""
    return name.split(".")[0]


def imported(name, tree):
    """Modules of pyclmm that a module imports, wherever in it the import stands."""
    package = name.split(".") if (PACKAGE / name.replace(".", "/")).is_dir() else name.split(".")[:-1]
    package = [part for part in package if part]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name.partition(".")[2] for a in node.names if top(a.name) == "pyclmm")
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").split(".") if node.module else []
            if node.level:
                base = package[: len(package) - node.level + 1] + base
            elif base[:1] == ["pyclmm"]:
                base = base[1:]
            else:
                continue
            for alias in node.names:
                inner = ".".join([*base, alias.name])
                yield inner if inner in MODULES else ".".join(base)


GRAPH = {name: set(imported(name, tree)) for name, tree in MODULES.items()}


def test_every_module_has_its_place():
    missing = {top(name) for name in MODULES} - RANK.keys() - {"tuned", "cl"}
    assert not missing, f"say in LAYERS where these belong: {missing}"


@pytest.mark.parametrize("name", [n for n in MODULES if top(n) not in ("tuned", "cl")])
def test_imports_point_one_way(name):
    for other in GRAPH[name]:
        if top(other) == top(name):
            continue  # inside a package: only no circles, below
        assert RANK[top(other)] < RANK[top(name)], f"{name or 'pyclmm'} imports {other}, which is above it"


def test_there_are_no_circles():
    order = list(TopologicalSorter(GRAPH).static_order())  # raises CycleError
    assert order.index("errors") < order.index("api")


def test_the_graph_is_not_empty():
    """The test's own eyes: imports that are known to be there are seen."""
    assert {"errors", "device"} <= GRAPH["host"]
    assert "kernels.base" in GRAPH["kernels.naive"]
    assert "plan" in GRAPH["api"]
    assert list(imported("errors", ast.parse("def f():\n    from .api import matmul"))) == ["api"]
    assert list(imported("kernels.naive", ast.parse("from ..plan import Matmul"))) == ["plan"]
    assert list(imported("errors", ast.parse("import pyclmm.plan"))) == ["plan"]


def calls_of(attribute):
    """Modules in which something named *attribute* of an object is used."""
    return {
        name
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == attribute
    }


def test_what_only_one_module_does():
    compiles = {
        name
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "cl.Program"
    }
    assert compiles == {"program"}
    assert calls_of("enqueue_nd_range_kernel") == {"binding"}
    assert calls_of("host_unified_memory") == {"device"}


@pytest.mark.parametrize("name", [n for n in MODULES if top(n) in WITHOUT_OPENCL])
def test_pure_modules_do_not_import_pyopencl(name):
    for node in ast.walk(MODULES[name]):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not any(n.split(".")[0] == "pyopencl" for n in names)


@pytest.mark.parametrize("name", MODULES)
def test_no_pickle_no_prompt_no_print_no_assert(name):
    for node in ast.walk(MODULES[name]):
        narrows = isinstance(node, ast.Assert) and ast.unparse(node.test).startswith("isinstance(")
        plain = not isinstance(node, ast.Assert) or narrows  # a type checker's help, no check of input
        assert plain, f"line {node.lineno}: what a user can cause needs an error"
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert "pickle" not in ast.unparse(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "input"
            assert node.func.id != "print" or top(name) in SPEAKS, f"line {node.lineno} prints"
