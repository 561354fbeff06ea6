"""`make offline` fails where a function that is called has no definition."""

import struct
import subprocess

import numpy as np
import pytest

from pyclmm.kernels import kernel_named
from pyclmm.opencl import compiler
from tests.conformance import compilers, offline
from tests.conformance.implementations import AMD_LIBRARIES, DEBIAN
from tests.support.faults import changed_sources

TARGETS = {target.name: target for target in offline.TARGETS}


def linked(name, monkeypatch, change=lambda text: text):
    """Link `naive` for *target*, with bfloat16 results: their conversion is a function."""
    installed = {"amd": AMD_LIBRARIES, "intel": DEBIAN / "usr/bin/ocloc", "nvidia": DEBIAN / "usr/lib/clc"}
    target = TARGETS[name]
    if not installed[target.device.vendor].exists():
        pytest.skip("the compilers are not here: `make conformance` fetches them")
    changed_sources(monkeypatch, lambda name, text: change(text))
    monkeypatch.setattr(offline, "expanded", compiler.expanded)
    naive, problem = kernel_named("naive"), offline.problems("bfloat16")[0]
    config = naive.configs(problem, target.device)[0]
    (launch,) = naive.launches(problem, config, target.device).launches
    (row,) = offline.compile_jobs([(target, "naive", "bfloat16", launch)])
    return row.error


@pytest.mark.parametrize("target", ["gfx90a", "dg2-g10", "sm_80"])
def test_shipped_kernels_link(monkeypatch, target):
    assert not linked(target, monkeypatch)


@pytest.mark.parametrize("target", ["gfx90a", "sm_80"])  # Intel's compiler gives it one, as C did before 1999
def test_an_inline_function_without_a_definition_fails(monkeypatch, target):
    error = linked(target, monkeypatch, lambda text: text.replace("INLINE ushort to_", "inline ushort to_"))
    assert "to_bfloat16" in error


@pytest.mark.parametrize("target", ["gfx90a", "dg2-g10", "sm_80"])
def test_a_function_that_is_only_declared_fails(monkeypatch, target):
    def declared(text):
        return text.replace("INLINE ushort to_bfloat16", "ushort to_bfloat16(float x);\nINLINE ushort other")

    assert "to_bfloat16" in linked(target, monkeypatch, declared)


def test_a_program_is_linked_once_for_the_targets_of_a_vendor_unless_that_fails(monkeypatch):
    """Where it fails it is tried, and told, for each."""
    calls = []

    def link(vendor, target, *_):
        calls.append(target)
        if fails:
            raise subprocess.CalledProcessError(1, "lld", stderr="undefined: f")

    monkeypatch.setattr(offline, "compiled", lambda *_: compilers.NOTHING)
    monkeypatch.setattr(offline, "link", link)
    naive, problem = kernel_named("naive"), offline.problems("float32")[0]
    config = naive.configs(problem, TARGETS["gfx90a"].device)[0]
    (launch,) = naive.launches(problem, config, TARGETS["gfx90a"].device).launches
    names = ("gfx90a", "gfx1030", "sm_80", "sm_90a")
    for fails, expected in ((False, ["gfx90a", "sm_80"]), (True, [*names])):
        calls.clear()
        rows = offline.compile_jobs(
            [(TARGETS[name], "naive", "float32", launch) for name in names], workers=1
        )
        assert calls == expected
        assert [bool(row.error) for row in rows] == [fails] * 4


def test_the_imports_of_a_spirv_module_are_found():
    def decoration(name, linkage):
        text = name.encode() + b"\0" * (4 - len(name) % 4)
        words = [*struct.unpack(f"<{len(text) // 4}I", text), linkage]
        return [(3 + len(words)) << 16 | 71, 1, 41, *words]

    head, other = [0x07230203, 0x10000, 0, 9, 0], [2 << 16 | 17, 6]
    module = np.array([*head, *other, *decoration("ours", 1), *decoration("defined", 0)], "<u4")
    assert list(compilers.imports(module.tobytes())) == ["ours"]
