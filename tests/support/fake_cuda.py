"""A made-up CUDA driver, for tests without a GPU: memory is the host's, and PoCL runs what is launched.

It records all calls, knows contexts, streams and captures, and refuses what the real one refuses: memory that
is not there, calls that a capture forbids, launches in another device's context. :class:`Lib` is a library of
arrays on it, with a current stream and an allocator of its own.
"""

import contextlib
import ctypes
import itertools
import threading
from contextlib import contextmanager
from functools import cache

import numpy as np
import pyopencl as cl

from pyclmm.cuda import driver, ptx, streams
from pyclmm.cuda.arrays import CudaArray
from pyclmm.errors import DeviceMemoryError
from pyclmm.execution import kinds
from pyclmm.opencl import compiler, program
from pyclmm.opencl.mappings import bounds
from pyclmm.problem.dtypes import dtype_of
from pyclmm.problem.gemm import MAX_ALIGN

INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, ILLEGAL_ADDRESS, UNSUPPORTED = 1, 2, 201, 700, 900
_NAMES = {1: b"CUDA_ERROR_INVALID_VALUE", 2: b"CUDA_ERROR_OUT_OF_MEMORY", 201: b"CUDA_ERROR_INVALID_CONTEXT"}
_NAMES |= {700: b"CUDA_ERROR_ILLEGAL_ADDRESS", 900: b"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}
# The kernels' parameters that are not memory, by OpenCL's name of the type.
_SCALARS = {"int": np.int32, "uint": np.uint32, "long": np.int64, "ulong": np.uint64}


@cache
def _context(device):
    return cl.Context([device])


@cache
def _built(context, made_from):
    options = [*program.build_options(made_from), "-cl-kernel-arg-info"]
    with compiler.quiet:
        return cl.Program(context, compiler.expanded(made_from.source)).build(options)


def _pointed(x):
    """What ctypes.byref points to, which a function writes; other arguments as they are."""
    return getattr(x, "_obj", x)


def _plain(x):
    return getattr(x, "value", x) or 0


class FakeCuda:
    """The library: functions of libcuda by their names. Device 0 and 1 are there."""

    def __init__(self, device):
        self.calls, self.launches = [], []  # (function, arguments); (kernel, groups, group, stream)
        self.version, self.overlapping = 13000, []  # for each launch, whether it may overlap the one before
        self.clusters = []  # of each launch, the work-groups of a cluster along each dimension
        self.fail = {}  # function -> the code that it returns
        self.after_launch = lambda: None
        self.before_launch = lambda name: None  # of a kernel that runs now, in a replay too
        self.memory, self.graphs, self.capturing = {}, {}, {}
        self.mode, self.synchronized, self._of_thread = 0, [], threading.local()
        self._handles, self._made = itertools.count(0x1000, 16), {}
        self._programs = {}
        self._context = _context(device)
        self.queue = cl.CommandQueue(self._context)

    @contextlib.contextmanager
    def failing(self, **codes):
        """Inside the block the driver's functions of these names return these codes."""
        self.fail |= codes
        yield
        self.fail.clear()

    @property
    def current(self):
        """The calling thread's context; 0 for none."""
        return getattr(self._of_thread, "current", 0)

    @current.setter
    def current(self, context):
        self._of_thread.current = context

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)
        own = getattr(type(self), f"_{name.removesuffix('_v2')}", None)
        assert own is not None, f"the fake has no {name}"

        def call(*given):
            arguments = [_pointed(x) for x in given]
            self.calls.append((name, tuple(map(_plain, arguments))))
            return self.fail.get(name) or own(self, *arguments) or 0

        return call

    # the driver, devices, contexts

    def _cuInit(self, _):
        pass

    def _cuDriverGetVersion(self, version):
        version.value = self.version

    def _cuGetErrorName(self, code, text):
        text.value = _NAMES.get(code, b"CUDA_ERROR_OTHER")

    def _cuDeviceGetCount(self, number):
        number.value = 2

    def _cuDeviceGet(self, device, ordinal):
        device.value = ordinal

    def _cuDevicePrimaryCtxRetain(self, context, device):
        context.value = 0xC0 + _plain(device)

    def _cuCtxGetCurrent(self, context):
        context.value = self.current or None

    def _cuCtxPushCurrent(self, context):
        self._of_thread.stack = [*getattr(self._of_thread, "stack", []), self.current]
        self.current = _plain(context)

    def _cuCtxPopCurrent(self, _):
        self.current = self._of_thread.stack.pop()

    def _cuCtxSynchronize(self):
        self.synchronized.append("all")

    # streams, events, captures

    def _cuStreamCreate(self, stream, flags):
        stream.value = next(self._handles)

    def _cuStreamSynchronize(self, stream):
        if _plain(stream) in self.capturing:
            return UNSUPPORTED
        self.synchronized.append(_plain(stream))
        return 0

    def _cuStreamIsCapturing(self, stream, status):
        status.value = int(_plain(stream) in self.capturing)

    def _cuStreamGetCaptureInfo(self, stream, status, number, *_):
        status.value = int(_plain(stream) in self.capturing)
        number.value = self.capturing.get(_plain(stream), 0)

    def _cuThreadExchangeStreamCaptureMode(self, mode):
        self.mode, mode.value = mode.value, self.mode

    def _cuEventCreate(self, event, flags):
        event.value = next(self._handles)

    def _cuEventRecord(self, event, stream):
        pass

    def _cuEventQuery(self, event):
        pass

    def _cuStreamWaitEvent(self, stream, event, flags):
        pass

    def _cuEventDestroy(self, event):
        pass

    def forbidden(self):
        return UNSUPPORTED if self.capturing and self.mode != 2 else 0

    # memory

    def _cuMemAlloc(self, address, nbytes):
        if not self.forbidden():
            address.value = self.allocated(_plain(nbytes))
        return self.forbidden()

    def _cuMemAllocAsync(self, address, nbytes, stream):
        return self._cuMemAlloc(address, nbytes)

    def _cuMemFree(self, address):
        return self.forbidden() or (INVALID_VALUE if self.memory.pop(_plain(address), None) is None else 0)

    def _cuMemFreeAsync(self, address, stream):
        return self._cuMemFree(address)

    def _cuMemsetD8Async(self, address, byte, nbytes, stream):
        self.bytes_at(_plain(address), _plain(nbytes))[:] = _plain(byte)

    def _cuMemcpyHtoDAsync(self, address, host, nbytes, stream):
        ctypes.memmove(self._within(_plain(address), _plain(nbytes)), _plain(host), _plain(nbytes))

    def _cuMemcpyDtoHAsync(self, host, address, nbytes, stream):
        ctypes.memmove(_plain(host), self._within(_plain(address), _plain(nbytes)), _plain(nbytes))

    def _cuMemHostAlloc(self, address, nbytes, flags):
        return self._cuMemAlloc(address, nbytes)  # kernels find it at the same address

    def _cuMemFreeHost(self, address):
        return self._cuMemFree(address)

    def _cuPointerGetAttribute(self, value, attribute, address):
        found = self._home(_plain(address))
        value.value = 0
        return INVALID_VALUE if found is None else 0

    def allocated(self, nbytes):
        """The address of new memory, which begins at a multiple of 512 as CUDA's does."""
        whole = np.full(nbytes + 1024, 0xCD, np.uint8)
        start = -(-whole.ctypes.data // 512) * 512
        self.memory[start] = (whole, nbytes)
        return start

    def _home(self, address):
        homes = (at for at, (_, nbytes) in list(self.memory.items()) if at <= address <= at + nbytes)
        return max(homes, default=None)

    def _within(self, address, nbytes):
        home = self._home(address)
        assert home is not None, "memory that is not there"
        assert address + nbytes <= home + self.memory[home][1], "outside of all memory"
        return address

    def bytes_at(self, address, nbytes):
        """The bytes there, as an array that shares them."""
        self._within(address, nbytes)
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))

    def view(self, address, shape, dtype):
        """The C-contiguous array there."""
        dtype = np.dtype(dtype)
        return self.bytes_at(address, int(np.prod(shape)) * dtype.itemsize).view(dtype).reshape(shape)

    # programs and launches

    def text(self, device, made_from):
        """PTX as :func:`pyclmm.opencl.program.text` gives it: the name of each kernel, and a number."""
        number = len(self._programs)
        built = _built(self._context, made_from)
        self._programs[number] = built, dtype_of(str(made_from.define("ACC_TYPE") or "float32"))
        text = [f"// program {number}", ".version 9.0", ".target sm_90", ".address_size 64", ""]
        for kernel in built.kernel_names.split(";"):
            body = "{\n\tmov.b32 \t%r1, %envreg5;\n\tret;\n}"
            text.append(f".entry {kernel}(\n\t.param .u64 {kernel}_param_0\n)\n{body}\n")
        return "\n".join(text).encode() + b"\0"

    def _cuModuleLoadDataEx(self, module, text, *_):
        if self.forbidden():
            return UNSUPPORTED
        assert b"%envreg" not in text
        assert b"pyclmm_envreg5" in text
        assert text.count(b"griddepcontrol.wait;") == text.count(b".entry")
        module.value = handle = next(self._handles)
        self._made[handle] = self._programs[int(text.split()[2])]
        return 0

    def _cuModuleGetFunction(self, function, module, name):
        function.value = handle = next(self._handles)
        built, scale = self._made[_plain(module)]
        self._made[handle] = cl.Kernel(built, name.decode()), scale

    def _cuFuncSetAttribute(self, function, attribute, value):
        pass

    def _cuLaunchKernelEx(self, config, function, parameters, _):
        if not 0xC0 <= self.current < 0xC2:
            return INVALID_CONTEXT
        sizes = driver.LaunchConfig.from_address(config.value)
        kernel, scale = self._made[function.value]
        count = kernel.num_args + len(ptx.PARAMETERS)
        pointers = (ctypes.c_void_p * count).from_address(parameters.value)
        values = [self._argument(kernel, i, pointers[i], scale) for i in range(kernel.num_args)]
        more = [ctypes.c_uint32.from_address(at).value for at in pointers[kernel.num_args :]]
        first, _, row, rows = more
        groups, local = (sizes.gx, sizes.gy, sizes.gz), (sizes.bx, sizes.by, sizes.bz)
        if max(groups[1:]) > 65_535:
            return INVALID_VALUE
        assert rows >= groups[1]
        done = (kernel, values, groups, local, (0, row, first))
        stream = sizes.stream or 0
        self.launches.append((kernel.function_name, groups, local, stream))
        at = [sizes.attributes + i * ctypes.sizeof(driver.LaunchAttribute) for i in range(sizes.number)]
        given = [driver.LaunchAttribute.from_address(each) for each in at]
        self.overlapping.append((6, 1) in [(each.name, each.x) for each in given])
        self.clusters += [next(((each.x, each.y, each.z) for each in given if each.name == 4), None)]
        if stream in self.capturing:
            self.graphs.setdefault(self.capturing[stream], []).append(done)
            return 0
        self.run(*done)
        self.after_launch()
        return 0

    def _argument(self, kernel, index, pointer, scale):
        info = cl.kernel_arg_info
        if kernel.get_arg_info(index, info.ADDRESS_QUALIFIER) == cl.kernel_arg_address_qualifier.GLOBAL:
            return ctypes.c_uint64.from_address(pointer).value
        dtype = np.dtype(_SCALARS.get(kernel.get_arg_info(index, info.TYPE_NAME), scale))  # or ACC_T
        return np.frombuffer((ctypes.c_uint8 * dtype.itemsize).from_address(pointer), dtype)[0]

    def run(self, kernel, values, groups, local, start):
        for index, value in enumerate(values):
            if not isinstance(value, int):
                kernel.set_arg(index, value)
                continue
            home = self._home(value)
            if home is None:  # not read: or the real driver would say so
                kernel.set_arg(index, None)
                continue
            kernel.set_arg(index, cl.SVM(self.bytes_at(value, home + self.memory[home][1] - value)))
        self.before_launch(kernel.function_name)
        size = tuple(x * y for x, y in zip(groups, local, strict=True))
        cl.enqueue_nd_range_kernel(self.queue, kernel, size, local, start)
        self.queue.finish()

    @contextmanager
    def capture(self, stream):
        """Inside the block launches in *stream* go into a graph, whose number is given."""
        number = next(self._handles)
        self.capturing[stream] = number
        try:
            yield number
        finally:
            del self.capturing[stream]

    def replay(self, number):
        for done in self.graphs[number]:
            self.run(*done)


