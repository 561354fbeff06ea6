"""Which lane suits a device."""

from __future__ import annotations

import pyopencl as cl

from ..opencl.devices import device_info
from .device_lane import DeviceLane
from .hands import Hands
from .host_lane import HostLane
from .job import Job
from .lane import Lane
from .trace import Trace

__all__ = ["DeviceLane", "HostLane", "lane_for"]


def lane_for(
    number: int,
    device: cl.Device,
    job: Job,
    hands: Hands,
    queue: cl.CommandQueue | None,
    trace: Trace | None,
) -> Lane:
    """The lane that suits *device*. Raises DeviceMemoryError if it has no room for the slots."""
    kind = HostLane if device_info(device).unified_memory else DeviceLane
    return kind(number, device, job, hands, queue, trace)
