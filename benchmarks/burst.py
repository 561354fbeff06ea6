"""A call's share of a burst of calls, by the device's own clock: what a launch costs where launches follow
each other without a pause, as in a CUDA graph.

    spin | stamp | call, call, ... call | stamp

The first kernel keeps the device busy until the host has enqueued all the others, so that no call waits for
its host; the stamps are the device's nanoseconds. No profiling: its events put a pause between launches.
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
_HOST_SECONDS = 40e-6  # more than a call takes its host


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

    def seconds(self, enqueue: Callable[[], object], calls: int) -> float:
        """Device seconds of one of so many calls. Raises RuntimeError if the device had to wait for its host."""
        for patience in (1, 4):
            spin = (200e-6 + calls * _HOST_SECONDS) * patience
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

    def diagnose(self, enqueue: Callable[[], object], calls: int, spin: float) -> None:
        t = [time.perf_counter()]
        self._run(self._spin, np.uint64(spin * 1e9))
        t.append(time.perf_counter())
        self.queue.flush()
        t.append(time.perf_counter())
        self._run(self._stamp, self._stamps[0])
        t.append(time.perf_counter())
        kept = []
        for _ in range(calls):
            kept.append(enqueue())
            t.append(time.perf_counter())
        self._run(self._stamp, self._stamps[1])
        t.append(time.perf_counter())
        self.queue.finish()
        t.append(time.perf_counter())
        first, last = (self._read(buffer) for buffer in self._stamps)
        print(
            "spun",
            spin,
            [round((y - x) * 1e6) for x, y in zip(t, t[1:])],
            (last - first) * 1e-3 / calls,
            flush=True,
        )

    def _run(self, kernel: cl.Kernel, argument: object, wait_for=None) -> None:
        kernel.set_args(argument)
        cl.enqueue_nd_range_kernel(self.queue, kernel, (1,), (1,), wait_for=wait_for)

    def _read(self, buffer: cl.Buffer) -> int:
        value = np.empty(1, np.uint64)
        cl.enqueue_copy(self.queue, value, buffer)
        return int(value[0])
