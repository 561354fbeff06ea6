"""Environment variables: one module reads them, one page lists them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from pyclmm import environment

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/environment.md").read_text(encoding="utf-8")


def test_the_page_lists_every_variable():
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert rows == [(v.name, v.meaning, v.default) for v in environment.VARIABLES]


def test_the_readme_links_the_page():
    assert "(docs/environment.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def reads(tree):
    """Whether a module reads a single variable. Passing the whole environment to a child does not count."""
    for node in ast.walk(tree):
        text = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Subscript | ast.Name) else ""
        if text.startswith(("os.environ.", "os.environ[", "environ[", "os.getenv", "getenv")):
            return True
    return False


def test_no_other_module_reads_the_environment():
    found = {
        path.relative_to(ROOT / "pyclmm").as_posix()
        for path in (ROOT / "pyclmm").rglob("*.py")
        if reads(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == {"environment.py"}


def test_every_variable_that_the_package_names_is_listed():
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "pyclmm").rglob("*.py"))
    named = set(
        re.findall(
            r"\bPYCLMM_[A-Z_]+\b|\bPYOPENCL_(?:CTX|BUILD_OPTIONS|HOME)\b|\bPOCL_(?:CACHE_DIR|AFFINITY|MAX_PTHREAD_COUNT)\b"
            r"|\bPOCL_CPU_MAX_CU_COUNT\b|\bXDG_RUNTIME_DIR\b"
            r"|\bOCL_ICD_[A-Z_]+\b|\bOPENCL_VENDOR_PATH\b",
            text,
        )
    )
    assert named == {v.name for v in environment.VARIABLES}


@pytest.mark.parametrize(("value", "off"), [("off", True), ("OFF", True), ("on", False), ("", False)])
def test_a_variable_is_off_only_where_it_says_so(monkeypatch, value, off):
    monkeypatch.setenv("PYCLMM_TUNED", value)
    assert environment.TUNED.is_off == off
    monkeypatch.delenv("PYCLMM_TUNED")
    assert environment.TUNED.value == ""
    assert not environment.TUNED.is_off
