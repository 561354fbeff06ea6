"""The CUDA driver's own library by ctypes, and what its errors mean. It is loaded when it is used."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from ..errors import DeviceLostError, DeviceMemoryError, LaunchError, NoDeviceError, PyclmmError

# Names of the driver's library on Linux (also WSL) and Windows.
_NAMES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
_OLDEST = 11080  # cuLaunchKernelEx came with CUDA 11.8
_OVERLAPS = 12030  # since CUDA 12.3 a captured launch may overlap the one before
# Error codes of cuda.h.
_OUT_OF_MEMORY = 2
_CAPTURE = range(900, 911)  # what a capture forbids
# The context is gone: destroyed, or after an illegal access, a trap, a time-out. Nothing in it works again.
# 400: a handle is of a context, or a stream, that was destroyed.
_LOST = (4, 46, 201, 214, 220, 400, 700, 702, 709, 714, 715, 716, 717, 718, 719)
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_PORTABLE, _MAPPED = 1, 2  # CU_MEMHOSTALLOC_PORTABLE, _DEVICEMAP
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL

pointer = ctypes.c_void_p


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig: the groups and the work-items of each, dynamic local memory in bytes, the stream."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "dynamic")),
        ("stream", pointer),
        ("attributes", pointer),
        ("number", ctypes.c_uint),
    )


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute with a value of up to three numbers."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("name", "padding", "x", "y", "z")),
        ("rest", ctypes.c_char * 52),
    )


# CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: launch while the work before may still run.
OVERLAP = LaunchAttribute(6, 0, 1)


def clustered(groups: int) -> LaunchAttribute:
    """CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: so many work-groups along dimension 0 are a cluster."""
    return LaunchAttribute(4, 0, groups, 1, 1)


@cache
def library() -> Any:
    """The driver's library, ready for use. Raises NoDeviceError."""
    error: object = None
    for name in _NAMES:
        try:
            cuda = ctypes.CDLL(name)
            break
        except OSError as missing:
            error = missing
    else:
        raise NoDeviceError(f"the CUDA driver's library cannot be loaded ({error}): install NVIDIA's driver")
    version = _version_of(cuda)
    if version < _OLDEST:
        raise NoDeviceError(
            f"NVIDIA's driver is for CUDA {version / 1000:g}; 11.8 (driver 520) or newer is needed"
        )
    check(cuda.cuInit(0), "the start of the driver", cuda)
    return cuda


def _version_of(cuda: Any) -> int:
    """The newest CUDA that the driver is for, times 1000: 12030 is 12.3. 0 if it does not say."""
    version = ctypes.c_int()
    return 0 if cuda.cuDriverGetVersion(ctypes.byref(version)) else version.value


def overlaps() -> bool:
    """Whether a launch may overlap the one before, in captures too."""
    return _version_of(library()) >= _OVERLAPS


def named(code: int, cuda: Any = None) -> str:
    """The name that the driver gives an error."""
    text = ctypes.c_char_p()
    (cuda or library()).cuGetErrorName(code, ctypes.byref(text))
    return f"{text.value.decode()}, {code}" if text.value else str(code)


def check(code: int, what: str, cuda: Any = None) -> None:
    """Raise pyclmm's error for the *code* of a call of the driver. *what* it was about."""
    if code:
        raise fault(code, what, cuda)


def fault(code: int, what: str, cuda: Any = None) -> PyclmmError:
    """pyclmm's error for the *code* of a call of the driver."""
    name = named(code, cuda)
    if code == _OUT_OF_MEMORY:
        return DeviceMemoryError(f"the CUDA device had no memory for {what} ({name}): free some")
    if code in _LOST:
        return DeviceLostError(
            f"the CUDA context, or the stream, was lost before {what} was complete ({name}); nothing in it "
            "can be used again: restart the process, or make new arrays in a new context if the library can"
        )
    advice = "call again, or with another kernel="
    if code in _CAPTURE:
        advice = "a stream is being captured, which forbids that; make the call once before the capture"
    return LaunchError(f"the CUDA driver rejected {what} ({name}); {advice}")


def ordinal_of(address: int) -> int | None:
    """The number of the device whose memory *address* is in; None for memory of the host, or freed."""
    found = ctypes.c_int()
    cuda = library()
    code = cuda.cuPointerGetAttribute(ctypes.byref(found), _DEVICE_ORDINAL, ctypes.c_uint64(address))
    return None if code else found.value


