"""PyTorch's tensors: in the host's memory by NumPy's view of them, on CUDA devices where they lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.autograd import forward_ad

from ..cuda.arrays import CudaArray
from ..errors import ArgumentError, DeviceMemoryError, DTypeError
from ..opencl.host_memory import location
from ..opencl.mappings import check_out
from ..problem.dtypes import ELEMENT_TYPES, ELEMENTS, dtype_of, ml_dtypes
from ..problem.gemm import MAX_ALIGN
from ..untraced import tell
from .array_likes import array_of, with_memory
from .kinds import AddressOf, Follower, KindWithAddresses, Part

_current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # a build for CPUs has none
# PyTorch's element types that kernels have, by NumPy's dtype and the reverse.
_NUMPYS = {
    getattr(torch, name): dtype_of(name)
    for name in ELEMENT_TYPES
    if hasattr(torch, name) and (ELEMENTS[name].numpys or ml_dtypes is not None)
}
_TORCHS = {dtype: own for own, dtype in _NUMPYS.items()}
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_BYTES = np.dtype(np.uint8)
_OPERATORS = "pyclmm.torch's matmul, gemm and ragged_matmul"
_OUT = "none, or a plain tensor of the result's dtype"


def _guards_of(xs: Sequence[Any]) -> Any:
    """What tells in one call whether other tensors are as *xs* in all but their addresses: in type, dtype,
    device, shape, strides, requires_grad and kind of view. torch.compile asks it. None if this PyTorch has
    no such thing.
    """
    try:
        return torch._C._dynamo.guards.TensorGuards(*xs, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    except Exception:  # it is PyTorch's own, and may change
        return None


def may_have_tangents() -> bool:
    """Whether a dual level is entered. PyTorch's own number for it takes a tenth of the time of a tensor's
    tangent, and may change."""
    return getattr(forward_ad, "_current_level", 0) >= 0


def _has_tangent(x: Any) -> bool:
    try:
        return forward_ad.unpack_dual(x).tangent is not None
    except RuntimeError:  # PyTorch 2.14 refuses in a kernel of its operators: they see to the tangents
        return False


def check_plain(name: str, x: Any) -> None:
    """Raise DTypeError, with what to pass, for a tensor whose elements are not one array's."""
    is_dense = x.layout is torch.strided and not x.is_nested
    if is_dense and type(x) in _PLAIN:
        return
    if x.is_nested:
        what, cure = "a nested tensor", f"the matrices in it, {name}.unbind(), to pyclmm.matmul_many"
    elif not is_dense or isinstance(x, torch.sparse.SparseSemiStructuredTensor):
        what, cure = f"a {type(x).__name__} of layout {x.layout}", f"{name}.to_dense()"
    elif hasattr(x, "full_tensor"):
        what, cure = "a DTensor", f"its part here, {name}.to_local(), or all of it, {name}.full_tensor()"
    elif hasattr(x, "get_mask"):
        what, cure = "a MaskedTensor, whose mask would be ignored", f"{name}.to_tensor(0)"
    elif torch.nn.parameter.is_lazy(x):
        what, cure = f"an {type(x).__name__}, without a shape", "what it is after a first call of its module"
    else:
        return
    raise DTypeError(f"{name} is {what}; pass {_OUT if name == 'out' else cure}")


def unfit_dtype(name: str, x: Any) -> DTypeError:
    """The error for a tensor of a dtype that kernels have not."""
    if name == "out":
        cure = _OUT
    elif x.is_quantized:
        cure = f"{name}.dequantize()"
    elif x.is_complex():
        cure = f"{name}.cfloat()"
    elif str(x.dtype).startswith("torch.float8"):
        cure = f"{name}.float()"
    else:  # PyTorch converts none of these
        cure = "its values in a tensor of float32"
    return DTypeError(f"{name} has dtype {x.dtype}, which pyclmm does not multiply; pass {cure}")


