"""matmul and tensordot of dask arrays: checks, chunks, and a graph of one task for each output chunk."""

from __future__ import annotations

import inspect
import itertools
import math
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any

import dask.array as da
import numpy as np
from dask.array import routines
from dask.array.core import common_blockdim

from ..byte_sizes import parse_limit
from ..errors import ArgumentError, DTypeError, UnsupportedError, brief
from ..execution.options import check_kernel
from ..problem.dtypes import ELEMENTS, dtype_of, result_dtype, type_name
from ..problem.literals import Precision, Verify
from ..problem.settings import SettingBlock, chosen, having, is_reproducible, is_verified
from ..quantized import QuantizedArray
from ..selection.select import KernelChoice
from . import axes as roles
from .axes import Axes
from .block import Product
from .graph import TaskMemory, array_of, chunks_of, max_nbytes
from .workers import Limits, limits


def matmul(
    x: Any,
    y: Any,
    *,
    kernel: KernelChoice = "auto",
    precision: Precision | None = None,
    reproducible: bool | None = None,
    verify: Verify | None = None,
    memory_limit: int | str | None = None,
    host_limit: int | str | None = None,
    merge_chunks: bool = True,
) -> da.Array:
    """The matrix product of dask arrays, as :func:`numpy.matmul` defines it. Nothing is computed yet.

    x, y
        Dask arrays of NumPy chunks, at least one dimension; what is no dask array becomes one. Shapes and
        dtypes as for :func:`pyclmm.matmul`.
    kernel, precision, reproducible, verify
        As for :func:`pyclmm.matmul`. The defaults of enclosing blocks are read now, not by the workers.
        Reproducible bits depend on the chunks of K, not on the workers. A wrong result raises in its task,
        which ``retries=`` runs again; "repair" computes the first step of K again, and raises after it.
    memory_limit
        The most bytes that a task has on its device, without workspace: a number or "8 GiB". Half of it is
        for the output chunk, which sets the size of output chunks. None: half of the device's memory, shared
        by the threads of the worker. The workers of the current ``distributed.Client`` are asked, else this
        process.
    host_limit
        The most bytes of x and y that one task has in the host's memory. Where all chunks of K are more, a
        chain of tasks takes them part by part. None: a quarter of the worker's memory limit, shared likewise.
    merge_chunks
        True: the output's chunks are runs of the chunks of x's rows and of y's columns, split where they
        exceed the limits; where chunks of K or of a stack differ, the operand with fewer bytes is rechunked.
        False: they are those of Dask's own product; what the limits split is put together on the host.

    Returns a dask array of the shape and dtype that :func:`numpy.matmul` gives. Raises ShapeError, DTypeError
    and ArgumentError (unknown chunk sizes among them: call ``compute_chunk_sizes()`` first) before any task
    runs; its tasks raise what :func:`pyclmm.gemm` raises.
    """
    x, y = _arrays(x, y)
    product = _product(x, y, roles.of_matmul(x.shape, y.shape), kernel, precision, reproducible, verify)
    return _contract(x, y, product, memory_limit, host_limit, merge_chunks)


def tensordot(
    x: Any,
    y: Any,
    axes: Any = 2,
    *,
    kernel: KernelChoice = "auto",
    precision: Precision | None = None,
    reproducible: bool | None = None,
    verify: Verify | None = None,
    memory_limit: int | str | None = None,
    host_limit: int | str | None = None,
    merge_chunks: bool = True,
) -> da.Array:
    """The sum over *axes* of dask arrays, as :func:`numpy.tensordot`: the last and first N, or two lists.

    The other parameters, the result and what is raised as for :func:`matmul`; an axis that is not there
    raises AxisError.
    """
    x, y = _arrays(x, y)
    product = _product(
        x, y, roles.of_tensordot(x.shape, y.shape, axes), kernel, precision, reproducible, verify
    )
    return _contract(x, y, product, memory_limit, host_limit, merge_chunks)


