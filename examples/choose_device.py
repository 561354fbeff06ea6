"""Choosing the device: by what `pyclmm.devices()` lists, with device= or a queue, without a prompt."""

import numpy as np

import pyclmm
from pyclmm.opencl.queues import new_queue

for record in pyclmm.devices():
    print(record)

a = np.eye(3, dtype=np.float32)
for device in (record, record.number, 0):  # also "cpu", "gpu", part of a name, or a pyopencl.Device
    assert np.array_equal(pyclmm.matmul(a, a, device=device), a)

queue = new_queue(record.device)  # or a queue of your own
assert np.array_equal(pyclmm.matmul(a, a, queue=queue), a)

try:
    pyclmm.matmul(a, a, device="abacus")
except pyclmm.ArgumentError as error:
    print(error)
else:
    raise AssertionError("there is no such device")
