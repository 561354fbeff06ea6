"""A namespace of the Python array API standard over PyOpenCL's Arrays (docs/array_api.md).

Products (matmul, tensordot, vecdot; in ``linalg`` also matrix_power) are computed on the device, and
matrix_transpose, permute_dims and slices are views. Every other function is NumPy's: its arrays are copied to
the host and its result to the device. So the namespace serves code that multiplies much and does little else.

Others import: nothing.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from functools import wraps
from numbers import Number
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

from .. import linalg as _products
from ..api import matmul as _matmul
from ..errors import ArgumentError, DTypeError, in_short
from ..execution.array_likes import array_of
from ..execution.kinds import read_on_host
from ..linalg.products import exponent
from ..linalg.views import permutation, permuted
from ..opencl.devices import devices
from ..problem.dtypes import named_dtype
from ..problem.meaning import is_list
from .array import Array as Array
from .array import new, queue_of, to_host, wrapped

VERSIONS = ("2022.12", "2023.12", "2024.12")
__array_api_version__ = VERSIONS[-1]

e, inf, nan, newaxis, pi = np.e, np.inf, np.nan, None, np.pi
bool = np.dtype("bool")  # noqa: A001 - the standard's names
int8, int16, int32, int64 = (np.dtype(f"int{bits}") for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64))
float32, float64, complex64, complex128 = map(np.dtype, ("float32", "float64", "complex64", "complex128"))

# The standard's functions that are NumPy's by way of the host, where NumPy has them by the same names (2.0
# and later).
_BY_HOST = """
abs acos acosh add all any arange argmax argmin asin asinh atan atan2 atanh bitwise_and
bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift bitwise_xor broadcast_arrays broadcast_to
ceil concat conj copysign cos cosh count_nonzero cumulative_prod cumulative_sum diff divide empty
empty_like equal exp expm1 eye flip floor floor_divide full full_like greater greater_equal
hypot imag isfinite isinf isnan less less_equal linspace log log10 log1p log2 logaddexp logical_and
logical_not logical_or logical_xor max maximum mean meshgrid min minimum moveaxis multiply negative
nextafter nonzero not_equal ones ones_like positive pow prod real reciprocal remainder repeat reshape roll
round searchsorted sign signbit sin sinh sqrt square squeeze stack std subtract sum take take_along_axis tan
tanh tile tril triu trunc unstack var where zeros zeros_like
""".split()  # noqa: SIM905 - a list is a word a line


def _queue_in(values: Any) -> cl.CommandQueue | None:
    """The queue of the first Array among a call's arguments."""
    for x in values:
        found = x.queue if isinstance(x, cla.Array) else _queue_in(x) if isinstance(x, list | tuple) else None
        if found is not None:
            return found
    return None


def _to_device(x: Any, queue: cl.CommandQueue) -> Any:
    if isinstance(x, tuple):  # several results, some of them named
        parts = [_to_device(each, queue) for each in x]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    return [_to_device(each, queue) for each in x] if isinstance(x, list) else new(x, queue)