def _arrays(x: Any, y: Any) -> tuple[da.Array, da.Array]:
    """Both as dask arrays that can be multiplied."""
    by_expressions = getattr(da, "_array_expr_enabled", None)
    if by_expressions is not None and by_expressions():
        raise UnsupportedError(
            "dask plans arrays by expressions: set its option array.query-planning to False"
        )
    if type(x) is QuantizedArray or type(y) is QuantizedArray:
        raise UnsupportedError(
            "x or y is a QuantizedArray, which no graph of Dask's takes; multiply chunks, "
            "with K in one: x.map_blocks(pyclmm.matmul, q.T, dtype=x.dtype, chunks=(*x.chunks[:-1], len(q)))"
        )
    found = (da.asanyarray(x), da.asanyarray(y))
    for name, given, array in zip("xy", (x, y), found, strict=True):
        if not isinstance(array, da.Array) or (array.dtype == object and array.ndim == 0):
            raise DTypeError(
                f"{name} is a {type(given).__name__}; pass a dask array, as dask.array.from_delayed gives"
            )
        type_name(array.dtype, name)
        if (error := _unfit(name, array)) is not None:
            raise error
    return found


def _unfit(name: str, x: da.Array) -> DTypeError | ArgumentError | None:
    """The error for an array whose chunks are not NumPy arrays of known size; None for others."""
    if not isinstance(x._meta, np.ndarray) or isinstance(x._meta, np.ma.MaskedArray):
        return DTypeError(
            f"{name} has chunks of type {type(x._meta).__name__}; pass a dask array of NumPy arrays"
        )
    for axis, lengths in enumerate(x.chunks):
        if any(math.isnan(length) for length in lengths):
            return ArgumentError(
                f"{name} has chunks of unknown size on axis {axis}; call its compute_chunk_sizes() first"
            )
    return None


def _product(
    x: da.Array, y: da.Array, axes: Axes, kernel: Any, precision: Any, reproducible: Any, verify: Any
) -> Product:
    check_kernel(kernel)
    name = result_dtype(x.dtype, y.dtype, None, None).name
    dtypes = dtype_of(name), dtype_of(ELEMENTS[name].parts)
    exact, checks = is_reproducible(reproducible), is_verified(verify)
    return Product(axes, *dtypes, kernel, chosen(precision), exact, checks)


def _contract(
    x: da.Array, y: da.Array, product: Product, memory_limit: Any, host_limit: Any, merge_chunks: bool
) -> da.Array:
    least = x.dtype.itemsize + y.dtype.itemsize  # a step of one element each; the device has two in its half
    allowed = limits(
        parse_limit("memory_limit", memory_limit, 4 * least), parse_limit("host_limit", host_limit, least)
    )
    if not isinstance(merge_chunks, bool | np.bool_):
        raise DTypeError(f"merge_chunks is {brief(merge_chunks)}; pass True or False")
    axes = product.axes
    x, y = _aligned(x, y, axes, merge_chunks)
    whole = tuple(itertools.chain.from_iterable(chunks_of(x, y, axes)))
    x, y = _split(x, y, product, allowed)
    made = array_of(x, y, product, allowed, merge_chunks)
    return made if merge_chunks else made.rechunk(whole)


def _aligned(x: da.Array, y: da.Array, axes: Axes, merge_chunks: bool) -> tuple[da.Array, da.Array]:
    """Both with the same chunks of K and of stacks: the one with fewer bytes is rechunked, or unless
    *merge_chunks* both, as Dask does. An axis of length 1 that the other has longer is one chunk: some of its
    chunks may be empty.
    """
    for i, j in (*axes.sums, *axes.stack):
        if i is None or j is None or x.chunks[i] == y.chunks[j]:
            continue
        if x.shape[i] != y.shape[j]:
            x, y = (_cut(z, axis, (1,)) if z.shape[axis] == 1 else z for z, axis in ((x, i), (y, j)))
        elif not merge_chunks:
            both = common_blockdim([x.chunks[i], y.chunks[j]]) or (0,)
            x, y = _cut(x, i, both), _cut(y, j, both)
        elif x.nbytes < y.nbytes:
            x = _cut(x, i, y.chunks[j])
        else:
            y = _cut(y, j, x.chunks[i])
    return x, y


