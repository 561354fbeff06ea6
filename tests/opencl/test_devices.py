"""DeviceInfo as read from drivers, and the choice of a device."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest

import pyclmm
from pyclmm import KERNELS, ArgumentError, NoDeviceError
from pyclmm.kernels.device import Target
from pyclmm.opencl import devices, queues
from pyclmm.opencl.devices import all_devices, default_device, device_info, find_device, threadless_beside
from pyclmm.selection.select import candidates, refusal
from tests.support.cases import problem_of
from tests.support.driver import without_intels
from tests.support.faults import cl_error, replace_driver
from tests.support.made_up import DEVICE, LLVMPIPE

TYPES = cl.device_type


class FakeDevice(SimpleNamespace):
    """A device with given properties. It is hashable, as PyOpenCL's are."""

    __hash__ = object.__hash__


def fake(**answers):
    platform = SimpleNamespace(
        name=answers.pop("platform", "Some Platform"), vendor=answers.pop("maker", ""), version="OpenCL 3.0 x"
    )
    plain = {
        "name": " Device 1 ",
        "vendor": "",
        "type": TYPES.GPU,
        "platform": platform,
        "driver_version": "1.2",
        "version": "OpenCL 1.2 something",
        "max_compute_units": 4,
        "max_work_group_size": 256,
        "max_work_item_sizes": [256, 128, 64],
        "local_mem_size": 32768,
        "global_mem_size": 1 << 30,
        "max_mem_alloc_size": 1 << 28,
        "global_mem_cache_size": 1 << 20,
        "global_mem_cacheline_size": 64,
        "max_clock_frequency": 1500,
        "single_fp_config": cl.device_fp_config.DENORM | cl.device_fp_config.FMA,
        "native_vector_width_float": 8,
        "double_fp_config": 0,
        "host_unified_memory": 0,
        "extensions": "cl_khr_global_int32_base_atomics",
    }
    return FakeDevice(**(plain | answers))


@pytest.fixture(autouse=True)
def _no_compiler(device_read_anew, monkeypatch):
    """The compilers of made-up devices are not asked (see test_target.py)."""
    monkeypatch.setattr(devices, "target_of", lambda _: Target())


@pytest.mark.parametrize(
    ("answers", "vendor"),
    [
        ({"platform": "NVIDIA CUDA", "vendor": "NVIDIA Corporation"}, "nvidia"),
        (
            {"platform": "AMD Accelerated Parallel Processing", "vendor": "Advanced Micro Devices, Inc."},
            "amd",
        ),
        ({"platform": "Intel(R) OpenCL", "vendor": "Intel(R) Corporation"}, "intel"),
        ({"platform": "Portable Computing Language", "vendor": "AuthenticAMD"}, "pocl"),
        ({"platform": "rusticl", "maker": "Mesa/X.org", "vendor": "AMD"}, "mesa"),
        ({"platform": "Oclgrind", "vendor": "University of Bristol"}, "oclgrind"),
        ({"platform": "Apple", "vendor": "Intel Inc."}, "intel"),
        ({"platform": "Apple", "vendor": "Apple"}, "apple"),
        ({"platform": "ARM Platform", "vendor": "ARM"}, "arm"),
        ({"platform": "QUALCOMM Snapdragon(TM)", "vendor": "QUALCOMM"}, "qualcomm"),
        ({}, "other"),
    ],
)
def test_vendors(answers, vendor):
    assert device_info(fake(**answers)).vendor == vendor


@pytest.mark.parametrize(
    ("bits", "kind"),
    [(TYPES.GPU, "gpu"), (TYPES.CPU, "cpu"), (TYPES.ACCELERATOR, "accelerator"), (TYPES.CUSTOM, "other")],
)
def test_kinds(bits, kind):
    info = device_info(fake(type=bits | TYPES.DEFAULT))
    assert info.kind == kind
    assert info.is_cpu == (kind == "cpu")


def test_limits_and_types_come_from_the_driver():
    info = device_info(fake(extensions="cl_khr_fp64 cl_khr_fp16", host_unified_memory=1))
    assert info.name == "Device 1"
    assert info.opencl_version == (1, 2)
    assert info.max_work_item_sizes == (256, 128, 64)
    assert (info.has_fp64, info.has_fp16, info.unified_memory) == (True, True, True)
    assert info.compute_capability is None
    bare = device_info(fake(version="nonsense"))
    assert bare.opencl_version == (1, 0)
    assert (bare.has_fp64, bare.has_fp16, bare.unified_memory) == (False, False, False)
    assert device_info(fake(double_fp_config=63)).has_fp64, "core since OpenCL 1.2, without the extension"


