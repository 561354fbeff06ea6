"""Errors where there is no device, a device cannot do or hold something, or its compiler refuses."""

import os
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm import errors, gemm, matmul, plan_cache
from pyclmm.opencl import compiler, devices, queues
from pyclmm.problem.gemm import GemmProblem
from pyclmm.selection import select
from tests.support.contexts import new_queue
from tests.support.faults import changed_source, cl_error, failing, replace_driver
from tests.support.made_up import seen_as
from tests.support.processes import python

A, B = np.ones((3, 4), "f4"), np.ones((4, 5), "f4")


def ones(*shape, dtype="f4"):
    return np.ones(shape, dtype)


NO_PLATFORM = """
import numpy as np, pyclmm
x = np.ones((2, 2), np.float32)
for _ in range(2):
    try:
        pyclmm.matmul(x, x)
    except pyclmm.NoDeviceError as error:
        print(error)
"""


@pytest.fixture
def no_driver(tmp_path):
    """An environment in which the OpenCL loader finds no driver, not even that of a wheel."""
    nothing = tmp_path / "nothing.icd"
    nothing.write_text("")
    return {"OCL_ICD_VENDORS": str(nothing), "PYOPENCL_CTX": ""}


def test_no_platform_says_what_to_do(no_driver):
    done = python("-c", NO_PLATFORM, env=os.environ | no_driver)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no OpenCL platform was found") == 2
    assert done.stdout.count("OCL_ICD_VENDORS is ") == 2
    assert "unset it, or name an .icd file" in done.stdout


@pytest.mark.parametrize("what", ["Context", "CommandQueue"])
@pytest.mark.parametrize(
    ("code", "kind"),
    [("DEVICE_NOT_AVAILABLE", pyclmm.DeviceLostError), ("OUT_OF_HOST_MEMORY", pyclmm.DeviceMemoryError)],
)
def test_a_device_without_a_context_or_a_queue_says_what_would_do(monkeypatch, what, code, kind):
    """As a GPU that another process holds for itself, or whose memory is full."""
    monkeypatch.setattr(queues, "_contexts", {})
    monkeypatch.setattr(queues, "_queues", {})
    fault = failing("opencl", what, cl_error(getattr(cl.status_code, code)), always=True)
    with fault, pytest.raises(kind, match=f"^device '.+' gives no context .*{code}.*PYOPENCL_CTX"):
        matmul(A, B)
    matmul(A, B)


def test_what_needs_no_driver_works_without_one(no_driver):
    code = """
import numpy as np
from pyclmm.checks import reference
from pyclmm.kernels.device import DeviceInfo
from pyclmm.kernels.launches import complete
from pyclmm.problem import canonical
from pyclmm.problem.gemm import dense
from pyclmm.selection import select
x = dense((4, 4), np.dtype("f4"))
made_up = DeviceInfo("d", "other", "gpu", "p", "1", "1", (1, 2), 1, 256, (256, 256, 64), 1 << 15,
    1 << 30, 1 << 28, 1000, 1, False, False, False, frozenset())
gemm = canonical.checked_gemm(x, x)
choice = next(select.candidates(gemm.problem, made_up, "auto"))
print(len(complete(gemm, choice.kernel.launches(gemm.problem, choice.config, made_up), made_up).launches))
"""
    done = python("-c", code, env=os.environ | no_driver)
    assert (done.stdout.strip(), done.stderr) == ("1", "")


class NoDevices:
    """A platform without hardware."""

    name = "empty"
    version = "OpenCL 3.0 empty"

    def get_devices(self):
        raise cl.LogicError("clGetDeviceIDs failed: DEVICE_NOT_FOUND")


def test_no_device_says_what_to_install(monkeypatch):
    replace_driver(monkeypatch, "opencl", get_platforms=lambda: [NoDevices()])
    with pytest.raises(errors.NoDeviceError, match=r"no OpenCL platform here has a device; install a driver"):
        devices.default_device()


@pytest.mark.parametrize("choice", ["99", "nosuchdevice", "0:99"])
def test_pyopencl_ctx_that_names_nothing(monkeypatch, choice):
    listed = devices.devices()
    monkeypatch.setenv("PYOPENCL_CTX", choice)
    with pytest.raises(errors.NoDeviceError) as caught:
        matmul(A, B)
    assert f"PYOPENCL_CTX='{choice}' names no device" in str(caught.value)
    assert all(f"{one.number} {one.name}" in str(caught.value) for one in listed)
    assert "set platform:device, each by number or a part of its name" in str(caught.value)


@pytest.fixture
def device_changed(monkeypatch, device):
    """A function: pyclmm then sees the device with these other properties."""

    def change(**limits):
        seen_as(monkeypatch, **limits)
        return replace(device, **limits)

    plan_cache.release()
    yield change
    plan_cache.release()


