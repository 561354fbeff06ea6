"""CUDA's launcher, in place of OpenCL's for streams."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyopencl as cl

from ..errors import NoDeviceError
from ..kernels.device import DeviceInfo
from ..kernels.interface import Work
from ..opencl.devices import device_info
from ..opencl.launcher import Launcher, Memory, launcher_of
from ..opencl.steps import Scalars
from ..opencl.watch import Watch
from . import driver
from .binding import CudaBinding
from .streams import Stream, context_of, own_stream, place_of


class CudaLauncher(Launcher):
    """Launches by CUDA streams."""

    way = "cuda"
    packs_once = False  # workspace is the library's, for one call

    def binding(
        self, queue: Stream, device: DeviceInfo, work: Work, absent: Collection[str], keeps: bool
    ) -> Any:
        return CudaBinding(queue.context, work, absent)

    def info(self, device: cl.Device) -> DeviceInfo:
        return launched_by_cuda(device_info(device), driver.overlaps())

    def home(self, queue: Stream) -> Any:
        return queue.context

    def queue_of_its_own(self, queue: Stream) -> Stream:
        return own_stream(queue.context)

    def queue_on(self, device: cl.Device) -> Stream:
        place = place_of(device)
        for ordinal in range(driver.count()):
            if driver.bus_id(ordinal) == place:
                return own_stream(context_of(ordinal))
        raise NoDeviceError(f"no CUDA device is the same as {device.name.strip()!r}")

    def compute(
        self,
        queue: Stream,
        device: DeviceInfo,
        work: Work,
        memory: Mapping[str, Memory],
        scalars: Scalars,
        make: Callable[..., cl.Kernel] | None = None,
    ) -> Watch | None:
        context, stream = queue.context, queue.handle
        with context.current(), driver.uncaptured():
            binding = CudaBinding(context, work)
            block = driver.Memory(binding.workspace_nbytes, "workspace")
            block.fill(0xFF, stream)
            copies: dict[int, driver.Memory] = {}
            for name, x in memory.items():
                if id(x) not in copies:
                    copies[id(x)] = driver.Memory(x.nbytes, name)
                    copies[id(x)].write(x.ctypes.data, stream)
            addresses = {name: copies[id(x)].address for name, x in memory.items()}
            binding.enqueue(stream, addresses, scalars, block.address)
            copies[id(memory["out"])].read(memory["out"].ctypes.data, stream)
            driver.wait(stream, "a product")
            return binding.watch


@lru_cache(maxsize=8)
def launched_by_cuda(device: DeviceInfo, overlaps: bool) -> DeviceInfo:
    """*device* with what launches by CUDA can do from compute capability 9.0 on. *overlaps*: whether the
    driver lets them overlap."""
    is_new = device.capability >= (9, 0)
    return replace(device, clusters=is_new, overlaps=is_new and overlaps)


_CUDA = CudaLauncher()
launcher_of.register(Stream, lambda _: _CUDA)


WAYS = (Launcher.way, CudaLauncher.way)


def launcher_named(way: str) -> Launcher:
    """The launcher of that one of WAYS."""
    return _CUDA if way == CudaLauncher.way else launcher_of(None)
