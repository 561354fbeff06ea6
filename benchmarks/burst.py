"""Times a burst of calls by the device's own clock, and divides by their number.

That is the cost of a call when calls follow each other without a pause, as in a CUDA graph.

    spin | stamp | call, call, ... call | stamp

The first kernel keeps the device busy until the host has enqueued all others, so no call waits for the host.
The stamps are in the device's nanoseconds. Profiling is off, because it adds a pause between launches.

PyOpenCL makes an event for every launch, which costs device time too (1.6 us on an H200). The nodes of a CUDA
graph have no events, and nor have the launches of a call on Arrays while nobody looks at ``out.events``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pyopencl as cl

SOURCE = r"""
inline ulong nanoseconds(void)
{
  ulong now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now) :: "memory");
  return now;
}
__kernel void spin(const ulong duration)
{
  const ulong start = nanoseconds();
  while (nanoseconds() - start < duration) {}
}
__kernel void stamp(__global ulong *to) { *to = nanoseconds(); }
"""
MOST_LAUNCHES = 10  # in flight: with 13 events pending, NVIDIA's driver 580 makes its host wait
_HOST_SECONDS = 40e-6  # more than the host needs for a launch


class Burst:
    """Times calls on an in-order queue without profiling, of an NVIDIA device."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue = queue
        program = cl.Program(queue.context, SOURCE).build()
        self._spin, self._stamp = cl.Kernel(program, "spin"), cl.Kernel(program, "stamp")
        self._stamps = [cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 8) for _ in range(2)]
        for buffer in self._stamps:  # a kernel's first launch waits for the device
            self._run(self._spin, np.uint64(1))
            self._run(self._stamp, buffer)
        queue.finish()

    def seconds(self, enqueue: Callable[[], object], calls: int, launches: int = 1) -> float:
        """Device seconds of one call, from a burst of *calls* with *launches* each.

        Raises RuntimeError if the device had to wait for the host.
        """
        for patience in (1, 4, 16):
            spin = (200e-6 + calls * launches * _HOST_SECONDS) * patience
            started = time.perf_counter()
            self._run(self._spin, np.uint64(spin * 1e9))
            self.queue.flush()
            self._run(self._stamp, self._stamps[0])
            kept = [enqueue() for _ in range(calls)]
            self._run(self._stamp, self._stamps[1])
            self.queue.flush()
            in_time = time.perf_counter() - started < spin
            self.queue.finish()
            del kept
            if in_time:
                first, last = (self._read(buffer) for buffer in self._stamps)
                return (last - first) * 1e-9 / calls
        raise RuntimeError("the host enqueues more slowly than the device works")

    def _run(self, kernel: cl.Kernel, argument: object) -> None:
        kernel.set_args(argument)
        cl.enqueue_nd_range_kernel(self.queue, kernel, (1,), (1,))

    def _read(self, buffer: cl.Buffer) -> int:
        value = np.empty(1, np.uint64)
        cl.enqueue_copy(self.queue, value, buffer)
        return int(value[0])
