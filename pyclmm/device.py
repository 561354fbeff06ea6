"""DeviceInfo: what pyclmm knows of an OpenCL device, and the only reader of its strings and limits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import pyopencl as cl

# Platform and device vendor strings, lower case, in the order they are tried: PoCL first, because
# it calls its device by the processor's vendor.
_VENDORS = (
    ("pocl", ("portable computing language", "pocl")),
    ("oclgrind", ("oclgrind",)),
    ("mesa", ("mesa", "rusticl", "clover")),
    ("nvidia", ("nvidia",)),
    ("amd", ("advanced micro devices", "amd")),
    ("intel", ("intel",)),
    ("apple", ("apple",)),
    ("arm", ("arm",)),
    ("qualcomm", ("qualcomm",)),
)


@dataclass(frozen=True)
class DeviceInfo:
    """The facts of one device that choose kernels; plain data, so tests can make devices up.

    Sizes are in bytes, ``max_clock_mhz`` in MHz. ``vendor`` is one of the short names in this
    module or "other"; ``kind`` is "cpu", "gpu", "accelerator" or "other".
    """

    name: str
    vendor: str
    kind: str
    platform: str
    platform_version: str
    driver_version: str
    opencl_version: tuple[int, int]
    compute_units: int
    max_work_group_size: int
    max_work_item_sizes: tuple[int, int, int]
    local_mem_size: int
    global_mem_size: int
    max_mem_alloc_size: int
    max_clock_mhz: int
    float_vector_width: int
    has_fp64: bool
    has_fp16: bool
    unified_memory: bool
    extensions: frozenset[str]
    compute_capability: tuple[int, int] | None = None
    sub_group_size: int = 0  # the least that the device has; asked where matrix instructions need it

    @property
    def gfx(self) -> str:
        """AMD's name of the processor, as "gfx90a"; empty on other devices and drivers."""
        found = re.match(r"gfx[0-9a-f]+", self.name) if self.vendor == "amd" else None
        return found[0] if found else ""

    @property
    def is_cpu(self) -> bool:
        return self.kind == "cpu"

    @property
    def vector_bits(self) -> int:
        """Width of the widest vector registers to compile for: 128, 256 or 512.

        PoCL before 3.1 reports 512 where its compiler stops at 256, and some wider vectors make it
        end the process.
        """
        old_pocl = re.search(r"PoCL ([012]\.|3\.0)", self.platform_version) is not None
        widest = 256 if old_pocl else 512
        return max(128, min(widest, 32 * self.float_vector_width))

    @property
    def in_place(self) -> bool:
        """Whether a buffer laid around an array is the array: what a kernel has written is there.

        OpenCL only promises that after a map, which costs another wake-up of a thread. PoCL and
        Intel's CPU runtime never copy; Oclgrind does, and so may others.
        """
        return self.is_cpu and self.unified_memory and self.vendor in ("pocl", "intel")

    @property
    def prefetches(self) -> bool:
        """Whether clang's ``__builtin_prefetch`` works; OpenCL's own prefetch() does nothing on these.

        Compilers that are clang know it; Oclgrind's interpreter behind one does not.
        """
        return self.is_cpu and self.vendor in ("pocl", "intel")

    @property
    def ends_loops_early(self) -> bool:
        """Whether long loops give wrong results, so that no work-item may do a whole work-group's work."""
        return "llvmpipe" in self.name

    def too_many_steps(self, steps: int) -> str | None:
        """Why a work-item of this device cannot go through *steps* of its loops, or None.

        llvmpipe leaves all loops of a work-item once they have made 65,535 rounds together (Mesa 22.3),
        without a word and with a wrong result. *steps* need not count each of them: a third is allowed.
        """
        if self.ends_loops_early and steps > _LLVMPIPE_STEPS:
            return f"{steps} steps a work-item are too many for {self.name!r}: it ends loops early"
        return None

    def missing_type(self, dtypes: tuple[str, ...]) -> str | None:
        """Why this device cannot compute with one of *dtypes* (NumPy names), or None."""
        for name in dtypes:
            if name in ("float64", "complex128") and not self.has_fp64:
                return f"{name} needs cl_khr_fp64, which device {self.name!r} does not have"
        return None


_LLVMPIPE_STEPS = 20_000


def _version(text: str) -> tuple[int, int]:
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (1, 0)


def _vendor(device: cl.Device) -> str:
    words = f"{device.platform.name} {device.platform.vendor} {device.vendor}".lower()
    return next((short for short, marks in _VENDORS if any(m in words for m in marks)), "other")


def _kind(device: cl.Device) -> str:
    types = cl.device_type
    for name, bit in (("gpu", types.GPU), ("cpu", types.CPU), ("accelerator", types.ACCELERATOR)):
        if device.type & bit:
            return name
    return "other"


def _compute_capability(device: cl.Device, extensions: frozenset[str]) -> tuple[int, int] | None:
    if "cl_nv_device_attribute_query" not in extensions:
        return None
    return (device.compute_capability_major_nv, device.compute_capability_minor_nv)


def _sub_group_size(device: cl.Device, extensions: frozenset[str]) -> int:
    """Of Intel's drivers, which have no query of it that PyOpenCL knows: the most work-items of a work-group
    over the most sub-groups, as they compute the latter."""
    if "cl_intel_subgroup_matrix_multiply_accumulate" not in extensions:
        return 0
    return int(device.max_work_group_size // max(1, device.max_num_sub_groups))


@lru_cache(maxsize=64)
def device_info(device: cl.Device) -> DeviceInfo:
    """The :class:`DeviceInfo` of a PyOpenCL device; asked once a device and process."""
    extensions = frozenset(device.extensions.split())
    sizes = tuple(device.max_work_item_sizes)
    return DeviceInfo(
        name=device.name.strip(),
        vendor=_vendor(device),
        kind=_kind(device),
        platform=device.platform.name.strip(),
        platform_version=device.platform.version.strip(),
        driver_version=device.driver_version.strip(),
        opencl_version=_version(device.version),
        compute_units=device.max_compute_units,
        max_work_group_size=device.max_work_group_size,
        max_work_item_sizes=(sizes[0], sizes[1], sizes[2]),
        local_mem_size=device.local_mem_size,
        global_mem_size=device.global_mem_size,
        max_mem_alloc_size=device.max_mem_alloc_size,
        max_clock_mhz=device.max_clock_frequency,
        float_vector_width=device.native_vector_width_float,
        has_fp64="cl_khr_fp64" in extensions or device.double_fp_config != 0,
        has_fp16="cl_khr_fp16" in extensions,
        unified_memory=bool(device.host_unified_memory),
        extensions=extensions,
        compute_capability=_compute_capability(device, extensions),
        sub_group_size=_sub_group_size(device, extensions),
    )
