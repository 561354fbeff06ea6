"""Finds devices by name or number, and makes their DeviceInfo. The only module that reads device strings."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NoReturn

import numpy as np
import pyopencl as cl

from .. import environment, repr_tables
from ..byte_sizes import format_bytes
from ..errors import ArgumentError, DTypeError, NoDeviceError, brief, unknown_name
from ..kernels.device import THREADLESS, AmxSupport, Caches, DeviceInfo, Target
from ..kernels.matrix_unit import DPAS_EXTENSION
from . import forks, loader, pocl, processor, status, user_rates
from .loader import install_hint
from .pocl import hidden_fault, linker_fault, pocl_fault, warn_once
from .processor import target_of

# Vendor -> substrings of platform and vendor strings, in lower case. The first match counts; PoCL comes early
# because its device has the vendor of the processor.
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
    """The sub-group size of a device with Intel's matrix instructions, else 0. PyOpenCL has no query for it.
    Intel's drivers report the most sub-groups of a work-group as its most work-items divided by this size.
    """
    if DPAS_EXTENSION not in extensions:
        return 0
    return int(device.max_work_group_size // max(1, device.max_num_sub_groups))


@lru_cache(maxsize=64)
def device_info(device: cl.Device) -> DeviceInfo:
    """The :class:`DeviceInfo` of a PyOpenCL device, read once for each device, with the user's rates. Raises
    ArgumentError for a device that can run no work-item, DeviceLostError for one that does not answer.
    """
    with status.available(device):
        info = _read(device)
    return replace(info, user_rates=user_rates.read(info.identity))


def _read(device: cl.Device) -> DeviceInfo:
    """What the driver tells."""
    pocl.check_items(device)
    extensions = frozenset(device.extensions.split())
    sizes = tuple(device.max_work_item_sizes)
    kind, vendor = _kind(device), _vendor(device)
    cache, line = device.global_mem_cache_size, device.global_mem_cacheline_size
    return DeviceInfo(
        name=device.name.strip(), vendor=vendor, kind=kind,
        platform=device.platform.name.strip(), platform_version=device.platform.version.strip(),
        driver_version=device.driver_version.strip(), opencl_version=_version(device.version),
        compute_units=max(1, device.max_compute_units), max_clock_mhz=device.max_clock_frequency,
        max_work_group_size=device.max_work_group_size,
        max_work_item_sizes=(sizes[0], sizes[1], sizes[2]),
        local_mem_size=device.local_mem_size, global_mem_size=device.global_mem_size,
        max_mem_alloc_size=device.max_mem_alloc_size, unified_memory=bool(device.host_unified_memory),
        float_vector_width=device.native_vector_width_float,
        has_fp64=_has_fp64(device, extensions), has_fp16="cl_khr_fp16" in extensions,
        extensions=extensions,
        compute_capability=_compute_capability(device, extensions),
        sub_group_size=_sub_group_size(device, extensions),
        target=target_of(device) if kind == "cpu" else Target(),
        flushes=not device.single_fp_config & cl.device_fp_config.DENORM,
        caches=processor.caches(cache, line) if kind == "cpu" else Caches(),
        amx=processor.amx_of(vendor) if kind == "cpu" else AmxSupport(),
    )  # fmt: skip


def _has_fp64(device: cl.Device, extensions: frozenset[str]) -> bool:
    if "cl_khr_fp64" in environment.hidden_extensions():
        return False
    return "cl_khr_fp64" in extensions or device.double_fp_config != 0


def all_devices() -> list[cl.Device]:
    """Every device of every platform. Raises NoDeviceError, which says what to install, if there is none, and
    ArgumentError for a variable of the environment that is not understood.
    """
    environment.check()
    forks.check_process()
    with pocl.bound():
        try:
            platforms = loader.platforms()
        except cl.Error as error:
            cure = loader.cure() or install_hint()
            raise NoDeviceError(f"no OpenCL platform was found; {cure}") from error
        devices = [device for platform in platforms for device in _devices(platform)]
    unlinked = next(filter(None, map(linker_fault, platforms)), None)
    if not devices:
        cure = unlinked or pocl_fault(platforms) or hidden_fault(platforms) or install_hint()
        raise NoDeviceError(f"no OpenCL platform here has a device; {cure}")
    if unlinked:
        warn_once(unlinked)
    return devices


def _devices(platform: cl.Platform) -> list[cl.Device]:
    if linker_fault(platform):  # running a kernel would end the process
        return []
    try:
        with pocl.placed(platform), pocl.uninterrupted():
            return list(platform.get_devices())
    except cl.Error:  # CL_DEVICE_NOT_FOUND: the driver finds no hardware
        return []


def default_device() -> cl.Device:
    """The device that PYOPENCL_CTX names, else the largest GPU, else Intel's CPU runtime, the fastest on most
    processors (docs/measured.md), else the first platform's largest device. Raises NoDeviceError.
    """
    choice = environment.CONTEXT.value
    if choice:
        all_devices()  # raises pyclmm's own error if no driver is installed
        try:
            return cl.create_some_context(interactive=False).devices[0]
        except (RuntimeError, ValueError, cl.Error) as error:
            raise NoDeviceError(
                f"PYOPENCL_CTX={brief(choice)} names no device ({error}); unset it, or set platform:device, "
                f"each by number or a part of its name (:NAME on one platform): {_listed(device_labels())}"
            ) from error
    devices = all_devices()
    gpu = _largest([d for d in devices if d.type & cl.device_type.GPU])
    intel = next((d for d in devices if d.platform.name.strip() == loader.PLATFORM), None)
    return gpu or intel or _largest([d for d in devices if d.platform == devices[0].platform]) or devices[0]


def threadless_beside(device: cl.Device) -> cl.Device | None:
    """The platform's device that computes on the caller's thread, if *device* is a CPU that does not."""
    if _vendor(device) != "pocl" or _kind(device) != "cpu" or _is_threadless(device):
        return None
    return next(filter(_is_threadless, _devices(device.platform)), None)


def runs_on_callers_thread(device: cl.Device) -> bool:
    """Whether *device*, a CPU, has queues whose kernels run on the caller's thread."""
    return _kind(device) == "cpu" and "cl_intel_exec_by_local_thread" in device.extensions.split()