def _of_memory(array: NDArray[Any]) -> torch.Tensor:
    """A tensor of the memory of *array*: of a tensor's memory a view of it, which counts what is written."""
    owner: Any = array
    while isinstance(owner, np.ndarray) or isinstance(getattr(owner, "base", None), np.ndarray):
        owner = owner.base  # as_strided's are no arrays
    if not (array.size and isinstance(owner, torch.Tensor)):
        return torch.from_numpy(array)
    start = owner.storage_offset() + (location(array) - owner.data_ptr()) // array.itemsize
    return owner.as_strided(array.shape, [step // array.itemsize for step in array.strides], start)


def _without_memory(name: str, x: torch.Tensor | None) -> DTypeError:
    """The error for a tensor whose memory is out of reach. In a transform PyTorch wraps what it makes, also
    of plain tensors."""
    is_wrapped = x is not None and (
        torch._C._functorch.is_functorch_wrapped_tensor(x) or torch._is_functional_tensor(x)
    )
    if torch._C._are_functorch_transforms_active() and not is_wrapped:
        what = "in a transform of torch.func"
    else:
        what = "a tensor of torch.func or torch.compile, without memory of its own"
    return DTypeError(f"{name} is {what}; use pyclmm.torch.matmul")


def _unallocated(error: torch.OutOfMemoryError) -> DeviceMemoryError:
    return DeviceMemoryError(f"PyTorch's allocator: {error}")


@cache
def _device(ordinal: int) -> torch.device:
    return torch.device("cuda", ordinal)


class _Torch(KindWithAddresses):
    advice_for_mixed = "torch.from_numpy(x) makes a tensor of a NumPy array, and x.to(device) brings it there"

    def on_host(self, name: str, x: Any) -> bool:
        if x.device.type == "cpu":
            return True
        if x.device.type != "cuda":
            raise DTypeError(
                f"{name} is on {x.device}, where pyclmm cannot launch; "
                + ("it has no elements" if x.device.type == "meta" else f"pass {name}.cpu()")
            )
        if torch.version.hip is not None:
            raise DTypeError(
                f"{name} is on an AMD GPU by PyTorch for ROCm; pyclmm launches in streams of NVIDIA's "
                f"CUDA alone, and OpenCL cannot reach ROCm's memory: pass {name}.cpu()"
            )
        return False

    def host_array(self, name: str, x: Any) -> NDArray[Any]:
        own, dtype = self._checked(name, x)
        is_bfloat16 = own.dtype is torch.bfloat16  # NumPy's view knows none
        try:
            found: NDArray[Any] = (own.view(torch.int16) if is_bfloat16 else own).numpy()
        except (RuntimeError, TypeError, ValueError) as error:
            check_plain(name, own)
            if torch._C._functorch.is_functorch_wrapped_tensor(own):
                raise _without_memory(name, own) from error
            if name == "out":
                raise DTypeError(f"out cannot be written as it lies ({error}); pass {_OUT}") from error
            if own.is_conj() or own.is_neg():
                return self.host_array(name, own.resolve_conj().resolve_neg())
            if torch._C._are_functorch_transforms_active():  # PyTorch 2.6 wraps all that numpy() reads
                raise _without_memory(name, own) from error
            read: NDArray[Any] = array_of(name, own)
            return read
        if found.flags.owndata and torch._is_functional_tensor(own):
            raise _without_memory(name, own)
        found = with_memory(name, x, found)
        if name == "out" and not found.flags.forc:
            check_out(found)
        return found.view(dtype) if is_bfloat16 else found

    def of_host(self, array: NDArray[Any], given: Mapping[str, Any]) -> torch.Tensor:
        if array.dtype.name == "bfloat16":
            return _of_memory(array.view(np.int16)).view(torch.bfloat16)
        return _of_memory(array)

    def cuda_array(self, name: str, x: Any) -> CudaArray:
        x, dtype = self._checked(name, x)
        check_plain(name, x)
        if name == "out" and (x.is_conj() or x.is_neg()):
            raise ArgumentError("out is a view that is conjugated or negated when it is read; pass its base")
        try:
            resolved = x.resolve_conj().resolve_neg()
            address = resolved.data_ptr()
        except torch.OutOfMemoryError as error:
            raise _unallocated(error) from error
        except RuntimeError as error:
            raise _without_memory(name, x) from error
        x = resolved
        if address == 0 and x.numel():
            raise DTypeError(f"{name} is a tensor without memory; pass one that has its elements")
        strides = tuple(step * dtype.itemsize for step in x.stride())
        return CudaArray(address, tuple(x.shape), strides, dtype, x.get_device(), self, x)

    def _checked(self, name: str, x: Any) -> tuple[Any, np.dtype[Any]]:
        """*x* apart from autograd, and NumPy's dtype for it. Raises DTypeError for a tensor that autograd
        follows, and for a dtype that kernels have not."""
        if may_have_tangents() and _has_tangent(x):
            raise DTypeError(
                f"{name} has a tangent, which only {_OPERATORS} compute: use them, or pass {name}.detach()"
            )
        dtype = _NUMPYS.get(x.dtype) or self._dtype_of(name, x)
        if not x.requires_grad:
            return x, dtype
        if torch.is_grad_enabled():
            raise DTypeError(
                f"{name} requires a gradient, which only {_OPERATORS} record: use them, or pass "
                f"{name}.detach()"
            )
        return x.detach(), dtype

    @staticmethod
    def _dtype_of(name: str, x: Any) -> np.dtype[Any]:
        if x.dtype is torch.bfloat16:
            return dtype_of("bfloat16")  # which says what it needs
        raise unfit_dtype(name, x)

    def stream(self, ordinal: int) -> int:
        handle: int = _current_stream(ordinal)
        return handle

    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any], ordinal: int) -> tuple[Any, int]:
        own = _TORCHS.get(dtype)
        if own is None:
            raise DTypeError(f"the result has dtype {dtype}, which PyTorch has not; pass dtype= or out=")
        try:
            made = torch.empty(shape, dtype=own, device=_device(ordinal))
        except torch.OutOfMemoryError as error:
            raise _unallocated(error) from error
        try:
            return made, made.data_ptr()
        except RuntimeError as error:
            raise _without_memory("the result", None) from error

    def block(self, nbytes: int, ordinal: int) -> tuple[Any, int]:
        return self.new((nbytes,), _BYTES, ordinal)

    def back(self, x: CudaArray) -> torch.Tensor:
        strides = tuple(step // x.dtype.itemsize for step in x.strides)
        if x.shape == tuple(x.owner.shape) and strides == x.owner.stride():
            return x.owner
        return torch.as_strided(x.owner, x.shape, strides)

    def parts(self, whole: Any, layouts: Iterable[Part]) -> list[Any]:
        return [whole.as_strided(*layout) for layout in layouts]

    def address_like(self, x: CudaArray) -> AddressOf:
        steps = tuple(step // x.dtype.itemsize for step in x.strides)
        layout, phase = (x.shape, steps, _TORCHS.get(x.dtype)), x.address % MAX_ALIGN
        ordinal, is_complex = x.ordinal, x.dtype.kind == "c"

        def address_of(x: Any) -> int | None:
            try:
                if type(x) not in _PLAIN or (x.shape, x.stride(), x.dtype) != layout:
                    return None
                if x.get_device() != ordinal or x.is_neg() or (is_complex and x.is_conj()):
                    return None
                if x.requires_grad and torch.is_grad_enabled():
                    return None
                if may_have_tangents() and _has_tangent(x):
                    return None
                address: int = x.data_ptr()
            except RuntimeError:  # a sparse tensor, or one inside torch.func: the other way says what it is
                return None
            return address if address % MAX_ALIGN == phase and address else None

        return address_of

    def follower(self, arrays: Sequence[CudaArray | None]) -> Follower:
        looked_at = super().follower(arrays)
        phases = [x and x.address % MAX_ALIGN for x in arrays]
        latest: list[int] | None = None
        guards: Any = None
        need_gradients = False

        def addresses_of(xs: Sequence[Any]) -> list[int] | None:
            nonlocal latest, guards, need_gradients
            is_plain = guards is not None and guards.check(*xs) and not may_have_tangents()
            if not is_plain or (need_gradients and torch.is_grad_enabled()):
                latest = looked_at(xs)
                # guards refuse a tensor that comes twice, as c that is out
                if latest is not None and all(latest) and len({*map(id, xs)}) == len(xs):
                    guards, need_gradients = _guards_of(xs), any(x.requires_grad for x in xs)
                return latest
            found = [x.data_ptr() for x in xs]
            if found != latest:
                fit = all(found) and [address % MAX_ALIGN for address in found] == phases
                latest = found if fit else None
            return latest

        return addresses_of

    def written(self, x: Any) -> None:
        try:
            torch.autograd.graph.increment_version(x)
        except RuntimeError:
            if not x.is_inference():  # which has no version
                raise


TORCH = _Torch()
tell()
