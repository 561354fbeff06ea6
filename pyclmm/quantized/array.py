"""QuantizedArray: N x K weights of a format, or a stack of such, on the host or a device."""

from __future__ import annotations

import math
import os
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..byte_sizes import format_bytes
from ..errors import ArgumentError, DTypeError, ShapeError, UnsupportedError, brief
from ..formats import Format, as_affine, ordered
from ..formats.base import RowFormat
from ..problem.dtypes import dtype_of, named_dtype, type_name
from ..untraced import untraced
from . import files, parts, places

FLOATS = ("float32", "float16", "bfloat16", "float64")
_OF_STACK = "(groups, K, N), or of a matrix q[g].T"


class QuantizedArray:
    """A matrix of weights, (N, K), quantised in groups along K: ``matmul(x, q.T)`` is x @ q.dequantize().T.

    :func:`pyclmm.quantize`, :func:`pyclmm.from_gguf`, :meth:`from_parts` and :meth:`load` make one. What it
    holds is read and never written. ``q[rows]``, a slice along N, shares its memory.

    Of a stack, (groups, N, K), ``q[g]`` is a matrix, ``q[1:3]`` a part of the stack, ``q.mT`` is (groups, K,
    N): weights of :func:`pyclmm.ragged_matmul`.

    A pickle has its bytes. Those on an OpenCL device are not pickled: pickle ``q.to(np.empty(0))``, a copy
    on the host.

    Attributes: ``shape``; ``data``: N rows of bytes, or (groups, N, bytes), a uint8 array of NumPy's,
    PyOpenCL's or another library's; ``is_transposed``: whether K comes before N in the shape, as in ``q.T``.
    """

    __slots__ = ("_k", "data", "format", "is_transposed")

    def __init__(self, data: Any, form: Format, k: int, transposed: bool = False) -> None:
        self.data, self.format, self._k, self.is_transposed = data, form, k, transposed

    @classmethod
    def of_rows(cls, data: NDArray[np.uint8], form: Format, k: int) -> QuantizedArray:
        """The weights in *data*, N rows of bytes as *form* has them, or (groups, N, bytes), which is copied
        only to align it.

        Raises ShapeError for a K that the format does not divide, and for rows of another length.
        """
        form.check_depth(k)
        nbytes = form.row_nbytes(k)
        if data.ndim not in (2, 3) or data.shape[-1] != nbytes or data.dtype != np.uint8:
            raise ShapeError(
                f"data is {data.dtype} of shape {data.shape}; for K = {k} {form.name} has rows of "
                f"{nbytes} bytes: pass uint8 of shape (N, {nbytes}) or (groups, N, {nbytes})"
            )
        return cls(_held(data, form, nbytes), form, k)

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        for name, value in state[1].items():
            setattr(self, name, value)
        if isinstance(self.data, np.ndarray):  # Dask's messages have their bytes anywhere
            self.data = _held(self.data, self.format, self.format.row_nbytes(self._k))

    def __copy__(self) -> QuantizedArray:
        return self._with(self.data)

    def __deepcopy__(self, _memo: object) -> QuantizedArray:
        return self._with(places.copied(self.data))

    def __reduce_ex__(self, protocol: Any) -> Any:
        places.check_pickled(self.data)
        return super().__reduce_ex__(max(protocol, 2))  # the first with slots

    def _with(self, data: Any) -> QuantizedArray:
        return QuantizedArray(data, self.format, self._k, self.is_transposed)

    @classmethod
    def from_parts(
        cls,
        packed: ArrayLike,
        scales: ArrayLike,
        biases: ArrayLike | None = None,
        *,
        zeros: ArrayLike | None = None,
        g_idx: ArrayLike | None = None,
        mode: str = "affine",
        bits: int | None = None,
        group_size: int | None = None,
        layout: str = "mlx",
    ) -> QuantizedArray:
        """Weights whose parts others made.

        *layout* "mlx": *packed* (N, K * bits / 32) of uint32, *scales* and *biases* (N, K / group_size), as
        MLX's ``quantize`` returns them in the same *mode*. "gptq": qweight (K / 8, N) of int32, scales
        (K / group, N) and *zeros*, qzeros (K / group, N / 8) of int32, each less by one; "gptq_v2": as it
        is. "awq": qweight (K, N / 8), scales and qzeros alike, in AWQ's order of eight. Those of the last
        three become 4-bit affine weights with float32 scales, in which each value is exact if the scales
        are of 16 bits. *g_idx*: GPTQ's, if the file has it, which tells whether groups are neighbours.

        Raises ArgumentError (a layout, mode, bits or group that is not offered, a scale that is not finite),
        ShapeError and DTypeError, naming the argument.
        """
        form, rows, k = parts.joined(packed, scales, biases, zeros, g_idx, mode, bits, group_size, layout)
        return cls.of_rows(rows, form, k)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> QuantizedArray:
        """The weights that :meth:`save` wrote to *path*. Raises StorageError and FileNotFoundError."""
        return files.load(path, cls.of_rows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the weights to *path*, which ends in .npz or .safetensors (PyPI's safetensors, an extra).

        The file is there whole, or as it was before. Raises ArgumentError for another ending, StorageError
        if the file cannot be written.
        """
        form, rows = self._in_rows()
        files.save(path, rows, form, self._k)

    @property
    def shape(self) -> tuple[int, ...]:
        *stack, n = (int(length) for length in self.data.shape[:-1])
        return (*stack, self._k, n) if self.is_transposed else (*stack, n, self._k)

    @property
    def ndim(self) -> int:
        return len(self.data.shape)

    @property
    def size(self) -> int:
        """The number of weights."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights as they are held, scales included."""
        return self.size // self._k * self.format.row_nbytes(self._k)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that it stands for: that of :meth:`dequantize`."""
        return dtype_of(self.format.dtype)

    @property
    def mode(self) -> str:
        """ "affine", "mxfp4", "mxfp8", "nvfp4", or a format of GGUF: "q4_k" ..."""
        return self.format.mode

    @property
    def bits(self) -> int:
        """Bits of a weight, besides scales."""
        return self.format.bits

    @property
    def group_size(self) -> int:
        """Weights along K that share a scale."""
        return self.format.group_size

    @property
    def order(self) -> str:
        """How weights lie: "rows" or "fragments" (see :meth:`to`)."""
        return self.format.order

    @property
    def packed(self) -> NDArray[np.uint32]:
        """The weights as MLX packs them, (N, K * bits / 32), as *scales* and *biases* a view in NumPy; a
        copy if they are on a device or in another order. Formats of GGUF have no such parts: raises
        UnsupportedError."""
        return self._part("packed", np.dtype(np.uint32))

    @property
    def scales(self) -> NDArray[Any]:
        """The scales, (N, K / group_size): uint8, or the dtype of affine weights. Else as *packed*."""
        return self._part("scales", self.dtype if self.mode == "affine" else np.dtype(np.uint8))

    @property
    def biases(self) -> NDArray[Any]:
        """The biases of affine weights, (N, K / group_size). Else as *packed*."""
        return self._part("biases", self.dtype)

    def _part(self, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        form, rows = self._in_rows()
        if not isinstance(form, RowFormat) or (name == "biases" and not form.biases):
            raise UnsupportedError(f"{form.name} has no {name} apart from its weights; see q.dequantize()")
        found: NDArray[np.uint8] = getattr(form.parts(rows, self._k), name)
        return found.view(dtype)

    def _in_rows(self) -> tuple[Format, NDArray[np.uint8]]:
        """Its format and bytes on the host in order of k."""
        return ordered(self.format, places.on_host(self.data), self._k, "rows")

    @property
    def T(self) -> QuantizedArray:
        """The same weights as (K, N). Raises ShapeError for a stack, of which NumPy's T reverses all axes."""
        if self.ndim > 2:
            raise ShapeError(f"T of a QuantizedArray of shape {self.shape}: take q.mT, {_OF_STACK}")
        return self.mT

    @property
    def mT(self) -> QuantizedArray:
        """The same weights with the last two axes exchanged: (K, N), or (groups, K, N)."""
        return QuantizedArray(self.data, self.format, self._k, not self.is_transposed)

    def __getitem__(self, index: int | slice) -> QuantizedArray:
        """The weights of a slice along N; of a stack a matrix, or a slice of the stack. They share memory.
        Raises ArgumentError for another index, IndexError for a matrix that is not there.
        """
        length, is_stack = int(self.data.shape[0]), self.ndim > 2
        if is_stack and isinstance(index, int | np.integer) and not isinstance(index, bool):
            if not -length <= index < length:  # JAX's arrays would give the last one
                raise IndexError(f"index is {brief(index)}, but the stack has {length} matrices")
            return self._with(self.data[int(index)])
        rows = _forwards(index, length)
        if rows is None or (self.is_transposed and not is_stack):
            takes = "a matrix of a stack, q[2], or a slice, q[2:8]"
            of_one = "a slice of rows of (N, K) weights, q[2:8], then .T"
            raise ArgumentError(f"index is {brief(index)}: take {takes if is_stack else of_one}")
        if not is_stack:
            self._check_divides(rows)
        return self._with(self.data[rows])

    def _check_divides(self, rows: slice) -> None:
        """Raise ArgumentError unless the slice *rows* has whole blocks of rows, or none."""
        (start, stop, step), n, many = rows.indices(len(self)), len(self), self.format.together
        if stop > start and (start % many or (stop % many and stop != n) or (step != 1 and many > 1)):
            raise ArgumentError(
                f"index is {brief(rows)}: rows in the order of fragments lie in blocks of {many}; take whole "
                f"blocks, q[{many}:{2 * many}], or the rows before they are put in this order"
            )

    def __len__(self) -> int:
        return self.shape[0]

    @untraced
    def to(self, like: Any, order: str | None = None) -> QuantizedArray:
        """The same weights where *like* is: a queue, an Array, a NumPy array, or an array of PyTorch's,
        CuPy's or JAX's.

        *order*: how weights lie: "rows", one behind the other, or "fragments", in blocks as matrix units take
        them (affine weights of 4 and 8 bits, K a multiple of 128: docs/quantised.md); None, as they do. They
        are reordered in the host's memory. Raises DTypeError for another *like*, ArgumentError for another
        order, UnsupportedError for weights that cannot lie so, DeviceMemoryError for a device without room.
        """
        form, data = self.format, self.data
        if order is not None:
            form, data = ordered(form, places.on_host(data), self._k, order)
            data = _held(data, form, data.shape[-1])
        return QuantizedArray(places.brought(data, like), form, self._k, self.is_transposed)

    def as_affine(self) -> QuantizedArray:
        """The same values as affine weights, in the host's memory: of Q4_0, Q4_1, Q4_K, and of Q5_0, Q8_0 and
        Q5_K with 8 bits. So `wgmma_quantized` and `wgmma_fragments` take them.

        Scales are float16 where that holds all of them, else float32: what the values stand for, to which
        :meth:`dequantize` rounds unless its dtype is given. A zero may have another sign.

        Raises UnsupportedError for other weights, and for scales that are not finite.
        """
        stacked = places.on_host(self.data)
        form, rows = as_affine(self.format, stacked.reshape(-1, stacked.shape[-1]), self._k)
        data = rows.reshape(*stacked.shape[:-1], rows.shape[-1])
        return QuantizedArray(_held(data, form, data.shape[-1]), form, self._k, self.is_transposed)

    @untraced
    def dequantize(self, dtype: DTypeLike | None = None) -> NDArray[Any]:
        """The values as a NumPy array, rounded to *dtype*, by default that which the weights stand for.
        Raises DTypeError unless that is float32, float16, bfloat16 or float64.
        """
        wanted = named_dtype(dtype) or self.dtype
        if type_name(wanted, "dtype") not in FLOATS:
            raise DTypeError(f"dtype is {wanted}; weights stand for one of {', '.join(FLOATS)}")
        form, host = self._in_rows()
        rows = host.reshape(math.prod(host.shape[:-1]), host.shape[-1])
        values = form.dequantize(rows, self._k) if len(rows) else np.empty((0, self._k), np.float32)
        with np.errstate(over="ignore"):
            values = values.astype(wanted, copy=False).reshape(*host.shape[:-1], self._k)
        return np.swapaxes(values, -1, -2) if self.is_transposed else values

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise DTypeError(
            "a QuantizedArray is no array of numbers; call pyclmm.matmul(x, q.T), or pass q.dequantize()"
        )

    __array_ufunc__ = __rmatmul__ = __matmul__ = __array__  # NumPy's x @ q would make an array of one object

    def __repr__(self) -> str:
        form, shape = self.format, " x ".join(map(str, self.shape))
        kept = f", {self.nbytes / self.size:.4g} bytes a weight" if self.size else ""
        kept += ", in the order of fragments" if form.order == "fragments" else ""
        return (
            f"<QuantizedArray {shape}: {form.mode}, {form.bits} bits in groups of {form.group_size}, for "
            f"{form.dtype}{kept}, {format_bytes(self.nbytes)} in {places.named(self.data)}>"
        )


def _held(data: NDArray[np.uint8], form: Format, nbytes: int) -> NDArray[np.uint8]:
    """The rows *data* where kernels can read them: as they are, or a copy. Nobody writes to them."""
    aligned = not any(at % form.align for at in (data.ctypes.data, *data.strides[:-1]))
    usable = aligned and data.strides[-1] == 1 and min(data.strides[:-1]) >= nbytes
    held = data.view(np.ndarray) if usable else np.array(data, order="C")
    held.flags.writeable = False
    return held


def _forwards(index: Any, length: int) -> slice | None:
    """*index* within *length* rows, which every library reads alike; None if it is no slice of whole numbers
    that goes on from row to row.
    """
    try:
        start, stop, step = index.indices(length) if isinstance(index, slice) else (0, 0, 0)
    except (TypeError, ValueError):  # a text, a step of 0
        return None
    return slice(start, max(start, stop), min(step, length + 1)) if step > 0 else None
