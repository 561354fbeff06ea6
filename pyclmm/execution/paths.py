"""Which path carries a plan out: one for each kind of operands."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyopencl.array import Array

from ..cuda.arrays import CudaArray
from ..opencl.steps import Scales
from .cuda_path import CudaPath
from .device_path import DevicePath
from .host_path import HostPath
from .operands import Operands, Signature
from .options import Options

Path = DevicePath | HostPath | CudaPath
# By the type of the operands; an adapter may add its own.
PATHS: dict[type, Any] = {np.ndarray: HostPath, Array: DevicePath, CudaArray: CudaPath}


def path_of(operands: Operands, layouts: Signature, options: Options, queue: Any, scales: Scales) -> Path:
    """What runs the planned product of these operands on *queue*. Raises as a plan does."""
    overlaps = bool(layouts.overlapping)
    path: Path = PATHS.get(type(operands["a"]), DevicePath)(operands, overlaps, options, queue, scales)
    return path
