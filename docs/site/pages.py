"""What the site adds to the pages of the repository: contents, the reference, links to files and folders."""

from __future__ import annotations

import fnmatch
import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from posixpath import dirname, join, normpath
from types import ModuleType
from typing import Any

import pyclmm

ROOT = Path(__file__).parents[2]
SOURCES = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"),
    *("docs/**.md", "examples/**.md", "tests/**.md"),
)
INDEX, REFERENCE, EXAMPLES = "docs/index", "docs/reference", "docs/examples"
REFERENCE_MARK, EXAMPLES_MARK = "<!-- public names -->", "<!-- the scripts -->"

# What the docstrings name and this site does not have.
ELSEWHERE = [
    (r"py:.*", r"(numpy|np|pyopencl|cl|cla|typing|warnings)\..*"),
    (r"py:mod", r"pyclmm\..*|contextvars"),
]

# Folders whose names users import, beside the public names of pyclmm.
FOLDERS = ("pyclmm.dask",)

# The contents, by heading: pages, or patterns of them. A page that none names is listed under the last one.
CONTENTS: dict[str, tuple[str, ...]] = {
    "Start": (
        "README",
        "docs/install",
        "docs/howto/use",
        "docs/examples",
        "docs/howto/troubleshooting",
        "docs/howto/faq",
    ),
    "How to": (
        "docs/howto/*",
        "docs/scale",
        "docs/dask",
        "docs/tuning",
        "docs/cli",
        "docs/environment",
        "docs/reproducibility",
    ),
    "Reference": (REFERENCE, "docs/semantics", "docs/glossary", "docs/faults", "CHANGELOG"),
    "Learn": (
        "docs/road/index",
        "docs/road/*",
        "docs/kernels",
        "docs/mlp",
        "docs/mlp_fused",
        "examples/mlp/README",
    ),
    "Kernels": ("docs/measured", "docs/kernels/*", "docs/estimates", "docs/conformance"),
    "Contribute": ("CONTRIBUTING", "docs/adding_a_kernel", "docs/design", "docs/decisions/*", "*"),
}


def contents(found: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Each heading with its pages, in order. Each page stands once, under the first heading that takes it."""
    left = sorted(set(found) - {INDEX})
    for heading, patterns in CONTENTS.items():
        taken: list[str] = []
        for pattern in patterns:
            taken += [page for page in left if fnmatch.fnmatchcase(page, pattern)]
            left = [page for page in left if page not in taken]
        if taken:
            yield heading, taken


def toctrees(found: Iterable[str]) -> str:
    """The contents as MyST's directives."""
    blocks = []
    for heading, taken in contents(found):
        listed = "\n".join("Read me </README>" if page == "README" else f"/{page}" for page in taken)
        blocks.append(f"```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{listed}\n```\n")
    return "\n".join(blocks)


def public_modules() -> list[ModuleType]:
    """pyclmm, the modules among its public names, and what beside them says what is public."""
    named = [getattr(pyclmm, name) for name in pyclmm.__all__ if inspect.ismodule(getattr(pyclmm, name))]
    beside = [
        import_module(f"pyclmm.{module.name}")
        for module in iter_modules(pyclmm.__path__)
        if not module.ispkg and module.name != "__main__"
    ]
    return [
        pyclmm,
        *named,
        *(module for module in beside if hasattr(module, "__all__") and module not in named),
        *map(import_module, FOLDERS),
    ]


def public_names() -> list[str]:
    """Every public name with its module, as users write it. A module is the names in it."""
    return [f"{_public_name(module)}.{name}" for module in public_modules() for name in _public(module)]


def _public(module: ModuleType) -> dict[str, Any]:
    public = {name: getattr(module, name) for name in module.__all__ if name != "__version__"}
    return {name: value for name, value in public.items() if not inspect.ismodule(value)}


def kind(value: Any) -> str:
    """The heading under which a public value stands."""
    if inspect.isclass(value):
        return "Errors and warnings" if issubclass(value, BaseException) else "Classes"
    return "Functions" if callable(value) else "Data"


def reference() -> str:
    """The page of every public name, as MyST."""
    return "\n\n".join(part for module in public_modules() for part in _module(module))


def _module(module: ModuleType) -> Iterator[str]:
    name = _public_name(module)
    yield f"## `{name}`"
    if module is not pyclmm:
        yield _directive("automodule", module.__name__, "no-index:")
    public = _public(module)
    for heading in ("Functions", "Classes", "Data", "Errors and warnings"):
        own = [(key, value) for key, value in public.items() if kind(value) == heading]
        if own:
            yield f"### {heading} of `{name}`"
        for key, value in sorted(own, key=lambda pair: pair[0].lower()):
            yield _entry(f"{name}.{key}", value)


def _entry(name: str, value: Any) -> str:
    if inspect.isclass(value):
        inside = "" if issubclass(value, BaseException) else ", ".join(_methods(value))
        return _directive("autoclass", name, *([f"members: {inside}"] if inside else []))
    if callable(value):
        return _directive("autofunction", name)
    return _directive("autodata", name, "no-value:")


def _methods(value: type) -> list[str]:
    """What users call or read of a class: a call first, then all that has a docstring and no underscore."""
    own = [name for name in vars(value) if not name.startswith("_")]
    called = ["__call__"] if "__call__" in vars(value) else []
    return called + [
        name
        for name in own
        if inspect.getdoc(getattr(value, name)) or inspect.isfunction(getattr(value, name))
    ]


def _directive(directive: str, name: str, *options: str) -> str:
    lines = [f".. {directive}:: {name}", *(f"   :{option}" for option in options)]
    return "\n".join(("```{eval-rst}", *lines, "```"))


def _public_name(module: ModuleType) -> str:
    """The name by which users reach a module."""
    return next(
        (f"pyclmm.{name}" for name in pyclmm.__all__ if getattr(pyclmm, name) is module), module.__name__
    )


def examples() -> str:
    """A table of the scripts in examples/ with what each says of itself."""
    lines = ["| script | what it shows |", "| --- | --- |"]
    for script in sorted((ROOT / "examples").glob("*.py")):
        said = inspect.cleandoc(compile(script.read_text(encoding="utf-8"), script, "exec").co_consts[0])
        lines.append(f"| [{script.name}](../examples/{script.name}) | {' '.join(said.split())} |")
    return "\n".join(lines)


def fill(app: Any, docname: str, source: list[str]) -> None:
    """Sphinx's event of a page that was read: put in what the site adds."""
    text = source[0]
    if docname == INDEX:
        text += "\n" + toctrees(app.env.found_docs)
    text = text.replace(REFERENCE_MARK, reference()).replace(EXAMPLES_MARK, examples())
    source[0] = _folders(docname, text)


def _folders(docname: str, text: str) -> str:
    """Links to folders lead to the page about them: MyST knows files only."""

    def page(match: re.Match[str]) -> str:
        folder = normpath(join(dirname(docname), match[1]))
        about = {"examples": f"{EXAMPLES}.md"}.get(folder, f"{folder}/README.md")
        return f"](/{about})" if (ROOT / about).exists() else "]"

    return re.sub(r"\]\(([\w./-]+/)\)", page, text)


def sections(_app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Autodoc's event of a docstring: its underlined titles become rubrics.

    The lists below them are reStructuredText's definition lists as they stand.
    """
    for number in range(len(lines) - 1, 0, -1):
        title, line = lines[number - 1], lines[number]
        if title and line == "-" * len(title):
            lines[number - 1 : number + 1] = [f".. rubric:: {title}", ""]