class LibArray:
    """An array of the made-up library: C-contiguous unless *strides* say otherwise."""

    def __init__(self, lib, address, shape, dtype, strides=None, memory=None):
        self.lib, self.address, self.shape, self.dtype = lib, address, tuple(shape), np.dtype(dtype)
        dense = np.empty(self.shape, self.dtype).strides
        self.strides, self.memory, self.ordinal = strides or dense, memory, 0

    @property
    def ndim(self):
        return len(self.shape)

    def get(self):
        """Its elements as a NumPy array."""
        low = (
            self.lib.cuda.bytes_at(self.address, self.dtype.itemsize).view(self.dtype) if self.size else None
        )
        if low is None:
            return np.empty(self.shape, self.dtype)
        return np.lib.stride_tricks.as_strided(low, self.shape, self.strides).copy()

    @property
    def size(self):
        return int(np.prod(self.shape))

    @property
    def T(self):
        return LibArray(self.lib, self.address, self.shape[::-1], self.dtype, self.strides[::-1], self.memory)


class Lib(kinds.KindWithAddresses):
    """The library: its arrays, its current stream, its allocator."""

    advice_for_mixed = "lib.array(x) brings an array there"

    def __init__(self, cuda):
        self.cuda, self.current, self.blocks, self.full = cuda, 0x70, [], False

    def array(self, x):
        """*x*, a NumPy array, on the device."""
        made = self._new(x.shape, x.dtype)
        if x.size:
            self.cuda.view(made.address, x.shape, x.dtype)[...] = x
        return made

    def laid_out(self, x):
        """*x* on the device, with its strides."""
        if not x.size:
            return self.array(x)
        low, high = bounds(x)
        address = self.cuda.allocated(high - low)
        bytes_of = np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
        self.cuda.bytes_at(address, high - low)[:] = bytes_of
        return LibArray(self, address + x.ctypes.data - low, x.shape, x.dtype, x.strides)

    def _new(self, shape, dtype):
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return LibArray(self, self.cuda.allocated(nbytes), shape, dtype)

    def cuda_array(self, name, x):
        return CudaArray(x.address, x.shape, x.strides, x.dtype, x.ordinal, self, x)

    def stream(self, ordinal):
        return self.current

    def new(self, shape, dtype, ordinal):
        made = self._new(shape, dtype)
        return made, made.address

    def parts(self, whole, layouts):
        size = whole.dtype.itemsize
        return [
            LibArray(self, whole.address + start * size, shape, whole.dtype, None, whole)
            for shape, _, start in layouts
        ]

    def block(self, nbytes, ordinal):
        if self.full:
            raise DeviceMemoryError("the library's allocator is full")
        self.blocks.append(nbytes)
        return None, self.cuda.allocated(nbytes)

    def back(self, x):
        return LibArray(self, x.address, x.shape, x.dtype, x.strides, x.owner)

    def address_like(self, x):
        def told(x):
            return x.shape, x.strides, x.dtype, x.ordinal, x.address % MAX_ALIGN

        like = told(x)
        return lambda x: x.address if type(x) is LibArray and told(x) == like else None


def installed(monkeypatch, device):
    """The made-up driver, in place of libcuda; its library of arrays is known. *device* runs the launches."""
    cuda = FakeCuda(device)
    lib = Lib(cuda)
    monkeypatch.setattr(driver, "library", lambda: cuda)
    monkeypatch.setattr(program, "text", cuda.text)
    monkeypatch.setattr(streams, "_opencl_device", lambda _: device)
    monkeypatch.setattr(streams, "_contexts", {})
    monkeypatch.setattr(kinds, "_kinds", {**kinds._kinds, LibArray: lib})
    return cuda, lib
