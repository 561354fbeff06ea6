"""pyclmm: matrix multiplication for every OpenCL device.

>>> import numpy as np, pyclmm
>>> a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
>>> pyclmm.matmul(a, b)[0, 0]
np.float32(3.0)
"""

from __future__ import annotations

from .api import gemm, matmul
from .checks import reference
from .errors import (
    ArgumentError,
    BuildError,
    DeviceLostError,
    DeviceMemoryError,
    DTypeError,
    ForkError,
    KernelWarning,
    LaunchError,
    NoDeviceError,
    PyclmmError,
    ShapeError,
    UnsupportedError,
)
from .kernels import KERNELS
from .kernels.config import TileConfig
from .plan import Matmul
from .problem.precision import default_precision
from .tools.tuner import tune

__version__ = "0.1.0"

__all__ = [
    "KERNELS",
    "ArgumentError",
    "BuildError",
    "DTypeError",
    "DeviceLostError",
    "DeviceMemoryError",
    "ForkError",
    "KernelWarning",
    "LaunchError",
    "Matmul",
    "NoDeviceError",
    "PyclmmError",
    "ShapeError",
    "TileConfig",
    "UnsupportedError",
    "__version__",
    "default_precision",
    "gemm",
    "matmul",
    "reference",
    "tune",
]
