"""Quantised weights in files: .npz and .safetensors, written whole and believed only after checks."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from .. import store
from ..errors import ArgumentError, DTypeError, StorageError, brief, in_short
from ..formats import Format, format_named
from ..formats.base import Array

_Made = TypeVar("_Made")
_Rows = tuple[Array, dict[str, str]]  # and what they are: the names "format" and "k"


def save(path: str | os.PathLike[str], data: Array, form: Format, k: int) -> None:
    """Write *data* beside *path*, then put it there."""
    write, _ = _way(Path(path_of(path)))
    try:
        target = Path(os.path.realpath(path_of(path)))
        with store.beside(target) as early:
            write(early, np.ascontiguousarray(data), {"format": form.name, "k": str(k)})
    except MemoryError:
        raise
    except Exception as error:  # of whatever kind a writer meets first: a name with a NUL, a full disk
        reason = getattr(error, "strerror", None) or in_short(error)
        raise StorageError(f"path: {str(path)!r} cannot be written: {reason}") from error


def load(path: str | os.PathLike[str], make: Callable[[Array, Format, int], _Made]) -> _Made:
    """``make(rows, format, K)`` of the file *path*. Raises StorageError if it holds no such."""
    source = Path(path_of(path))
    _, read = _way(source)
    try:
        check_regular(source)
        data, about = read(source)
        return make(data, format_named(about["format"]), int(about["k"]))
    except FileNotFoundError:
        raise
    except Exception as error:  # of whatever kind a reader meets first
        raise StorageError(
            f"path: {str(path)!r} holds no quantised weights of QuantizedArray.save: {in_short(error)}"
        ) from error


def path_of(path: Any) -> str:
    """The name of the file *path*. Raises DTypeError for what names none."""
    try:
        return os.fsdecode(path)
    except TypeError as error:
        raise DTypeError(f"path is {brief(path)}; pass the name of a file") from error


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise OSError for a pipe, which would be waited for, a folder or a device."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError("it is no regular file")


def _way(path: Path) -> tuple[Callable[[Path, Array, dict[str, str]], None], Callable[[Path], _Rows]]:
    """How a file of that name is written and read."""
    if path.suffix == ".npz":
        return _to_npz, _from_npz
    if path.suffix != ".safetensors":
        raise ArgumentError(f"path is {str(path)!r}; pass a name that ends in .npz or .safetensors")
    try:
        whole, numbers = import_module("safetensors"), import_module("safetensors.numpy")
    except ImportError as error:
        raise ArgumentError('.safetensors needs safetensors: pip install "pyclmm[safetensors]"') from error

    def write(path: Path, data: Array, about: dict[str, str]) -> None:
        numbers.save_file({"data": data}, path, metadata=about | {"crc32_of_all": _sum(data, about)})

    def read(path: Path) -> _Rows:  # .npz has such a sum of its own
        with whole.safe_open(path, framework="numpy") as found:
            data, about = found.get_tensor("data"), found.metadata() or {}
        if not about.keys() >= {"format", "k"}:
            raise ValueError("its metadata has no format and k")
        # Files of old have no sum, and no other name. Damage may be in the sum's name.
        if len(about) > 2 and about.get("crc32_of_all") != _sum(data, about):
            raise ValueError("its bytes are not those written, or another version or program wrote it")
        return data, about

    return write, read


def _sum(data: Array, about: dict[str, str]) -> str:
    """A CRC-32 of the bytes and of what they are."""
    what = f"{about['format']} {about['k']} {data.shape}"
    return str(zlib.crc32(data.data, zlib.crc32(what.encode())))


def _to_npz(path: Path, data: Array, about: dict[str, str]) -> None:
    named: dict[str, Any] = {name: np.array(text) for name, text in about.items()}
    np.savez(path, data=data, **named)


def _from_npz(path: Path) -> _Rows:
    with path.open("rb") as file:  # which NumPy would leave open if its content is faulty
        if not zipfile.is_zipfile(file):
            raise ValueError("it is no .npz file")
        with zipfile.ZipFile(file) as found:
            return _array(found, "data"), {name: str(_array(found, name)) for name in ("format", "k")}


def _array(found: zipfile.ZipFile, name: str) -> Array:
    with found.open(f"{name}.npy") as file:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
        if file.read(1):  # zipfile compares the CRC-32 at the end alone
            raise ValueError(f"{name} is shorter than what was written")
    return array
