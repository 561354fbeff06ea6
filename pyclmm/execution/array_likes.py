"""What is taken in place of an array: lists, buffers, DataFrames, tensors in the host's memory."""

from __future__ import annotations

from functools import partial
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyopencl.array import Array

from ..errors import DTypeError, PyclmmError, ShapeError, UnsupportedError, in_short
from ..problem.meaning import check_meaning, first_of, is_list, is_mapping, with_arrays_read
from ..quantized import QuantizedArray

ADVICE = "matmul(x, q.T) is x @ q.dequantize().T"

# DLPack's device types whose memory the host reads: CPU, pinned by CUDA, pinned by ROCm, managed by CUDA
# (dlpack.h).
_ON_HOST = (1, 3, 11, 13)


def has_shape(x: Any) -> bool:
    """Whether *x* has a shape. A property of somebody else's may fail, as that of a closed dataset does, and
    of a class it is no tuple.
    """
    try:
        return isinstance(x.shape, tuple)
    except Exception:
        return False


def array_of(name: str, x: Any) -> Any:
    """*x* as a plain NumPy array, or as the Array that it is. Raises DTypeError and ShapeError.

    Memory is shared where it can be. A result must be an array: what is written to a copy would be lost.
    """
    if isinstance(x, Array):
        return x
    if isinstance(x, np.ndarray) or (isinstance(x, np.generic) and name != "out"):
        check_meaning(name, x)
        return np.asarray(x)  # a plain view of a subclass (np.memmap, np.matrix)
    if hasattr(x, "toarray"):  # SciPy's sparse matrices and arrays
        raise DTypeError(f"{name} is a sparse {type(x).__name__}; pass it as a dense array, {name}.toarray()")
    if isinstance(x, QuantizedArray):
        raise UnsupportedError(
            f"{name} is a QuantizedArray, which is taken as b of matmul, gemm, Matmul and ragged_matmul, and "
            f"as one operand of einsum; {ADVICE}"
        )
    if x is None:
        raise DTypeError(f"{name} is None; pass a NumPy array or a pyopencl.array.Array")
    if type(x).__name__ == "PyCapsule":  # Python has no name for the type
        raise DTypeError(f"{name} is a PyCapsule, as DLPack's are; pass the array that it was made of")
    if name == "out" or not _is_array_like(x):
        copy = "" if name == "out" else f" (np.asarray({name}))"
        copy = f", such as {name}[KEY]," if is_mapping(x) else copy  # an .npz file, a group of HDF5 or Zarr
        raise DTypeError(
            f"{name} is a {type(x).__name__}; pass a NumPy array{copy} or a pyopencl.array.Array"
        )
    return _shared(name, x) if hasattr(x, "__dlpack_device__") else _converted(name, x)


def _check_element(name: str, x: Any, element: Any) -> None:
    """Raise DTypeError for an *element* of the list *x* that NumPy would fetch number by number, or take for
    one object.
    """
    if isinstance(element, Array):
        raise DTypeError(
            f"{name} is a {type(x).__name__} of pyopencl Arrays; stack them into one, "
            f"pyopencl.array.stack({name})"
        )
    if hasattr(element, "toarray"):
        raise DTypeError(
            f"{name} is a {type(x).__name__} with a sparse {type(element).__name__}; pass dense arrays, "
            f"[each.toarray() for each in {name}]"
        )


def _is_array_like(x: Any) -> bool:
    if isinstance(x, Number) or is_list(x):
        return True
    if isinstance(x, type):  # which has its arrays' attributes
        return False
    names = "__array__", "__array_interface__", "__array_struct__", "__dlpack_device__"
    if any(hasattr(x, name) for name in names):
        return True
    try:
        memoryview(x)
    except TypeError:
        return False
    return True


def _shared(name: str, x: Any) -> NDArray[Any]:
    """The memory of a tensor that has DLPack's methods."""
    try:
        kind = int(x.__dlpack_device__()[0])
        if kind in _ON_HOST:
            return with_memory(name, x, np.from_dlpack(x))
    except (PyclmmError, MemoryError):
        raise
    except Exception as error:  # a library has its own
        if hasattr(x, "__array__"):  # it has types that DLPack or NumPy's DLPack lacks, such as bfloat16
            return _converted(name, x)
        raise unreadable(name, x, error) from error
    raise DTypeError(
        f"{name} is a {type(x).__name__} in the memory of another device (DLPack's device type {kind}); "
        f"bring it to the host first, as {name}.cpu() does in PyTorch, {name}.get() in CuPy "
        f"and jax.device_get({name}) in JAX"
    )


def with_memory(name: str, x: Any, found: NDArray[Any]) -> NDArray[Any]:
    """*found*, NumPy's view of *x*. Raises DTypeError if *x* has no memory: NumPy allocates some then."""
    if found.flags.owndata and found.size:
        raise DTypeError(
            f"{name} is a {type(x).__name__} without memory, such as a fake tensor of PyTorch's or one whose "
            f"storage was freed; pass one that has its elements. Of zeros {name}.clone() has"
        )
    return found


def _converted(name: str, x: Any) -> NDArray[Any]:
    read = with_arrays_read(name, x, partial(_check_element, name, x))
    try:
        found = np.asanyarray(read)
    except ValueError as error:
        if isinstance(x, list | tuple):
            raise ShapeError(
                f"{name} is a {type(x).__name__}: {in_short(error)}; pass rows of one length"
            ) from error
        raise unreadable(name, x, error) from error
    except (BufferError, RuntimeError, TypeError) as error:
        if isinstance(error, NotImplementedError):  # of an __array__; numpy.matmul passes it on, too
            raise
        raise unreadable(name, x, error) from error
    check_meaning(name, found, x)
    return np.asarray(found)


def unreadable(name: str, x: Any, error: Exception) -> DTypeError:
    """The error for what its own library does not let others read, and says why by *error*."""
    first, depth = first_of(x)
    advice = "pass a NumPy array of its values"
    if depth and hasattr(first, "__dlpack__"):
        advice = f"stack the tensors in it into one, as torch.stack({name}) does"
    return DTypeError(f"{name} is a {type(x).__name__}: {in_short(error)}; {advice}")
