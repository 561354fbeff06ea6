"""The types of the functions of pyclmm.linalg, for type checkers: NumPy in, NumPy out; Arrays in, Arrays out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeVar, cast, overload

import pyopencl as cl
from numpy.typing import ArrayLike, DTypeLike, NDArray
from pyopencl.array import Array

from ..api import DeviceOut, HostOut
from ..opencl.devices import DeviceChoice
from ..problem.words import Casting, Mixed, Precision
from ..selection.select import KernelChoice

if TYPE_CHECKING:
    from typing_extensions import Unpack

Either = Array | ArrayLike
FunctionT = TypeVar("FunctionT")


class Keywords(TypedDict, total=False):
    """Keywords of every function."""

    queue: cl.CommandQueue | None
    device: DeviceChoice | None
    kernel: KernelChoice
    precision: Precision | None
    reproducible: bool | None
    wait_for: list[cl.Event] | None


class VectorKeywords(Keywords, total=False):
    """Keywords of vecdot, matvec and vecmat."""

    dtype: DTypeLike | None
    casting: Casting


class EinsumKeywords(VectorKeywords, total=False):
    """Keywords of einsum."""

    optimize: Any


class Two(Protocol):
    """A function of two operands."""

    @overload
    def __call__(
        self, a: ArrayLike, b: ArrayLike, *, mixed: Mixed = ..., **keywords: Unpack[Keywords]
    ) -> Any: ...
    @overload
    def __call__(self, a: Array, b: Array, *, mixed: Mixed = ..., **keywords: Unpack[Keywords]) -> Array: ...
    @overload
    def __call__(
        self, a: Either, b: Either, *, mixed: Literal["copy"], **keywords: Unpack[Keywords]
    ) -> Array: ...


class TwoInto(Protocol):
    """A function of two operands and perhaps a result."""

    @overload
    def __call__(
        self,
        a: ArrayLike,
        b: ArrayLike,
        out: NDArray[Any] | None = ...,
        *,
        mixed: Mixed = ...,
        **keywords: Unpack[Keywords],
    ) -> Any: ...
    @overload
    def __call__(
        self, a: Array, b: Array, out: Array | None = ..., *, mixed: Mixed = ..., **keywords: Unpack[Keywords]
    ) -> Array: ...
    @overload
    def __call__(
        self,
        a: Either,
        b: Either,
        out: Array | None = ...,
        *,
        mixed: Literal["copy"],
        **keywords: Unpack[Keywords],
    ) -> Array: ...


class Vectors(Protocol):
    """A product of stacks with vectors, like NumPy's ufunc."""

    @overload
    def __call__(
        self,
        x1: ArrayLike,
        x2: ArrayLike,
        /,
        out: HostOut = ...,
        *,
        mixed: Mixed = ...,
        **keywords: Unpack[VectorKeywords],
    ) -> Any: ...
    @overload
    def __call__(
        self,
        x1: Array,
        x2: Array,
        /,
        out: DeviceOut = ...,
        *,
        mixed: Mixed = ...,
        **keywords: Unpack[VectorKeywords],
    ) -> Array: ...
    @overload
    def __call__(
        self,
        x1: Either,
        x2: Either,
        /,
        out: DeviceOut = ...,
        *,
        mixed: Literal["copy"],
        **keywords: Unpack[VectorKeywords],
    ) -> Array: ...


class AxisVectors(Protocol):
    """vecdot: as :class:`Vectors`, with an axis."""

    @overload
    def __call__(
        self,
        x1: ArrayLike,
        x2: ArrayLike,
        /,
        out: HostOut = ...,
        *,
        axis: int = ...,
        mixed: Mixed = ...,
        **keywords: Unpack[VectorKeywords],
    ) -> Any: ...
    @overload
    def __call__(
        self,
        x1: Array,
        x2: Array,
        /,
        out: DeviceOut = ...,
        *,
        axis: int = ...,
        mixed: Mixed = ...,
        **keywords: Unpack[VectorKeywords],
    ) -> Array: ...
    @overload
    def __call__(
        self,
        x1: Either,
        x2: Either,
        /,
        out: DeviceOut = ...,
        *,
        axis: int = ...,
        mixed: Literal["copy"],
        **keywords: Unpack[VectorKeywords],
    ) -> Array: ...


class Tensordot(Protocol):
    """tensordot."""

    @overload
    def __call__(
        self, a: ArrayLike, b: ArrayLike, axes: Any = ..., *, mixed: Mixed = ..., **keywords: Unpack[Keywords]
    ) -> Any: ...
    @overload
    def __call__(
        self, a: Array, b: Array, axes: Any = ..., *, mixed: Mixed = ..., **keywords: Unpack[Keywords]
    ) -> Array: ...
    @overload
    def __call__(
        self, a: Either, b: Either, axes: Any = ..., *, mixed: Literal["copy"], **keywords: Unpack[Keywords]
    ) -> Array: ...


def typed(signature: type[FunctionT]) -> Callable[[Callable[..., Any]], FunctionT]:
    """A decorator that changes nothing but the type that a type checker sees."""

    def same(function: Callable[..., Any]) -> FunctionT:
        return cast("FunctionT", function)

    return same
