"""The array of the namespace: PyOpenCL's, with the methods of the standard.

PyOpenCL's own operators need operands of one shape and contiguous elements, its comparisons give int8, and
some slices have a wrong length. The standard asks for more, so operators and indexing by arrays go by way of
the host.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
from numpy.lib.stride_tricks import as_strided

from ..api import matmul
from ..errors import ArgumentError, DTypeError, amount, brief
from ..execution.casts import converted
from ..execution.operands import sent
from ..linalg.views import permuted
from ..opencl.arrays import fetched
from ..opencl.queues import default_queue, queue_on
from ..operators import matmul_in_place
from ..problem.meaning import check_meaning

_OF_VIEWS = (int, np.integer, slice, type(...), type(None))  # what a key of a view consists of


class Array(cla.Array):
    """An array of ``pyclmm.array_api``; wherever PyOpenCL takes its Array it takes this one."""

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        from .. import array_api  # noqa: PLC0415 - it imports this module

        if api_version not in (None, *array_api.VERSIONS):
            raise ArgumentError(
                f"api_version is {brief(api_version)}; pass one of {', '.join(array_api.VERSIONS)}"
            )
        return array_api

    @property
    def device(self) -> cl.CommandQueue:
        """The queue on which the array is computed; what ``device=`` of the namespace's functions takes."""
        return self.queue or default_queue()

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        if stream is not None:
            raise ArgumentError(f"stream is {brief(stream)}; pass None: queues order themselves by events")
        queue = queue_of(device)
        return self if queue is self.device else new(fetched(self), queue)

    @property
    def T(self) -> Array:
        """The transpose of a matrix, a view."""
        if self.ndim != 2:
            raise ArgumentError(
                f"x has {amount(self.ndim, 'axes')}; pass a matrix, or use mT or permute_dims"
            )
        return self.mT

    @property
    def mT(self) -> Array:
        """A view with the last two axes exchanged."""
        if self.ndim < 2:
            raise ArgumentError(f"x has {amount(self.ndim, 'axes')}; pass a matrix or a stack of them")
        return wrapped(permuted(self, [*range(self.ndim - 2), self.ndim - 1, self.ndim - 2]))

    def _item(self) -> Any:
        if self.ndim:
            raise DTypeError(f"only an array without axes is a number; this one has shape {self.shape}")
        return fetched(self).item()

    def __bool__(self) -> bool:
        return bool(self._item())

    def __int__(self) -> int:
        return int(self._item())

    def __float__(self) -> float:
        return float(self._item())

    def __complex__(self) -> complex:
        return complex(self._item())

    def __index__(self) -> int:
        return operator.index(self._item())

    def __getitem__(self, key: Any) -> Array:
        """A view where NumPy gives one, else a copy by way of the host."""
        parts = key if isinstance(key, tuple) else (key,)
        # NumPy gives a copy for other keys: True and False are masks, not the numbers 1 and 0.
        if any(isinstance(part, bool) or not isinstance(part, _OF_VIEWS) for part in parts):
            return new(fetched(self)[to_host(key)], self.device)
        size = self.dtype.itemsize
        model = as_strided(np.empty(1, f"V{size}"), self.shape, self.strides)  # its elements are never read
        whole = parts if any(part is Ellipsis for part in parts) else (*parts, ...)
        view = model[whole]  # an array without axes too, not a number
        shift = view.__array_interface__["data"][0] - model.__array_interface__["data"][0]
        if not view.size or self.base_data is None:
            return Array(self.device, view.shape, self.dtype)
        return Array(
            self.device, view.shape, self.dtype, data=self.base_data,
            offset=self.offset + shift, strides=view.strides, events=self.events,
        )  # fmt: skip

    def __len__(self) -> int:
        if not self.ndim:  # PyOpenCL's returns an error
            raise DTypeError("an array without axes has no length; index it by ()")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self.flags.c_contiguous:
            raise ArgumentError(
                "x has gaps or another order of its elements; assign to a copy, asarray(x, copy=True)"
            )
        elements = fetched(self)
        with np.errstate(all="ignore"):
            elements[to_host(key)] = to_host(value)
        if self.size:
            self.set(elements, queue=self.device)

    def __matmul__(self, other: Any) -> Any:
        return wrapped(matmul(self, other)) if isinstance(other, cla.Array) else NotImplemented

    def __rmatmul__(self, other: Any) -> Any:
        return wrapped(matmul(other, self)) if isinstance(other, cla.Array) else NotImplemented

    def __imatmul__(self, other: Any) -> Any:
        return matmul_in_place(self, other) if isinstance(other, cla.Array) else NotImplemented

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The elements in the host's memory, for ``numpy.asarray``. It is always a copy."""
        if copy is False:
            raise ValueError("the elements are in the device's memory, so NumPy needs a copy; pass copy=None")
        host = fetched(self)
        return host if dtype is None else converted(host, np.dtype(dtype))

    def __copy__(self) -> Array:
        return _sharing(self)

    def __deepcopy__(self, _memo: object) -> Array:
        return new(fetched(self), self.device)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise DTypeError(
            "an array of pyclmm.array_api lies on a device of this process and cannot be pickled; pickle "
            "numpy.asarray(x), and in the other process pass that to asarray"
        )

    def __str__(self) -> str:
        return str(fetched(self))  # PyOpenCL's shows no view that is not contiguous

    def __repr__(self) -> str:
        return f"cl.A{repr(fetched(self))[1:]}"

    __array_ufunc__ = None  # so that NumPy's arrays and numbers leave operators to this class
    __hash__ = None  # type: ignore[assignment]


