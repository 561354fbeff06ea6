"""Made-up devices and problems, with which the choice of kernels is tested without a driver."""

import sys
from dataclasses import replace

from pyclmm.kernels.device import AmxSupport, Caches, DeviceInfo, Target
from pyclmm.opencl import devices
from pyclmm.problem.gemm import GemmProblem

H200 = DeviceInfo(
    name="NVIDIA H200",
    vendor="nvidia",
    kind="gpu",
    platform="NVIDIA CUDA",
    platform_version="OpenCL 3.0 CUDA",
    driver_version="580.159.04",
    opencl_version=(3, 0),
    compute_units=132,
    max_work_group_size=1024,
    max_work_item_sizes=(1024, 1024, 64),
    local_mem_size=49152,
    global_mem_size=140 << 30,
    max_mem_alloc_size=35 << 30,
    max_clock_mhz=1980,
    float_vector_width=1,
    has_fp64=True,
    has_fp16=False,
    unified_memory=False,
    extensions=frozenset({"cl_khr_fp64", "cl_nv_device_attribute_query"}),
    compute_capability=(9, 0),
)
PASCAL = replace(H200, name="NVIDIA GP104", compute_units=20, compute_capability=(6, 1))
MI250 = replace(
    H200,
    name="gfx90a",
    vendor="amd",
    platform="AMD Accelerated Parallel Processing",
    compute_units=104,
    max_work_group_size=256,
    local_mem_size=65536,
    extensions=frozenset({"cl_khr_fp64"}),
    compute_capability=None,
)
ARC = replace(
    MI250,
    name="Intel Arc A770",
    vendor="intel",
    platform="Intel OpenCL Graphics",
    compute_units=512,
    max_work_group_size=1024,
    has_fp64=False,
    extensions=frozenset(),
)
MALI = replace(
    ARC, name="Mali-G78", vendor="arm", compute_units=20, max_work_group_size=64, local_mem_size=32768
)
ONE_ITEM = replace(MALI, name="one work-item", vendor="other", compute_units=1, max_work_group_size=1)
DEVICES = (H200, PASCAL, MI250, ARC, MALI, ONE_ITEM)

LLVMPIPE = replace(ONE_ITEM, name="llvmpipe (LLVM 15.0.6, 256 bits)", kind="cpu", max_work_group_size=1024)

# A small device of no vendor, for what must be the same on every device.
DEVICE = DeviceInfo(
    name="made-up",
    vendor="other",
    kind="gpu",
    platform="none",
    platform_version="OpenCL 1.2",
    driver_version="1.0",
    opencl_version=(1, 2),
    compute_units=8,
    max_work_group_size=256,
    max_work_item_sizes=(256, 256, 64),
    local_mem_size=1 << 15,
    global_mem_size=1 << 30,
    max_mem_alloc_size=1 << 28,
    max_clock_mhz=1000,
    float_vector_width=4,
    has_fp64=True,
    has_fp16=False,
    unified_memory=False,
    extensions=frozenset(),
)

# The CPU devices of shipped tables.
EPYC_POCL = replace(
    DEVICE,
    name="pthread-skylake-avx512-AMD EPYC",
    vendor="pocl",
    kind="cpu",
    platform="Portable Computing Language",
    platform_version="OpenCL 3.0 PoCL 3.1+debian",
    driver_version="3.1+debian",
    compute_units=2,
    local_mem_size=1 << 20,
    float_vector_width=16,
    unified_memory=True,
    caches=Caches(32 << 10, 1 << 20, 32 << 20),
)
EPYC_INTEL = replace(
    EPYC_POCL,
    name="AMD EPYC",
    vendor="intel",
    platform="Intel(R) OpenCL",
    platform_version="OpenCL 3.1 LINUX",
    driver_version="2026.22.10.0.01_160000",
    local_mem_size=1 << 18,
)
# An Intel processor with AMX.
XEON_POCL = replace(
    EPYC_POCL, name="pthread-Intel(R) Xeon(R) Processor", amx=AmxSupport(("int8", "bfloat16"), refusal="")
)

# An Arm CPU: vectors of 128 bits (Neon).
NEON = replace(
    EPYC_POCL,
    name="neoverse-n1",
    compute_units=4,
    local_mem_size=1 << 19,
    float_vector_width=4,
    target=Target(128, ("fma", "neon")),
    caches=Caches(64 << 10, 1 << 20),
)


def dense_problem(m, n, k, dtype="float32", **given):
    """A product of C-contiguous matrices; float16 is summed in float32."""
    acc = "float32" if dtype == "float16" else dtype
    return GemmProblem(m, n, k, dtype, dtype, dtype, acc, **({"lda": k, "ldb": n, "ldo": n} | given))


def seen_as(patch, only=None, **facts):
    """Every module of pyclmm sees each device, or *only* that one, with these facts until *patch* ends."""
    real = devices.device_info

    def device_info(device):
        found = real(device)
        return replace(found, **facts) if only in (None, device) else found

    vars(device_info)["cache_clear"] = real.cache_clear
    for module in [module for name, module in sys.modules.items() if name.startswith("pyclmm.")]:
        if vars(module).get("device_info") is real:
            patch.setattr(module, "device_info", device_info)
