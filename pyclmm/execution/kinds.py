"""Kinds of arrays: whose library makes an array says where results go, and whose stream and memory are used.

An array of NumPy's, of PyOpenCL's, or what is read as NumPy's, is of no kind here. The others each have an
adapter, a subclass of :class:`Kind`. The caller gets an array of the kind that he gave.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pyopencl.array import Array

from ..cuda.dlpack import ON_CUDA
from ..errors import DTypeError
from ..problem.dtypes import dtype_of

if TYPE_CHECKING:
    from ..cuda.arrays import CudaArray
    from ..cuda.streams import Stream


# Gives the address of an array that has the layout of another one; None if it must be looked at in full.
AddressOf = Callable[[Any], int | None]
Follower = Callable[[Sequence[Any]], list[int] | None]
Part = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, strides and first element, in elements


class Kind(ABC):
    """How arrays of one library come in and go out."""

    advice_for_mixed: str  # how to make one of another library's array
    has_views = True  # whether :meth:`back` takes a view of the caller's own array
    array_type: Any = None  # of its CudaArrays if it is not CudaArray itself

    def on_host(self, name: str, x: Any) -> bool:
        """Whether *x*, the argument *name*, is in the host's memory: none is. Raises DTypeError."""
        return False

    def host_array(self, name: str, x: Any) -> NDArray[Any]:
        """*x*, on the host, as a NumPy array; out shares its memory. Raises DTypeError."""
        raise DTypeError(f"{name} is a {type(x).__name__}, which is never in the host's memory")

    def of_host(self, array: NDArray[Any], given: Mapping[str, Any]) -> Any:
        """An array of this kind that shares the memory of *array*, a result of those *given*."""
        return array  # nobody gave one

    def together(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arrays *given*, of this kind and all on the host or all not, on one device. Raises
        ArgumentError for those of several."""
        return given  # CudaArrays tell theirs

    @abstractmethod
    def cuda_array(self, name: str, x: Any) -> CudaArray:
        """Where *x*, on a CUDA device, lies. Raises DTypeError, naming the argument *name*."""

    @abstractmethod
    def stream(self, ordinal: int) -> int:
        """The handle of the stream in which the library works now on a device."""

    @abstractmethod
    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any], ordinal: int) -> tuple[Any, int]:
        """A new C-contiguous array by the library's allocator; its address. Raises DeviceMemoryError."""

    def written(self, x: Any) -> None:  # noqa: B027 - most libraries do not ask
        """Called after *x*, the caller's own ``out``, was written: a library may count versions."""

    @abstractmethod
    def back(self, x: CudaArray) -> Any:
        """*x*, made by :meth:`new` or a view of that, or of the caller's array, as the caller gets it."""


class KindWithAddresses(Kind):
    """A kind whose arrays say where they lie, on which pyclmm launches by itself."""

    @abstractmethod
    def block(self, nbytes: int, ordinal: int) -> tuple[Any, int]:
        """Memory for a call's workspace, from the library's allocator: what holds it, and its address."""

    @abstractmethod
    def parts(self, whole: Any, layouts: Iterable[Part]) -> list[Any]:
        """The C-contiguous parts of *whole*, a vector made by :meth:`new`, as callers get them."""

    def launched(self, operands: Iterable[CudaArray], stream: Stream) -> None:
        """After work on *operands* was put into *stream*: their memory must stay until it has ended."""

    def address_like(self, x: CudaArray) -> AddressOf:
        """What gives the addresses of arrays that are as *x* in all but that."""
        return lambda _: None

    def follower(self, arrays: Sequence[CudaArray | None]) -> Follower:
        """What gives the addresses of arrays that follow *arrays*, in their places and with their layouts: 0
        for one that is absent, and None for all if one must be looked at closer."""
        every: list[AddressOf] = [
            (lambda x: 0 if x is None else None) if x is None else self.address_like(x) for x in arrays
        ]

        def addresses_of(xs: Sequence[Any]) -> list[int] | None:
            found = [address_of(x) for address_of, x in zip(every, xs, strict=True)]
            return None if None in found else found  # type: ignore[return-value]

        return addresses_of


_kinds: dict[type, Kind | None] = {np.ndarray: None, Array: None}  # those of CudaArrays are in them


def kind_of(x: Any) -> Kind | None:
    """The kind of *x*, or None."""
    try:
        return _kinds[type(x)]
    except KeyError:
        pass
    for library, name, adapter, its in _LIBRARIES:
        arrays = getattr(sys.modules.get(library), name, None)
        if arrays is not None and isinstance(x, arrays):
            found: Kind = getattr(import_module(f".{adapter}", __package__), its)
            _kinds[type(x)] = found
            return found
    if _has_interface(x) or _is_on_cuda(x):  # a type may be on both sides
        other: Kind = import_module(".own_memory", __package__).PROTOCOLS
        return other
    return None


def views_on_host(kind: Kind, given: Mapping[str, Any]) -> dict[str, NDArray[Any]] | None:
    """The arrays *given*, all of that *kind*, as NumPy arrays, or None if they are on devices. Raises
    DTypeError, and ArgumentError as :meth:`Kind.together`."""
    where = {name: kind.on_host(name, x) for name, x in given.items()}
    if not any(where.values()):
        return None
    if not all(where.values()):
        listed = ", ".join(f"{name} is {'on the host' if its else 'on a GPU'}" for name, its in where.items())
        raise DTypeError(f"{listed}; bring all operands and out to one place")
    return {name: kind.host_array(name, x) for name, x in kind.together(given).items()}


def read_on_host(name: str, x: Any) -> NDArray[Any] | None:
    """*x* as its library's adapter reads it; None if there is no adapter, or *x* lies on a device. Raises
    DTypeError, naming the argument *name*.
    """
    kind = kind_of(x)
    return kind.host_array(name, x) if kind is not None and kind.on_host(name, x) else None


def _has_interface(x: Any) -> bool:
    try:
        return hasattr(x, "__cuda_array_interface__")
    except Exception:  # who reads it says what is wrong
        return True


def _is_on_cuda(x: Any) -> bool:
    try:
        return hasattr(x, "__dlpack_device__") and int(x.__dlpack_device__()[0]) in ON_CUDA
    except Exception:  # who reads it as an array of the host's says what is wrong
        return False


# Libraries with an adapter: the module that has the type of its arrays, that type's name, the adapter.
_LIBRARIES = (
    ("torch", "Tensor", "torch_tensors", "TORCH"),
    ("cupy", "ndarray", "cupy_arrays", "CUPY"),
    ("jax", "Array", "jax_arrays", "JAX"),
)


def are_known(given: Mapping[str, Any]) -> bool:
    """Whether each array that is *given* is NumPy's, PyOpenCL's or that of a library with an adapter."""
    return _kinds.keys() >= set(map(type, given.values()))


def common_kind(given: Mapping[str, Any]) -> Kind | None:
    """The kind of all arrays that are *given*, or None. Raises DTypeError for arrays of several kinds."""
    kinds = {name: kind_of(x) for name, x in given.items()}
    first = next(iter(kinds.values()))
    if all(kind is first for kind in kinds.values()):
        return first
    kind = next(kind for kind in kinds.values() if kind is not None)
    raise DTypeError(f"{types_of(given)}: pass arrays of one library; {kind.advice_for_mixed}")


def types_of(given: Mapping[str, Any]) -> str:
    """The type of each array that is *given*, for an error."""
    return ", ".join(f"{name} is a {type(x).__module__}.{type(x).__name__}" for name, x in given.items())


def back(given: Mapping[str, Any], result: Any) -> Any:
    """*result* as an array of the kind that was *given*."""
    kind = kind_of(given["a"])
    if kind is None:
        return result
    is_on_host = isinstance(result, np.ndarray | np.generic)
    return kind.of_host(np.asarray(result), given) if is_on_host else kind.back(result)


def returned(given: Mapping[str, Any], result: Any) -> Any:
    """What the caller of a product gets: its own ``out``, or *result* as an array of the kind given."""
    out = given.get("out")
    if out is None:
        return back(given, result)
    kind = kind_of(out)
    if kind is not None:
        kind.written(out)
    return out


def computed_dtype(given: Mapping[str, Any]) -> Any:
    """The dtype in which the library of a and b multiplies them where that is not NumPy's rule, else None."""
    if kind_of(given["a"]) is None:
        return None
    halves = [str(getattr(given[name], "dtype", "")).endswith("bfloat16") for name in ("a", "b")]
    return dtype_of("bfloat16") if all(halves) else None