def _by_host(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def called(*args: Any, device: Any = None, **keywords: Any) -> Any:
        name = function.__name__
        if keywords.get("copy") is False:
            raise ArgumentError(f"copy is False, but {name} returns a new array; pass None or True")
        queue = None if device is not None else _queue_in((*args, *keywords.values()))
        try:
            with np.errstate(all="ignore"):
                result = function(*map(to_host, args), **{key: to_host(x) for key, x in keywords.items()})
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            words = f"{name} returns a new array and writes to none; leave out `out`"
            raise DTypeError(words) from error
        return _to_device(result, queue or queue_of(device))

    return called


def _clip(x: Any, /, min: Any = None, max: Any = None) -> Any:  # noqa: A002 - the standard's names
    return np.clip(x, min, max)


def _expand_dims(x: Any, /, axis: Any = 0) -> Any:
    return np.expand_dims(x, axis)


def _argsort(x: Any, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Any:
    """NumPy's, but equal elements keep their order, in a descending order too."""
    if not descending:
        return np.argsort(x, axis=axis, stable=stable)
    turned = np.argsort(np.flip(x, axis), axis=axis, stable=stable)
    return x.shape[axis] - 1 - np.flip(turned, axis)


def _sort(x: Any, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Any:
    """NumPy's, but equal elements keep their order, in a descending order too."""
    order = _argsort(x, axis=axis, descending=descending, stable=stable)
    return np.take_along_axis(x, order, axis)


def _unique(name: str, **parts: str) -> Callable[..., Any]:
    """A function of sorted unique values and *parts* of :func:`numpy.unique`. The standard leaves the order
    open. NumPy's function makes use of that, and scikit-learn relies on it.
    """
    result = namedtuple(name, ["values", *parts])  # type: ignore[misc]
    asked: dict[str, Any] = {f"return_{part}": True for part in parts.values()}

    def unique(x: Any, /) -> Any:
        found = np.unique(x, equal_nan=False, **asked)
        return result(*found) if parts else found

    return _by_host(unique)


globals().update({name: _by_host(getattr(np, name)) for name in _BY_HOST if hasattr(np, name)})
argsort, sort = _by_host(_argsort), _by_host(_sort)
clip, expand_dims = _by_host(_clip), _by_host(_expand_dims)
unique_values = _unique("unique_values")
unique_counts = _unique("unique_counts", counts="counts")
unique_inverse = _unique("unique_inverse", inverse_indices="inverse")
unique_all = _unique("unique_all", indices="index", inverse_indices="inverse", counts="counts")
iinfo = np.iinfo


def can_cast(from_: Any, to: Any, /) -> Any:
    """NumPy's, of a dtype or an array."""
    return np.can_cast(_dtype(from_), to)


def finfo(type: Any, /) -> Any:  # noqa: A002 - the standard's name
    """NumPy's, of a dtype or an array."""
    return np.finfo(_dtype(type))


def isdtype(dtype: Any, kind: Any) -> Any:
    """NumPy's."""
    return np.isdtype(dtype, kind)


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """NumPy's."""
    return np.result_type(*map(_dtype, arrays_and_dtypes))


def _dtype(x: Any) -> Any:
    return x.dtype if isinstance(x, cla.Array) else x


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Array:
    """An array of *obj*. PyOpenCL's Array is taken as it is where nothing is to be converted."""
    dtype = named_dtype(dtype)
    if isinstance(obj, cla.Array) and not copy and (dtype is None or dtype == obj.dtype):
        x = wrapped(obj)
        return x if device is None else x.to_device(device)
    if copy is False:
        raise ArgumentError("copy is False, but the elements must go to the device; pass None or True")
    queue = _queue_in([obj]) if device is None else None
    read = read_on_host("obj", obj)
    host = to_host(obj)
    found = array_of("obj", host) if read is None else read
    if dtype is not None:
        _check_parts("obj", found.dtype, dtype)
        numbers = host if is_list(host) or isinstance(host, Number) else found
        try:
            with np.errstate(all="ignore"):
                found = np.asarray(numbers, dtype=dtype)
        except (OverflowError, ValueError) as error:  # of Python's numbers; NumPy's wrap
            raise ArgumentError(f"obj: {in_short(error)}; pass a wider dtype") from error
    return new(found, queue or queue_of(device), "obj")


def from_dlpack(x: Any, /, *, device: Any = None, copy: Any = None) -> Array:
    """An array with the elements of a tensor in the host's memory. It is a copy."""
    read = read_on_host("x", x)  # PyTorch's DLPack does not say that a view is negated
    if read is not None:
        x = read
    elif not isinstance(x, cla.Array):
        try:
            x = np.from_dlpack(x)
        except MemoryError:
            raise
        except Exception as error:  # a library has its own
            raise DTypeError(
                f"x is a {type(x).__name__} without DLPack in the host's memory ({in_short(error)}); pass a "
                "tensor of the host, or asarray(x)"
            ) from error
    return asarray(x, device=device, copy=copy)


def astype(x: cla.Array, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Array:
    """*x* with another dtype. Raises DTypeError for what is no array, and for complex *x* as real numbers."""
    wanted = named_dtype(dtype)
    if wanted is None:
        raise DTypeError("dtype is None; pass one of the namespace, such as float32")
    _check_parts("x", _own("x", x).dtype, wanted)
    if not copy and x.dtype == wanted and device is None:
        return wrapped(x)
    with np.errstate(all="ignore"):
        return new(to_host(x).astype(wanted), queue_of(x.queue if device is None else device))


def _check_parts(name: str, own: np.dtype[Any], wanted: np.dtype[Any]) -> None:
    """Raise DTypeError for complex numbers as real ones."""
    if own.kind == "c" and wanted.kind in "iuf":
        raise DTypeError(
            f"{name} has dtype {own} and dtype is {wanted}; pass real({name}) or imag({name}) as {name}"
        )


def permute_dims(x: cla.Array, /, axes: Any) -> Array:
    """A view with the axes in another order. Raises AxisError and ArgumentError."""
    return wrapped(permuted(_own("x", x), permutation(x.ndim, axes)))


def matrix_transpose(x: cla.Array, /) -> Array:
    """A view with the last two axes exchanged."""
    return wrapped(_own("x", x)).mT


def matmul(x1: cla.Array, x2: cla.Array, /) -> Array:
    """:func:`pyclmm.matmul`."""
    return _product(_matmul, x1, x2)


def tensordot(x1: cla.Array, x2: cla.Array, /, *, axes: Any = 2) -> Array:
    """:func:`pyclmm.linalg.tensordot`."""
    return _product(_products.tensordot, x1, x2, axes=axes)


def vecdot(x1: cla.Array, x2: cla.Array, /, *, axis: int = -1) -> Array:
    """:func:`pyclmm.linalg.vecdot`."""
    return _product(_products.vecdot, x1, x2, axis=axis)


def _matrix_power(x: cla.Array, n: int, /) -> Array:
    """:func:`pyclmm.linalg.matrix_power`; the inverse for a negative n is NumPy's, on the host."""
    queue = queue_of(_own("x", x).queue)
    if exponent(n) < 0:
        return new(_products.matrix_power(to_host(x), n, queue=queue), queue)
    return wrapped(_products.matrix_power(x, n))


def _product(function: Callable[..., Any], x1: Any, x2: Any, **keywords: Any) -> Array:
    return wrapped(function(_own("x1", x1), _own("x2", x2), **keywords))


def _own(name: str, x: Any) -> cla.Array:
    if not isinstance(x, cla.Array):
        raise DTypeError(f"{name} is a {type(x).__name__}; pass an array of the namespace: asarray({name})")
    return x


class __array_namespace_info__:  # noqa: N801 - the standard's name
    """What the namespace can do: NumPy's dtypes, on every device of :func:`pyclmm.devices`."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> cl.CommandQueue:
        return queue_of(None)

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        return {
            "real floating": float64,
            "complex floating": complex128,
            "integral": int64,
            "indexing": int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        found = {name: globals()[name] for name in _DTYPES}
        return found if kind is None else {name: one for name, one in found.items() if isdtype(one, kind)}

    def devices(self) -> list[cl.CommandQueue]:
        first = self.default_device()
        found = [queue_of(record.device) for record in devices()]
        return [first if queue.device == first.device else queue for queue in found]


_DTYPES = """
bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128
""".split()  # noqa: SIM905 - a list is a word a line
# Decompositions and norms are NumPy's by way of the host.
_LINALG_BY_HOST = """
cholesky cross det diagonal eigh eigvalsh inv matrix_norm matrix_rank outer pinv qr slogdet solve svd svdvals
trace vector_norm
""".split()  # noqa: SIM905 - a list is a word a line

linalg = SimpleNamespace(
    **{name: _by_host(getattr(np.linalg, name)) for name in _LINALG_BY_HOST if hasattr(np.linalg, name)},
    matmul=matmul,
    matrix_power=_matrix_power,
    matrix_transpose=matrix_transpose,
    tensordot=tensordot,
    vecdot=vecdot,
)
