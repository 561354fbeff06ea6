"""What the site adds to the pages of the repository: contents, the reference, links to files and folders."""

from __future__ import annotations

import fnmatch
import inspect
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from posixpath import basename, dirname, join, normpath
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pyclmm

ROOT = Path(__file__).parents[2]
SOURCES = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"),
    *("docs/**.md", "examples/**.md", "tests/**.md"),
)
STEPS = Path(__file__).parent / "steps.js"
INDEX, REFERENCE, EXAMPLES = "docs/index", "docs/reference", "docs/examples"
REFERENCE_MARK, EXAMPLES_MARK = "<!-- public names -->", "<!-- the scripts -->"

# What the docstrings name and this site does not have.
ELSEWHERE = [
    (r"py:.*", r"(numpy|np|pyopencl|cl|cla|torch|typing|warnings)\..*"),
    (r"py:mod", r"pyclmm\..*|contextvars"),
]

# Folders whose names users import, beside the public names of pyclmm.
FOLDERS = ("pyclmm.dask", "pyclmm.torch")

# The pages of the reference, with the public names of each. A name that none takes stands on the last one.
TOPICS: dict[str, tuple[str, ...]] = {
    "docs/reference/products": (
        *("pyclmm.matmul", "pyclmm.gemm", "pyclmm.default_[pr]*"),
        *("pyclmm.verified", "pyclmm.finish", "pyclmm.health"),
    ),
    "docs/reference/plans": (
        *("pyclmm.Matmul", "pyclmm.Explanation", "pyclmm.warm", "pyclmm.tune"),
        *("pyclmm.Tuning", "pyclmm.TileConfig", "pyclmm.KERNELS"),
    ),
    "docs/reference/many": ("pyclmm.matmul_many", "pyclmm.ManyMatmul", "pyclmm.ragged_matmul"),
    "docs/reference/quantised": ("pyclmm.quantize", "pyclmm.from_gguf", "pyclmm.QuantizedArray"),
    "docs/reference/devices": (
        *("pyclmm.devices", "pyclmm.DeviceRecord", "pyclmm.default_queue"),
        *("pyclmm.release", "pyclmm.keep_workspace"),
    ),
    "docs/reference/tiles": ("pyclmm.StreamedMatmul", "pyclmm.Stream*"),
    "docs/reference/operators": ("pyclmm.install*", "pyclmm.uninstall"),
    "docs/reference/linalg": ("pyclmm.linalg.*",),
    "docs/reference/dask": ("pyclmm.dask.*",),
    "docs/reference/torch": ("pyclmm.torch.*",),
    "docs/reference/accuracy": ("pyclmm.reference.*",),
    "docs/reference/errors": ("pyclmm.PyclmmError", "pyclmm.*Error", "pyclmm.*Warning", "*"),
}

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
        "docs/many",
        "docs/quantised",
        "docs/scale",
        "docs/dask",
        "docs/tuning",
        "docs/cli",
        "docs/environment",
        "docs/reproducibility",
        "docs/verification",
    ),
    "Reference": (
        REFERENCE,
        *TOPICS,
        "docs/semantics",
        "docs/cuda",
        "docs/glossary",
        "docs/faults",
        "CHANGELOG",
    ),
    "Learn": (
        "docs/road/index",
        "docs/road/*",
        "docs/kernels",
        "docs/mlp",
        "docs/mlp_fused",
        "examples/mlp/README",
    ),
    "Kernels": ("docs/measured", "docs/kernels/*", "docs/estimates", "docs/conformance", "docs/emulator"),
    "Contribute": (
        *("CONTRIBUTING", "docs/adding_a_kernel", "docs/design", "docs/visits"),
        *("docs/decisions/*", "*"),
    ),
}


