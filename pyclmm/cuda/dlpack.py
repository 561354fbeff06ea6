"""DLPack's capsules by ctypes: reads those of other libraries and makes those of pyclmm's results.

The structures are those of dlpack.h before version 1.0, which all libraries take.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from ..errors import DTypeError
from ..problem.dtypes import ELEMENTS, dtype_of
from ..problem.gemm import dense_strides

CUDA = 2  # DLPack's number for the memory of CUDA devices
ON_CUDA = (CUDA, 13)  # that, and memory that CUDA manages
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_NAME = b"dltensor"  # until a library has taken the tensor


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_python = ctypes.PyDLL(None, handle=ctypes.pythonapi._handle)  # None alone fails on Windows
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]


def _managed(capsule: Any) -> Any:
    """The structure of a *capsule* that nobody has taken. Raises ValueError."""
    return ctypes.cast(_python.PyCapsule_GetPointer(id(capsule), _NAME), ctypes.POINTER(_Managed)).contents


def read(capsule: Any) -> tuple[int, tuple[int, ...], tuple[int, ...], np.dtype[Any], int]:
    """(address, shape, strides in bytes, dtype, device) of a capsule, which holds the memory as long as it
    lives. Raises DTypeError for an element type that NumPy and ml_dtypes lack."""
    x = _managed(capsule).tensor
    if x.device_type not in ON_CUDA or x.ndim < 0:
        raise DTypeError(
            "an operand says that it is on a CUDA device, but lends a tensor of "
            f"{x.ndim} axes on one of DLPack's type {x.device_type}"
        )
    kind = _KINDS.get(x.code, "")
    element = kind if kind == "bool" else f"{kind}{x.bits}"
    if element not in ELEMENTS or x.lanes != 1:
        raise DTypeError(
            f"an operand has elements of DLPack's type ({x.code}, {x.bits} bits, {x.lanes} lanes), which "
            f"pyclmm does not multiply; convert it to one of {', '.join(ELEMENTS)}"
        )
    dtype = dtype_of(element)
    shape = tuple(x.shape[i] for i in range(x.ndim))
    steps = tuple(x.strides[i] for i in range(x.ndim)) if x.strides else dense_strides(shape)
    if not x.data and 0 not in shape:
        raise DTypeError(f"an operand of shape {shape} has no memory by DLPack")
    address = int(x.data or 0) + int(x.byte_offset)
    return address, shape, tuple(step * dtype.itemsize for step in steps), dtype, int(x.device_id)


@cache
def _code_of(dtype: np.dtype[Any]) -> int:
    name = dtype.name.rstrip("0123456789")
    return next(code for code, kind in _KINDS.items() if kind == name)


class _Lent:
    """Memory as NumPy takes it. It holds the *owner*."""

    def __init__(self, told: dict[str, Any], owner: Any) -> None:
        self.__array_interface__, self.owner = told, owner


def capsule(address: int, shape: tuple[int, ...], dtype: np.dtype[Any], device: int, owner: Any) -> Any:
    """A capsule of C-contiguous memory, which *owner* holds: it lives until the taker lets go.

    It is one of NumPy's, for another device and type. What frees it is C: a capsule may be freed while an
    exception is on its way, which a function of Python's would lose.
    """
    size = dtype.itemsize
    told = {"shape": shape, "data": (address, False), "version": 3}
    told["typestr"] = f"u{size}" if size <= 8 else dtype.str  # NumPy's capsules have no bfloat16
    made = np.asarray(_Lent(told, owner)).__dlpack__()
    x = _managed(made).tensor
    x.data, x.device_type, x.device_id = address, CUDA, device
    x.code, x.bits = _code_of(dtype), 8 * size
    return made
