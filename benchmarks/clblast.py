"""CLBlast's GEMM through its C interface, on PyOpenCL's buffers; for comparison only."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable

import numpy as np
import pyopencl as cl

_ROW_MAJOR, _NO, _YES = 101, 111, 112
_NAMES = {"float16": "H", "float32": "S", "float64": "D", "complex64": "C", "complex128": "Z"}


class _Complex64(ctypes.Structure):
    _fields_ = (("re", ctypes.c_float), ("im", ctypes.c_float))


class _Complex128(ctypes.Structure):
    _fields_ = (("re", ctypes.c_double), ("im", ctypes.c_double))


_SCALARS = {
    "float16": (ctypes.c_uint16, (0x3C00,), (0,)),
    "float32": (ctypes.c_float, (1.0,), (0.0,)),
    "float64": (ctypes.c_double, (1.0,), (0.0,)),
    "complex64": (_Complex64, (1.0, 0.0), (0.0, 0.0)),
    "complex128": (_Complex128, (1.0, 0.0), (0.0, 0.0)),
}


def library() -> ctypes.CDLL | None:
    """Debian's libclblast1, else any other CLBlast; None if there is none."""
    for name in ("libclblast.so.1", ctypes.util.find_library("clblast")):
        try:
            return ctypes.CDLL(name) if name else None
        except OSError:
            continue
    return None


def _has_type(queue: cl.CommandQueue, dtype: str) -> bool:
    return dtype != "float16" or "cl_khr_fp16" in queue.device.extensions


def gemm(
    queue: cl.CommandQueue, a: np.ndarray, b: np.ndarray, out: np.ndarray
) -> Callable[[], object] | None:
    """A call that writes a @ b to *out*, without copying host arrays; None if CLBlast cannot do it.

    Transposed operands must be transposed views of C-contiguous arrays.
    """
    found, dtype = library(), a.dtype.name
    if found is None or dtype not in _NAMES or a.ndim != 2 or not _has_type(queue, dtype):
        return None
    function = getattr(found, f"CLBlast{_NAMES[dtype]}gemm")
    scalar, one, zero = _SCALARS[dtype]
    size = ctypes.c_size_t
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR

    def operand(x: np.ndarray) -> tuple[int, cl.Buffer, int]:
        stored = x if x.flags.c_contiguous else x.T
        trans = _NO if x.flags.c_contiguous else _YES
        return trans, cl.Buffer(queue.context, flags, hostbuf=stored), stored.shape[1]

    (trans_a, buffer_a, lda), (trans_b, buffer_b, ldb), (_, buffer_c, ldc) = map(operand, (a, b, out))
    handle = ctypes.c_void_p(queue.int_ptr)

    def memory(buffer: cl.Buffer, ld: int) -> tuple[object, ...]:
        return ctypes.c_void_p(buffer.int_ptr), size(0), size(ld)

    def call() -> None:
        status = function(
            _ROW_MAJOR, trans_a, trans_b, size(a.shape[0]), size(b.shape[1]), size(a.shape[1]),
            scalar(*one), *memory(buffer_a, lda), *memory(buffer_b, ldb),
            scalar(*zero), *memory(buffer_c, ldc), ctypes.byref(handle), None,
        )  # fmt: skip
        if status:
            raise RuntimeError(f"CLBlast returned {status}")
        queue.finish()

    return call
