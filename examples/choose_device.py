"""Choosing the device: by a number or name that `pyclmm info` lists, without a prompt."""

import numpy as np

import pyclmm
from pyclmm.opencl.devices import default_device, device_info, device_labels, find_device
from pyclmm.opencl.queues import new_queue

for label, device in device_labels().items():
    info = device_info(device)
    mark = "*" if device == default_device() else " "
    print(f"{mark} {label} {info.name}: {info.kind}, {info.compute_units} compute units")

queue = new_queue(find_device(None))  # or a label, "0:1", or part of a name, "nvidia"
a = np.eye(3, dtype=np.float32)
assert np.array_equal(pyclmm.matmul(a, a, queue=queue), a)

try:
    find_device("abacus")
except pyclmm.ArgumentError as error:
    print(error)
else:
    raise AssertionError("there is no such device")