def count() -> int:
    """How many CUDA devices there are."""
    found = ctypes.c_int()
    check(library().cuDeviceGetCount(ctypes.byref(found)), "the number of devices")
    return found.value


def bus_id(ordinal: int) -> tuple[int, int, int]:
    """Where a device is on the PCI bus: domain, bus, slot. It tells which device of OpenCL is the same."""
    cuda, device, text = library(), ctypes.c_int(), ctypes.create_string_buffer(32)
    check(cuda.cuDeviceGet(ctypes.byref(device), ordinal), f"CUDA device {ordinal}")
    check(cuda.cuDeviceGetPCIBusId(text, 32, device), f"CUDA device {ordinal}")
    domain, bus, slot = text.value.decode().split(".")[0].split(":")
    return int(domain, 16), int(bus, 16), int(slot, 16)


def primary_context(ordinal: int) -> int:
    """The context that the device's libraries share: its handle. It is kept for the process."""
    cuda, device, context = library(), ctypes.c_int(), pointer()
    check(cuda.cuDeviceGet(ctypes.byref(device), ordinal), f"CUDA device {ordinal}")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), f"the context of device {ordinal}")
    return int(context.value or 0)


@contextlib.contextmanager
def current(context: int) -> Iterator[None]:
    """In this block *context* is the thread's current one."""
    cuda, before = library(), pointer()
    cuda.cuCtxGetCurrent(ctypes.byref(before))
    if before.value == context:
        yield
        return
    check(cuda.cuCtxPushCurrent_v2(pointer(context)), "the change to the arrays' device")
    try:
        yield
    finally:
        cuda.cuCtxPopCurrent_v2(ctypes.byref(pointer()))


@contextlib.contextmanager
def uncaptured() -> Iterator[None]:
    """In this block the thread may allocate, load and wait though a stream is being captured, as long as it
    leaves that stream alone: nothing in it becomes part of the graph."""
    cuda, mode = library(), ctypes.c_int(_RELAXED)
    check(cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)), "the mode of captures")
    try:
        yield
    finally:
        cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))


def capture_of(stream: int) -> int:
    """The number of the capture that *stream* is in, which no other capture has; 0 for none."""
    status, number = ctypes.c_int(), ctypes.c_uint64()
    code = library().cuStreamGetCaptureInfo_v2(
        pointer(stream), ctypes.byref(status), ctypes.byref(number), None, None, None
    )
    return number.value if not code and status.value else 0


def new_stream() -> int:
    """A new stream of the current context that waits for no other."""
    made = pointer()
    check(library().cuStreamCreate(ctypes.byref(made), _NON_BLOCKING), "a stream")
    return int(made.value or 0)


def wait(stream: int, what: str) -> None:
    """Wait for all work in *stream*."""
    check(library().cuStreamSynchronize(pointer(stream)), what)


def wait_for_all(context: int) -> None:
    """Wait for all work of the device of *context*."""
    with current(context), uncaptured():
        check(library().cuCtxSynchronize(), "the device's work")


def loaded(text: bytes) -> int:
    """The module of a program's PTX, in the current context."""
    made = pointer()
    check(library().cuModuleLoadDataEx(ctypes.byref(made), text, 0, None, None), "a program")
    return int(made.value or 0)


def function(module: int, name: str, dynamic: int) -> int:
    """A kernel of *module*, which may have *dynamic* bytes of local memory."""
    found, cuda = pointer(), library()
    check(cuda.cuModuleGetFunction(ctypes.byref(found), pointer(module), name.encode()), name)
    if dynamic:
        check(cuda.cuFuncSetAttribute(found, _MAX_DYNAMIC_SHARED, dynamic), f"{name}'s local memory")
    return int(found.value or 0)


