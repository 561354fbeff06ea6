"""Pictures of digits, and two classifiers that need one matrix product each.

Pictures come from MNIST's IDX files if a folder has them; otherwise they are drawn.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyclmm.errors import ArgumentError

Array = np.ndarray[Any, np.dtype[Any]]
Product = Callable[[Array, Array], Array]

IMAGES = "t10k-images-idx3-ubyte.gz"
LABELS = "t10k-labels-idx1-ubyte.gz"
_UNSIGNED_BYTE = 8  # the IDX code of the only element type that MNIST uses
_SIDE = 28
# Strokes of a seven-segment display, (rows, columns) in a 28 x 28 picture, and each digit's strokes.
_STROKES = {
    "a": (slice(4, 7), slice(8, 20)),
    "b": (slice(4, 15), slice(17, 20)),
    "c": (slice(13, 24), slice(17, 20)),
    "d": (slice(21, 24), slice(8, 20)),
    "e": (slice(13, 24), slice(8, 11)),
    "f": (slice(4, 15), slice(8, 11)),
    "g": (slice(13, 16), slice(8, 20)),
}
_SEGMENTS = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")


@dataclass(frozen=True)
class Digits:
    """Pictures, one in each row, float32 from 0 to 1, with the digit that each shows."""

    pictures: Array
    labels: Array

    def split(self, known: int, asked: int) -> tuple[Digits, Digits]:
        """The first *known* pictures, to learn from, and the *asked* after them."""
        ends = known, known + asked
        return (
            Digits(self.pictures[: ends[0]], self.labels[: ends[0]]),
            Digits(self.pictures[ends[0] : ends[1]], self.labels[ends[0] : ends[1]]),
        )


def read_idx(path: Path) -> Array:
    """The array in a gzipped IDX file of unsigned bytes. Raises ArgumentError for any other file."""
    try:
        with gzip.open(path) as file:
            data = file.read()
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ArgumentError(f"cannot read {path}: {reason}") from error
    if len(data) < 4 or data[0] or data[1] or data[2] != _UNSIGNED_BYTE:
        raise ArgumentError(f"{path} is not an IDX file of unsigned bytes")
    start = 4 + 4 * data[3]
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4))
    if len(data) != start + int(np.prod(shape, dtype=np.int64)):
        raise ArgumentError(f"{path} says it holds {shape}, but has {len(data)} bytes in all")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def load(folder: Path) -> Digits:
    """The pictures and labels of MNIST's test files in *folder*; ArgumentError if they do not match."""
    pictures, labels = read_idx(folder / IMAGES), read_idx(folder / LABELS)
    if pictures.ndim != 3 or labels.shape != pictures.shape[:1] or not labels.size:
        raise ArgumentError(
            f"{folder}: pictures of shape {pictures.shape} do not go with {labels.shape} labels"
        )
    return Digits(pictures.reshape(len(labels), -1).astype(np.float32) / 255, labels.astype(np.int64))


def draw(count: int, seed: int = 0) -> Digits:
    """*count* seven-segment digits with noise, of varying brightness, shifted by up to 2 pixels."""
    rng = np.random.default_rng(seed)
    glyphs = np.zeros((10, _SIDE, _SIDE), np.float32)
    for digit, strokes in enumerate(_SEGMENTS):
        for stroke in strokes:
            glyphs[(digit, *_STROKES[stroke])] = 1
    labels = rng.integers(0, 10, count)
    shifts = rng.integers(-2, 3, (count, 2))
    pictures = np.stack([np.roll(glyphs[d], s, (0, 1)) for d, s in zip(labels, shifts, strict=True)])
    noisy = pictures * rng.uniform(0.3, 1, (count, 1, 1)) + rng.normal(0, 0.2, pictures.shape)
    return Digits(np.clip(noisy, 0, 1).reshape(count, -1).astype(np.float32), labels)


def centroids(digits: Digits) -> Array:
    """The mean picture of each digit, 10 x pixels."""
    return np.stack([digits.pictures[digits.labels == d].mean(axis=0) for d in range(10)])


def nearest(known: Array, asked: Array, product: Product) -> Array:
    """For each row of *asked*, the index of the nearest row of *known*.

    |x - y|^2 = |x|^2 - 2 x.y + |y|^2, and |x|^2 does not change the order. So one product, asked @ known.T,
    and the lengths of *known* are enough.
    """
    lengths = np.sum(known.astype(np.float64) ** 2, axis=1)
    return np.asarray(np.argmin(lengths - 2 * product(asked, known.T), axis=1))


def accuracy(found: Array, labels: Array) -> float:
    """The fraction of *found* digits that are right, from 0 to 1."""
    return float(np.mean(found == labels))