@pytest.mark.parametrize(("config", "flushes"), [(cl.device_fp_config.DENORM, False), (0, True)])
def test_a_driver_that_does_not_promise_subnormal_numbers_may_flush_them(config, flushes):
    assert device_info(fake(single_fp_config=config)).flushes is flushes


@pytest.mark.parametrize("answers", [{"max_compute_units": 0}, {"native_vector_width_float": 12}], ids=str)
def test_numbers_that_no_processor_has_leave_a_kernel(answers):
    info = device_info(fake(type=TYPES.CPU, **answers))
    assert next(candidates(problem_of(300, 200, 100), info, "auto", ()))


def test_compute_capability():
    answers = {"compute_capability_major_nv": 9, "compute_capability_minor_nv": 0}
    assert device_info(fake(**answers)).compute_capability is None, "asked for only where it can be answered"
    answers["extensions"] = "cl_nv_device_attribute_query"
    assert device_info(fake(**answers)).compute_capability == (9, 0)


def test_device_info_is_made_once_a_device(queue):
    assert device_info(queue.device) is device_info(queue.device)


@pytest.mark.parametrize(("silent", "name"), [("host_unified_memory", " 'Device 1'"), ("name", "")])
def test_a_device_that_does_not_answer_says_what_would_do(silent, name):
    class Silent(FakeDevice):
        def __getattr__(self, name):
            raise cl_error(cl.status_code.INVALID_VALUE, "clGetDeviceInfo")

    device = Silent(**vars(fake()))
    delattr(device, silent)
    with pytest.raises(pyclmm.DeviceLostError, match=f"^device{name} gives no answer, .*PYOPENCL_CTX"):
        device_info(device)


def test_missing_types():
    without = replace(DEVICE, has_fp64=False)
    assert without.missing_type(("float32", "complex64")) is None
    for name in ("float64", "complex128"):
        assert name in without.missing_type(("float32", name))
        assert DEVICE.missing_type((name,)) is None


# ---- which device ----------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch):
    """A function: the machine then has platforms with these devices and no others."""
    monkeypatch.delenv("PYOPENCL_CTX", raising=False)

    def put(*platforms):
        found = []
        for given in platforms:
            platform = SimpleNamespace(name="Platform", version="", get_devices=lambda given=given: given)
            for device in given:
                device.platform.name = "Platform"
            found.append(platform)
        replace_driver(monkeypatch, "opencl", get_platforms=lambda: found)

    return put


def test_no_device_of_a_kind(machine):
    machine([fake(type=TYPES.ACCELERATOR)])
    with pytest.raises(ArgumentError, match="device is 'gpu', but no device here is one: there are 0:0"):
        devices.find_device("gpu")


def test_the_largest_gpu_is_the_default(machine):
    cpu = fake(type=TYPES.CPU, max_compute_units=128, max_clock_frequency=5000)
    small, large = fake(max_compute_units=4), fake(max_compute_units=100)
    machine([cpu], [small, large])
    assert default_device() is large
    machine([cpu])
    assert default_device() is cpu


def test_a_cpu_device_without_threads_is_not_the_default(machine):
    basic, pthread = (fake(type=TYPES.CPU, max_compute_units=n, max_clock_frequency=2600) for n in (1, 8))
    pthread.platform = basic.platform
    machine([basic, pthread], [fake(type=TYPES.CPU, maker="another", max_compute_units=16)])
    assert default_device() is pthread


POCL = "Portable Computing Language"


def beside(platform, usual, other, kind=TYPES.CPU):
    """The device without threads beside *usual* on a platform with these two."""
    devices = [fake(name=other, type=TYPES.CPU), fake(name=usual, type=kind)]
    where = SimpleNamespace(name=platform, vendor="", version="", get_devices=lambda: devices)
    for device in devices:
        device.platform = where
    found = threadless_beside(devices[1])
    assert found in (None, devices[0])
    return found and found.name


def test_the_device_without_threads_beside_one_with():
    assert beside(POCL, "pthread-x", "basic-x") == "basic-x"
    assert beside(POCL, "cpu-x", "cpu-minimal-x") == "cpu-minimal-x"
    assert beside(POCL, "pthread-x", "cpu-x") is None
    assert beside(POCL, "basic-x", "basic-y") is None
    assert beside(POCL, "cuda-x", "basic-x", TYPES.GPU) is None
    assert beside("Intel(R) OpenCL", "cpu-x", "basic-x") is None


