"""What is said of arrays on CUDA devices that cannot be multiplied, and of a driver that fails."""

import ctypes

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import pyclmm
from pyclmm.cuda import driver, streams
from tests.support import fake_cuda
from tests.support.plans import as_after_a_fork
from tests.support.threads import in_threads

A = np.arange(12, dtype=np.float32).reshape(3, 4)
STACK = np.stack([A, A + 1, A + 2])


def test_arrays_of_several_libraries(lib, queue):
    x = lib.array(A)
    for other in (A.T, [[1.0]], cla.to_device(queue, A.T.copy())):
        with pytest.raises(pyclmm.DTypeError, match=r"pass arrays of one library; lib.array\(x\) brings"):
            pyclmm.matmul(x, other)
        with pytest.raises(pyclmm.DTypeError, match=r"a is a .*, b is a .*LibArray"):
            pyclmm.matmul(other, x)


def test_arguments_that_are_of_opencl(lib, queue):
    x, y = lib.array(A), lib.array(A.T.copy())
    for wrong, said in (
        ({"queue": queue}, "the stream in which their library works is used: leave queue out"),
        ({"device": "cpu"}, "computed where the arrays are, on CUDA; leave it out"),
        ({"wait_for": [cl.enqueue_marker(queue)]}, "wait_for has events of OpenCL"),
        ({"memory_limit": "1 MiB"}, "LibArray"),
    ):
        with pytest.raises((pyclmm.ArgumentError, pyclmm.DTypeError), match=said):
            pyclmm.matmul(x, y, **wrong)


def test_arrays_on_two_devices(lib):
    x, y = lib.array(A), lib.array(A.T.copy())
    y.ordinal = 1
    with pytest.raises(pyclmm.ArgumentError, match="b is on CUDA device 1, but a is on device 0"):
        pyclmm.matmul(x, y)


@pytest.mark.parametrize("strides", [(0, 4), (12, 0), (4, 4)])
def test_an_out_whose_elements_share_memory(lib, strides):
    x, memory = lib.array(A), lib.array(np.zeros((3, 3), np.float32))
    out = fake_cuda.LibArray(lib, memory.address, (3, 3), np.float32, strides)
    for call in (
        lambda: pyclmm.gemm(x, x, trans_b="T", out=out),
        lambda: pyclmm.linalg.einsum("ij,kj->ik", x, x, out=out),
        lambda: pyclmm.matmul_many([(x, x.T)], out=[out]),
    ):
        with pytest.raises(pyclmm.ArgumentError, match=r"elements of out share memory, .*; pass an out that"):
            call()
    assert not memory.get().any()


def test_a_launch_that_is_refused(cuda, lib):
    x = lib.array(A)
    out = lib.array(np.zeros((3, 3), np.float32))
    pyclmm.gemm(x, x, trans_b="T", out=out)
    cuda.fail["cuLaunchKernelEx"] = fake_cuda.INVALID_VALUE
    words = r"rejected kernel '\w+' with work-groups of .*CUDA_ERROR_INVALID"
    with pytest.raises(pyclmm.LaunchError, match=words):
        pyclmm.gemm(x, x, trans_b="T", kernel="naive", out=out)
    assert not out.get().any() or np.array_equal(out.get(), A @ A.T)
    cuda.fail.clear()
    assert np.array_equal(pyclmm.gemm(x, x, trans_b="T", kernel="naive", out=out).get(), A @ A.T)


def test_scalars_of_a_call_that_was_refused_are_not_kept(cuda, lib):
    x, out = lib.array(A), lib.array(np.zeros((3, 3), np.float32))

    def gemm(alpha):
        return pyclmm.gemm(x, x, trans_b="T", kernel="naive", out=out, alpha=alpha).get()

    assert np.array_equal(gemm(2.0), 2 * A @ A.T)
    with cuda.failing(cuLaunchKernelEx=fake_cuda.INVALID_VALUE), pytest.raises(pyclmm.LaunchError):
        gemm(3.0)
    assert np.array_equal(gemm(2.0), 2 * A @ A.T)


@pytest.mark.parametrize(
    ("function", "current"),  # the thread's context: none, or already that of the arrays
    [("cuLaunchKernelEx", 0), ("cuLaunchKernelEx", 0xC0), ("cuCtxPushCurrent_v2", 0)],
)
def test_a_plan_goes_on_in_a_new_context(cuda, lib, function, current):
    x = lib.array(A)
    plan = pyclmm.Matmul(x, lib.array(A.T.copy()))
    y = lib.array(A.T.copy())
    plan(x, y)
    lost, cuda.current = streams.context_of(0), current
    cuda.fail[function] = fake_cuda.ILLEGAL_ADDRESS
    with pytest.raises(pyclmm.DeviceLostError, match="the CUDA context, or the stream, was lost"):
        plan(x, y)
    cuda.fail.clear()
    modules = [name for name, _ in cuda.calls].count("cuModuleLoadDataEx")
    assert np.array_equal(plan(x, y).get(), A @ A.T)
    assert streams.context_of(0) is not lost
    assert [name for name, _ in cuda.calls].count("cuModuleLoadDataEx") > modules  # the old ones are gone


