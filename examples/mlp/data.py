"""Pictures of digits: MNIST's IDX files from a folder, or scikit-learn's digits."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLASSES = 10
_GZIP = b"\x1f\x8b"
_IMAGES, _LABELS = 0x00000803, 0x00000801  # IDX's first four bytes: unsigned bytes (08), 3 axes or 1
_NAMES = {_IMAGES: "images-idx3-ubyte", _LABELS: "labels-idx1-ubyte"}


class DataError(ValueError):
    """Pictures cannot be had: a file is missing or damaged, or a package is not installed."""


@dataclass(frozen=True)
class Pictures:
    """A picture in each row, float32 from 0 to 1, and the digit that each shows, int32."""

    images: NDArray[np.float32]
    labels: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Any) -> Pictures:
        return Pictures(self.images[rows], self.labels[rows])


@dataclass(frozen=True)
class Data:
    """Pictures to learn from, and others that are only asked about. *shape*: of a picture."""

    name: str
    shape: tuple[int, int]
    learnt: Pictures
    unseen: Pictures

    @property
    def digest(self) -> int:
        """A number that tells one set of learnt pictures from another."""
        return zlib.crc32(self.learnt.labels.tobytes(), zlib.crc32(self.learnt.images.tobytes()))


def load(folder: Path) -> Data:
    """MNIST's files in *folder*, as they are or with gzip.

    If only the test files (t10k-*) are there, the first four fifths of them are learnt from and the others
    are unseen. Raises DataError.
    """
    if not folder.is_dir():
        raise DataError(f"--data: {folder} is not a folder; it takes one with MNIST's IDX files")
    test, shape = _pictures(folder, "t10k")
    if not any(_find(folder, "train", magic) for magic in _NAMES):
        return split("MNIST's test files", shape, test)
    learnt, its_shape = _pictures(folder, "train")
    if its_shape != shape:
        raise DataError(
            f"--data: in {folder} pictures have the shape {its_shape} in the training files and {shape} in "
            "the test files; they must have one"
        )
    return Data("MNIST", shape, learnt, test)


def split(name: str, shape: tuple[int, int], pictures: Pictures) -> Data:
    """The first four fifths of *pictures* to learn from, and the rest."""
    learnt = len(pictures) * 4 // 5
    return Data(name, shape, pictures[:learnt], pictures[learnt:])


def digits() -> Data:
    """scikit-learn's 1,797 digits of 8 x 8 pixels. Raises DataError if scikit-learn is not installed."""
    try:
        datasets = import_module("sklearn.datasets")
    except ImportError as error:
        raise DataError(
            "scikit-learn, whose digits are the default data, is not installed; "
            "pip install scikit-learn, or pass --data with a folder of MNIST's files"
        ) from error
    images, labels = datasets.load_digits(return_X_y=True)
    # Digits of one writer follow each other, so they are mixed before they are split.
    rows = np.random.Generator(np.random.PCG64(0)).permutation(len(labels))
    mixed = Pictures((images[rows] / 16).astype(np.float32), labels[rows].astype(np.int32))
    return split("scikit-learn's digits", (8, 8), mixed)


def read_idx(path: Path, magic: int) -> NDArray[np.uint8]:
    """The array in an IDX file, with or without gzip. Raises DataError unless it begins with *magic*."""
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"--data: cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    found = int.from_bytes(data[:4], "big")
    if len(data) < 4 or found != magic:
        raise DataError(
            f"--data: {path} begins with {found:#010x}, and an IDX file of {_NAMES[magic].split('-')[0]} "
            f"with {magic:#010x}"
        )
    start = 4 + 4 * (magic & 0xFF)  # the last byte is the number of axes
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4))
    size = start + int(np.prod(shape, dtype=object))
    if len(data) < start or len(data) != size:
        raise DataError(
            f"--data: {path} has {len(data)} bytes, and {size} would hold the {shape} that it names; "
            "it may have been cut short: copy it again"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _find(folder: Path, part: str, magic: int) -> Path | None:
    """The file of *part*, "train" or "t10k"."""
    name = f"{part}-{_NAMES[magic]}"
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.exists()), None)


def _pictures(folder: Path, part: str) -> tuple[Pictures, tuple[int, int]]:
    """The pictures of *part*, and the shape of one."""
    arrays = {}
    for magic, name in _NAMES.items():
        path = _find(folder, part, magic)
        if path is None:
            raise DataError(f"--data: {folder} has no {part}-{name} and no {part}-{name}.gz")
        arrays[magic] = read_idx(path, magic)
    images, labels = arrays[_IMAGES], arrays[_LABELS]
    where = f"--data: the {part} files in {folder}"
    if len(images) != len(labels):
        raise DataError(f"{where} have {len(images)} pictures and {len(labels)} labels; each needs one")
    if not images.size:
        raise DataError(f"{where} hold no pictures")
    if labels.max() >= CLASSES:
        raise DataError(f"{where} have a label {labels.max()}; labels are 0 to {CLASSES - 1}")
    flat = images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
    return Pictures(flat, labels.astype(np.int32)), (images.shape[1], images.shape[2])
