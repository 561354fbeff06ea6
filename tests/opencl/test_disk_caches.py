"""Caches of PyOpenCL and PoCL that cannot be used: products are right, and one message says what would do."""

import os
from pathlib import Path
from types import SimpleNamespace

import pyopencl as cl
import pytest

import pyclmm
from pyclmm.opencl import binaries, pocl, program
from pyclmm.opencl.devices import default_device, device_info
from tests.support.faults import BUILD_FAILURE, Call, Failing, cl_error, failing
from tests.support.processes import pyopencls_cache, python
from tests.support.selection import slow

POCL = SimpleNamespace(name="Portable Computing Language")

# Products in four threads at once. Prints the warnings.
PRODUCTS = """
import threading, warnings
import numpy as np, pyclmm

def product(number):
    a = np.arange(12, dtype=("f4", "f8", "i4", "c8")[number]).reshape(3, 4)
    together.wait(60)
    right[number] = np.array_equal(pyclmm.matmul(a, a.T, kernel="naive"), a @ a.T)

together, right = threading.Barrier(4), [None] * 4
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    threads = [threading.Thread(target=product, args=[n]) for n in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
assert right == [True] * 4, right
for warning in caught: print(warning.category.__name__, warning.message)
"""
# What a full disk does to PyOpenCL's cache, whatever the driver writes.
FULL_DISK = """
import sqlite3
from pytools import persistent_dict

def store(*args, **kwargs):
    raise sqlite3.OperationalError("database or disk is full")

persistent_dict.WriteOncePersistentDict.store = store
"""


@pytest.fixture
def environment(tmp_path):
    """Caches in a new folder, PyOpenCL's too; PoCL's in a folder of its own, which can be written."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYOPENCL_NO_CACHE", "PYCLMM_CACHE_DIR")}
    caches = {"XDG_CACHE_HOME": str(tmp_path / "caches"), "POCL_CACHE_DIR": str(tmp_path / "pocl")}
    return kept | caches | {"HOME": str(tmp_path)}


def run(environment, source):
    return python("-c", source, env=environment)


def check_one_warning(done, *words, own=0):
    """One of PyOpenCL's caches, and as many of pyclmm's *own*."""
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    (line,) = [line for line in lines if "not all can be kept" not in line]
    assert len(lines) == 1 + own
    assert line.startswith("CacheWarning PyOpenCL's caches in ")
    for word in (*words, "XDG_CACHE_HOME", "HOME", "PYOPENCL_NO_CACHE=1"):
        assert word in line


def a_file(tmp_path):
    path = tmp_path / "file"
    path.touch()
    return path


def test_caches_that_work_are_used_without_a_warning(environment, tmp_path):
    done = run(environment, PRODUCTS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list((tmp_path / "caches" / "pytools").glob("*.sqlite"))


@pytest.mark.parametrize("where", ["below a file", *slow("in /proc", "in no one's home")])
def test_a_folder_that_cannot_be_made(environment, tmp_path, where):
    """Also as root, who may write wherever a folder can be."""
    if where != "below a file" and not Path("/proc/self").exists():
        pytest.skip("no /proc on this system")
    folder = a_file(tmp_path) if where == "below a file" else Path("/proc")
    if where == "in no one's home":
        del environment["XDG_CACHE_HOME"]
        environment["HOME"] = str(folder)
    else:
        environment["XDG_CACHE_HOME"] = str(folder)
    check_one_warning(run(environment, PRODUCTS), str(folder), own=1)


def test_a_full_disk(environment):
    check_one_warning(run(environment, FULL_DISK + PRODUCTS), "OperationalError: database or disk is full")


@pytest.mark.parametrize(
    "content", [b"not a database" * 300, *slow(b"SQLite format 3\0" + bytes(range(256)) * 20)]
)
def test_a_damaged_cache(environment, tmp_path, content):
    run(environment, PRODUCTS)
    (path,) = (tmp_path / "caches" / "pytools").glob("*.sqlite")
    path.write_bytes(content)
    check_one_warning(run(environment, PRODUCTS), "DatabaseError", "delete the folders")


def test_no_warning_where_the_user_has_turned_them_off(environment, tmp_path):
    environment |= {"PYOPENCL_NO_CACHE": "1", "XDG_CACHE_HOME": str(a_file(tmp_path))}
    done = run(environment, PRODUCTS)
    assert (done.returncode, done.stderr) == (0, "")
    assert "not all can be kept" in done.stdout, "pyclmm's own"
    assert "PyOpenCL" not in done.stdout


@pytest.fixture
def caches_on(monkeypatch, tmp_path):
    pyopencls_cache(monkeypatch, True)
    monkeypatch.setattr(binaries, "_pyopencl_folder", lambda name: tmp_path / name)
    return tmp_path / "pyopencl"


def test_an_error_of_the_driver_is_not_the_caches(caches_on):
    error = cl_error(BUILD_FAILURE)
    fault = Failing(int, error)
    with pytest.raises(cl.Error) as caught:
        binaries.with_pyopencl_caches(fault)
    assert caught.value is error
    assert fault.calls == 1
    assert not cl._PYOPENCL_NO_CACHE


def test_an_error_that_the_caches_do_not_cause_is_raised_without_a_warning(caches_on):
    with pytest.raises(TypeError, match="mine"):
        binaries.with_pyopencl_caches(Failing(int, TypeError("mine"), always=True))


# -- PoCL


def test_pocl_without_a_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("POCL_CACHE_DIR", str(a_file(tmp_path) / "kcache"))
    fault = pocl.pocl_fault([POCL])
    assert str(tmp_path / "file" / "kcache") in fault
    assert "set POCL_CACHE_DIR" in fault


def test_pocl_with_a_cache_folder_and_other_platforms(monkeypatch, tmp_path):
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "kcache"))
    assert pocl.pocl_fault([SimpleNamespace(name="Intel(R) OpenCL")]) is None
    assert not (tmp_path / "kcache").exists(), "looked at for PoCL only"
    assert pocl.pocl_fault([POCL]) is None
    assert not list((tmp_path / "kcache").iterdir())


@pytest.mark.skipif(device_info(default_device()).vendor != "pocl", reason="the default device is not PoCL's")
def test_pocl_that_shows_no_device_says_what_would_do(environment, tmp_path):
    del environment["POCL_CACHE_DIR"]
    environment["XDG_CACHE_HOME"] = str(a_file(tmp_path))
    done = run(environment, PRODUCTS.replace("threading.Barrier(4)", "threading.Barrier(1)"))
    words = f"NoDeviceError: no OpenCL platform here has a device; PoCL cannot write {tmp_path}"
    assert words not in done.stdout
    assert "NoDeviceError: no OpenCL platform here has a device; PoCL cannot write" in done.stderr
    assert str(tmp_path / "file" / "pocl" / "kcache") in done.stderr
    assert "set POCL_CACHE_DIR" in done.stderr


def test_a_build_that_fails_on_pocl_says_what_would_do(own_caches, monkeypatch):
    monkeypatch.setattr(program, "pocl_fault", lambda _: "PoCL cannot write here: set POCL_CACHE_DIR")
    fault = cl_error(BUILD_FAILURE)
    with failing("opencl", "Program", fault, always=True), pytest.raises(pyclmm.BuildError) as caught:
        Call(kernel="tiled")()
    assert caught.value.complaint == "does not build: error: PoCL cannot write here: set POCL_CACHE_DIR"
