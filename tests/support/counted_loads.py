"""Counts the elements of A and B that a kernel loads from global memory, by running it on a CPU device.

The sources are the shipped ones. Only their loads are replaced: each also adds to a counter that lies in
front of the operand, at the next address below that is a multiple of _APART. So a load is counted for the
operand that it reads, through whatever pointer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from pyclmm.errors import ArgumentError
from pyclmm.kernels.launches import complete
from pyclmm.opencl.binding import Binding
from pyclmm.opencl.steps import scalars_of
from pyclmm.problem.gemm import Gemm
from tests.support.faults import changed_sources

_APART = 1 << 22  # bytes; operands of tests are smaller
_FRONT = 64  # bytes before the operand, for the counter
_COUNT = f"""
#define COUNTED(p, elements, load) \\
  (atomic_add((volatile __global int *)((ulong)(p) & ~{_APART - 1}ul), (int)(elements)), load)
"""
# file -> (text, what replaces it). A text that is not there once shows that the source has other loads now.
_VECTOR_B = "VLOAD(0, b + B_INDEX(t + row, j0 + col, ldb))"
_CHUNK = "*(__global const chunk_t *)(p)"
_PACKED_A, _PACKED_B = "a[A_AT(r, u, lda)]", "LOAD_ROW(b + v * LANES)"
_REPLACED = {
    "include/types.h": (
        ("#define LOAD_A(p, i) LOAD(A_TYPE, p, i)", "#define LOAD_A(p, i) COUNTED(p, 1, LOAD(A_TYPE, p, i))"),
        ("#define LOAD_B(p, i) LOAD(B_TYPE, p, i)", "#define LOAD_B(p, i) COUNTED(p, 1, LOAD(B_TYPE, p, i))"),
    ),
    "textbook/vector.cl": ((_VECTOR_B, f"COUNTED(b, TN, {_VECTOR_B})"),),
    "gpu/register_held.h": ((_CHUNK, f"COUNTED(p, CHUNK, {_CHUNK})"),),
    "cpu/packed_tile.h": (
        (_PACKED_A, f"COUNTED(a, 1, {_PACKED_A})"),
        (_PACKED_B, f"COUNTED(b, LANES, {_PACKED_B})"),
    ),
}  # fmt: skip


def _with_counters(name: str, text: str) -> str:
    for old, new in _REPLACED.get(name, ()):
        assert text.count(old) == 1, f"{name} has other loads now: {old}"
        text = text.replace(old, new)
    return _COUNT + text if name == "include/types.h" else text


class _Operand:
    """Ones in host memory that a CPU device uses in place, with a counter in front."""

    def __init__(self, context, count):
        if count * 4 > _APART - _FRONT:
            raise ArgumentError(f"{count} elements are too many; {_APART // 4} lie between two counters")
        self._memory = np.zeros(2 * _APART, np.uint8)
        start = -self._memory.ctypes.data % _APART
        self._counter = self._memory[start : start + 4].view(np.int32)
        self.content = self._memory[start + _FRONT : start + _FRONT + 4 * count]
        self.content.view(np.float32)[:] = 1
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        self.buffer = cl.Buffer(context, flags, hostbuf=self.content)

    @property
    def loads(self):
        return int(self._counter[0])


def counted(queue, device, problem, work):
    """How many elements of A and of B the launches of *work* load. Operands are float32."""
    p = problem
    own = [
        replace(x, program=replace(x.program, defines=(*x.program.defines, ("COUNTING", 1))))
        for x in work.launches
    ]
    a, b, out = (_Operand(queue.context, count) for count in (p.m * p.k, p.k * p.n, p.m * p.n))
    buffers = {"a": a.buffer, "b": b.buffer, "out": out.buffer, "c": out.buffer, "bias": out.buffer}
    with pytest.MonkeyPatch.context() as patch:
        changed_sources(patch, _with_counters)
        gemm = Gemm(p, (p.m, p.n), np.dtype(np.float32))
        whole = complete(gemm, replace(work, launches=tuple(own)), device)
        binding = Binding(queue, device, whole)
        binding.enqueue(buffers, scalars_of(1.0, 0.0), [])
        queue.finish()
        binding.settle()
    result = np.empty(p.m * p.n, np.float32)
    cl.enqueue_copy(queue, result, out.buffer)
    assert (result == p.k).all(), "the counted kernel computes something else"
    return a.loads, b.loads
