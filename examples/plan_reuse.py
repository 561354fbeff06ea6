"""Matmul: check, choose and build once, then only enqueue. Here: the steps of a Markov chain."""

import numpy as np
import pyopencl.array as cla
from demo.workloads import markov_chain

import pyclmm
from pyclmm.opencl.queues import default_queue

states = 50
chain = markov_chain(states).astype(np.float32)
queue = default_queue()
step = cla.to_device(queue, chain)
now, after = step.copy(), cla.empty_like(step)

with pyclmm.Matmul(now, step, out=after) as plan:
    work = plan.estimate()
    print(f"{plan.kernel}: {work.flops} operations, {work.nbytes} bytes, {work.intensity:.1f} a byte")
    for _ in range(100):
        plan(now, step, out=after)
        now, after = after, now

settled = now.get()
spread = np.ptp(settled, axis=0).max()
print(f"after 101 steps it does not matter where the chain began: rows differ by {spread:.1e}")
assert spread < 1e-5
assert abs(settled.sum(axis=1) - 1).max() < 1e-4