def contents(found: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Each heading with its pages, in order. Each page stands once, under the first heading that takes it."""
    return ((heading, taken) for heading, taken in _shared_out(set(found) - {INDEX}, CONTENTS) if taken)


def _shared_out(
    names: Iterable[str], groups: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, list[str]]]:
    """Each group with the names that it is the first to take, in the order of its patterns."""
    left = sorted(names, key=str.lower)
    for group, patterns in groups.items():
        taken: list[str] = []
        for pattern in patterns:
            taken += [name for name in left if fnmatch.fnmatchcase(name, pattern)]
            left = [name for name in left if name not in taken]
        yield group, taken


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
        *map(_folder, FOLDERS),
    ]


def _folder(name: str) -> ModuleType:
    """The folder of that name. PyTorch is too large for an environment that makes pages: where it is absent,
    what has every name stands for it while the folder is imported.
    """
    if name in sys.modules or find_spec("torch") is not None:
        return import_module(name)
    absent = {each: MagicMock() for each in ("torch", "torch.autograd")}
    sys.modules.update(absent)
    try:
        return import_module(name)
    finally:
        for each in absent:
            del sys.modules[each]


def public_names() -> list[str]:
    """Every public name with its module, as users write it. A module is the names in it."""
    return list(_values())


def _values() -> dict[str, Any]:
    """Every public name, as users write it, with its value."""
    return {
        f"{_public_name(module)}.{name}": getattr(module, name)
        for module in public_modules()
        for name in module.__all__
        if name != "__version__" and not inspect.ismodule(getattr(module, name))
    }


def reference(topic: str) -> str:
    """The entries of a page of the reference, as MyST. A module with a page of its own comes first."""
    values = _values()
    names = dict(_shared_out(values, TOPICS))[topic]
    parts = [_entry(name, values[name]) for name in names]
    for module in public_modules()[1:]:
        if f"{_public_name(module)}.*" in TOPICS[topic]:
            parts.insert(0, _directive("automodule", module.__name__, "no-index:"))
    return "\n\n".join(parts)


def _entry(name: str, value: Any) -> str:
    if inspect.isclass(value):
        inside = "" if issubclass(value, BaseException) else ", ".join(_methods(value))
        return _directive("autoclass", name, *([f"members: {inside}"] if inside else []))
    if callable(value):
        return _directive("autofunction", name)
    return _directive("autodata", name, "no-value:")


def _methods(value: type) -> list[str]:
    """What users call or read of a class: a call first, then all that has a docstring and no underscore."""
    ours = [each for each in value.__mro__ if each.__module__.startswith("pyclmm.")]
    own = [name for each in ours for name in vars(each) if not name.startswith("_")]
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
    if docname in TOPICS:
        text = text.replace(REFERENCE_MARK, reference(docname))
    source[0] = folders_linked(docname, text.replace(EXAMPLES_MARK, examples()))


def folders_linked(docname: str, text: str) -> str:
    """Links to folders lead to the page about them, or are words: MyST knows files only."""

    def page(match: re.Match[str]) -> str:
        folder = normpath(join(dirname(docname), match[2]))
        about = {"examples": f"{EXAMPLES}.md"}.get(folder, f"{folder}/README.md")
        return f"[{match[1]}](/{about})" if (ROOT / about).exists() else match[1]

    return re.sub(r"\[([^\]]*)\]\(([\w./-]+/)\)", page, text)


def cut(_app: Any, _page: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
    """Sphinx's event of a page that is written: the drawings of the road in parts, side by side, and each
    plot as a link to itself.

    A narrow screen shows the parts below each other, each large enough to be read. It shows a plot as wide as
    the screen, and whoever follows its link can enlarge it. A drawing of steps.json gets a slider through all
    steps.
    """
    body = re.sub(
        r'<img alt="([^"]*)" src="([^"]*_images/(?:\d\d_\w+|memory)\.svg)" />',
        _parts,
        context.get("body", ""),
    )
    context["body"] = re.sub(r'<img alt="[^"]*" src="([^"]*\.png)" />', r'<a href="\1">\g<0></a>', body)


def _parts(match: re.Match[str]) -> str:
    alt, source = match.groups()
    name = basename(source).removesuffix(".svg")
    stepped = json.loads((ROOT / "docs/road/steps.json").read_text(encoding="utf-8")).get(name)
    drawing = (ROOT / "docs/road" / basename(source)).read_text(encoding="utf-8")
    found = re.search(r'width="(\d+)" height="(\d+)" data-cuts="([\d ]*)"', drawing)
    assert found, f"{source}: no drawing of docs/road/picture.py"
    width, height = int(found[1]), found[2]
    edges = [0, *map(int, found[3].split()), width]
    parts = []
    for left, right in itertools.pairwise(edges):
        part, hidden = right - left, width - right + left
        parts.append(
            f'<img alt="{alt if not left else ""}" src="{source}" style="--share: {100 * part / width:.5g}%; '
            f"--own: {part}px; aspect-ratio: {part} / {height}; "
            f'object-position: {100 * left / hidden if hidden else 0:.5g}% 0" />'
        )
    shown = f'<span class="parts">{"".join(parts)}</span>'
    if stepped:  # the drawing stays where no script runs
        data = f'<script type="application/json">{json.dumps(stepped)}</script>'
        shown = (
            f'<span class="steps">{shown}{data}</span><script>{STEPS.read_text(encoding="utf-8")}</script>'
        )
    return shown


def sections(_app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Autodoc's event of a docstring: its underlined titles become rubrics.

    The lists below them are reStructuredText's definition lists as they stand. What a package says to the
    other packages of pyclmm is left out.
    """
    lines[:] = [line for line in lines if not line.startswith("Others import: ")]
    for number in range(len(lines) - 1, 0, -1):
        title, line = lines[number - 1], lines[number]
        if title and line == "-" * len(title):
            lines[number - 1 : number + 1] = [f".. rubric:: {title}", ""]
