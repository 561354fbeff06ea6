"""pyclmm: matrix multiplication for every OpenCL device.

>>> import numpy as np, pyclmm
>>> a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
>>> pyclmm.matmul(a, b)[0, 0]
np.float32(3.0)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .ahead import warm
from .api import gemm, matmul, release
from .checks import reference
from .errors import (
    ArgumentError,
    AxisError,
    BuildError,
    CacheWarning,
    CheckpointError,
    CheckpointWarning,
    DeviceLostError,
    DeviceMemoryError,
    DeviceWarning,
    DTypeError,
    ForkError,
    KernelWarning,
    LaunchError,
    NoDeviceError,
    PyclmmError,
    ShapeError,
    StorageError,
    ThreadError,
    UnsupportedError,
    VerificationError,
    VerificationWarning,
)
from .execution.verdicts import finish, health
from .kernels import KERNELS
from .kernels.config import TileConfig
from .many import ManyMatmul, matmul_many, ragged_matmul
from .opencl.devices import DeviceRecord, devices
from .opencl.queues import default_queue
from .opencl.workspace import keep_workspace
from .plan import Matmul
from .problem.settings import default_precision, default_reproducible, verified
from .quantized import QuantizedArray, from_gguf, quantize
from .selection.explanation import Explanation
from .streaming.streamed import StreamedMatmul, StreamExplanation, StreamProgress
from .version import __version__

if TYPE_CHECKING:
    from . import linalg
    from .operators import install, installed, uninstall
    from .tools.tuner import Tuning, tune

__all__ = [
    "KERNELS", "ArgumentError", "AxisError", "BuildError", "CacheWarning", "CheckpointError",
    "CheckpointWarning", "DTypeError", "DeviceLostError", "DeviceMemoryError", "DeviceRecord",
    "DeviceWarning", "Explanation", "ForkError", "KernelWarning", "LaunchError", "ManyMatmul", "Matmul",
    "NoDeviceError", "PyclmmError", "QuantizedArray", "ShapeError", "StorageError", "StreamExplanation",
    "StreamProgress", "StreamedMatmul", "ThreadError", "TileConfig", "Tuning", "UnsupportedError",
    "VerificationError", "VerificationWarning", "__version__", "default_precision", "default_queue",
    "default_reproducible", "devices", "finish", "from_gguf", "gemm", "health", "install", "installed",
    "keep_workspace", "linalg", "matmul", "matmul_many", "quantize", "ragged_matmul", "reference",
    "release", "tune", "uninstall", "verified", "warm",
]  # fmt: skip

if not TYPE_CHECKING:  # with __getattr__, a type checker would accept every name
    # Imported at first use: nothing below needs a door, which may be deleted.
    _LATER = {"Tuning": ".tools.tuner", "tune": ".tools.tuner", "linalg": ".linalg"}
    _LATER |= dict.fromkeys(("install", "installed", "uninstall"), ".operators")

    def __getattr__(name):
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(_LATER[name], __name__)
        return module if name == "linalg" else getattr(module, name)

    def __dir__():
        return sorted({*globals(), *__all__})