class Memory:
    """Memory of the current context, freed with this object. ``address`` is where it begins."""

    def __init__(self, nbytes: int, what: str) -> None:
        made, context, cuda = ctypes.c_uint64(), pointer(), library()
        check(cuda.cuMemAlloc_v2(ctypes.byref(made), ctypes.c_size_t(max(1, nbytes))), what)
        cuda.cuCtxGetCurrent(ctypes.byref(context))
        self.address, self.nbytes, self._context = made.value, nbytes, int(context.value or 0)

    def fill(self, byte: int, stream: int) -> None:
        """Set every byte, in the order of *stream*."""
        size = ctypes.c_size_t(self.nbytes)
        code = library().cuMemsetD8Async(self._start, ctypes.c_ubyte(byte), size, pointer(stream))
        check(code, "the filling of memory")

    def write(self, host: int, stream: int) -> None:
        """Copy to it from the *host*'s address, in the order of *stream*."""
        size = ctypes.c_size_t(self.nbytes)
        code = library().cuMemcpyHtoDAsync_v2(self._start, pointer(host), size, pointer(stream))
        check(code, "a copy to the device")

    def read(self, host: int, stream: int) -> None:
        """Copy it to the *host*'s address, in the order of *stream*."""
        size = ctypes.c_size_t(self.nbytes)
        code = library().cuMemcpyDtoHAsync_v2(pointer(host), self._start, size, pointer(stream))
        check(code, "a copy from the device")

    @property
    def _start(self) -> Any:
        return ctypes.c_uint64(self.address)

    def __del__(self) -> None:
        address = getattr(self, "address", None)
        if address is None or sys is None or sys.is_finalizing():  # by then the driver may be gone
            return
        with contextlib.suppress(PyclmmError), current(self._context), uncaptured():
            library().cuMemFree_v2(ctypes.c_uint64(address))


class HostMemory:
    """Host memory that devices reach, from ``address`` on, freed with this object without a wait."""

    def __init__(self, nbytes: int, what: str) -> None:
        made, cuda = pointer(), library()
        size = ctypes.c_size_t(nbytes)
        check(cuda.cuMemHostAlloc(ctypes.byref(made), size, _PORTABLE | _MAPPED), what)
        self.address = int(made.value or 0)

    def __del__(self) -> None:
        address = getattr(self, "address", None)
        if address is not None and sys is not None and not sys.is_finalizing():
            with contextlib.suppress(PyclmmError), uncaptured():
                library().cuMemFreeHost(pointer(address))


class SharedWord(HostMemory):
    """A word of the host's memory, 0 at first, that kernels of all contexts can write: at ``address`` too."""

    def __init__(self) -> None:
        super().__init__(4, "a word")
        self.word = ctypes.c_int.from_address(self.address)
        self.word.value = 0


class PooledMemory:
    """Memory from the driver's pool, for work in *stream* alone: it is free for later work when this goes."""

    def __init__(self, context: int, stream: int, nbytes: int) -> None:
        made, cuda = ctypes.c_uint64(), library()
        with current(context):
            code = cuda.cuMemAllocAsync(ctypes.byref(made), ctypes.c_size_t(max(1, nbytes)), pointer(stream))
            check(code, f"{nbytes} bytes")
        self.address, self.nbytes, self._home = made.value, nbytes, (context, stream)

    def __del__(self) -> None:
        address = getattr(self, "address", None)
        if address is None or sys is None or sys.is_finalizing():
            return
        context, stream = self._home
        with contextlib.suppress(PyclmmError), current(context):
            library().cuMemFreeAsync(ctypes.c_uint64(address), pointer(stream))


class Event:
    """Ends with the work that is in *stream* now."""

    def __init__(self, context: int, stream: int) -> None:
        self._event, self._context, cuda = pointer(), context, library()
        with current(context):
            check(cuda.cuEventCreate(ctypes.byref(self._event), _NO_TIMING), "an event")
            check(cuda.cuEventRecord(self._event, pointer(stream)), "an event")

    def has_ended(self) -> bool:
        """Whether that work has, if only with its context."""
        try:
            with current(self._context), uncaptured():  # another stream may be being captured
                code = library().cuEventQuery(self._event)
        except DeviceLostError:
            return True
        return not code or code in _LOST

    def hold_up(self, stream: int) -> None:
        """Let later work in *stream* wait for it."""
        with current(self._context):
            check(library().cuStreamWaitEvent(pointer(stream), self._event, 0), "a wait for an event")

    def __del__(self) -> None:
        if self._event and sys is not None and not sys.is_finalizing():
            with contextlib.suppress(PyclmmError), current(self._context):
                library().cuEventDestroy_v2(self._event)


def order(context: int, first: int, second: int) -> None:
    """Let later work in the stream *second* wait for what is in the stream *first* now."""
    if first != second:
        Event(context, first).hold_up(second)
