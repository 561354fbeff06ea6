"""Environment variables: one module reads them, one page lists them."""

import ast
import os
import re
from pathlib import Path

import numpy as np
import pytest

import pyclmm
from pyclmm import environment
from tests.support.commands import command
from tests.support.processes import python

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/environment.md").read_text(encoding="utf-8")


def test_the_page_lists_every_variable():
    names = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", PAGE, re.MULTILINE)
    assert names == [variable.name for variable in environment.VARIABLES]


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
            r"\bPYCLMM_[A-Z_]+\b|\bPYOPENCL_(?:CTX|BUILD_OPTIONS|HOME)\b|\bPOCL_(?:CACHE_DIR|DEVICES|AFFINITY)\b"
            r"|\bPOCL_(?:MAX_PTHREAD_COUNT|CPU_MAX_CU_COUNT|MAX_COMPUTE_UNITS|PTHREAD_MIN_THREADS|CPU_MIN_CU_COUNT)\b|\bPOCL_MAX_WORK_GROUP_SIZE\b|\bXDG_RUNTIME_DIR\b"
            r"|\bOCL_ICD_[A-Z_]+\b|\bOPENCL_VENDOR_PATH\b|\bHDF5_[A-Z]+_PREFIX\b",
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


def test_a_name_that_has_no_effect_is_told_once():
    """With the nearest name that has one. In a process of its own: it is told at first use."""
    code = "import pyclmm; pyclmm.devices(); pyclmm.devices(); pyclmm.matmul([[1]], [[2]])"
    names = {"PYCLMM_SELFCHEK": "off", "pyclmm_trial": "off", "PYCLMM": "off"}
    done = python("-W", "always", "-c", code, cwd=ROOT, env=os.environ | names, check=True)
    told = re.findall(r"variable (\w+) has no effect; the nearest name that has is (\w+)", done.stderr)
    assert told == [("PYCLMM_SELFCHEK", "PYCLMM_SELFCHECK")]


WRONG = {
    "PYCLMM_SELFCHECK": ("0", "no", "false", "of"),
    "PYCLMM_TRIAL": ("0", "1"),
    "PYCLMM_TUNED": ("none", "x" * 5000),
    "PYCLMM_THREADLESS": ("0", "cpu"),
    "PYCLMM_SHORT_TRACEBACKS": ("0", "full"),
    "PYCLMM_WITHOUT": ("fp64", "cl_khr_fp64,cl_khr_fp16"),
    "PYCLMM_KEEP_WORKSPACE": ("-1", "1e", "many", "iB", "64 MO", "1e999", "9" * 5000),
    "PYCLMM_CACHE_DIR": ("~/cache", "~" * 5000),
    "PYOPENCL_BUILD_OPTIONS": (os.fsdecode(b"-w\xff"), "-D", "-w -I "),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_a_value_that_is_not_understood_raises_and_names_what_is(monkeypatch, name, value):
    x = np.ones((2, 3), np.float32)
    pyclmm.matmul(x, x.T)  # devices are listed, the default queue is there
    monkeypatch.setenv(name, value)
    calls = (pyclmm.devices, lambda: pyclmm.Matmul(x, x.T), lambda: pyclmm.matmul(x, x.T, memory_limit=64))
    for call in calls:
        with pytest.raises(pyclmm.ArgumentError, match=rf"^{name} is '{re.escape(repr(value)[1:99])}.+ set "):
            call()
    shown = command("info", status=2)
    assert re.fullmatch(rf"Error: {name} is .{{1,300}}\n", shown.stderr)


def test_every_variable_of_pyclmm_is_checked():
    assert {v.name for v in environment.VARIABLES if v.name.startswith("PYCLMM_")} < WRONG.keys()


@pytest.mark.parametrize("option", ["-no-such-option", "-Dget_global_id="])
def test_a_build_that_fails_names_the_variable_that_adds_options(monkeypatch, own_caches, option):
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", option)
    x = np.ones((2, 3), np.float32)
    names = re.escape(f"PYOPENCL_BUILD_OPTIONS adds {option!r}: unset it")
    with pytest.raises(pyclmm.BuildError, match=names) as caught:
        pyclmm.matmul(x, x.T, kernel="naive")
    assert re.search(names, caught.value.complaint)
    assert caught.value.complaint.count("error:") == 1
    with pytest.raises(pyclmm.UnsupportedError, match=f"no kernel could be used.*{names}"):
        pyclmm.matmul(x, x.T)


@pytest.mark.parametrize("private", [True, False])
def test_a_variable_is_read_anew_each_time(monkeypatch, private):
    """Also where os.environ keeps nothing under a private name."""
    if not private:
        monkeypatch.setattr(os, "environ", dict(os.environ))
    variable = environment.Variable("PYCLMM_OF_THIS_TEST")
    for value in ("", "x", "", "y"):
        if value:
            monkeypatch.setenv(variable.name, value)
        else:
            monkeypatch.delenv(variable.name, raising=False)
        assert variable.value == value
