"""Where the bytes of quantised weights are, and how they come elsewhere."""

from __future__ import annotations

import copy
import sys
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
from numpy.typing import NDArray

from ..errors import DTypeError, in_short
from ..opencl import arrays, forks, host_memory
from ..opencl.devices import device_info
from ..opencl.mappings import map_of
from ..problem.meaning import check_meaning, with_arrays_read


def numbers(name: str, x: Any) -> NDArray[Any]:
    """*x* as an array of numbers in this machine's order of bytes. Raises DTypeError for anything else."""
    read = with_arrays_read(name, x)
    try:
        found = np.asanyarray(read)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise DTypeError(f"{name} is a {type(x).__name__}: {in_short(error)}; pass a NumPy array") from error
    check_meaning(name, found, None if found is x else x)
    found = np.asarray(found)
    if found.dtype.kind in "OUS":
        what = f"an array of {found.dtype}" if isinstance(x, np.ndarray) else f"a {type(x).__name__}"
        raise DTypeError(
            f"{name} is {what}; pass a NumPy array of numbers, as .get() of an Array is, or read a file with "
            "pyclmm.from_gguf"
        )
    return found.astype(found.dtype.newbyteorder("="), copy=False)


def on_host(data: Any) -> NDArray[np.uint8]:
    """*data* as a NumPy array. Raises DTypeError for an array without memory, as one that JAX has deleted."""
    if isinstance(data, np.ndarray):
        return data
    if isinstance(data, cla.Array):
        return arrays.fetched(data)
    try:
        if hasattr(data, "get"):  # CuPy's
            return np.asarray(data.get())
        return np.asarray(data.cpu() if hasattr(data, "cpu") else data)
    except MemoryError:
        raise
    except Exception as error:  # of whatever kind its library has
        raise DTypeError(
            f"the weights are {named(data)}, whose bytes cannot be read: {in_short(error)}"
        ) from error


def copied(data: Any) -> Any:
    """A copy of *data* where it is."""
    if isinstance(data, cla.Array):
        forks.check_process()
        if not data.flags.forc:  # as every second matrix of a stack, which PyOpenCL does not copy
            return brought(data, data)
        return data.copy(arrays.common_queue({"data": data}, None))
    found = copy.deepcopy(data)
    if isinstance(found, np.ndarray):
        found.flags.writeable = False
    return found


def check_pickled(data: Any) -> None:
    """Raise DTypeError if *data* cannot be pickled."""
    if isinstance(data, cla.Array):
        raise DTypeError(
            "a QuantizedArray on an OpenCL device cannot be pickled; pickle q.to(np.empty(0)), a copy on the "
            "host, and in the other process take .to(queue) of that"
        )


def brought(data: Any, like: Any) -> Any:
    """*data* where *like* is. Raises DTypeError if that is nowhere that is known, or without memory, and
    DeviceMemoryError for a device without room.
    """
    host = on_host(data)
    if isinstance(like, np.ndarray):
        return host
    if isinstance(like, cl.CommandQueue | cla.Array):
        queue = like if isinstance(like, cl.CommandQueue) else like.queue
        if queue is None:
            raise DTypeError("like is an Array without a queue; pass the queue")
        host, info = np.ascontiguousarray(host), device_info(queue.device)
        memory = host_memory.allocate(queue.context, host.nbytes, info, "the array of weights")
        made = cla.Array(queue, host.shape, host.dtype, data=memory, strides=host.strides)
        made.set(host)
        return made
    for library, name, bring in _LIBRARIES:
        module = sys.modules.get(library)
        if module is not None and isinstance(like, getattr(module, name)):
            try:
                return bring(module, np.array(host, order="C"), like)
            except (AttributeError, ValueError) as error:
                raise DTypeError(
                    f"like is {named(like)}, where no weights can lie: {in_short(error)}; pass one that has "
                    "its elements"
                ) from error
    raise DTypeError(
        f"like is a {type(like).__name__}; pass a queue, or an array of NumPy's, PyOpenCL's, PyTorch's, "
        "CuPy's or JAX's where the weights are wanted"
    )


def _to_torch(torch: Any, host: NDArray[np.uint8], like: Any) -> Any:
    if like.device.type == "meta":
        raise ValueError("it has no elements")
    return torch.from_numpy(host).to(like.device)


def _to_cupy(cupy: Any, host: NDArray[np.uint8], like: Any) -> Any:
    with like.device:
        return cupy.asarray(host)


def _to_jax(jax: Any, host: NDArray[np.uint8], like: Any) -> Any:
    with jax.ensure_compile_time_eval():
        return jax.device_put(host, like.sharding)


_LIBRARIES = (("torch", "Tensor", _to_torch), ("cupy", "ndarray", _to_cupy), ("jax", "Array", _to_jax))


def named(data: Any) -> str:
    """Where *data* is, in words."""
    if isinstance(data, np.ndarray):
        return "a memory-mapped file" if map_of(data) is not None else "the host's memory"
    if isinstance(data, cla.Array):
        return f"the memory of {arrays.common_queue({'data': data}, None).device.name.strip()}"
    try:
        device = data.device
    except Exception:  # of an array that JAX has deleted, or traces
        device = "a device"
    return f"a {type(data).__module__.partition('.')[0]} array on {device}"
