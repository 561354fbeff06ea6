"""`sequential`: one work-item computes everything. The baseline, and the most accurate kernel if the device
has double.
"""

import numpy as np

import pyclmm
from pyclmm.opencl.devices import default_device, device_info

rng = np.random.default_rng(1)
a = rng.standard_normal((40, 5000), dtype=np.float32)
b = rng.standard_normal((5000, 30), dtype=np.float32)

ratio = {}
for kernel in ("sequential", "naive"):
    ratio[kernel] = pyclmm.checks.reference.error_ratio(pyclmm.matmul(a, b, kernel=kernel), a, b)
    print(f"{kernel:10} error {ratio[kernel]:.3f} roundoffs of the sum of 5000 magnitudes")

assert max(ratio.values()) < pyclmm.checks.reference.limit(5000)
if device_info(default_device()).has_fp64:
    assert ratio["sequential"] < ratio["naive"]
