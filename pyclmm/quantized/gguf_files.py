"""from_gguf: the tensors of a GGUF file, memory-mapped, as they lie in it. Read by PyPI's gguf."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, StorageError, UnsupportedError, in_short
from ..formats import OF_GGUF
from ..formats.affine import widened
from .array import QuantizedArray
from .files import check_regular, path_of

_FORMATS = {form.name.removesuffix("_gguf").upper(): form for form in OF_GGUF}  # by GGUF's names
_NUMBERS = ("F32", "F16", "F64", "I8", "I16", "I32", "I64")  # which are arrays of NumPy's


class GGUFTensors(Mapping[str, Any]):
    """The tensors of a GGUF file by name; :func:`from_gguf` makes one."""

    __eq__, __hash__ = object.__eq__, object.__hash__  # Mapping's would read and compare every tensor

    def __init__(self, path: str, tensors: Mapping[str, Any]) -> None:
        self._path, self._tensors = path, tensors

    def __getitem__(self, name: str) -> QuantizedArray | NDArray[Any]:
        """The tensor *name*. Raises KeyError, and UnsupportedError for a type or shape not offered."""
        tensor = self._tensors[name]
        kind, shape = tensor.tensor_type.name, tuple(int(length) for length in reversed(tensor.shape))
        if kind in _NUMBERS:
            return np.asarray(tensor.data)
        if kind == "BF16":
            return widened(tensor.data, "bfloat16").reshape(shape)
        if kind not in _FORMATS:
            raise UnsupportedError(
                f"tensor {name!r} of {self._path!r} is {kind}, which is not offered; these are: "
                f"{', '.join((*_FORMATS, *_NUMBERS, 'BF16'))}"
            )
        if len(shape) not in (2, 3):
            raise UnsupportedError(
                f"tensor {name!r} of {self._path!r} has shape {shape}; quantised weights have two axes, "
                "(N, K), or a third before them, for experts"
            )
        if not math.prod(shape):
            raise UnsupportedError(f"tensor {name!r} of {self._path!r} has shape {shape}, so no weights")
        return QuantizedArray.of_rows(np.asarray(tensor.data), _FORMATS[kind], shape[-1])

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"<{len(self)} tensors of {self._path}>"


def from_gguf(path: str | os.PathLike[str]) -> GGUFTensors:
    """The tensors of the GGUF file *path* by name: quantised as :class:`QuantizedArray`, others as arrays.

    Nothing is copied: the file is memory-mapped, and must stay as it is. Quantised ones may be Q4_0, Q4_1,
    Q5_0, Q8_0, Q2_K to Q6_K and MXFP4; another is refused when it is asked for. Raises FileNotFoundError,
    StorageError for a file that is no GGUF, or cut short, UnsupportedError for one of big-endian numbers, and
    ArgumentError if PyPI's gguf, an extra, is missing.
    """
    reader_of, name = _bounded_reader(), path_of(path)
    try:
        check_regular(name)
        with np.errstate(over="ignore"):  # gguf adds offsets modulo 2^64
            reader = reader_of(name, "c")  # Intel's runtime would copy what is mapped read-only in each call
    except FileNotFoundError:
        raise
    except Exception as error:  # of whatever kind the reader meets first
        hint = "" if isinstance(error, OSError) else "; is it cut short?"  # the system reads nothing of it
        raise StorageError(
            f"path: {name!r} is no GGUF file that gguf reads whole: {in_short(error)}{hint}"
        ) from error
    if reader.byte_order != "I":
        raise UnsupportedError(f"path: {name!r} has its bytes in another order; convert it with gguf")
    # Each begins where the one before ends, as llama.cpp has it: a gap is of a wrong length or type.
    due, align = int(reader.data_offset), int(reader.alignment)
    for tensor in sorted(reader.tensors, key=lambda one: (one.data_offset, one.n_bytes)):
        if tensor.data_offset != due:
            raise StorageError(
                f"path: {name!r} is damaged: tensor {tensor.name!r} begins at byte {tensor.data_offset}, not "
                f"at byte {due}, the first multiple of {align} behind what lies before it"
            )
        due = -(-(due + int(tensor.n_bytes)) // align) * align
    if reader.tensors and (behind := len(reader.data) - due) >= align:
        raise StorageError(
            f"path: {name!r} is damaged, or part of a split file whose first part alone tells the alignment: "
            f"{behind} bytes lie behind its last tensor. Write a split file as one"
        )
    return GGUFTensors(name, {tensor.name: tensor for tensor in reader.tensors})


def _bounded_reader() -> Any:
    """gguf's reader, which would loop over what is beyond the file's end, so that it stops there."""
    try:
        gguf: Any = import_module("gguf")
    except ImportError as error:
        raise ArgumentError('from_gguf needs gguf: pip install "pyclmm[gguf]"') from error

    class Reader(gguf.GGUFReader):  # type: ignore[misc]
        def _get(self, offset: int, dtype: Any, count: int = 1, *others: Any, **named: Any) -> Any:
            found = super()._get(offset, dtype, count, *others, **named)
            if len(found) < int(count):
                raise ValueError(f"it ends before {count} of {np.dtype(dtype)} at byte {offset}")
            return found

    return Reader
