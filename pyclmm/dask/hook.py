"""backend(): the products of dask's own functions by pyclmm, in a ``with`` block."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import dask.array as da
import numpy as np
from dask.array import routines

from ..errors import DTypeError
from ..problem.dtypes import result_dtype
from . import products

_options: ContextVar[dict[str, Any] | None] = ContextVar("pyclmm.dask.backend", default=None)
_lock = threading.Lock()  # for what follows
_open: list[object] = []  # a mark for each open block, of all threads
_theirs: dict[tuple[Any, str], Callable[..., Any]] = {}  # what stood at each name before the first block


@contextmanager
def backend(**options: Any) -> Iterator[None]:
    """In this block ``da.matmul``, ``x @ y``, ``np.matmul``, ``da.tensordot``, ``da.dot`` use pyclmm.

    *options* are keywords of :func:`pyclmm.dask.matmul`. They hold for arrays that are made in the block,
    also if they are computed after it. ``merge_chunks`` is False unless it is given: code that was written
    for Dask's arrays may rely on the chunks that Dask gives a product, as ``da.linalg.solve`` does.

    Dask has a hook for ``tensordot`` (``tensordot_lookup``), but it replaces the product of two chunks only,
    and the graph of partial sums would stay; ``matmul`` has none. So the first block puts functions in the
    place of ``matmul`` and ``tensordot`` in ``dask.array`` and ``dask.array.routines``, and the end of the
    last block puts Dask's back. These functions look at the block's setting, which belongs to the context
    (:mod:`contextvars`): other threads and asyncio tasks go on with Dask's. Blocks nest, and the inner one's
    options count. A name that was imported before (``from dask.array import matmul``) stays Dask's.

    Left to Dask: arrays with chunks of unknown size or of another type than NumPy's, and dtypes that no
    device multiplies. Raises DTypeError (a TypeError) for an option that :func:`pyclmm.dask.matmul` does not
    have.
    """
    known = inspect.getfullargspec(products.matmul).kwonlyargs
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise DTypeError(f"backend() has no option {unknown}; pass some of {known}")
    token = _options.set(options)
    _enter()
    try:
        yield
    finally:
        _leave()
        _options.reset(token)


def _enter() -> None:
    with _lock:
        _open.append(None)
        if len(_open) > 1:
            return
        for module in (routines, da):
            for name, ours in (("matmul", products.matmul), ("tensordot", products.tensordot)):
                _theirs[module, name] = getattr(module, name)
                setattr(module, name, _chosen(ours, _theirs[module, name]))


def _leave() -> None:
    with _lock:
        _open.pop()
        if not _open:
            for (module, name), function in _theirs.items():
                setattr(module, name, function)
            _theirs.clear()


def _chosen(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(theirs)
    def either(*args: Any, **keywords: Any) -> Any:
        options = _options.get()
        if options is None or not all(map(_is_ours, args[:2])) or not _multiplies(args[:2]):
            return theirs(*args, **keywords)
        return ours(*args, **({"merge_chunks": False} | options | keywords))

    return either


def _is_ours(x: Any) -> bool:
    """Whether the chunks of *x* are NumPy arrays of known size."""
    if not isinstance(x, da.Array):
        return not hasattr(x, "dask")
    meta: Any = x._meta
    known = not any(math.isnan(length) for lengths in x.chunks for length in lengths)
    return known and isinstance(meta, np.ndarray) and not isinstance(meta, np.ma.MaskedArray)


def _multiplies(operands: Any) -> bool:
    try:
        x, y = (da.asanyarray(operand).dtype for operand in operands)
        result_dtype(x, y, None, None)
    except (DTypeError, TypeError):
        return False
    return True
