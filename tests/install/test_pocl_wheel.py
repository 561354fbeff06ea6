"""The repair of PyPI's PoCL: it changes one known function where that is needed, and nothing else."""

import os

import pyopencl as cl
import pytest

from pyclmm import errors
from pyclmm.kernels.interface import Program
from pyclmm.opencl import program
from tests.support.faults import failing

from . import pocl_wheel


@pytest.fixture
def library(tmp_path):
    """A sparse file with the known function at its offset."""
    path = tmp_path / "libpocl-1.so"
    with path.open("wb") as file:
        file.seek(pocl_wheel._OFFSET)
        file.write(pocl_wheel._ORIGINAL + b"rest")
    return path


def at_offset(path):
    with path.open("rb") as file:
        file.seek(pocl_wheel._OFFSET)
        return file.read(64)


def test_the_function_is_replaced_and_nothing_else(library):
    before = library.read_bytes()
    assert pocl_wheel.name_the_cpu(library)
    after = library.read_bytes()
    start, length = pocl_wheel._OFFSET, len(pocl_wheel._REPLACEMENT)
    assert after[start : start + length] == pocl_wheel._REPLACEMENT
    assert (after[:start], after[start + length :]) == (before[:start], before[start + length :])


def test_a_second_run_changes_nothing(library):
    assert pocl_wheel.name_the_cpu(library)
    once = at_offset(library)
    assert pocl_wheel.name_the_cpu(library)
    assert at_offset(library) == once


def test_another_release_is_left_alone(library):
    with library.open("r+b") as file:
        file.seek(pocl_wheel._OFFSET)
        file.write(b"\x90")
    before = at_offset(library)
    assert not pocl_wheel.name_the_cpu(library)
    assert at_offset(library) == before


def test_a_file_shared_with_an_installers_cache_is_not_changed_there(library, tmp_path):
    cached = tmp_path / "cached.so"
    os.link(library, cached)
    assert pocl_wheel.name_the_cpu(library)
    assert at_offset(cached).startswith(pocl_wheel._ORIGINAL)


@pytest.mark.parametrize(
    ("log", "flags", "message"),
    [
        ("", {"avx2", "fma", "bmi2"}, "knows this processor"),
        ("error: unknown target CPU 'generic'", {"sse2"}, "lacks"),
    ],
)
def test_nothing_is_done_without_need_or_ability(monkeypatch, library, log, flags, message):
    monkeypatch.setattr(pocl_wheel, "installed_library", lambda: library)
    monkeypatch.setattr(pocl_wheel, "build_log", lambda _: log)
    monkeypatch.setattr(pocl_wheel, "_processor_flags", lambda: flags)
    try:
        said = pocl_wheel.repair()
    except SystemExit as error:
        said = str(error)
    assert message in said
    assert at_offset(library).startswith(pocl_wheel._ORIGINAL)


def test_the_build_error_names_what_to_install(queue):
    refused = failing(
        cl.Program, "build", cl.RuntimeError("error: unknown target CPU 'generic'"), "", always=True
    )
    with refused, pytest.raises(errors.BuildError, match="pip install intel-opencl-rt intel-cmplr-lib-rt"):
        program.new_kernel(queue.context, Program("copy.cl", ()), "copy_strided")
