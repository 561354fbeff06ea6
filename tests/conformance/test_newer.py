"""The second system of `make conformance` and `make offline`, and what the drivers' own compilers say."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from pyclmm.kernels import kernel_named
from pyclmm.opencl import compiler
from pyclmm.opencl.program import build_options
from pyclmm.problem.dtypes import ELEMENT_TYPES
from tests.conformance import __main__ as command
from tests.conformance import grid, newer, own, packages
from tests.conformance.implementations import NEWER_IMPLEMENTATIONS
from tests.conformance.offline import TARGETS, problems
from tests.support.faults import changed_sources

there = newer.NEWER.with_suffix(".stamp").exists() and not (os.geteuid() if hasattr(os, "geteuid") else 1)
needs_it = pytest.mark.skipif(not there, reason="`make conformance` has not unpacked Debian's newest suite")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this system has no root")
@pytest.mark.parametrize(
    ("patched", "reason"),
    [
        ((platform, "machine", lambda: "aarch64"), "x86-64"),
        ((os, "geteuid", lambda: 1000), "root"),
        ((shutil, "which", lambda _: None), "mount"),
    ],
)
def test_a_machine_that_cannot_have_it_says_why(monkeypatch, patched, reason):
    able = (platform, "machine", lambda: "x86_64"), (os, "geteuid", lambda: 0)
    for one in (*able, (newer, "_fill", lambda: pytest.fail("it was filled")), patched):
        monkeypatch.setattr(*one)
    assert reason in newer.missing.__wrapped__()


def test_its_drivers_are_left_out_by_name_where_it_cannot_be_had(monkeypatch, capsys):
    names = [one.name for one in NEWER_IMPLEMENTATIONS]
    monkeypatch.setattr(newer, "missing", lambda: "it needs root")
    assert command.newer_ones(names) == []
    assert capsys.readouterr().out == f"left out: {', '.join(names)}: it needs root\n"


def test_without_a_network_it_says_what_failed(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(packages.SetupError, match="no apt-get here"):
        packages.unpack(tmp_path / "folder", ("dash",), "advice", "sid")


def test_drivers_that_share_the_grid_get_every_kernel_with_every_type(monkeypatch):
    whole = len([*grid.grid()])
    monkeypatch.setattr(grid, "FEW", True)
    cases = [case.values for case in grid.grid()]
    assert {(kernel.name, dtype) for kernel, dtype, _ in cases} == {
        (kernel.name, dtype) for kernel in grid.OF_NUMBERS for dtype in ELEMENT_TYPES
    }
    assert len(cases) < 0.6 * whole


@needs_it
def test_this_machines_folders_are_there_and_its_system_is_not(tmp_path):
    (tmp_path / "file").write_text("seen")
    code = "import platform, pathlib; print(platform.python_version(), pathlib.Path('file').read_text())"
    done = subprocess.run(
        newer.inside([newer.PYTHON, "-c", code], tmp_path), capture_output=True, text=True, check=True
    )
    version, text = done.stdout.split()
    assert version.startswith(newer.PYTHON.removeprefix("python"))
    assert text == "seen"
    assert str(newer.NEWER) not in Path("/proc/mounts").read_text()


def built(target, monkeypatch, change=lambda text: text, dtype="float32"):
    """What a driver's compiler makes of `naive` with a changed source, for a product with an activation."""
    changed_sources(monkeypatch, lambda name, text: change(text))
    monkeypatch.setattr(own, "expanded", compiler.expanded)
    naive, problem = kernel_named("naive"), problems(dtype)[1]
    config = naive.configs(problem, target.device)[0]
    (launch,) = naive.launches(problem, config, target.device).launches
    (row,) = own.compile_own([(target, "naive", dtype, launch)])
    return row


@needs_it
@pytest.mark.parametrize("target", [own.AMD[0], own.INTEL[0]], ids=lambda target: target.name)
def test_the_drivers_compilers_take_the_kernels_and_say_what_they_need(monkeypatch, target):
    row = built(target, monkeypatch)
    assert not row.error
    assert row.resources.registers > 8
    assert row.resources.spilled == row.resources.local_bytes == 0


@needs_it
@pytest.mark.parametrize("target", [own.AMD[0], own.INTEL[0]], ids=lambda target: target.name)
@pytest.mark.parametrize("text", ["ACC_T acc = nothing;", "ACC_T acc = ACC_ZERO;\n#warning nothing"])
def test_whatever_they_say_is_an_error(monkeypatch, target, text):
    row = built(target, monkeypatch, lambda old: old.replace("ACC_T acc = ACC_ZERO;", text))
    assert "nothing" in row.error


@needs_it
def test_a_compiler_that_dies_fails_its_program_and_no_other(monkeypatch, tmp_path):
    dying = tmp_path / "builds.py"
    text = own.BUILDS.read_text().replace(
        "        job = json.loads(line)\n",
        "        job = json.loads(line)\n        if 'DIE' in str(job): sys.exit('died here')\n",
    )
    assert "died here" in text
    dying.write_text(text)
    monkeypatch.setattr(own, "BUILDS", dying)
    target = next(t for t in TARGETS if t.name == "gfx1030")
    naive, problem = kernel_named("naive"), problems("float32")[0]
    (launch,) = naive.launches(problem, naive.configs(problem, target.device)[0], target.device).launches
    options = iter([["-DDIE"], build_options(launch.program)])
    monkeypatch.setattr(own, "build_options", lambda _: next(options))
    first, second = own.compile_own([(target, "naive", "float32", launch)] * 2, at_once=1)
    assert "died here" in first.error
    assert not second.error


@needs_it
@pytest.mark.parametrize("target", [own.AMD[2], own.INTEL[0]], ids=lambda target: target.name)
def test_the_first_tile_for_integers_spills_no_registers(target):
    """AMD's LLVM 21 added the products of a tile's k in another order, with 300 registers in memory."""
    register, problem = kernel_named("register"), problems("int32")[1]
    config = register.configs(problem, target.device)[0]
    launch = register.launches(problem, config, target.device).launches[0]
    (row,) = own.compile_own([(target, "register", "int32", launch)])
    assert not row.error
    assert row.resources.spilled == 0
