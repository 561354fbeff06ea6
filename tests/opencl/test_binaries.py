"""Compiled programs that are kept on disk: for which drivers, under which names, when they are not used."""

import logging
import os
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from pyclmm.errors import CacheWarning
from pyclmm.kernels import Program
from pyclmm.opencl import binaries, compiler, crash_marks, processor, program
from pyclmm.opencl.devices import device_info
from pyclmm.plan import programs_of
from tests.support.faults import BUILD_FAILURE, Part, cl_error, replace_driver
from tests.support.made_up import EPYC_POCL, H200, MI250

SOURCE = Program("textbook/naive.cl", (("TW", 8),))
REWRITTEN = replace(SOURCE, ptx_target="sm_90a")
INTEL = replace(EPYC_POCL, vendor="intel", platform="Intel(R) OpenCL")


@pytest.fixture(autouse=True)
def folder(own_caches):
    return own_caches / "programs"


def test_only_what_the_driver_does_not_keep_is_kept():
    kept = {device.vendor: binaries.are_kept(device, SOURCE) for device in (EPYC_POCL, H200, MI250, INTEL)}
    assert kept == {"pocl": False, "nvidia": False, "amd": True, "intel": True}
    assert binaries.are_kept(H200, REWRITTEN), "no driver keeps what pyclmm makes of its PTX"


def test_everything_that_decides_a_binary_is_in_its_name(monkeypatch):
    def name(device=INTEL, digest="digest", detour=0):
        return binaries.place(device, digest, detour).name

    names = [
        name(), name(digest="another"), name(detour=1), name(replace(INTEL, name="another")),
        name(replace(INTEL, platform="another")), name(replace(INTEL, platform_version="another")),
        name(replace(INTEL, driver_version="another")), name(replace(INTEL, opencl_version=(9, 9))),
    ]  # fmt: skip
    for module, attribute, value in (
        (binaries, "__version__", "99.0"),
        (binaries, "_SCHEMA", 99),
        (processor, "description", lambda: "another"),
        (binaries, "cl", Part(cl, VERSION_TEXT="99.0")),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, attribute, value)
            names.append(name())
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")
    names.append(name())
    assert len(set(names)) == len(names)
    assert "processor" not in names


def test_a_gpus_binary_does_not_depend_on_the_processor(monkeypatch):
    before = binaries.place(H200, "digest", 0)
    monkeypatch.setattr(processor, "description", lambda: "another")
    assert binaries.place(H200, "digest", 0) == before


def test_the_processor_is_known_by_what_it_can_do():
    assert len(processor.description()) > len(os.uname().machine)


def test_the_files_used_longest_ago_are_deleted(limits, folder):
    limits(binaries=3500)
    paths = [folder / f"{number}.bin" for number in range(4)]
    for age, path in enumerate(paths[:3]):
        binaries.keep(path, bytes(1000))
        os.utime(path, (age, age))
    assert binaries.read(paths[0]) == bytes(1000)  # is used again
    binaries.keep(paths[3], bytes(1000))
    assert [path.exists() for path in paths] == [True, False, True, True]


# programs


@pytest.fixture
def kept(limits, queue):
    """Binaries of this device's programs are kept; whether it takes them is told by the tests below."""
    limits(vendors=())
    return device_info(queue.device)


@pytest.fixture
def product(kept, queue):
    """A function: a product in a new context, in which nothing is built, and its result."""
    a = np.arange(37 * 41, dtype=np.float32).reshape(37, 41) % 7

    def multiply():
        context = cl.Context([queue.device])
        own = cl.CommandQueue(context)
        assert np.array_equal(pyclmm.matmul(a, a.T, kernel="naive", queue=own), a @ a.T)

    return multiply


@pytest.fixture
def built(monkeypatch):
    """What programs were made of in the test: "source" or "binary"."""
    found = []

    def make(*args):
        found.append("source" if len(args) == 2 else "binary")
        return cl.Program(*args)

    replace_driver(monkeypatch, "opencl", Program=make)
    return found


def rejecting(monkeypatch, found):
    """The driver rejects every binary."""

    def make(*args):
        found.append("source" if len(args) == 2 else "binary")
        if len(args) == 3:
            raise cl_error(BUILD_FAILURE)
        return cl.Program(*args)

    replace_driver(monkeypatch, "opencl", Program=make)


def test_a_second_context_builds_from_the_binary(product, built, folder):
    product()
    assert built == ["source", "binary"], "what is checked is built from the binary too"
    [file] = folder.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    product()
    assert built == ["source", "binary", "binary"]


def test_a_driver_that_rejects_its_binaries_builds_from_source(monkeypatch, product, built, folder, recwarn):
    rejecting(monkeypatch, built)
    product()
    product()
    assert built == ["source", "binary"] * 2
    assert not folder.exists()
    assert not recwarn.list


def test_a_kept_binary_that_is_rejected_is_deleted(monkeypatch, product, built, folder, recwarn):
    product()
    with monkeypatch.context() as patch:
        rejecting(patch, built)
        del built[:]
        product()
        assert built == ["binary", "source", "binary"]
    assert not list(folder.iterdir())
    assert not recwarn.list


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"", lambda data: data[:-1] + b"\1"],
    ids=["cut", "longer", "emptied", "changed"],
)
def test_a_damaged_file_does_not_reach_the_driver(product, built, folder, damage):
    product()
    [file] = folder.iterdir()
    whole = file.read_bytes()
    assert damage(whole) != whole
    file.write_bytes(damage(whole))
    del built[:]
    with pytest.warns(CacheWarning, match=r"set aside: its digest or its length"):
        product()
    assert built == ["source", "binary"]


def test_a_detour_is_past_the_kept_binaries_and_has_its_own(kept, product, built, folder):
    product()
    del built[:]
    crash_marks.take_detour(kept, crash_marks.detour(kept) + 1)
    product()
    product()
    assert built == ["source", "binary", "binary"]
    assert len(list(folder.iterdir())) == 2


def test_a_context_of_several_devices_keeps_nothing(monkeypatch, kept, queue):
    context = Part(queue.context, devices=[queue.device, queue.device])
    assert program._place(context, SOURCE, 0) is None
    assert program._place(queue.context, SOURCE, 0) is not None


def test_pyopencls_cache_does_not_keep_it_too(monkeypatch, product):
    builds = []
    real = cl.Program.build
    monkeypatch.setattr(cl.Program, "build", lambda *a, **k: builds.append(k) or real(*a, **k))
    product()
    assert builds[0] == {"cache_dir": False}


def test_a_rewritten_program_is_kept_as_it_is_loaded(monkeypatch, limits, kept, queue, built, folder):
    """The driver's own cache holds only what came before the rewriting."""
    limits(vendors=(kept.vendor,))
    texts = []
    monkeypatch.setattr(compiler, "rewritten", lambda text: texts.append(text) or text)
    [own] = programs_of(pyclmm.Matmul(*[np.ones((3, 3), "f4")] * 2, kernel="naive"))
    naive = replace(own, ptx_target="sm_90a")
    for _ in range(2):
        program.built(cl.Context([queue.device]), naive)
    assert built[-3:] == ["source", "binary", "binary"]
    assert len(texts) == 1
    [file] = folder.iterdir()
    assert binaries.read(file) == texts[0]


def test_the_log_tells_a_loaded_program(caplog, product):
    caplog.set_level(logging.INFO, "pyclmm.opencl.program")
    product()
    assert "compiled textbook/naive.cl" in caplog.text
    caplog.clear()
    product()
    assert "loaded textbook/naive.cl" in caplog.text
    assert "compil" not in caplog.text