def _cut(x: da.Array, axis: int, lengths: tuple[int, ...]) -> da.Array:
    """*x* in chunks of these *lengths* along *axis*."""
    if any(x.shape):
        return x.rechunk({axis: lengths})
    # Dask leaves the chunks of an array without any length as they are.
    return da.zeros(x.shape, dtype=x.dtype, chunks=(*x.chunks[:axis], lengths, *x.chunks[axis + 1 :]))


def _split(x: da.Array, y: da.Array, product: Product, allowed: Limits) -> tuple[da.Array, da.Array]:
    """Both with chunks that are no larger than a task may have: of rows and columns first, then of K."""
    axes, memory = product.axes, TaskMemory(x, y, product)
    tall = max((1, *x.chunks[axes.rows[0]])) if axes.rows else 1
    wide = max((1, *y.chunks[axes.columns[0]])) if axes.columns else 1
    m, n = roles.halved((tall, wide), partial(memory.too_large, allowed))
    if m < tall:
        x = x.rechunk({axes.rows[0]: roles.divided(x.chunks[axes.rows[0]], m)})
    if n < wide:
        y = y.rechunk({axes.columns[0]: roles.divided(y.chunks[axes.columns[0]], n)})
    for i, j in axes.sums[:1]:
        longest = max(x.chunks[i], default=0)
        pair = sum(max_nbytes(z) for z in (x, y))
        fitting = min(allowed.device // 4, allowed.host)
        if pair > fitting and longest > 1:
            lengths = roles.divided(x.chunks[i], max(1, longest * fitting // pair))
            x, y = x.rechunk({i: lengths}), y.rechunk({j: lengths})
    return x, y


# ---- in place of Dask's own

_options: ContextVar[dict[str, Any] | None] = ContextVar("pyclmm.dask.backend", default=None)
_lock = threading.RLock()  # for what follows
_open: list[object] = []  # a mark for each open block, of all threads
_theirs: dict[tuple[Any, str], Callable[..., Any]] = {}  # what stood at each name before the first block


def backend(**options: Any) -> SettingBlock:
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
    known = inspect.getfullargspec(matmul).kwonlyargs
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise DTypeError(f"backend() has no option {unknown}; pass some of {known}")
    return SettingBlock(partial(_Backend, options))


class _Backend(AbstractContextManager[None]):
    """A block that is refused as a whole if it ends in another thread."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._setting = having(_options, options)

    def __enter__(self) -> None:
        self._setting.__enter__()
        _enter()

    def __exit__(self, *raised: Any) -> None:
        self._setting.__exit__(*raised)
        _leave()


def _enter() -> None:
    with _lock:
        _open.append(None)
        if len(_open) > 1:
            return
        for module in (routines, da):
            for name, ours in (("matmul", matmul), ("tensordot", tensordot)):
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
        if options is None or not _multiplies(args[:2]):
            return theirs(*args, **keywords)
        return ours(*args, **({"merge_chunks": False} | options | keywords))

    return either


def _multiplies(operands: Any) -> bool:
    """Whether pyclmm takes these. What is no array becomes one, but for collections of Dask."""
    for x in operands:
        if _unfit("x", x) is not None if isinstance(x, da.Array) else hasattr(x, "dask"):
            return False
    try:
        x, y = (da.asanyarray(operand).dtype for operand in operands)
        result_dtype(x, y, None, None)
    except (DTypeError, TypeError):
        return False
    return True
