"""Devices: found by name or number, and read into a DeviceInfo. The only reader of a device's strings."""

from __future__ import annotations

import os
import re
from functools import lru_cache

import pyopencl as cl

from ..errors import INSTALL_HINT, ArgumentError, NoDeviceError, unknown_name
from ..kernels.device import DeviceInfo
from . import forks

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


def all_devices() -> list[cl.Device]:
    """Every device of every platform; NoDeviceError says what to install if there is none."""
    forks.check_process()
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise NoDeviceError(f"no OpenCL platform was found; {INSTALL_HINT}") from error
    devices = [device for platform in platforms for device in _devices(platform)]
    if not devices:
        raise NoDeviceError(f"no OpenCL platform here has a device; {INSTALL_HINT}")
    return devices


def _devices(platform: cl.Platform) -> list[cl.Device]:
    try:
        return list(platform.get_devices())
    except cl.Error:  # CL_DEVICE_NOT_FOUND: a driver whose hardware is not there
        return []


def default_device() -> cl.Device:
    """The device that PYOPENCL_CTX names, else the largest GPU, else the first device."""
    if os.environ.get("PYOPENCL_CTX"):
        all_devices()  # a missing driver gets pyclmm's own message
        try:
            return cl.create_some_context(interactive=False).devices[0]
        except (RuntimeError, ValueError, cl.Error) as error:
            choice = os.environ["PYOPENCL_CTX"]
            raise NoDeviceError(
                f"PYOPENCL_CTX={choice!r} names no device ({error}); unset it, or see `pyclmm info`"
            ) from error
    devices = all_devices()
    gpus = [d for d in devices if d.type & cl.device_type.GPU]
    return max(gpus, key=lambda d: d.max_compute_units * d.max_clock_frequency) if gpus else devices[0]


def device_labels() -> dict[str, cl.Device]:
    """Devices by "platform:device" number, as `pyclmm info` lists them."""
    labels = {}
    for p, platform in enumerate(cl.get_platforms()):
        for d, device in enumerate(_devices(platform)):
            labels[f"{p}:{d}"] = device
    return labels


def find_device(choice: str | None) -> cl.Device:
    """The device of that number ("0:1") or with *choice* in its or its platform's name."""
    if choice is None:
        return default_device()
    all_devices()
    labels = device_labels()
    if choice in labels:
        return labels[choice]
    named = [d for d in labels.values() if choice.lower() in f"{d.platform.name} {d.name}".lower()]
    if len(named) > 1:
        matches = [label for label, device in labels.items() if device in named]
        raise ArgumentError(f"device {choice!r} fits several devices: name one of {matches}")
    if not named:
        raise unknown_name(
            "device", choice, [*labels, *dict.fromkeys(d.name.strip() for d in labels.values())]
        )
    return named[0]
