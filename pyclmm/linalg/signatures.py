"""What the functions of pyclmm.linalg take and return: NumPy in, NumPy out; Arrays in, Arrays out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from numbers import Number
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, overload

import numpy as np
import pyopencl as cl
from numpy.typing import ArrayLike, DTypeLike, NDArray
from pyopencl.array import Array

from ..api import DeviceOut, HostOut
from ..cuda.arrays import CudaArray
from ..errors import DTypeError, brief
from ..execution import kinds
from ..execution.keywords import ProductKeywords
from ..problem.literals import Casting, Rounded
from ..raising import Parameters, Returned, guarded
from .repeated import key_of, result_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

Either = Array | ArrayLike
Copied = Literal["copy"]
Kind = TypeVar("Kind")  # of the functions below


class Keywords(ProductKeywords, total=False):
    """Keywords of every function."""

    wait_for: list[cl.Event] | None


class TypedKeywords(Keywords, total=False):
    """Keywords of every function but matrix_power."""

    dtype: DTypeLike | None


class VectorKeywords(TypedKeywords, total=False):
    """Keywords of einsum, vecdot, matvec and vecmat."""

    casting: Casting


class AxesKeywords(VectorKeywords, total=False):
    """Keywords of vecdot, matvec and vecmat. The last is for vecdot."""

    axes: list[int | tuple[int, ...]] | None
    axis: int | None


class VecdotKeywords(AxesKeywords, total=False):
    """The same, and one that is for vecdot only: type checkers know the three by one type."""

    keepdims: bool


class EinsumKeywords(VectorKeywords, total=False):
    """Keywords of einsum."""

    optimize: Any
    quantize_a: Rounded | None


class Two(Protocol):
    """A function of two operands."""

    @overload
    def __call__(
        self, a: ArrayLike, b: ArrayLike, *, mixed: None = ..., **keywords: Unpack[TypedKeywords]
    ) -> Any: ...
    @overload
    def __call__(
        self, a: Array, b: Array, *, mixed: None = ..., **keywords: Unpack[TypedKeywords]
    ) -> Array: ...
    @overload
    def __call__(self, a: Any, b: Any, *, mixed: Copied, **keywords: Unpack[TypedKeywords]) -> Any: ...


class TwoInto(Protocol):
    """A function of two operands and perhaps a result."""

    @overload
    def __call__(
        self,
        a: ArrayLike,
        b: ArrayLike,
        out: NDArray[Any] | None = ...,
        *,
        mixed: None = ...,
        **keywords: Unpack[TypedKeywords],
    ) -> Any: ...
    @overload
    def __call__(
        self,
        a: Array,
        b: Array,
        out: Array | None = ...,
        *,
        mixed: None = ...,
        **keywords: Unpack[TypedKeywords],
    ) -> Array: ...
    @overload
    def __call__(
        self, a: Any, b: Any, out: Array | None = ..., *, mixed: Copied, **keywords: Unpack[TypedKeywords]
    ) -> Any: ...


class Vectors(Protocol):
    """A product of stacks with vectors: vecdot, matvec or vecmat."""

    @overload
    def __call__(
        self,
        x1: ArrayLike,
        x2: ArrayLike,
        /,
        out: HostOut = ...,
        *,
        mixed: None = ...,
        **keywords: Unpack[VecdotKeywords],
    ) -> Any: ...
    @overload
    def __call__(
        self,
        x1: Array,
        x2: Array,
        /,
        out: DeviceOut = ...,
        *,
        mixed: None = ...,
        **keywords: Unpack[VecdotKeywords],
    ) -> Array: ...
    @overload
    def __call__(
        self, x1: Any, x2: Any, /, out: DeviceOut = ..., *, mixed: Copied, **keywords: Unpack[VecdotKeywords]
    ) -> Any: ...


class Tensordot(Protocol):
    """tensordot."""

    @overload
    def __call__(
        self,
        a: ArrayLike,
        b: ArrayLike,
        axes: Any = ...,
        *,
        mixed: None = ...,
        **keywords: Unpack[TypedKeywords],
    ) -> Any: ...
    @overload
    def __call__(
        self, a: Array, b: Array, axes: Any = ..., *, mixed: None = ..., **keywords: Unpack[TypedKeywords]
    ) -> Array: ...
    @overload
    def __call__(
        self, a: Any, b: Any, axes: Any = ..., *, mixed: Copied, **keywords: Unpack[TypedKeywords]
    ) -> Any: ...


def refusing(
    keywords: type[Keywords],
) -> Callable[[Callable[Parameters, Returned]], Callable[Parameters, Returned]]:
    """A decorator: a function that takes these *keywords* besides its own parameters, with pyclmm's errors
    for other ones and for what the system refuses, and with results of the caller's kind.
    """

    def decorated(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        return guarded(f"linalg.{function.__name__}")(_handing_back(function, keywords.__annotations__))

    return decorated


def typed(kind: type[Kind], keywords: type[Keywords] = TypedKeywords) -> Callable[[Callable[..., Any]], Kind]:
    """The same, with the type *kind* for type checkers."""
    return lambda function: cast("Kind", refusing(keywords)(function))


def _handing_back(
    function: Callable[Parameters, Returned], known: Iterable[str]
) -> Callable[Parameters, Returned]:
    """*function*, whose result becomes an array of the kind that is given, or is the caller's own ``out``."""
    signature = inspect.signature(function)
    optional = [name for name, its in signature.parameters.items() if its.default is not its.empty]
    offered = dict.fromkeys([*known, "mixed", *optional])
    taken = {*offered, *signature.parameters}

    @wraps(function)
    def call(*args: Parameters.args, **keywords: Parameters.kwargs) -> Returned:
        for name in keywords:
            if name not in taken:  # a TypeError, as Python's own
                raise DTypeError(
                    f"unexpected keyword argument {brief(name)}; linalg.{function.__name__} takes "
                    f"{', '.join(offered)}"
                )
        key = key_of(function, args, keywords)
        if key is not None:
            return result_of(key, function, args, keywords)
        result = function(*args, **keywords)
        given = [x for name, x in keywords.items() if name != "out"]
        own = [x for x in _flat([*args, *given]) if kinds.kind_of(x) is not None]
        if not own:
            return result
        arguments = signature.bind(*args, **keywords).arguments
        out = arguments.get("out", keywords.get("out"))
        out = out[0] if isinstance(out, tuple) else out
        is_ours = out is not None or isinstance(result, np.ndarray | np.generic | CudaArray)
        by_name = {"a": own[0], **{f"operands[{i}]": x for i, x in enumerate(own)}, "out": out}
        return cast("Returned", kinds.returned(by_name, result)) if is_ours else result

    return call


def _flat(arguments: Sequence[Any]) -> Iterator[Any]:
    """*arguments*, and what is in lists of arrays among them."""
    for x in arguments:
        if not isinstance(x, list | tuple):
            yield x
        elif x and not isinstance(x[0], Number | list | tuple):  # not the numbers of one array
            yield from x