def test_devices_by_number_and_name(machine):
    first, second = fake(name="Ampere A"), fake(name="Ampere B")
    machine([first], [second])
    assert find_device("1:0") is find_device(1) is find_device(np.int64(1)) is second
    assert find_device("ampere b") is second
    assert find_device(None) is first
    with pytest.raises(ArgumentError, match=r"'Ampere' fits several devices: name one of \['0:0', '1:0'\]"):
        find_device("Ampere")
    with pytest.raises(ArgumentError, match="unknown device 'Ampere C': did you mean 'Ampere"):
        find_device("Ampere C")


@pytest.mark.parametrize("name", ["", " "])
def test_no_name_names_the_only_device(machine, name):
    machine([fake(name="Ampere A")])
    with pytest.raises(ArgumentError, match="unknown device"):
        find_device(name)


def test_pyopencl_ctx_is_honoured(monkeypatch, queue):
    monkeypatch.setenv("PYOPENCL_CTX", "0")
    own = queues.default_queue()
    assert own.device.platform == cl.get_platforms()[0]
    assert queues.default_queue() is own, "kept"
    x = np.ones((3, 3), np.float32)
    assert (pyclmm.matmul(x, x, kernel="naive") == 3).all()


def test_a_queue_profiles_where_asked_to(queue):
    timed = queues.new_queue(queue.device, profiling=True)
    assert timed.properties & cl.command_queue_properties.PROFILING_ENABLE
    assert not queues.new_queue(queue.device).properties


@without_intels
def test_no_platform(monkeypatch):
    def none():
        raise cl.LogicError("PLATFORM_NOT_FOUND_KHR")

    replace_driver(monkeypatch, "opencl", get_platforms=none)
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    with pytest.raises(NoDeviceError, match="no OpenCL platform was found; install a driver"):
        all_devices()


def test_llvmpipe_refuses_loops_of_more_than_20_000_steps():
    assert DEVICE.too_many_steps(10**9) is None
    assert LLVMPIPE.too_many_steps(20_000) is None
    assert "ends loops early" in LLVMPIPE.too_many_steps(20_001)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("shape", [(8, 8), (1, 64), (64, 1), (300, 200)], ids=str)
def test_every_kernel_refuses_loops_too_long_for_llvmpipe(kernel, shape):
    """4 x 10^8 steps of K are too many for every kernel there. A kernel without a refusal would be wrong."""
    long, short = (problem_of(*shape, k) for k in (4 * 10**8, 100))  # type: ignore[call-arg]
    assert refusal(kernel, long, LLVMPIPE)
    if kernel.name in ("register", "tiled", "naive", "flat"):
        assert refusal(kernel, short, LLVMPIPE) is None


def test_llvmpipe_gets_kernels_with_short_loops():
    """`packed` gave a wrong 1024 x 1024 x 4096 on llvmpipe, `matvec` a wrong 1 x 4000 x 4000."""
    found = candidates(problem_of(1024, 1024, 4096), LLVMPIPE, "auto")
    assert {c.kernel.name for c in found} == {"register", "tiled", "naive"}
    assert next(candidates(problem_of(1, 4000, 4000), LLVMPIPE, "auto")).kernel.name == "thin"


@pytest.mark.parametrize(
    ("answers", "gfx"),
    [
        ({"vendor": "Advanced Micro Devices, Inc.", "name": "gfx90a:sramecc+:xnack-"}, "gfx90a"),
        ({"vendor": "Advanced Micro Devices, Inc.", "name": "gfx1100"}, "gfx1100"),
        ({"vendor": "Advanced Micro Devices, Inc.", "name": "Tahiti"}, ""),
        ({"platform": "rusticl", "maker": "Mesa/X.org", "name": "gfx1100"}, ""),
        ({"name": "gfx90a"}, ""),
    ],
)
def test_the_gfx_version_is_read_from_the_name_of_an_amd_device(answers, gfx):
    assert device_info(fake(**answers)).gfx == gfx


@pytest.mark.parametrize(("most", "size"), [(128, 8), (64, 16), (0, 1024)])
def test_the_sub_group_size_is_known_where_there_are_matrix_units(most, size):
    extension = "cl_intel_subgroup_matrix_multiply_accumulate"
    given = {"vendor": "Intel(R) Corporation", "max_work_group_size": 1024, "max_num_sub_groups": most}
    assert device_info(fake(extensions=extension, **given)).sub_group_size == size
    assert device_info(fake(**given)).sub_group_size == 0
