"""Measures the peak of a CPU device: a loop of multiply-adds alone, on all of its compute units.

That is FMA units x vector elements x clock under load: the limit of every product.
"""

from __future__ import annotations

import numpy as np
import pyopencl as cl

from pyclmm.opencl.clock import least
from pyclmm.opencl.devices import device_info

CHAINS = 12  # independent sums: latency x FMA units is 8 to 10; 16 registers are enough for 12
_STEPS = 1 << 20
_ROUNDS = 8
_SOURCE = """
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#ifdef __has_attribute
#if __has_attribute(min_vector_width)
__attribute__((min_vector_width(BITS)))
#endif
#endif
__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void peak(__global REAL *out, const REAL s, const int steps)
{
  VEC acc[CHAINS];
  const VEC x = (VEC)(s + (REAL)0.999);
  _Pragma("unroll") for (int i = 0; i < CHAINS; ++i) acc[i] = (VEC)(s * i);
  for (int step = 0; step < steps; ++step)
    _Pragma("unroll") for (int i = 0; i < CHAINS; ++i) acc[i] = acc[i] * x + x;
  VEC sum = acc[0];
  for (int i = 1; i < CHAINS; ++i) sum += acc[i];
  const REAL *lanes = (const REAL *)&sum;
  REAL total = 0;
  for (int i = 0; i < LANES; ++i) total += lanes[i];
  out[get_global_id(0)] = total;
}
"""


def peak_gflops(queue: cl.CommandQueue, real: str) -> float:
    """10^9 operations/s in "float" or "double": the best of a few runs, with whole or half vectors."""
    widest = device_info(queue.device).vector_bits
    return max(_rate(queue, real, bits) for bits in {widest, max(128, widest // 2)})


def _rate(queue: cl.CommandQueue, real: str, bits: int) -> float:
    itemsize = {"float": 4, "double": 8}[real]
    lanes = bits // 8 // itemsize
    options = f"-DREAL={real} -DVEC={real}{lanes} -DLANES={lanes} -DBITS={bits} -DCHAINS={CHAINS}"
    kernel = cl.Program(queue.context, _SOURCE).build(options.split()).peak
    units = queue.device.max_compute_units
    out = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 8 * units)
    kernel.set_args(out, np.dtype(f"f{itemsize}").type(1e-9), np.int32(_STEPS))
    seconds = least(lambda: cl.enqueue_nd_range_kernel(queue, kernel, (units,), (1,)).wait(), _ROUNDS)
    return 2 * lanes * CHAINS * _STEPS * units / seconds / 1e9
