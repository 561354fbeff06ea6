"""Devices that nobody has: plain data, for what must be the same on any device."""

from __future__ import annotations

from pyclmm.device import DeviceInfo

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