def _is_threadless(device: cl.Device) -> bool:
    return device.name.strip().startswith(THREADLESS)


def _largest(devices: list[cl.Device]) -> cl.Device | None:
    """The device with the greatest compute units x clock, the first of equal ones; None of an empty list."""
    return max(devices, key=lambda d: d.max_compute_units * d.max_clock_frequency, default=None)


def device_labels() -> dict[str, cl.Device]:
    """Devices by "platform:device" number, in the order in which `pyclmm info` lists them."""
    labels = {}
    for p, platform in enumerate(cl.get_platforms()):
        for d, device in enumerate(_devices(platform)):
            labels[f"{p}:{d}"] = device
    return labels


@dataclass(frozen=True, repr=False)
class DeviceRecord:
    """One device of this machine. ``device=`` accepts the record, its number or its name.

    ``number`` is "platform:device". ``kind`` is "cpu", "gpu", "accelerator" or "other". ``memory`` is the
    global memory in bytes. ``default``: whether calls that name no device use it. ``device`` is the
    pyopencl.Device.
    """

    number: str
    name: str
    platform: str
    kind: str
    vendor: str
    driver_version: str
    compute_units: int
    memory: int
    default: bool
    device: cl.Device

    def __copy__(self) -> DeviceRecord:
        return self

    def __deepcopy__(self, _memo: object) -> DeviceRecord:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise DTypeError(
            f"a DeviceRecord has a device of this process and cannot be pickled; pickle its name, "
            f"{self.name!r}, which device= takes too"
        )

    def __str__(self) -> str:
        mark = ", default" if self.default else ""
        size = f"{self.compute_units} compute units, {format_bytes(self.memory)}"
        return f"{self.number} {self.name} ({self.platform}, {self.kind}, {size}{mark})"

    def __repr__(self) -> str:
        return f"<device {self}>"


