"""The demo's matrices: each product has a property that can be checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import digits
from .digits import Digits

Array = np.ndarray[Any, np.dtype[Any]]
Product = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Workload:
    """A product ``a @ b`` (float32) and its use.

    ``finding`` takes the result of ``a @ b`` and returns what it shows, as a sentence.
    """

    title: str
    a: Array
    b: Array
    finding: Callable[[Array], str]


def dct_basis(n: int) -> Array:
    """The orthonormal DCT-II, n x n, float64. Row f is the cosine of frequency f."""
    f, x = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    basis = np.cos(np.pi * (2 * x + 1) * f / (2 * n)) * np.sqrt(2 / n)
    basis[0] /= np.sqrt(2)
    return np.asarray(basis)


def picture(rows: int, columns: int) -> Array:
    """A synthetic image, float64 from 0 to 1: a sky that darkens upwards, a sun, and hills."""
    y, x = np.mgrid[0 : 1 : rows * 1j, 0 : 1 : columns * 1j]
    image = 0.4 + 0.4 * y
    image[(x - 0.7) ** 2 + (y - 0.3) ** 2 < 0.02] = 1
    image[y > 0.75 + 0.1 * np.sin(9 * x) * np.cos(4 * x)] = 0.15
    return np.asarray(image)


def rotation(degrees: tuple[float, float, float]) -> Array:
    """The rotation about x, then y, then z: 3 x 3, float64."""
    result = np.eye(3)
    for axis, angle in enumerate(np.radians(degrees)):
        i, j = (axis + 1) % 3, (axis + 2) % 3
        turn = np.eye(3)
        turn[i, i] = turn[j, j] = np.cos(angle)
        turn[j, i], turn[i, j] = np.sin(angle), -np.sin(angle)
        result = turn @ result
    return result


def markov_chain(states: int, seed: int = 0) -> Array:
    """Transition probabilities, float64, of a random walk that prefers a few states; rows sum to 1."""
    rng = np.random.default_rng(seed)
    weights = rng.random((states, states)) * rng.random(states) ** 4
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _float32(x: Array) -> Array:
    return np.ascontiguousarray(x, dtype=np.float32)


def jpeg_block() -> Workload:
    """The DCT of one 8 x 8 block, as in JPEG: small enough for a single work-group."""
    block = picture(64, 64)[40:48, 40:48]

    def finding(got: Array) -> str:
        share = (got[0] ** 2).sum() / (got.astype(np.float64) ** 2).sum()
        return f"{share:.1%} of the energy is in the lowest frequency"

    return Workload("DCT of an 8 x 8 block", _float32(dct_basis(8)), _float32(block), finding)


def dct(rows: int = 480, columns: int = 640) -> Workload:
    """The DCT of every column of an image."""
    basis, image = dct_basis(rows), picture(rows, columns)

    def finding(got: Array) -> str:
        kept = got.astype(np.float64)
        kept[rows // 8 :] = 0
        error = np.sqrt(np.mean((basis.T @ kept - image) ** 2))
        return f"an eighth of the frequencies restores the image with an RMS error of {error:.3f}"

    return Workload("DCT of an image", _float32(basis), _float32(image), finding)


def turned_points(count: int = 200_000) -> Workload:
    """Points on a sphere, rotated: a product with many rows and 3 columns."""
    points = np.random.default_rng(1).standard_normal((count, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)

    def finding(got: Array) -> str:
        return f"lengths changed by at most {np.abs(np.linalg.norm(got, axis=1) - 1).max():.1e}"

    return Workload("points rotated in space", _float32(points), _float32(rotation((20, 30, 40)).T), finding)


def two_steps(states: int = 400) -> Workload:
    """Two steps of a Markov chain: its matrix squared."""
    chain = _float32(markov_chain(states))

    def finding(got: Array) -> str:
        return f"rows still sum to 1 within {np.abs(got.astype(np.float64).sum(axis=1) - 1).max():.1e}"

    return Workload("two steps of a Markov chain", chain, chain, finding)


def nearest_digits(pictures: Digits, source: str, known: int, asked: int) -> Workload:
    """Digits recognized by their nearest neighbour: all distances from one product."""
    learnt, unknown = pictures.split(known, asked)

    def finding(got: Array) -> str:
        nearest = digits.nearest(learnt.pictures, unknown.pictures, lambda _a, _b: got)
        right = digits.accuracy(learnt.labels[nearest], unknown.labels)
        return f"{right:.1%} of {len(unknown.labels)} {source} digits are recognized"

    return Workload("nearest neighbours of digits", unknown.pictures, learnt.pictures.T, finding)
