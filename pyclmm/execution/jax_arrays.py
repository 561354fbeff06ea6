"""JAX's arrays, eagerly: in the host's memory by NumPy's view, on CUDA devices where XLA calls back.

A call within jax.jit, of arrays that it does not trace, is eager too: by ``jax.ensure_compile_time_eval``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from ..cuda import dlpack
from ..cuda.arrays import CudaArray, XlaArray
from ..cuda.streams import context_of, own_stream
from ..errors import ArgumentError, DTypeError
from ..problem.gemm import dense
from .kinds import Kind
from .prepared import PATHS
from .xla_path import Made, XlaPath


class _Jax(Kind):
    advice_for_mixed = "jax.numpy.asarray(x) makes one of JAX's"
    has_views = False
    array_type = XlaArray

    def on_host(self, name: str, x: Any) -> bool:
        if isinstance(x, jax.core.Tracer):
            raise DTypeError(
                f"{name} is traced by JAX, as inside jax.jit, and has no values; call pyclmm outside, or "
                "by jax.pure_callback"
            )
        if name == "out":
            raise DTypeError("out is a JAX array, which cannot be changed; pass none")
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):
            raise DTypeError(
                f"{name} has dtype {x.dtype}, which has no numbers to multiply; pass the key's own, "
                f"jax.random.key_data({name})"
            )
        if x.is_deleted():
            raise DTypeError(f"{name} was deleted or donated, and has no elements any more")
        if len(x.devices()) > 1:
            raise DTypeError(
                f"{name} is on several devices; pass jax.device_put({name}, jax.devices()[0]), or one of its "
                f"shards, {name}.addressable_data(0)"
            )
        if _platform(x) == "cpu":
            return True
        if x.__dlpack_device__()[0] != dlpack.CUDA:
            raise DTypeError(
                f"{name} is on {_platform(x)!r}, where pyclmm cannot launch; pass np.asarray({name})"
            )
        return False

    def host_array(self, name: str, x: Any) -> NDArray[Any]:
        return np.asarray(x)

    def of_host(self, array: NDArray[Any], given: Mapping[str, Any]) -> Any:
        device, is_held = _place_of(given)
        with jax.ensure_compile_time_eval(), nullcontext() if is_held else jax.default_device(device):
            return jax.device_put(array, device if is_held else None)

    def together(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        device, _ = _place_of(given)
        with jax.ensure_compile_time_eval():
            return {
                name: x if _device(x) == device else jax.device_put(x, device) for name, x in given.items()
            }

    def cuda_array(self, name: str, x: Any) -> CudaArray:
        strides = dense(x.shape, x.dtype).strides
        return XlaArray(
            x.unsafe_buffer_pointer(), x.shape, strides, x.dtype, int(x.__dlpack_device__()[1]), self, x
        )

    def stream(self, ordinal: int) -> int:
        return own_stream(context_of(ordinal)).handle

    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any], ordinal: int) -> tuple[Any, int]:
        made = Made(shape, dtype, ordinal)
        return made, made.address

    def back(self, x: CudaArray) -> Any:
        made = x.owner.read() if isinstance(x.owner, Made) else x.owner
        if x.shape == made.shape and x.strides == dense(x.shape, x.dtype).strides:
            return made  # JAX would take as long for a copy that changes nothing as for all the rest
        order = sorted(range(x.ndim), key=lambda axis: -x.strides[axis])
        shape = tuple(x.shape[axis] for axis in order)
        with jax.ensure_compile_time_eval():
            return made.reshape(shape).transpose([order.index(axis) for axis in range(x.ndim)])


def _device(x: Any) -> Any:
    return next(iter(x.devices()))


def _place_of(given: Mapping[str, Any]) -> tuple[Any, bool]:
    """The device for a product of the arrays of JAX's among those *given*, and whether they are committed to
    it: JAX moves the others there. Raises ArgumentError for arrays that are committed to several."""
    ours = {name: x for name, x in given.items() if isinstance(x, jax.Array)}
    held = [name for name, x in ours.items() if getattr(x, "committed", True)]  # older versions do not tell
    first = held[0] if held else next(iter(ours))
    device = _device(ours[first])
    for name in held:
        if (other := _device(ours[name])) != device:
            raise ArgumentError(
                f"{first} is committed to device {device} and {name} to {other}; pass "
                f"jax.device_put({name}, {first}.device)"
            )
    return device, bool(held)


def _platform(x: Any) -> str:
    name: str = _device(x).platform
    return name


JAX = _Jax()
PATHS[XlaArray] = XlaPath
