"""A module `cupy` for CuPy's tests, without CUDA: arrays are NumPy's, products are pyclmm's.

CuPy's tests call each function with `xp=numpy` and with `xp=cupy` and compare the results. So NumPy's
products stay NumPy's outside of what `cupy` calls. cupy.testing is CuPy's own, from its sources.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from . import products


class ndarray(np.ndarray):  # noqa: N801 - CuPy's name
    """What `cupy` returns. What NumPy computes from it comes here, and to pyclmm where it is a product."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        called = products.matmul if (ufunc, method) == (np.matmul, "__call__") else getattr(ufunc, method)
        out = keywords.pop("out", None)
        if out is not None:
            keywords["out"] = out[0] if len(out) == 1 else out
        return as_cupys(called)(*inputs, **keywords)

    def dot(self, other: Any, out: Any = None) -> Any:
        return as_cupys(_DOT)(self, other, out=out)

    def get(self) -> Any:
        return np.asarray(self)


def as_cupys(function: Callable[..., Any]) -> Callable[..., Any]:
    """*function* of NumPy's or pyclmm's, from and to arrays of `cupy`."""

    @wraps(function, updated=())
    def called(*args: Any, **keywords: Any) -> Any:
        with products.replaced(products.EVERYWHERE):
            result = function(*map(_plain, args), **{name: _plain(x) for name, x in keywords.items()})
        out = keywords.get("out")
        return _wrapped(result) if out is None else out

    return called


_DOT = products.EVERYWHERE["numpy.dot"]


def _plain(x: Any) -> Any:
    if isinstance(x, list):
        return [_plain(each) for each in x]
    return x.view(np.ndarray) if isinstance(x, ndarray) else x


def _wrapped(x: Any) -> Any:
    """CuPy has no scalars: they are arrays of no dimensions."""
    return np.asarray(x).view(ndarray) if isinstance(x, np.ndarray | np.generic) else x


class _Functions(ModuleType):
    """A module whose functions are those of *numpys*, from and to arrays of `cupy`."""

    def __init__(self, name: str, numpys: ModuleType, **given: Any) -> None:
        super().__init__(name)
        self.__path__: list[str] = []  # a package
        self._numpys = numpys
        vars(self).update(given)

    def __getattr__(self, name: str) -> Any:
        with products.replaced(products.EVERYWHERE):
            found = getattr(self._numpys, name)
        if isinstance(found, ModuleType):
            raise AttributeError(f"no {name} in {self.__name__}")
        return as_cupys(found) if callable(found) and not isinstance(found, type) else found


def install(sources: Path) -> None:
    """Make `import cupy` give this module, with cupy.testing and cupy.exceptions from *sources*."""
    # cuBLAS may compute in other types; these products have one.
    types = ("COMPUTE_TYPE_DEFAULT", "COMPUTE_TYPE_PEDANTIC", "COMPUTE_TYPE_TF32")
    routines = _module("cupy._core._routines_linalg", **{name: name for name in types})
    internal = _module("cupy._core.internal", prod=math.prod)
    core = _module(
        "cupy._core",
        internal=internal,
        _routines_linalg=routines,
        get_compute_type=lambda dtype: None,
        set_compute_type=lambda dtype, compute_type: None,
    )
    linalg = _Functions("cupy.linalg", np.linalg)
    given = {"ndarray": ndarray, "linalg": linalg, "asnumpy": np.asarray}
    cupy = _Functions("cupy", np, _core=core, **given)
    cupy.__path__ = [str(sources / "cupy")]
    sparse = _module("cupyx.scipy.sparse", issparse=lambda x: False)
    scipy = _module("cupyx.scipy", sparse=sparse)
    cupyx = _module("cupyx", scipy=scipy)
    for module in (cupy, linalg, core, internal, routines, cupyx, scipy, sparse):
        sys.modules[module.__name__] = module
    vars(cupy)["testing"] = importlib.import_module("cupy.testing")


def _module(name: str, **given: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(given)
    return module
