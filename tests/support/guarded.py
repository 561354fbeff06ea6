"""Arrays at the end of memory: reading beyond them ends the process."""

import ctypes
import mmap

import numpy as np


def before_a_guard(values):
    """*values* in memory that ends with them: a page that must not be read follows."""
    length = -(-values.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, length + 16 * mmap.PAGESIZE)
    held = np.frombuffer(memory, values.dtype, values.size, length - values.nbytes).reshape(values.shape)
    held[...] = values
    guard = ctypes.c_void_p(held.ctypes.data + held.nbytes)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(guard, ctypes.c_size_t(16 * mmap.PAGESIZE), 0) == 0
    return held
