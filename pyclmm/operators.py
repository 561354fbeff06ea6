"""install: ``a @ b`` and ``np.matmul(a, b)`` for PyOpenCL's Arrays, which lack them.

The class ``pyopencl.array.Array`` gets four methods. That changes it for the whole process, so nothing is
changed unless the program asks for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from pyopencl.array import Array

from . import linalg
from .api import matmul
from .errors import DTypeError, ShapeError
from .problem.settings import block

_PRODUCTS: dict[str, Callable[..., Any]] = {
    "matmul": matmul,
    "vecdot": linalg.vecdot,
    "matvec": linalg.matvec,
    "vecmat": linalg.vecmat,
}
_TAKEN = {"out", "dtype", "casting", "axes", "axis"}  # keywords of a ufunc that these have
_DEFAULTS = {"order": "K", "subok": True}
# A ufunc -> the method by which Python's operator asked an Array on its right, as long as that had no
# __array_ufunc__.
_REFLECTED = {
    "add": "__radd__",
    "subtract": "__rsub__",
    "multiply": "__rmul__",
    "divide": "__rtruediv__",
    "floor_divide": "__rfloordiv__",
    "remainder": "__rmod__",
    "divmod": "__rdivmod__",
    "power": "__rpow__",
    "left_shift": "__rlshift__",
    "right_shift": "__rrshift__",
    "bitwise_and": "__rand__",
    "bitwise_or": "__ror__",
    "bitwise_xor": "__rxor__",
    "less": "__gt__",
    "less_equal": "__ge__",
    "greater": "__lt__",
    "greater_equal": "__le__",
    "equal": "__eq__",
    "not_equal": "__ne__",
}
_COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
_ABSENT = object()


class _Patch:
    """What the class pyopencl.array.Array has now, by these methods or by its own. Callers hold ``lock``."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_wanted = False  # by install()
        self.blocks = 0  # how many `with installed()` are entered, in all threads
        self.before: dict[str, Any] = {}  # what the class had by these names

    def update(self) -> None:
        """Bring the class into the state that is wanted."""
        wanted = self.is_wanted or self.blocks > 0
        if wanted and not self.before:
            for name, method in _METHODS.items():
                self.before[name] = Array.__dict__.get(name, _ABSENT)
                setattr(Array, name, method)
        elif not wanted:
            for name, was in self.before.items():
                if Array.__dict__.get(name) is not _METHODS[name]:
                    continue  # somebody has put another one there since
                if was is _ABSENT:
                    delattr(Array, name)
                else:
                    setattr(Array, name, was)
            self.before.clear()


_patch = _Patch()


def install() -> None:
    """Give ``pyopencl.array.Array`` the operators ``@`` and ``@=``, and NumPy's ufuncs that multiply.

    ``a @ b``, ``a @= b``, ``np.matmul``, ``np.vecdot``, ``np.matvec`` and ``np.vecmat`` are pyclmm's then, on
    the device of the Arrays. All other ufuncs and operators do what they did, but for one: a ufunc that is
    called by its name with a NumPy array first and an Array second, ``np.add(x, a)``, is what ``x + a`` is.
    It made a NumPy array of objects. It holds for the whole process. Safe to call twice.
    """
    with _patch.lock:
        _patch.is_wanted = True
        _patch.update()


def uninstall() -> None:
    """Undo :func:`install`: the class is as it was. Blocks of :func:`installed` keep it until they end."""
    with _patch.lock:
        _patch.is_wanted = False
        _patch.update()


@block
def installed() -> Iterator[None]:
    """:func:`install` for a block. Blocks nest; the last one that ends, in any thread, undoes it."""
    with _patch.lock:
        _patch.blocks += 1
        _patch.update()
    try:
        yield
    finally:
        with _patch.lock:
            _patch.blocks -= 1
            _patch.update()


def _is_operand(x: Any) -> bool:
    """Whether a product with *x* is pyclmm's to compute or refuse. Other types may have their own."""
    return isinstance(x, Array | np.ndarray | np.generic | list | tuple)


def _matmul(self: Array, other: Any) -> Any:
    return matmul(self, other) if _is_operand(other) else NotImplemented


def _rmatmul(self: Array, other: Any) -> Any:
    return matmul(other, self) if _is_operand(other) else NotImplemented


def matmul_in_place(self: Array, other: Any) -> Any:
    """``self @= other``. Raises ShapeError where the statement has no result of the shape of *self*."""
    if not _is_operand(other):
        return NotImplemented
    if np.ndim(other) < 2:
        raise ShapeError(
            "a @= b: b does not have enough dimensions; inplace matrix multiplication requires the second "
            "operand to have at least two dimensions; use a = a @ b"
        )
    return matmul(self, other, out=self)


def _array_ufunc(self: Array, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
    product = _PRODUCTS.get(ufunc.__name__) if ufunc.__module__ in (None, "numpy") else None
    if product is None:
        return _as_before(ufunc, method, inputs, keywords)
    if method != "__call__" or not all(map(_is_operand, inputs)):
        return NotImplemented
    given = {name: value for name, value in keywords.items() if _DEFAULTS.get(name, _ABSENT) != value}
    unknown = given.keys() - _TAKEN
    if unknown:
        raise DTypeError(
            f"numpy.{ufunc.__name__} of Arrays has no {', '.join(sorted(unknown))}; leave it out"
        )
    return product(*inputs, **given)


def _as_before(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """What this ufunc did when Arrays had no ``__array_ufunc__``.

    Python's operators of NumPy arrays and numbers asked the Array on their right. All else took an Array for
    a sequence of elements.
    """
    if any(isinstance(x, Array) for x in keywords.get("out", ())):
        raise TypeError("return arrays must be of ArrayType")  # NumPy's words
    name = _REFLECTED.get(ufunc.__name__)
    if name and method == "__call__" and not isinstance(inputs[0], Array) and not keywords:
        reflected = getattr(inputs[1], name, None)
        first = inputs[0]
        if isinstance(first, np.ndarray) and first.ndim == 0 and ufunc.__name__ in _COMPARISONS:
            first = first[()]  # NumPy's numbers compare themselves as arrays
        result = NotImplemented if reflected is None else reflected(first)
        if result is NotImplemented and ufunc.__name__ in ("equal", "not_equal"):
            return ufunc.__name__ == "not_equal"  # Python compares their identities
        return result
    arrays = [np.asarray(x) if isinstance(x, Array) else x for x in inputs]
    return getattr(ufunc, method)(*arrays, **keywords)


_METHODS: dict[str, Callable[..., Any]] = {
    "__matmul__": _matmul,
    "__rmatmul__": _rmatmul,
    "__imatmul__": matmul_in_place,
    "__array_ufunc__": _array_ufunc,
}