def test_float64_on_a_device_without_it(device_changed):
    changed = device_changed(has_fp64=False)
    assert (matmul(A.astype("f8"), B.astype("f8")) == 4).all(), "by integers"
    with pytest.raises(errors.UnsupportedError) as caught:
        gemm(A.astype("f8"), B.astype("f8"), activation="tanh")
    message = str(caught.value)
    assert "wgmma: " not in message, "only the reasons of those that take such a product"
    why = f"float64 needs cl_khr_fp64, which device {changed.name!r} does not have"
    assert f"naive: activation 'tanh' of {why}" in message
    with pytest.raises(errors.UnsupportedError, match=r"'flat' cannot compute.*complex128 needs cl_khr_fp64"):
        matmul(A.astype("c16"), B.astype("c16"), kernel="flat")
    assert (matmul(A, B) == 4).all()
    assert (matmul(A, B, kernel="sequential") == 4).all(), "sums in float32 then"


def test_a_device_too_small_for_any_kernel(device):
    problem = GemmProblem(4, 4, 4, "float32", "float32", "float32", "float32", lda=4, ldb=4, ldo=4)
    nothing = replace(device, max_work_group_size=0, local_mem_size=0)
    with pytest.raises(errors.UnsupportedError, match="no configuration fits the device's limits"):
        next(select.candidates(problem, nothing, "auto"))


@pytest.mark.parametrize("argument", ["a", "b", "out"])
def test_a_numpy_array_larger_than_the_device_allows(device_changed, argument):
    shapes = {"a": ((50, 2), (2, 1)), "b": ((1, 2), (2, 50)), "out": ((20, 1), (1, 20))}[argument]
    device_changed(max_mem_alloc_size=300)
    with pytest.raises(errors.DeviceMemoryError) as caught:
        matmul(ones(*shapes[0]), ones(*shapes[1]))
    size = {"a": 400, "b": 400, "out": 1600}[argument]
    assert f"{argument} needs a buffer of {size} bytes" in str(caught.value)
    assert "allows 300" in str(caught.value)
    assert (matmul(A, B) == 4).all()


def test_a_result_larger_than_the_device_allows(device_changed, queue):
    a, b = cla.to_device(queue, ones(20, 1)), cla.to_device(queue, ones(1, 20))
    device_changed(max_mem_alloc_size=300)
    with pytest.raises(errors.DeviceMemoryError, match=r"out needs a buffer of 1600 bytes.*allows 300"):
        matmul(a, b)


def test_workspace_larger_than_the_device_allows(device_changed, queue):
    x = cla.to_device(queue, ones(32, 32))
    spread = cla.Array(queue, (16, 16), np.float32, data=x.base_data, strides=(256, 8))
    pyclmm.release()  # an earlier test may have left workspace enough
    device_changed(max_mem_alloc_size=300)
    with pytest.raises(errors.DeviceMemoryError, match=r"workspace:copy_a needs a buffer of 1024 bytes"):
        matmul(spread, spread)


@pytest.fixture
def broken(monkeypatch):
    """A function that breaks a source of cl/ and gives a queue with nothing built yet."""

    def break_(*change):
        changed_source(monkeypatch, *change)
        return new_queue()

    return break_


def test_a_program_that_does_not_build(broken, monkeypatch, device):
    queue = broken("textbook/naive.cl", "int j = get_global_id(0);", "int j = get_global_it(0) @;")
    a, b, out = ones(3, 4), ones(4, 5), np.full((3, 5), 7, "f4")
    with pytest.raises(errors.BuildError) as caught:
        matmul(a, b, kernel="naive", queue=queue, out=out)
    error = caught.value
    line = 1 + compiler.read_source("textbook/naive.cl").split("get_global_it")[0].count("\n")
    assert error.device == queue.device.name.strip()
    assert "-DA_TYPE=float32" in error.options
    named = f"naive.cl:{line}" in error.log  # NVIDIA's compiler names no file
    assert named or device.vendor == "nvidia", "the file and line that the user can open"
    assert all(str(error).count(text) == 1 for text in (error.options, error.log))
    added = ("clBuildProgram failed", "Build on <", "(options:")  # by PyOpenCL, around the driver's words
    assert not [text for text in added if text in str(error)]
    assert len(caught.traceback) > 5, "whole: no argument is to blame"
    assert (out == 7).all()
    monkeypatch.undo()
    assert (matmul(a, b, kernel="naive", queue=queue) == 4).all(), "not kept as a failure"


def test_no_kernel_builds(broken, two_rungs):
    queue = broken("include/gemm.h", "#define GEMM_BEGIN", "#define GEMM_BEGUN")
    words = r"no kernel could be used for.*tiled: .*; naive: "
    with pytest.raises(errors.UnsupportedError, match=words) as caught:
        matmul(A, B, queue=queue)
    assert isinstance(caught.value.__cause__, errors.BuildError)
