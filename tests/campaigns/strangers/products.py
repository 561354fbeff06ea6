"""What foreign tests call in place of NumPy's products: pyclmm's, counted.

Arrays of dtypes that OpenCL does not have (docs/semantics.md) are left to NumPy, and not counted. Inside
pyclmm NumPy's products stay NumPy's, so that its reference does not call itself.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import numpy as np
import pytest

import pyclmm
from pyclmm.problem.dtypes import ELEMENT_TYPES

_inside: ContextVar[bool] = ContextVar("inside", default=False)


class Product:
    """A function of NumPy's, by pyclmm. Its other attributes are those of NumPy's.

    An object, as a Python function would become a method where a test keeps it in a class.
    """

    computed = 0  # products by pyclmm, of all functions

    def __init__(self, numpys: Any) -> None:
        self.numpys = numpys

    def __getattr__(self, name: str) -> Any:
        return getattr(self.numpys, name)

    def __call__(self, a: Any, b: Any, *args: Any, **keywords: Any) -> Any:
        if _inside.get() or not self.is_ours(a, b, *args, **keywords):
            return self.numpys(a, b, *args, **keywords)
        Product.computed += 1
        token = _inside.set(True)
        try:
            return pyclmm.matmul(a, b, *args, **keywords)
        finally:
            _inside.reset(token)

    def is_ours(self, *arrays: Any, **keywords: Any) -> bool:
        given = (*arrays, keywords.get("out"))
        return all(x.dtype.name in ELEMENT_TYPES for x in given if isinstance(x, np.ndarray))


class Dot(Product):
    """``dot`` is ``matmul`` for vectors and matrices. Its rule for *out* is its own."""

    def is_ours(self, a: Any, b: Any, out: Any = None) -> bool:
        return (
            all(np.ndim(x) in (1, 2) for x in (a, b))
            and (out is None or (out.flags.c_contiguous and out.dtype == np.result_type(a, b)))
            and super().is_ours(a, b, out)
        )


class Operator(Product):
    """``operator.matmul``: Python asks other types than ndarray themselves."""

    def is_ours(self, *arrays: Any, **keywords: Any) -> bool:
        return all(type(x) is np.ndarray for x in arrays) and super().is_ours(*arrays)


class Function(Product):
    """A function of :mod:`pyclmm.linalg` with NumPy's name.

    Calls with keywords that it does not have are left to NumPy.
    """

    _NUMPYS = ("order", "where", "subok", "signature")

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if _inside.get() or not self.is_ours(*args, **keywords):
            return self.numpys(*args, **keywords)
        Product.computed += 1
        token = _inside.set(True)
        try:
            return getattr(pyclmm.linalg, self.numpys.__name__)(*args, **keywords)
        finally:
            _inside.reset(token)

    def is_ours(self, *arrays: Any, **keywords: Any) -> bool:
        given = list(_arrays((*arrays, keywords.get("out"))))
        return not any(name in keywords for name in self._NUMPYS) and super().is_ours(*given)


def _arrays(values: Iterable[Any]) -> Iterator[Any]:
    """The arrays among *values* and in lists of them, and numbers as arrays."""
    for x in values:
        if isinstance(x, list | tuple):
            yield from _arrays(x)
        elif isinstance(x, np.ndarray | np.generic):
            yield np.asarray(x)


def functions(*places: str) -> dict[str, Product]:
    """The functions at *places*, of those that this NumPy has."""
    found = {place: importlib.import_module(place.rpartition(".")[0]) for place in places}
    named = {place: getattr(module, place.rpartition(".")[2], None) for place, module in found.items()}
    return {place: Function(numpys) for place, numpys in named.items() if numpys is not None}


matmul, dot = Product(np.matmul), Dot(np.dot)
# In tests of these, which the first word names, they are pyclmm's. Other tests compare with them.
OF_TESTS: dict[str, dict[str, Product]] = {
    "::TestDot": functions("numpy.dot"),
    "::TestVdot": functions("numpy.vdot"),
    "::TestInner": functions("numpy.inner"),
    "::test_outer": functions("numpy.outer"),
    "::TestTensordot": functions("numpy.tensordot"),
    "::test_tensordot": functions("numpy.linalg.tensordot"),
    "::TestMultiDot": functions("numpy.linalg.multi_dot"),
    "::TestMatrixPower": functions("numpy.linalg.matrix_power"),
    "test_einsum.py::": functions("numpy.einsum"),
}
# Where tests, and NumPy's functions that multiply (tensordot, matrix_power, pinv), look the products up.
# numpy.dot stays NumPy's: tests of matmul compare with it.
_PLACES: dict[str, Product] = {
    "numpy.matmul": matmul,
    "numpy._core.numeric.dot": dot,
    "numpy.linalg._linalg.matmul": matmul,
    "numpy.linalg._linalg._core_matmul": matmul,
    "numpy.linalg._linalg.dot": dot,
    "operator.matmul": Operator(operator.matmul),
    **functions("numpy.vecdot", "numpy.matvec", "numpy.vecmat"),
}
# A cupy of its own need not keep any of NumPy's.
EVERYWHERE: dict[str, Product] = {**_PLACES, **{k: v for each in OF_TESTS.values() for k, v in each.items()}}


def matmul_in_place(a: Any, b: Any) -> Any:
    """``a @= b``. That *b* has at least two dimensions is the statement's own rule."""
    if type(a) is not np.ndarray or np.ndim(b) < 2:
        return operator.imatmul(a, b)
    return matmul(a, b, out=a)


def count_those_of(*places: tuple[Any, str]) -> None:
    """Count the calls of the functions at *places*, a module and a name each, from now on."""
    for module, name in places:
        setattr(module, name, counted(getattr(module, name)))


def counted(product: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(product)
    def counted(*args: Any, **keywords: Any) -> Any:
        Product.computed += 1
        return product(*args, **keywords)

    return counted


@contextmanager
def replaced(places: Mapping[str, Product] = _PLACES) -> Iterator[None]:
    """Inside the block NumPy's products are pyclmm's, in *places*: names with their modules."""
    with pytest.MonkeyPatch.context() as patch:
        for place, product in places.items():
            module, _, name = place.rpartition(".")
            patch.setattr(importlib.import_module(module), name, product)
        yield