class Devices(list[DeviceRecord]):
    """Devices; ``repr`` gives one line for each, and a notebook shows a table."""

    def __repr__(self) -> str:
        return "\n".join(map(str, self)) or "no device"

    def _repr_html_(self) -> str:
        head = ("number", "name", "platform", "kind", "driver", "compute units", "memory", "default")
        rows = [
            (
                *(d.number, d.name, d.platform, d.kind, d.driver_version, d.compute_units),
                *(format_bytes(d.memory), "yes" if d.default else ""),
            )
            for d in self
        ]
        return repr_tables.html(head, rows)


def devices() -> Devices:
    """Every device of every platform, ordered by number. Raises NoDeviceError if there is none."""
    all_devices()
    try:
        default = default_device()
    except NoDeviceError:  # PYOPENCL_CTX names no device; the list shows what it can name
        default = None
    found = Devices()
    for number, device in device_labels().items():
        info = device_info(device)
        names = number, info.name, info.platform, info.kind, info.vendor, info.driver_version
        sizes = info.compute_units, info.global_mem_size
        found.append(DeviceRecord(*names, *sizes, device == default, device))
    return found


# What ``device=`` accepts; see :func:`find_device`.
DeviceChoice = cl.Device | DeviceRecord | str | int


def find_device(choice: DeviceChoice | None) -> cl.Device:
    """The device that *choice* names; the default device for None. *choice*: a pyopencl.Device, a record or
    index of :func:`devices`, "platform:device", "cpu" or "gpu" (the largest one), or part of the names.
    Raises ArgumentError if no device or several fit, DTypeError for any other type, NoDeviceError.
    """
    if choice is None:
        return default_device()
    if isinstance(choice, cl.Device):
        return choice
    if isinstance(choice, DeviceRecord):
        return choice.device
    if isinstance(choice, bool) or not isinstance(choice, str | int | np.integer):
        raise DTypeError(
            f"device is a {type(choice).__name__}; pass a number or a name (see pyclmm.devices()), "
            '"cpu", "gpu", or a pyopencl.Device'
        )
    all_devices()
    labels = device_labels()
    if isinstance(choice, str):
        return _named(choice, labels)
    if not 0 <= choice < len(labels):
        raise ArgumentError(f"device is {brief(choice)}; numbered from 0, the devices are {_listed(labels)}")
    return list(labels.values())[choice]


def _named(choice: str, labels: dict[str, cl.Device]) -> cl.Device:
    if choice in labels:
        return labels[choice]
    if choice.lower() in ("cpu", "gpu"):
        largest = _largest([d for d in labels.values() if _kind(d) == choice.lower()])
        if largest is None:
            raise ArgumentError(
                f"device is {brief(choice)}, but no device here is one: there are {_listed(labels)}"
            )
        return largest
    part = choice.strip().lower()  # nothing is a part of every name
    named = [d for d in labels.values() if part and part in f"{d.platform.name} {d.name}".lower()]
    if len(named) > 1:
        matches = [label for label, device in labels.items() if device in named]
        raise ArgumentError(f"device {brief(choice)} fits several devices: name one of {matches}")
    if not named:
        names = dict.fromkeys(d.name.strip() for d in labels.values())
        kinds = {kind for d in labels.values() if (kind := _kind(d)) in ("cpu", "gpu")}
        raise unknown_name("device", choice, [*labels, *names, *sorted(kinds)])
    return named[0]


def _listed(labels: dict[str, cl.Device]) -> str:
    return ", ".join(f"{label} {device.name.strip()}" for label, device in labels.items())
