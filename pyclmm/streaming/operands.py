"""The operands of a streamed product: checked, and read as stacks of matrices."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyopencl.array import Array

from ..errors import ArgumentError, DTypeError, UnsupportedError
from ..execution.array_likes import array_of
from ..execution.casts import cast_into
from ..execution.kinds import read_on_host
from ..execution.operands import checked
from ..execution.options import Options
from ..problem import dtypes
from ..problem.gemm import Gemm, Operand, dense
from ..quantized import QuantizedArray
from . import datasets
from .fingerprints import fingerprint
from .storage import Storage, is_beside, overlaps, sink, source
from .tiles import Region, TiledProduct


def _taken(name: str, x: Any) -> Any:
    """*x* as an array of the host or in a file. Raises DTypeError and UnsupportedError."""
    if isinstance(x, Array):
        raise DTypeError(
            f"{name} is a pyopencl Array, which lies on a device; memory_limit, devices, progress and "
            f"checkpoint are for arrays of the host and in files: leave them out, or pass {name}.get()"
        )
    if isinstance(x, QuantizedArray):
        raise UnsupportedError(f"{name} is a QuantizedArray, which no product in tiles takes: use matmul")
    if isinstance(x, np.memmap) or datasets.is_stored(x):
        return x
    found = read_on_host(name, x)  # a tensor of PyTorch's
    return array_of(name, x) if found is None else found


def _layout(name: str, x: Any) -> Operand:
    """The layout of a dense array like *x*. Raises DTypeError, StorageError for a dataset that is closed."""
    shape, dtype = (x.shape, x.dtype) if isinstance(x, np.ndarray) else datasets.layout(name, x)
    dtypes.type_name(dtype, name)
    return dense(tuple(shape), dtype.newbyteorder("="))


class ConvertedStorage(Storage):
    """An operand whose blocks are read in another dtype."""

    def __init__(self, stored: Storage, dtype: np.dtype[Any]) -> None:
        super().__init__(stored.name, stored.shape, dtype)
        self._stored, self.turned, self.trans = stored, stored.turned, stored.trans

    def read(self, target: NDArray[Any], region: Region) -> None:
        cast_into(target, self._stored.block(region))

    def row_step(self) -> int:
        return self._stored.row_step()


def in_dtype(stored: Storage, dtype: np.dtype[Any] | None) -> Storage:
    """*stored*, read in *dtype* if that does not have all its values. None: as it is."""
    if dtype is None or np.can_cast(stored.dtype, dtype):
        return stored
    return ConvertedStorage(stored, dtype)


@dataclass(frozen=True)
class Given:
    """The arrays of a call and its options. ``c`` is None where it is not read. ``bias`` has two axes,
    (1, N), (M, 1) or (1, 1).
    """

    a: Any
    b: Any
    c: Any
    bias: NDArray[Any] | None
    out: Any
    layouts: Mapping[str, Operand]
    options: Options
    lock: Any = field(default_factory=threading.RLock)  # of the run

    @classmethod
    def of(cls, a: Any, b: Any, c: Any, bias: Any, out: Any, beta: complex, options: Options) -> Given:
        """The arrays of a call, each known to be one. Raises DTypeError and ShapeError."""
        named = {"a": a, "b": b, "c": c, "bias": bias, "out": out}
        given = {name: x for name, x in named.items() if x is not None or name in ("a", "b")}
        found: dict[str, Any] = dict.fromkeys(named) | {name: _taken(name, x) for name, x in given.items()}
        layouts = {name: _layout(name, found[name]) for name in given}
        if datasets.is_stored(found["bias"]):
            with datasets.failing_as("bias", "its values"):
                found["bias"] = datasets.unmasked(found["bias"][...])
        if found["bias"] is not None:
            of_rows = len(layouts["b"].shape) == 1 == found["bias"].ndim
            found["bias"] = found["bias"][:, None] if of_rows else np.atleast_2d(found["bias"])
        if beta == 0:
            found["c"] = None
        return cls(**found, layouts=layouts, options=options)

    @cached_property
    def operands(self) -> dict[str, Storage]:
        """A, B and, where it is read, C as stacks of matrices. A vector equals its transpose."""
        found = {
            "a": source("a", self.a, of_run=self.lock),
            "b": source("b", self.b, as_row=False, of_run=self.lock),
        }
        for name, trans in (("a", self.options.trans_a), ("b", self.options.trans_b)):
            x = found[name]
            if len(self.layouts[name].shape) > 1:
                x.trans = trans
            elif trans == "C" and x.dtype.kind == "c":
                raise ArgumentError(
                    f"trans_{name} is 'C' and {name} has one axis; pass the conjugate of {name}, and 'N'"
                )
        if self.c is not None:
            found["c"] = source("c", self.matrices(self.c), of_run=self.lock)
        return found

    @property
    def read_early(self) -> list[Storage]:
        """The operands but a C that is ``out`` itself: each of its elements is read before it is written."""
        return [x for name, x in self.operands.items() if name != "c" or not self.updates_c]

    @cached_property
    def is_in_place(self) -> bool:
        """Whether writing ``out`` may change what is read later."""
        if self.out is None:
            return False
        out = self.matrices(self.out)
        target = sink(out, tuple(out.shape), np.dtype(out.dtype))
        bias = [] if self.bias is None else [source("bias", self.bias)]
        return any(overlaps(each, target) for each in (*self.read_early, *bias))

    @property
    def updates_c(self) -> bool:
        """Whether C is ``out`` itself."""
        return self.c is not None and datasets.same(self.c, self.out)

    @property
    def are_vectors(self) -> tuple[bool, bool]:
        """Whether A is a vector, and whether B is."""
        return len(self.a.shape) == 1, len(self.b.shape) == 1

    def matrices(self, x: Any) -> Any:
        """*x*, C or a result, with the axes that numpy.matmul removes of vectors, in the same memory."""
        if not any(self.are_vectors):
            return x
        if not isinstance(x, np.ndarray):
            raise ArgumentError(
                f"{'c' if x is self.c else 'out'} is a {type(x).__name__}; in a product with a vector pass a "
                "NumPy array, or a memory map of a file (FILE.npy)"
            )
        row, column = self.are_vectors
        return np.expand_dims(x, (-2,) * row + (-1,) * column)

    def bias_values(self, dtype: np.dtype[Any] | None) -> NDArray[Any] | None:
        """The bias in memory, of which each tile takes a part, as :func:`in_dtype`. Raises StorageError."""
        if self.bias is None:
            return None
        of = in_dtype(source("bias", self.bias), dtype)
        found = np.empty(of.shape, of.native)
        of.read(found, Region((), *(slice(0, length) for length in of.shape)))
        return found

    def fingerprints(self) -> dict[str, Any]:
        """What tells these operands from others, for a checkpoint."""
        bias = {} if self.bias is None else {"bias": source("bias", self.bias)}
        out = None if self.out is None else source("out", self.matrices(self.out))
        return {
            name: fingerprint(x, out is not None and is_beside(x, out))
            for name, x in {**self.operands, **bias}.items()
        }


@dataclass(frozen=True)
class Shapes:
    """The checked product: its gemm, and its sizes with one chunk of K; what its operands are and lie in."""

    gemm: Gemm
    product: TiledProduct
    dtypes: tuple[np.dtype[Any], np.dtype[Any]]  # of A and B
    in_memory: bool  # nothing is read from files
    reach: int  # bytes that the largest operand in memory, or the result, spans

    @classmethod
    def of(cls, given: Given, alpha: complex, beta: complex) -> Shapes:
        """Raises what :func:`pyclmm.gemm` raises for shapes, dtypes, casts and options."""
        options = given.options
        gemm = checked(given.layouts, options, (alpha, beta), out_is_copied=False, in_tiles=True)
        a, b = given.layouts["a"], given.layouts["b"]
        m, n, k = sizes_of(a.shape, b.shape, options)
        size = gemm.dtype.itemsize
        product = TiledProduct(
            *(m, n, 0 if alpha == 0 else k),
            *(a.dtype.itemsize, b.dtype.itemsize, size, size),
            0 if given.c is None else given.layouts["c"].dtype.itemsize,
            tuple(gemm.shape[: len(gemm.shape) - 2 + sum(given.are_vectors)]),
            a.shape[:-2],
            b.shape[:-2],
        )
        read = given.read_early
        reach = max(math.prod(gemm.shape) * size, *(each.reach for each in read))
        return cls(gemm, product, (a.dtype, b.dtype), all(each.in_memory for each in read), reach)


def sizes_of(a: tuple[int, ...], b: tuple[int, ...], options: Options) -> tuple[int, int, int]:
    """M, N and K of a product of arrays of these shapes. Each call comes here, so it calls nothing."""
    m, k = (1, *a) if not a[1:] else a[-2:] if options.trans_a == "N" else a[:-3:-1]
    n = 1 if not b[1:] else b[-1] if options.trans_b == "N" else b[-2]
    return m, n, k
