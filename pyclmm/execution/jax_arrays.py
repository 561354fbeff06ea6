"""JAX's arrays, eagerly: in the host's memory by NumPy's view, on CUDA devices by DLPack in and out.

JAX has streams of its own, so pyclmm uses another one. DLPack's ``stream=`` orders the two: JAX lets that
stream wait for an operand, and pyclmm lets JAX's wait for the result.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from ..cuda import dlpack
from ..cuda.arrays import CudaArray
from ..cuda.streams import context_of, own_stream
from ..errors import DTypeError
from ..problem.gemm import dense
from .own_memory import OwnMemory


class _Jax(OwnMemory):
    advice_for_mixed = "jax.numpy.asarray(x) makes one of JAX's"

    def on_host(self, name: str, x: Any) -> bool:
        if isinstance(x, jax.core.Tracer):
            raise DTypeError(
                f"{name} is traced by JAX, as inside jax.jit, and has no values; call pyclmm outside, or "
                "by jax.pure_callback"
            )
        platforms = {device.platform for device in x.devices()}
        if len(x.devices()) > 1:
            raise DTypeError(
                f"{name} is on several devices; pass one of its shards, {name}.addressable_data(0)"
            )
        if platforms <= {"cpu"}:
            return True
        if x.__dlpack_device__()[0] != dlpack.CUDA:
            raise DTypeError(
                f"{name} is on {platforms.pop()!r}, where pyclmm cannot launch; pass np.asarray({name})"
            )
        return False

    def host_array(self, name: str, x: Any) -> NDArray[Any]:
        if name == "out":
            raise DTypeError("out is a JAX array, which cannot be changed; pass none")
        return np.asarray(x)

    def of_host(self, array: NDArray[Any]) -> Any:
        return jax.device_put(array, jax.devices("cpu")[0])  # where the operands are

    def cuda_array(self, name: str, x: Any) -> CudaArray:
        if name == "out":
            raise DTypeError("out is a JAX array, which cannot be changed; pass none")
        ordinal = int(x.__dlpack_device__()[1])
        capsule = x.__dlpack__(stream=self.stream(ordinal))
        return CudaArray(*dlpack.read(capsule), self, capsule)

    def stream(self, ordinal: int) -> int:
        return own_stream(context_of(ordinal)).handle

    def back(self, x: CudaArray) -> Any:
        return self.viewed(jax.dlpack.from_dlpack(x.owner), x)

    @staticmethod
    def viewed(made: Any, x: CudaArray) -> Any:
        """The view *x* of the array *made*: its axes in another order, or another shape."""
        if x.shape == made.shape and x.strides == dense(x.shape, x.dtype).strides:
            return made  # JAX would take as long for a copy that changes nothing as for all the rest
        order = sorted(range(x.ndim), key=lambda axis: -x.strides[axis])
        shape = tuple(x.shape[axis] for axis in order)
        return made.reshape(shape).transpose([order.index(axis) for axis in range(x.ndim)])


JAX = _Jax()
