"""Events: what to wait for, and the device's own time of a product, by a queue with profiling."""

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm

base = pyclmm.default_queue()
queue = cl.CommandQueue(base.context, base.device, cl.command_queue_properties.PROFILING_ENABLE)
a = np.random.default_rng(1).integers(-4, 5, (300, 300)).astype(np.float32)
a_dev = cla.to_device(queue, a)

gate = cl.UserEvent(queue.context)  # something that the product has to wait for
result = pyclmm.matmul(a_dev, a_dev, wait_for=[gate])
last = result.events[-1]
assert last.command_execution_status != cl.command_execution_status.COMPLETE
gate.set_status(cl.command_execution_status.COMPLETE)
last.wait()
print(f"the last launch took {(last.profile.end - last.profile.start) / 1e3:.0f} microseconds on the device")
assert last.profile.end > last.profile.start
assert np.array_equal(result.get(), a @ a)
