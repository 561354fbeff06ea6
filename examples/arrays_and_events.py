"""PyOpenCL Arrays: data stay on the device, calls return early, events keep the order."""

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm

queue = pyclmm.default_queue()
other = cl.CommandQueue(queue.context, queue.device)  # a second queue: only events order the two
rng = np.random.default_rng(1)
a, b = (rng.integers(-4, 5, (64, 64)).astype(np.float32) for _ in range(2))
a_dev, b_dev = cla.to_device(queue, a), cla.to_device(queue, b)

ab = pyclmm.matmul(a_dev, b_dev)  # returns before the product is computed
uploaded = cl.enqueue_marker(queue)
aba = pyclmm.matmul(ab, a_dev, queue=other, wait_for=[uploaded])  # waits for ab's own events too
transposed = pyclmm.matmul(a_dev.T, b_dev)  # a view: read in place, not copied

cl.wait_for_events(aba.events)
print(f"a b a on the device: {aba.shape}, {len(aba.events)} event to wait for")
assert np.array_equal(aba.get(queue), a @ b @ a)
assert np.array_equal(transposed.get(), a.T @ b)
