"""A CUDA device's context and streams, beside the same device of OpenCL, whose compiler makes programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from ..errors import DeviceLostError, LaunchError, NoDeviceError
from ..kernels import Program
from ..opencl import forks, program, queues
from ..opencl.devices import all_devices
from ..opencl.single_flight import SingleFlight
from . import driver, ptx

_NO_OPENCL = (
    "pyclmm compiles with NVIDIA's OpenCL, which comes with the driver (libnvidia-opencl.so.1): on Debian "
    "install nvidia-opencl-icd, on Ubuntu libnvidia-compute; in a container set "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility. PyPI's nvidia-cuda-opencl has only a loader of drivers, "
    "which PyOpenCL has too"
)


@dataclass(eq=False)
class Context:
    """A device's primary context, which all libraries of a process share: its number and its handle.

    ``device`` is the device of OpenCL that is the same. Loaded programs stay for the process: captured graphs
    launch them, and nothing tells when the last graph is gone.
    """

    ordinal: int
    handle: int
    device: cl.Device
    kept: list[Any] = field(default_factory=list)  # memory that captured graphs use
    own: SingleFlight[Any, Any] = field(default_factory=SingleFlight)  # what is made once for it
    _modules: SingleFlight[Program, tuple[int, ptx.Loadable]] = field(default_factory=SingleFlight)

    def function(self, made_from: Program, name: str) -> tuple[int, int, bool]:
        """The handle of a program's kernel, the bytes of local memory that a launch gives, and whether it may
        overlap the launch before. Loads the program if it is not. Raises BuildError."""
        module, edited = self._modules.get(made_from, lambda: self._load(made_from))
        dynamic = edited.dynamic[name]
        return driver.function(module, name, dynamic), dynamic, edited.overlaps

    def _load(self, made_from: Program) -> tuple[int, ptx.Loadable]:
        text = program.text(self.device, made_from)
        try:
            edited = ptx.loadable(text)
            return driver.loaded(edited.text), edited
        except (ValueError, LaunchError) as error:
            raise program.rejected(self.device, made_from, f"for a launch by CUDA: {error}") from error

    @contextmanager
    def current(self) -> Iterator[None]:
        """In this block it is the thread's current context. It is let go if the block finds it lost."""
        try:
            with driver.current(self.handle):
                yield
        except DeviceLostError:
            forget(self)
            raise

    @property
    def is_known(self) -> bool:
        """Whether it is the one that the next call uses; a lost one is not."""
        return _contexts.get(self.ordinal) is self


_contexts: dict[int, Context] = {}


def context_of(ordinal: int) -> Context:
    """The context of a CUDA device. Raises NoDeviceError if OpenCL has no such device, and ForkError."""
    found = _contexts.get(ordinal)
    if found is None:
        forks.check_process()
        device = _opencl_device(ordinal)
        made = Context(ordinal, driver.primary_context(ordinal), device)
        found = _contexts.setdefault(ordinal, made)  # of two threads' the first; both have the same handle
    return found


@queues.at_loss
def forget(context: Any) -> None:
    """Drop a lost context, so that the next call retains a new one."""
    for ordinal in [ordinal for ordinal, kept in list(_contexts.items()) if kept is context]:
        _contexts.pop(ordinal, None)


def _opencl_device(ordinal: int) -> cl.Device:
    place = driver.bus_id(ordinal)
    try:
        devices = all_devices()
    except NoDeviceError as error:
        raise NoDeviceError(f"CUDA device {ordinal} is there, but {error}; {_NO_OPENCL}") from error
    for device in devices:
        if place_of(device) == place:
            return device
    raise NoDeviceError(f"CUDA device {ordinal} is there, but no device of OpenCL is the same; {_NO_OPENCL}")


class Stream(NamedTuple):
    """A stream of a context, in place of OpenCL's queue: the *handle* as cuStreamCreate gives it."""

    context: Context
    handle: int

    @property
    def device(self) -> cl.Device:
        """The device of OpenCL that is the same."""
        return self.context.device

    def finish(self) -> None:
        """Wait for all work in it."""
        with driver.current(self.context.handle):
            driver.wait(self.handle, "the work in a stream")


def own_stream(context: Context) -> Stream:
    """A stream for checks and tables, of which no other library knows."""
    found: Stream = context.own.get("stream", lambda: _new_stream(context))
    return found


def _new_stream(context: Context) -> Stream:
    with driver.current(context.handle):
        return Stream(context, driver.new_stream())


def constant(context: Context, content: np.ndarray[Any, Any]) -> driver.Memory:
    """Memory with this *content*, written once and kept with its context: captured graphs may read it."""
    made: driver.Memory = context.own.get(content.tobytes(), lambda: written(context, content))
    return made


def written(context: Context, content: np.ndarray[Any, Any]) -> driver.Memory:
    """Memory with this *content*, which every stream may read."""
    content, own = np.ascontiguousarray(content), own_stream(context).handle
    with driver.current(context.handle), driver.uncaptured():
        made = driver.Memory(content.nbytes, "a table of numbers")
        made.write(content.ctypes.data, own)
        driver.wait(own, "a table of numbers")  # the host's copy may go
    return made


def place_of(device: cl.Device) -> tuple[int, int, int] | None:
    """Where an NVIDIA device is on the PCI bus: domain, bus, slot; None for others."""
    if "cl_nv_device_attribute_query" not in device.extensions.split():
        return None
    wanted = (cl.device_info.PCI_DOMAIN_ID_NV, cl.device_info.PCI_BUS_ID_NV, cl.device_info.PCI_SLOT_ID_NV)
    found: Any = tuple(device.get_info(name) for name in wanted)
    return (int(found[0]), int(found[1]), int(found[2]))
