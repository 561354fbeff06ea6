"""Choosing the device: by what `pyclmm info` lists, with a queue, without any prompt."""

import numpy as np

import pyclmm
from pyclmm.device import device_info
from pyclmm.queues import default_device, device_labels, find_device, new_queue

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