def test_a_context_that_is_lost_while_a_plan_is_made_or_makes_its_launches_anew(cuda, lib):
    x, y = lib.array(STACK), lib.array(A.T.copy())
    plan = pyclmm.Matmul(x, y, kernel="naive")
    for multiply in (plan, pyclmm.matmul):
        lost = streams.context_of(0)
        plan.release()
        # for the offsets of the stack
        with cuda.failing(cuMemAlloc_v2=fake_cuda.ILLEGAL_ADDRESS), pytest.raises(pyclmm.DeviceLostError):
            multiply(x, y)
        assert streams.context_of(0) is not lost
        assert np.array_equal(multiply(x, y).get(), STACK @ A.T)


def test_a_device_without_memory_for_a_table(cuda, lib):
    cuda.fail["cuMemAlloc_v2"] = fake_cuda.OUT_OF_MEMORY
    with pytest.raises((pyclmm.DeviceMemoryError, pyclmm.UnsupportedError), match="no memory"):
        pyclmm.matmul(lib.array(A), lib.array(A.T.copy()), kernel="naive")


def test_a_forked_process(monkeypatch, lib):
    x = lib.array(A)
    pyclmm.gemm(x, x, trans_b="T")
    as_after_a_fork(monkeypatch)
    with pytest.raises(pyclmm.ForkError, match="spawn"):
        pyclmm.gemm(x, x, trans_b="T")


def test_threads_have_launches_of_their_own(lib):
    def work(number):
        a = np.full((16, 16), number, np.float32)
        x = lib.array(a)
        for _ in range(20):
            assert np.array_equal(pyclmm.matmul(x, x).get(), a @ a)

    in_threads(4, work)


def test_the_self_check_runs_on_this_way_with_verdicts_of_its_own(monkeypatch, cuda, lib, own_caches):
    x = lib.array(A)
    a = np.ones((3, 4), np.float32)
    pyclmm.gemm(a, a, trans_b="T", kernel="tiled")  # by OpenCL
    before = len(cuda.launches)
    pyclmm.gemm(x, x, trans_b="T", kernel="tiled")
    assert len(cuda.launches) - before > 5
    fills = [given for name, given in cuda.calls if name == "cuMemsetD8Async"]
    assert fills
    assert {byte for _, byte, *_ in fills} == {0xFF}
    before = len(cuda.launches)
    pyclmm.release()
    pyclmm.gemm(x, x, trans_b="T", kernel="tiled")
    assert len(cuda.launches) - before == 1


def test_a_kernel_that_is_wrong_here_is_not_used(monkeypatch, cuda, lib, own_caches):
    x, real = lib.array(A), cuda.run

    def wrong(kernel, values, *sizes):
        code = real(kernel, values, *sizes)
        if kernel.function_name == "matmul_tiled":
            out = next(v for v in values[9:10])
            cuda.bytes_at(out, 4)[:] = 0x3F
        return code

    monkeypatch.setattr(type(cuda), "run", lambda self, *arguments: wrong(*arguments))
    with pytest.raises(pyclmm.UnsupportedError, match="wrong result in the self-check"):
        pyclmm.gemm(x, x, trans_b="T", kernel="tiled")
    assert np.array_equal(pyclmm.matmul(A, A.T.copy(), kernel="tiled"), A @ A.T)  # by OpenCL it is right


# finding the device


def test_without_nvidias_driver(monkeypatch):
    driver.library.cache_clear()
    monkeypatch.setattr(driver, "_NAMES", ("libnocuda.so.9",))
    with pytest.raises(pyclmm.NoDeviceError, match=r"cannot be loaded .*: install NVIDIA's driver"):
        driver.library()


def test_a_driver_that_is_too_old(monkeypatch):
    class Old:
        @staticmethod
        def cuDriverGetVersion(version):
            version._obj.value = 11040
            return 0

    driver.library.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Old)
    with pytest.raises(pyclmm.NoDeviceError, match=r"CUDA 11.04; 11.8 \(driver 520\) or newer is needed"):
        driver.library()
    driver.library.cache_clear()


def test_cuda_without_opencl(monkeypatch, cuda):
    monkeypatch.undo()
    monkeypatch.setattr(driver, "bus_id", lambda _: (0, 7, 0))
    with pytest.raises(pyclmm.NoDeviceError, match=r"CUDA device 0 is there.*libnvidia-opencl.so.1.*PyPI's"):
        streams.context_of(0)


def test_the_device_of_opencl_is_that_at_the_same_place_of_the_bus(monkeypatch):
    class Device:
        extensions = "cl_khr_fp64 cl_nv_device_attribute_query"

        def __init__(self, *place):
            self.place = place

        def get_info(self, what):
            names = ("PCI_DOMAIN_ID_NV", "PCI_BUS_ID_NV", "PCI_SLOT_ID_NV")
            return dict(zip([getattr(cl.device_info, n) for n in names], self.place, strict=True))[what]

    class Cpu:
        extensions = "cl_khr_fp64"

    found = [Cpu(), Device(0, 6, 0), Device(0, 7, 0)]
    monkeypatch.setattr(streams, "all_devices", lambda: found)
    monkeypatch.setattr(driver, "bus_id", lambda ordinal: (0, 6 + ordinal, 0))
    assert [streams._opencl_device(n) for n in (0, 1)] == found[1:]


def test_errors_of_the_driver_by_their_codes(cuda):
    kinds = {2: pyclmm.DeviceMemoryError, **dict.fromkeys((400, 700, 709), pyclmm.DeviceLostError)}
    for code in (1, 2, 400, 700, 701, 709, 900):
        error = driver.fault(code, "something")
        assert type(error) is kinds.get(code, pyclmm.LaunchError)
        assert "something" in str(error)
    assert "before the capture" in str(driver.fault(900, "something"))