def queue_of(device: Any) -> cl.CommandQueue:
    """The queue of ``device=``: itself, the default one for None, else one on that device."""
    if isinstance(device, cl.CommandQueue):
        return device
    return default_queue() if device is None else queue_on(device)


def wrapped(x: cla.Array) -> Array:
    """*x* as an array of the namespace: the same buffer and events."""
    return x if isinstance(x, Array) else _sharing(x)


def _sharing(x: cla.Array) -> Array:
    made = Array.__new__(Array)
    made.__dict__.update(x.__dict__)
    return made


def new(x: Any, queue: cl.CommandQueue, name: str = "x") -> Array:
    """An array with the elements of a NumPy array. Raises DTypeError for elements that no device has."""
    check_meaning(name, x)
    return wrapped(sent(np.asarray(x), name, queue))


def to_host(x: Any) -> Any:
    """Arrays, and those in lists and tuples, as NumPy arrays in which nobody writes."""
    if isinstance(x, cla.Array | np.ndarray):
        host = fetched(x) if isinstance(x, cla.Array) else x.view()
        host.flags.writeable = False
        return host
    return type(x)(map(to_host, x)) if type(x) in (list, tuple) else x


def _by_host(name: str, of_host: Callable[..., Any], is_reflected: bool = False) -> None:
    """Give Array an operator by way of the host. A Python number takes the array's dtype, as in NumPy."""

    def method(self: Array, *other: Any) -> Any:
        if not all(isinstance(x, cla.Array | np.generic | bool | int | float | complex) for x in other):
            return NotImplemented
        operands = (fetched(self), *map(to_host, other))
        with np.errstate(all="ignore"):
            result = of_host(*(operands[::-1] if is_reflected else operands))
        return new(result, self.device)

    method.__name__ = name
    setattr(Array, name, method)


_TWO = """
add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift
""".split()  # noqa: SIM905 - a list is a word a line
for _name in _TWO:
    for _prefix in ("", "r"):
        _by_host(f"__{_prefix}{_name.rstrip('_')}__", getattr(operator, _name), is_reflected=_prefix == "r")
    _in_place = f"i{_name.rstrip('_')}"  # x += y makes a new array, but of the shape and dtype of x
    _by_host(f"__{_in_place}__", getattr(operator, _in_place))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert"):
    _by_host(f"__{_name}__", getattr(operator, _name))
